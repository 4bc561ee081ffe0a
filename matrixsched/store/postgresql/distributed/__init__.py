"""Installations in distributed form: every table that workers touch bears the shard, and each statement that writes is
about one shard, as an engine asks for that keeps the shards on several nodes (Citus). It is all the same on PostgreSQL
alone.

making        what `init --distributed` does to the tables
transitions   the protocol in this form; what is the same as ever it inherits
"""
