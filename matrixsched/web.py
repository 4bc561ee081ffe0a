"""Dashboard and HTTP API for programs that mount them into an ASGI application of theirs; needs `matrixsched[web]`.

>>> from matrixsched.web import dashboard
>>> api.mount("/matrixsched", dashboard(app, operator_token=os.environ["OPERATOR_TOKEN"]))
"""

from __future__ import annotations

from matrixsched.ops.web.site import dashboard

__all__ = ["dashboard"]
