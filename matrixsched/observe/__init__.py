"""What a program shows of itself: metrics, logs, health, traces. All subscribe to events; nothing here steers.

`Metrics` counts for Prometheus, `log_to` and `Logs` write lines; `matrixsched.observe.tracing`, which needs the extra
`matrixsched[otel]`, makes OpenTelemetry spans.
"""

from __future__ import annotations

from matrixsched.observe.logs import Logs, log_to
from matrixsched.observe.metrics import Metrics

__all__ = ["Logs", "Metrics", "log_to"]
