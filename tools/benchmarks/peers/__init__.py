"""Other libraries, doing the same on the same server in the same run; each lives in an environment of its own."""
