"""`python -m matrixsched` is the `matrixsched` command."""

from __future__ import annotations

from matrixsched.ops.cli import main

if __name__ == "__main__":
    main()
