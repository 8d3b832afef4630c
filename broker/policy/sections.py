"""The keys of a policy file, in the file's own order, and what they become. Contradictions are mistakes."""

from typing import Final

from broker.core.errors import PolicyError
from broker.core.offer import Market
from broker.core.spec import Priority
from broker.core.yaml_text import Mapped, Scalar
from broker.policy import fields
from broker.policy.facts import Line
from broker.policy.schema import (
    Budget,
    Candidates,
    Limits,
    Match,
    Migrate,
    Mode,
    Objective,
    OnInconclusive,
    Place,
    Policy,
    Stop,
    Verify,
)
from broker.policy.section import Key, Section, Table

CLOUDS: Final = ("aws", "gcp", "azure", "lambda", "coreweave", "local")
PROFILES: Final = ("quick", "standard")
ROLES: Final = ("viewer", "engineer", "author", "operator")
DEFAULT_NAME: Final = "default"
_HIGHEST: Final = 1_000_000

_MATCH: Final[Table] = {
    "team": Key(fields.one_or_several(fields.text), "any", "One team or a list."),
    "labels": Key(fields.labels, "any", "All of these labels."),
    "priority": Key(
        fields.one_or_several(fields.choice(Priority)),
        "any",
        "`urgent`, `high`, `normal`, `low`, `scavenger`; one or a list.",
    ),
    "project": Key(fields.one_or_several(fields.text), "any", "One project or a list."),
}
_REGIONS: Final[Table] = {
    "allow": Key(fields.several(fields.region), "all", "Patterns on the region's name, with `*`."),
    "deny": Key(fields.several(fields.region), "none", "The same; goes before `allow`."),
}
_CANDIDATES: Final[Table] = {
    "clouds": Key(fields.several(fields.choice(CLOUDS)), "all configured", "Which clouds."),
    "regions": Key(None, "", "Which regions.", _REGIONS),
    "max_quote_age": Key(fields.positive_duration, "`10m`", "An older price justifies no move."),
    "where": Key(fields.conditions(Line.WHERE), "", "Conditions; every one must hold of an offer."),
}
_PLACE: Final[Table] = {
    "order": Key(
        fields.several(fields.choice(Market)),
        "`[owned, spot, on_demand]`",
        "The first market that can be had and that the objective can live with.",
    ),
    "skip_spot_when": Key(
        fields.conditions(Line.SKIP_SPOT_WHEN), "", "Conditions; any one that holds takes spot out."
    ),
}
_MIGRATE: Final[Table] = {
    "min_saving": Key(fields.share, "`20%`", "Of the cost to finish here, the move counted in."),
    "min_saving_usd": Key(fields.money, "`25`", "And at least this much money."),
    "max_payback": Key(fields.positive_duration, "`3h`", "The move has earned its cost back within this."),
    "hold": Key(fields.duration, "`10m`", "Must stay true this long, on fresh prices."),
    "cooldown": Key(fields.duration, "`2h`", "Since the job's last move."),
    "where": Key(fields.conditions(Line.MIGRATE_WHERE), "", "Conditions; every one must hold."),
}
_VERIFY: Final[Table] = {
    "profile": Key(
        fields.choice(PROFILES),
        "`standard`",
        "Which GPU check a node must pass before the job starts: `quick` or `standard`.",
    ),
    "min_speed": Key(fields.share, "`90%`", "Of the speed that this GPU is known for."),
    "on_inconclusive": Key(
        fields.choice(OnInconclusive),
        "`reject`",
        "What to do with a node that could not be judged: `accept` or `reject`.",
    ),
}
_BUDGET: Final[Table] = {
    "run_usd": Key(fields.positive_money, "none", "What one job may cost, over all its places."),
    "epoch_usd": Key(
        fields.positive_money,
        "none",
        "What one epoch of a job may cost; until it reports one, all that it has cost counts as one.",
    ),
    "month_usd": Key(
        fields.positive_money, "none", "What the jobs of this policy may cost in a calendar month, UTC."
    ),
    "at_80_percent": Key(
        fields.choice(("spot_only",)),
        "none",
        "`spot_only`: from 80 % of `month_usd` on nothing but spot and owned nodes is rented.",
    ),
}
_STOP: Final[Table] = {
    "when": Key(
        fields.conditions(Line.STOP_WHEN), "", "Conditions on its metrics; any one that holds ends the job."
    ),
    "nan_loss": Key(fields.truth, "`false`", "Whether a loss that is no finite number ends it."),
    "hold": Key(fields.readings, "`3 readings`", "Must be true of so many readings in a row; 10 at most."),
}
_LIMITS: Final[Table] = {
    "migrations_per_job_per_day": Key(fields.moves, "`4`", "Moves by choice; recoveries are not counted."),
    "concurrent_migrations": Key(fields.moves, "`10`", "Under this policy at one time."),
    "max_usd_per_hour": Key(
        fields.positive_money, "none", "What the jobs of this policy may cost an hour together."
    ),
}
KEYS: Final[Table] = {
    "policy": Key(fields.name, "", "Name, unique in the folder: lower-case letters, digits, dashes."),
    "description": Key(fields.text, "", "One sentence for people."),
    "extends": Key(
        fields.file_name, "", "A file of the same folder whose keys hold where this one has none."
    ),
    "mode": Key(
        fields.choice(Mode),
        "`observe`",
        "`observe`: place and recover, but only record moves, pauses and stops. `act`: do them.",
    ),
    "match": Key(None, "every job", "For which jobs the policy speaks.", _MATCH),
    "precedence": Key(
        fields.integer(-_HIGHEST, _HIGHEST),
        "`0`",
        "The highest that matches decides; a tie of acting policies is a mistake.",
    ),
    "selectable_by": Key(
        fields.several(fields.choice(ROLES), least=0),
        "everybody",
        "Roles whose jobs may name this policy: `viewer`, `engineer`, `author`, `operator`; `[]` is nobody.",
    ),
    "candidates": Key(None, "", "Which offers may be considered at all.", _CANDIDATES),
    "objective": Key(
        fields.choice(Objective),
        "`cheapest`",
        "`cheapest`: lowest cost to finish. `cheapest_by_deadline`: spot while the deadline allows it; without spot a job "
        "waits while it is ahead of an even pace to its deadline, and takes on-demand behind it, or when it could be late. "
        "Without a deadline, as `cheapest`.",
    ),
    "place": Key(None, "", "Order of markets.", _PLACE),
    "migrate": Key(
        fields.never, "", "`never`, or the keys below. All of them must let a move through.", _MIGRATE
    ),
    "verify": Key(None, "", "How a landing node is judged.", _VERIFY),
    "budget": Key(None, "", "What may be spent.", _BUDGET),
    "stop": Key(None, "", "When a job is ended.", _STOP),
    "limits": Key(None, "", "Bounds on what the policy does.", _LIMITS),
}


