"""The parts of tools/scenario.py: campaigns that are sent by real processes, some of them killed, and then judged.

    campaigns   what is asked for: templates, and messages to recipients all over the world
    records     what the database says once all is over: windows, grants, messages
    formula     what the quota has to give, written a second time
    waiting     what was waiting when a window was planned, told from the handlers' notes
    judging     whether every promise was kept
    showing     tables, JSON and, with minutes and drawing, a picture

What ran, and when, is known from notes that the handlers took in a file. The judge asks nothing of the product that it
can know without it.
"""
