"""Pure decisions: values in, values out.

Nothing here awaits, logs, asks the time or draws a random number; whatever varies is an argument.
"""
