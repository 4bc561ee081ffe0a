"""What tests, the benchmark and the demo share: put `tests/` on the path and import `support`."""
