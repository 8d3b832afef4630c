"""The sections of a policy file, in the file's own order. Unknown keys and contradictions are mistakes.

What the schema knows but the broker does not do yet (`budget`, `stop`, ...) is read for its own mistakes and then
refused at its line: a rule that is silently ignored is worse than none.
"""

import re
from typing import Final

from broker.core.errors import PolicyError
from broker.core.offer import Market
from broker.core.spec import Priority
from broker.core.yaml_text import Mapped, Node, Scalar
from broker.policy import fields
from broker.policy.facts import Line
from broker.policy.fields import Section
from broker.policy.schema import (
    Candidates,
    Limits,
    Match,
    Migrate,
    Mode,
    Objective,
    OnInconclusive,
    Place,
    Policy,
    Verify,
)

CLOUDS: Final = ("aws", "gcp", "azure", "lambda", "coreweave", "local")
PROFILES: Final = ("quick", "standard")
DEFAULT_NAME: Final = "default"
_HIGHEST: Final = 1_000_000

_KEYS: Final = (
    "policy",
    "description",
    "mode",
    "match",
    "precedence",
    "candidates",
    "objective",
    "place",
    "migrate",
    "verify",
    "limits",
)
_LATER: Final = {
    "budget": "take it out; max_usd_per_hour in the settings and in limits bounds spending today",
    "stop": "take it out; a job stops itself, or with `broker cancel`",
    "extends": "take it out and write the policy in full",
    "selectable_by": "take it out; every job may name every policy today",
}


def read_policy(document: Mapped, file: str, sha256: str) -> tuple[Policy, list[PolicyError]]:
    """A document as a policy, with every mistake in it. With a mistake the policy must not be used.

    Args:
        document: The parsed file.
        file: For messages.
        sha256: Of the file's bytes.
    """
    errors: list[PolicyError] = []
    top = Section(document, errors)
    top.only(_KEYS, _LATER)
    if "policy" not in document:
        top.note(PolicyError("policy is missing", document.at, "give it a name: policy: ride-the-spot"))
    name = top.read("policy", fields.name, "")
    policy = Policy(
        name=name,
        sha256=sha256,
        file=file,
        description=top.read("description", Node.as_str, ""),
        mode=top.read("mode", fields.choice(Mode), Mode.OBSERVE),
        match=_match(top, name),
        precedence=top.read("precedence", _precedence, 0),
        candidates=_candidates(top),
        objective=top.read("objective", fields.choice(Objective), Objective.CHEAPEST),
        place=_place(top),
        migrate=_migrate(top),
        verify=_verify(top),
        limits=_limits(top),
    )
    _budget(top)
    _stop(top)
    return policy, errors


def _precedence(node: Node) -> int:
    return node.as_int(-_HIGHEST, _HIGHEST)


def _match(top: Section, name: str) -> Match:
    part = top.section("match")
    if part is None:
        return Match()
    if name == DEFAULT_NAME:
        hint = "take match out, or give the policy another name"
        top.note(PolicyError("default speaks for every job that no other policy matches", part.node.at, hint))
    part.only(("team", "labels", "priority", "project"))
    return Match(
        teams=part.read("team", fields.one_or_several(Node.as_str), ()),
        labels=part.read("labels", fields.labels, {}),
        priorities=part.read("priority", fields.one_or_several(fields.choice(Priority)), ()),
        projects=part.read("project", fields.one_or_several(Node.as_str), ()),
    )


def _candidates(top: Section) -> Candidates:
    part = top.section("candidates")
    if part is None:
        return Candidates()
    part.only(("clouds", "regions", "max_quote_age", "where"))
    allow, deny = _regions(part)
    default = Candidates()
    return Candidates(
        clouds=part.read("clouds", fields.several(fields.choice(CLOUDS)), ()),
        regions_allow=allow,
        regions_deny=deny,
        max_quote_age_s=part.read("max_quote_age", fields.positive_duration, default.max_quote_age_s),
        where=part.read("where", fields.conditions(Line.WHERE), ()),
    )


