"""Chaos with real processes: workers and clients under kills, stops, restarts and a bad network, judged by their logs.

app.py        what the workers run; client.py: who schedules, replaces, cancels; both note what they do (notes.py)
fleet.py      the processes, from nursery.py; proxy.py: is before PostgreSQL; nemeses.py: what goes wrong, from one seed
audit.py      triggers that note every change of the tables that matter, and who made it; watching.py: snapshots
facts.py      all of that read into memory; checkers.py and semaphore_, recovery_, fleet_checkers.py: what must hold of
              it, a function each; made_up.py: logs that never were, for the tests of those
campaign.py   one run; kill_points.py: a worker is killed at one step, before or after its commit
"""
