"""The workloads behind tools/bench.py.

A workload is a function from a fresh installation to figures. It prepares what it needs, measures only what its name
says, and checks afterwards that nothing was lost and nothing ran twice.
"""
