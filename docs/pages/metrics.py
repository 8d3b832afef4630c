"""Names of Prometheus metrics, from the list that the endpoint itself is made of."""

from broker.serve.health import READY_WITHIN_S
from broker.serve.metrics import METRICS

PAGE = "metrics.md"

_INTRO = """\
# Metrics and health

`GET /metrics` answers in Prometheus' text format, without a token. Everything is read from the rows at the scrape, so a
restart loses no count. No label ever names a job or a person.

| metric | labels | meaning |
|---|---|---|"""

_HEALTH = """
`GET /healthz` answers 200 as long as the loop turns. `GET /readyz` answers 200 when a reconcile pass has finished within
the last {ready_s:.0f} seconds, else 503. Under systemd the watchdog is fed by finished passes and by nothing else.

Rules for Prometheus, with what to do about each: `deploy/prometheus/alerts.yaml` and
[operate](../how-to/operate.md)."""


def render() -> str:
    """The page."""
    rows = [
        f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {text} |"
        for name, text, labels in METRICS
    ]
    return "\n".join([_INTRO, *rows, _HEALTH.format(ready_s=READY_WITHIN_S)])
