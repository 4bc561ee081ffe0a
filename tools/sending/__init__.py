"""The parts of tools/scenario.py: campaigns that are sent by real processes, some of them killed, and then judged.

What ran, and when, is known from notes that the handlers took in a file; what was allowed from the quota's windows and
grants in the database. The two are compared when all is over.
"""
