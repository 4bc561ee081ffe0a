"""Every small mistake in a hot statement, hunted by the programs that could notice it, the cheapest first.

hot.py          which statements are hot, their mutants, and how one is planted
forks.py        each mutant lives in a process of its own, which says how far it is
behaviour.py    the tests of the store that ask the statement, found out by letting them run once
deeper.py       what comes after the tests: the simulator and crash points, or pairs of the interleaver
explained.py    the mutants that nothing notices and why that does no harm: survivors.toml

`./tools/dev mutants` hunts them all.
"""
