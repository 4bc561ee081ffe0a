"""All SQL: the protocol as transitions, and the two databases that carry them out."""
