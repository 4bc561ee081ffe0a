"""Fuzz: whatever is said to the library or on the command line, both databases give the same verdict.

    values.py         single values, good and odd: names, times, durations, numbers, payloads, things of a wrong type
    inputs.py         what an input is: a surface with its arguments, printed so that it can be pasted into a test
    surfaces.py       every public call of App and app.sync with what it may be given
    sides.py          an App on SQLite and one on PostgreSQL, with the same time and the same chance
    judge.py          one input on both sides: what must hold of the two verdicts
    commands.py       the same for the command line
    surroundings.py   settings around a command: flags, files, the environment
    machine.py        clients and workers, side by side, all observable state compared after each step

`./tools/dev fuzz` is the long form.
"""
