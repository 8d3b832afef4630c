"""Why: a decision as rows for people and for JSON, and a condition's truth with the values behind it.

Plain data and plain text; colour is the command line's business.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from broker.core.model import Alternative, Decision, DecisionKind, Reason
from broker.core.money import format_usd
from broker.core.time import format_duration, to_iso
from broker.policy.facts import FactType, fact_info
from broker.policy.schema import Condition, Fact

SHOWN: Final = 5

_STRING: Final = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_DOTTED: Final = re.compile(r"[a-z_]\w*(?:\.\w+)+")


def judge(condition: Condition, facts: Mapping[str, Fact]) -> Reason:
    """A condition's own truth, with the value of every fact that it speaks of."""
    values = "; ".join(f"{name} is {show_fact(name, facts.get(name))}" for name in facts_in(condition.text))
    return Reason(condition.text, condition.evaluate(facts), values, condition.place)


def facts_in(text: str) -> tuple[str, ...]:
    """Names of the facts in a condition, in the order of the text."""
    names: dict[str, None] = {}
    for found in _DOTTED.finditer(_STRING.sub('""', text)):
        name = found[0]
        # offer.region.startsWith: a method hangs on the fact.
        while fact_info(name) is None and "." in name:
            name = name.rpartition(".")[0]
        if fact_info(name) is not None:
            names[name] = None
    return tuple(names)


def show_fact(name: str, value: Fact | None) -> str:
    """A fact's value for people: ``$2.10/h``, ``58.0 %``, ``1h30m``, ``not known``."""
    if value is None:
        return "not known"
    info = fact_info(name)
    if info is None or isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if info.type is FactType.DURATION:
        return format_duration(value)
    if info.unit.startswith("USD"):
        return f"{'-' if value < 0 else ''}${abs(value):.2f}{info.unit.removeprefix('USD')}"
    if info.unit == "0..1":
        return f"{value * 100:.1f} %"
    return f"{value} {info.unit}".rstrip()


# What else than the cost can have decided, by kind of answer.
_CHEAPER_BUT: Final = {
    DecisionKind.PLACE: "behind it in place.order",
    DecisionKind.MOVE: "a line of migrate.where says no",
    DecisionKind.STAY: "a line above says no",
    DecisionKind.PAUSE: "a line above says no",
    DecisionKind.STOP: "a line above says no",
}


@dataclass(frozen=True)
class ReasonRow:
    """One line of the policy and what became of it.

    Attributes:
        truth: ``yes``, ``no`` or ``unknown``.
        line: As the author wrote it.
        detail: The values behind it.
        place: ``file:line``, or empty.
    """

    truth: str
    line: str
    detail: str
    place: str


@dataclass(frozen=True)
class OfferRow:
    """An offer that was weighed.

    Attributes:
        offer: Its key.
        price: Of one node, ``$2.10/h``.
        quote_age: ``2m``.
        cost: To finish there, or empty.
        hours: To finish there, or None.
        verdict: ``chosen``, or why it was not.
    """

    offer: str
    price: str
    quote_age: str
    cost: str
    hours: float | None
    verdict: str


@dataclass(frozen=True)
class Explanation:
    """A decision, told.

    Attributes:
        at: RFC 3339.
        headline: One sentence.
        notes: What else matters: recorded only, old quotes, since when.
        reasons: Line by line.
        offers: The chosen one first, then the five best of the others.
        left_out: How many more were weighed.
    """

    decision: str
    job: str
    policy: str
    at: str
    headline: str
    notes: tuple[str, ...]
    reasons: tuple[ReasonRow, ...]
    offers: tuple[OfferRow, ...]
    left_out: int

    def as_json(self) -> dict[str, Any]:
        """Plain values, field by field."""
        return asdict(self)

    def as_text(self) -> str:
        """For a terminal without colour."""
        lines = [self.headline, *(f"  {note}" for note in self.notes)]
        if self.reasons:
            lines += ["", *_table(_reason_cells(self.reasons))]
        if self.offers:
            head = ("offer", "price", "age", "cost to finish", "hours", "")
            body = [
                (
                    o.offer,
                    o.price,
                    o.quote_age,
                    o.cost,
                    "" if o.hours is None else f"{o.hours:.1f}",
                    o.verdict,
                )
                for o in self.offers
            ]
            lines += ["", *_table([head, *body])]
        if self.left_out:
            lines.append(f"... and {self.left_out} more")
        lines += ["", f"decision {self.decision}, policy {self.policy}, {self.at}"]
        return "\n".join(lines) + "\n"


def explain(decision: Decision) -> Explanation:
    """A decision as rows. The order of reasons is the decision's own."""
    target = decision.target
    others = [a for a in decision.alternatives if target is None or a.offer.key != target.offer.key]
    # What could have been chosen, cheapest to finish first; then what was refused, by price.
    others.sort(
        key=lambda a: (a.cost_micro_usd is None, a.cost_micro_usd or 0, a.price_micro_usd_h, a.offer.key)
    )
    chosen = [_offer_row(target, "chosen")] if target else []
    return Explanation(
        decision=decision.id,
        job=decision.job_id,
        policy=decision.policy,
        at=to_iso(decision.at_ms),
        headline=f"{decision.kind.value}: {decision.summary}",
        notes=_notes(decision),
        reasons=tuple(ReasonRow(_truth(r.holds), r.line, r.detail, r.place) for r in decision.reasons),
        offers=(*chosen, *(_offer_row(a, _why_not(a, decision)) for a in others[:SHOWN])),
        left_out=max(0, len(others) - SHOWN),
    )


def _notes(decision: Decision) -> tuple[str, ...]:
    notes = []
    if not decision.acted and decision.kind is not DecisionKind.STAY:
        notes.append("recorded only: it was not carried out")
    if decision.here_micro_usd is not None:
        notes.append(f"to finish here costs {format_usd(decision.here_micro_usd)}")
    if decision.saving is not None:
        notes.append(f"saving {decision.saving * 100:.1f} %")
    if decision.holds_since_ms is not None:
        notes.append(f"holds since {to_iso(decision.holds_since_ms)}")
    if decision.degraded_quotes:
        notes.append("made on quotes past their age, since a recovery does not wait")
    return tuple(notes)


def _truth(holds: bool | None) -> str:
    return "unknown" if holds is None else "yes" if holds else "no"


def _offer_row(alternative: Alternative, verdict: str) -> OfferRow:
    cost = alternative.cost_micro_usd
    return OfferRow(
        offer=alternative.offer.key,
        price=f"{format_usd(alternative.price_micro_usd_h)}/h",
        quote_age=format_duration(alternative.quote_age_s),
        cost="" if cost is None else format_usd(cost),
        hours=alternative.hours,
        verdict=verdict,
    )


def _why_not(alternative: Alternative, decision: Decision) -> str:
    """Why it lost: refused, dearer than the chosen one or than staying, or behind it in the order of markets."""
    if alternative.refused:
        return alternative.refused
    cost = alternative.cost_micro_usd
    best = decision.target.cost_micro_usd if decision.target else decision.here_micro_usd
    if cost is None or best is None:
        return "not chosen"
    than = "the chosen one" if decision.target else "staying"
    if cost == best:
        return f"costs the same as {than}"
    if cost > best:
        return f"{format_usd(cost - best)} dearer than {than}"
    return f"{format_usd(best - cost)} cheaper than {than}; {_CHEAPER_BUT[decision.kind]}"


def _reason_cells(rows: Sequence[ReasonRow]) -> list[tuple[str, ...]]:
    return [(f"{row.truth:7}", row.line, row.detail, row.place) for row in rows]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
