"""The interleaver: transitions of real PostgreSQL sessions, one statement at a time, in every order that matters.

facts.py, scenes.py             small states of the tables, what is known of them, and what is worth playing in each
building.py, building_*.py      how they are built
move.py, moves.py               what a move is, and all of them
acting.py, gating.py            as they are sent; also queueing.py and mending.py
stage.py                        sessions on a database, scenes that are put back before each run, and what stands then
players.py                      a session with its transition: look, ask, wait, commit
schedules.py                    which orders there are, and which of them need no run of their own
invariants.py                   what must be true after each, a sentence and a function each
allowed.py                      outcomes that are those of no serial order, one by one, with the reason
playing.py                      all of it for some moves in a scene; `find_violation`
pairs.py                        which moves are played with which
planted.py                      mistakes that must be found

After each schedule its answers and tables must be those of a serial order that it allows: one after which whoever had
ended before another began comes first.
"""