def _regions(candidates: Section) -> tuple[tuple[str, ...], tuple[str, ...]]:
    part = candidates.section("regions")
    if part is None:
        return (), ()
    part.only(("allow", "deny"))
    allow = part.read("allow", fields.several(fields.pattern), ())
    deny = part.read("deny", fields.several(fields.pattern), ())
    for text in deny:
        if text in allow:
            part.note(PolicyError(f"{text} is both allowed and denied", part.node.place("deny")))
        elif not text.strip("*"):
            part.note(PolicyError("every region is denied: no job could ever run", part.node.place("deny")))
    return allow, deny


def _place(top: Section) -> Place:
    part = top.section("place")
    if part is None:
        return Place()
    part.only(("order", "skip_spot_when"))
    order = part.read("order", fields.several(fields.choice(Market)), Place().order)
    skip = part.read("skip_spot_when", fields.conditions(Line.SKIP_SPOT_WHEN), ())
    if skip and Market.SPOT not in order:
        at = part.node.place("skip_spot_when")
        part.note(
            PolicyError("skip_spot_when is never asked: spot is not in order", at, "take one of them out")
        )
    return Place(order=order, skip_spot_when=skip)


def _migrate(top: Section) -> Migrate:
    node = top.node.get("migrate")
    if isinstance(node, Scalar) and node.value == "never":
        return Migrate(enabled=False)
    if node is not None and not isinstance(node, Mapped):
        top.note(PolicyError(f"migrate: expected a mapping or never, got {node.kind}", node.at))
        return Migrate()
    part = top.section("migrate")
    if part is None:
        return Migrate()
    part.only(("min_saving", "min_saving_usd", "max_payback", "hold", "cooldown", "where"))
    default = Migrate()
    return Migrate(
        min_saving=part.read("min_saving", fields.share, default.min_saving),
        min_saving_micro_usd=part.read("min_saving_usd", fields.money, default.min_saving_micro_usd),
        max_payback_s=part.read("max_payback", fields.positive_duration, default.max_payback_s),
        hold_s=part.read("hold", fields.duration, default.hold_s),
        cooldown_s=part.read("cooldown", fields.duration, default.cooldown_s),
        where=part.read("where", fields.conditions(Line.MIGRATE_WHERE), ()),
    )


def _verify(top: Section) -> Verify:
    part = top.section("verify")
    if part is None:
        return Verify()
    part.only(("profile", "min_speed", "on_inconclusive"))
    default = Verify()
    verdicts = fields.choice(OnInconclusive)
    return Verify(
        profile=part.read("profile", fields.choice(PROFILES), default.profile),
        min_speed=part.read("min_speed", fields.share, default.min_speed),
        on_inconclusive=part.read("on_inconclusive", verdicts, default.on_inconclusive),
    )


def _limits(top: Section) -> Limits:
    part = top.section("limits")
    if part is None:
        return Limits()
    part.only(("migrations_per_job_per_day", "concurrent_migrations", "max_usd_per_hour"))
    default = Limits()
    return Limits(
        migrations_per_job_per_day=part.read(
            "migrations_per_job_per_day", _count, default.migrations_per_job_per_day
        ),
        concurrent_migrations=part.read("concurrent_migrations", _count, default.concurrent_migrations),
        max_micro_usd_per_hour=part.read(
            "max_usd_per_hour", fields.positive_money, default.max_micro_usd_per_hour
        ),
    )


def _count(node: Node) -> int | None:
    count = node.as_int(0)
    if count == 0:
        raise node.fail(f"{node.name}: 0 would forbid every move", "write migrate: never")
    return count


# --- Read for their own mistakes, then refused -------------------------------------------------------------


def _budget(top: Section) -> None:
    part = top.section("budget")
    if part is None:
        return
    part.only(("run_usd", "epoch_usd", "hour_usd", "month_usd", "at_80_percent"))
    for key in ("run_usd", "epoch_usd", "hour_usd", "month_usd"):
        part.read(key, fields.money, 0)
    part.read("at_80_percent", Node.as_str, "")


_READINGS: Final = re.compile(r"[1-9]\d{0,3} readings?")


def _hold(node: Node) -> None:
    if not _READINGS.fullmatch(node.as_str()):
        fields.duration(node)


def _stop(top: Section) -> None:
    part = top.section("stop")
    if part is None:
        return
    part.only(("when", "nan_loss", "hold"))
    part.read("when", fields.several(Node.as_str), ())
    part.read("nan_loss", Node.as_bool, False)
    part.read("hold", _hold, None)