def read_policy(
    document: Mapped, file: str, sha256: str, *, is_defaults: bool = False
) -> tuple[Policy, list[PolicyError]]:
    """A document as a policy, with every mistake in it. With a mistake the policy must not be used.

    Args:
        document: The parsed file, with what it inherits.
        file: For messages.
        sha256: Of the file's bytes, and of those that it extends.
        is_defaults: It is there to be extended, and has no name.
    """
    errors: list[PolicyError] = []
    top = Section(document, KEYS, errors)
    if is_defaults:
        if "policy" in document:
            hint = "take policy out, or give the file a name without .defaults"
            top.note(PolicyError("defaults have no name", document.place("policy"), hint))
    elif "policy" not in document:
        top.note(PolicyError("policy is missing", document.at, "give it a name: policy: ride-the-spot"))
    name = top.get("policy", "")
    policy = Policy(
        name=name,
        sha256=sha256,
        file=file,
        description=top.get("description", ""),
        mode=top.get("mode", Mode.OBSERVE),
        match=_match(top, name),
        precedence=top.get("precedence", 0),
        selectable_by=top.get("selectable_by", None),
        candidates=_candidates(top),
        objective=top.get("objective", Objective.CHEAPEST),
        place=_place(top),
        migrate=_migrate(top),
        verify=_verify(top),
        budget=_budget(top),
        stop=_stop(top),
        limits=_limits(top),
    )
    top.get("extends", "")
    return policy, errors


