"""Chaos with real processes: workers and clients under kills, stops, restarts and a bad network, judged by their logs.

app.py        what the workers run; client.py: who schedules, replaces, cancels; both note what they do (notes.py)
fleet.py      the processes; server.py: PostgreSQL behind proxy.py; nemeses.py: what goes wrong, from one seed
audit.py      triggers that note every change of the tables that matter, and who made it; watching.py: snapshots
facts.py      all of that read into memory; checkers.py, fleet_checkers.py: what must hold of it, a function each
campaign.py   one run; failpoints.py: the kill points of each step, one by one
"""
