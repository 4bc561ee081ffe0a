"""Clusters of PostgreSQL servers for `./tools/dev ha`."""
