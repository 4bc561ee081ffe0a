"""The fleet in a browser and over HTTP: `matrixsched serve`, or mounted into another ASGI application.

A request passes, in this order: `guard` (sizes, times, hosts, cross-site requests, headers), `access` (who asks, and
what may they do), then a page (`pages/`) or a call of the JSON API (`api/`). Both change things through `ops.changes`
alone, which writes the audit log; both turn errors into answers in `problems`.
"""
