"""SQLite: a few statements per transition, in one function in one thread."""
