"""The facts that conditions in a policy file may use."""

from itertools import groupby

from broker.policy.facts import FACTS, METRICS, FactInfo, FactType, Line

PAGE = "facts.md"

_HEAD = """
# Facts

What a condition in a policy file may speak of. A condition is one line of
[CEL](https://cel.dev) over these names; see [policy-file.md](policy-file.md) for where conditions stand.

- Money is in dollars and shares are 0..1, both with a fraction: `offer.price < 3.0`, `saving.fraction >= 0.25`.
- Durations are compared with `duration("1h30m")`; CEL knows `h`, `m` and `s`.
- A fact that is not known makes the condition that needs it *unknown*. An unknown line counts as not holding:
  it admits no offer, takes spot out of nothing, lets no move through and stops no job.
- `a || b` is true when `a` is, even where `b` is unknown; `a && b` is false when `a` is.
"""

_GROUPS = {
    "offer": "An offer that is weighed; in `migrate.where`, the one that the job would move to.",
    "job": "The job.",
    "market": "The market as a whole.",
    "here": "Where the job runs now.",
    "saving": "What a move would bring.",
    "migration": "The move itself.",
    "metrics": "What the job tells of itself.",
}

_TYPES = {
    FactType.BOOL: "true or false",
    FactType.INT: "whole number",
    FactType.DOUBLE: "number",
    FactType.STRING: "text",
    FactType.DURATION: "duration",
}


def render() -> str:
    """The page as Markdown."""
    parts = [_HEAD.strip()]
    for group, rows in groupby((*FACTS, *METRICS), key=lambda fact: fact.name.split(".")[0]):
        parts.append(f"## {group}\n\n{_GROUPS[group]}\n\n{_table(list(rows))}")
    return "\n\n".join(parts)


def _table(rows: list[FactInfo]) -> str:
    lines = ["| fact | type | meaning | in |", "|---|---|---|---|"]
    for fact in rows:
        kind = _TYPES[fact.type] + (f", {fact.unit}" if fact.unit else "")
        where = (
            "everywhere"
            if len(fact.lines) == len(Line)
            else ", ".join(f"`{line}`" for line in sorted(fact.lines))
        )
        lines.append(f"| `{fact.name}` | {kind} | {fact.meaning} | {where} |")
    return "\n".join(lines)