def _match(top: Section, name: str) -> Match:
    part = top.section("match")
    if part is None:
        return Match()
    if name == DEFAULT_NAME:
        hint = "take match out, or give the policy another name"
        top.note(PolicyError("default speaks for every job that no other policy matches", part.node.at, hint))
    return Match(
        teams=part.get("team", ()),
        labels=part.get("labels", {}),
        priorities=part.get("priority", ()),
        projects=part.get("project", ()),
    )


def _candidates(top: Section) -> Candidates:
    part = top.section("candidates")
    if part is None:
        return Candidates()
    allow, deny = _regions(part)
    default = Candidates()
    return Candidates(
        clouds=part.get("clouds", ()),
        regions_allow=allow,
        regions_deny=deny,
        max_quote_age_s=part.get("max_quote_age", default.max_quote_age_s),
        where=part.get("where", ()),
    )


def _regions(candidates: Section) -> tuple[tuple[str, ...], tuple[str, ...]]:
    part = candidates.section("regions")
    if part is None:
        return (), ()
    allow: tuple[str, ...] = part.get("allow", ())
    deny: tuple[str, ...] = part.get("deny", ())
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
    order = part.get("order", Place().order)
    skip = part.get("skip_spot_when", ())
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
    part = top.section("migrate")
    if part is None:
        return Migrate()
    default = Migrate()
    return Migrate(
        min_saving=part.get("min_saving", default.min_saving),
        min_saving_micro_usd=part.get("min_saving_usd", default.min_saving_micro_usd),
        max_payback_s=part.get("max_payback", default.max_payback_s),
        hold_s=part.get("hold", default.hold_s),
        cooldown_s=part.get("cooldown", default.cooldown_s),
        where=part.get("where", ()),
    )


def _verify(top: Section) -> Verify:
    part = top.section("verify")
    if part is None:
        return Verify()
    default = Verify()
    return Verify(
        profile=part.get("profile", default.profile),
        min_speed=part.get("min_speed", default.min_speed),
        on_inconclusive=part.get("on_inconclusive", default.on_inconclusive),
    )


def _budget(top: Section) -> Budget | None:
    part = top.section("budget")
    if part is None:
        return None
    month = part.get("month_usd", None)
    spot_only = part.get("at_80_percent", None) is not None
    if spot_only and "month_usd" not in part.node:
        hint = "give month_usd, or take at_80_percent out"
        part.note(PolicyError("at_80_percent is of the month", part.node.place("at_80_percent"), hint))
    return Budget(
        run_micro_usd=part.get("run_usd", None),
        epoch_micro_usd=part.get("epoch_usd", None),
        month_micro_usd=month,
        spot_only_at_80_percent=spot_only,
    )


def _stop(top: Section) -> Stop | None:
    part = top.section("stop")
    if part is None:
        return None
    default = Stop()
    stop = Stop(
        when=part.get("when", ()),
        nan_loss=part.get("nan_loss", default.nan_loss),
        hold_readings=part.get("hold", default.hold_readings),
    )
    if "when" not in part.node and not stop.nan_loss:
        part.note(PolicyError("stop ends no job", part.node.at, "give when, or nan_loss: true"))
    return stop


def _limits(top: Section) -> Limits:
    part = top.section("limits")
    if part is None:
        return Limits()
    default = Limits()
    return Limits(
        migrations_per_job_per_day=part.get("migrations_per_job_per_day", default.migrations_per_job_per_day),
        concurrent_migrations=part.get("concurrent_migrations", default.concurrent_migrations),
        max_micro_usd_per_hour=part.get("max_usd_per_hour", default.max_micro_usd_per_hour),
    )
