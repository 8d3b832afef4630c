"""The facts that a condition may speak of: one documented table, and pure functions that compute them.

A fact is computed here and never in CEL, so that authors need no arithmetic over lists and every number on the
page `docs/reference/facts.md` (made from this table) has one definition. A fact that is not known is left out
of the mapping: a condition that needs it is then neither true nor false.

Money is in dollars, shares are 0..1, durations are seconds here and CEL durations in a condition.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from broker.core.model import Job, Progress
from broker.core.money import MICRO_PER_USD
from broker.core.offer import MarketSnapshot, Offer, Quote
from broker.policy.schema import Fact

Facts = dict[str, Fact]


class FactType(StrEnum):
    """CEL type of a fact, with how it is written in a condition."""

    BOOL = "bool"
    INT = "int"
    DOUBLE = "double"
    STRING = "string"
    DURATION = "duration"


class Line(StrEnum):
    """The lists of conditions in a policy file."""

    WHERE = "candidates.where"
    SKIP_SPOT_WHEN = "place.skip_spot_when"
    MIGRATE_WHERE = "migrate.where"
    STOP_WHEN = "stop.when"


@dataclass(frozen=True)
class FactInfo:
    """One row of the table.

    Attributes:
        name: As written in a condition.
        type: CEL type.
        unit: For people; empty where the type says it all.
        meaning: One sentence, and when the fact is missing.
        lines: Where it may be used.
    """

    name: str
    type: FactType
    unit: str
    meaning: str
    lines: frozenset[Line]


_EVERYWHERE = frozenset(Line)
_OFFER = frozenset({Line.WHERE, Line.MIGRATE_WHERE})
_MOVE = frozenset({Line.MIGRATE_WHERE})

_B, _I, _F, _S, _D = FactType.BOOL, FactType.INT, FactType.DOUBLE, FactType.STRING, FactType.DURATION
_MARKETS = "`owned`, `spot`, `on_demand` or `reserved`"

FACTS: tuple[FactInfo, ...] = (
    FactInfo("offer.cloud", _S, "", "Cloud that sells it: `aws`, `gcp`, `azure`, `lambda` ...", _OFFER),
    FactInfo("offer.region", _S, "", "The cloud's own name of the region.", _OFFER),
    FactInfo("offer.zone", _S, "", "Zone; on AWS the zone id (`use1-az6`).", _OFFER),
    FactInfo("offer.market", _S, "", f"How it is sold: {_MARKETS}.", _OFFER),
    FactInfo("offer.instance_type", _S, "", "The cloud's own name of the machine.", _OFFER),
    FactInfo("offer.price", _F, "USD/h", "Price of one whole instance.", _OFFER),
    FactInfo("offer.price_per_gpu", _F, "USD/h", "The same, divided by its GPUs.", _OFFER),
    FactInfo("offer.age", _D, "", "Since the price was last seen.", _OFFER),
    FactInfo("offer.gpus", _I, "", "GPUs of one instance.", _OFFER),
    FactInfo("offer.gpu.sku", _S, "", "Exact GPU: `H100-SXM5-80GB`.", _OFFER),
    FactInfo("offer.gpu.family", _S, "", "GPU family: `H100`.", _OFFER),
    FactInfo("offer.gpu.form", _S, "", "Form factor: `SXM`, `PCIe` or `NVL`.", _OFFER),
    FactInfo("offer.gpu.memory_gib", _I, "GiB", "Memory of one GPU, as sold.", _OFFER),
    FactInfo("offer.gpu.runtime", _S, "", "`cuda` or `rocm`.", _OFFER),
    FactInfo("offer.vcpus", _I, "", "CPUs of one instance; missing when the cloud does not say.", _OFFER),
    FactInfo("offer.memory_gib", _I, "GiB", "Host memory; missing when the cloud does not say.", _OFFER),
    FactInfo(
        "offer.interconnect", _S, "", "Between GPUs of an instance: `nvlink`, `pcie` or `none`.", _OFFER
    ),
    FactInfo(
        "offer.fabric",
        _S,
        "",
        "Between instances: `efa`, `infiniband`, `gpudirect` or `ethernet`.",
        _OFFER,
    ),
    FactInfo("job.name", _S, "", "Name in the job file.", _EVERYWHERE),
    FactInfo("job.team", _S, "", "Team in the job file; missing when it names none.", _EVERYWHERE),
    FactInfo("job.project", _S, "", "Project of the token that submitted it.", _EVERYWHERE),
    FactInfo(
        "job.priority",
        _S,
        "",
        "`urgent`, `high`, `normal`, `low` or `scavenger`.",
        _EVERYWHERE,
    ),
    FactInfo("job.nodes", _I, "", "Nodes of its gang.", _EVERYWHERE),
    FactInfo(
        "job.remaining",
        _D,
        "",
        "Expected training time that is left where it runs, or on the candidate. Missing until the job has "
        "reported steps and their total.",
        _EVERYWHERE,
    ),
    FactInfo(
        "job.has_checkpoint",
        _B,
        "",
        "Whether the job file declares a checkpoint, so that an interruption costs minutes and not the run.",
        _EVERYWHERE,
    ),
    FactInfo("job.has_commit", _B, "", "Whether a checkpoint has been committed.", _EVERYWHERE),
    FactInfo("job.step", _I, "", "Last step reported; missing before the first.", _EVERYWHERE),
    FactInfo(
        "job.progress",
        _F,
        "0..1",
        "Share of its steps that is done; missing when the total is not known.",
        _EVERYWHERE,
    ),
    FactInfo(
        "market.spot_failure_rate_1h",
        _F,
        "0..1",
        "Share of our spot launches in the last hour that failed.",
        _EVERYWHERE,
    ),
    FactInfo("here.cloud", _S, "", "Cloud where the job runs now.", _MOVE),
    FactInfo("here.region", _S, "", "Region where it runs now.", _MOVE),
    FactInfo("here.market", _S, "", f"How its nodes are rented now: {_MARKETS}.", _MOVE),
    FactInfo("here.price", _F, "USD/h", "What one instance costs there now.", _MOVE),
    FactInfo("here.gpu.sku", _S, "", "Exact GPU where it runs now.", _MOVE),
    FactInfo(
        "saving.fraction",
        _F,
        "0..1",
        "1 - (cost to finish there, moving included) / (cost to finish here). Negative when moving is dearer.",
        _MOVE,
    ),
    FactInfo("saving.usd", _F, "USD", "Cost to finish here less cost to finish there.", _MOVE),
    FactInfo(
        "saving.payback",
        _D,
        "",
        "Until the cost of moving is earned back; missing when it never is.",
        _MOVE,
    ),
    FactInfo(
        "migration.cost_usd",
        _F,
        "USD",
        "Cost of the move itself: both bills while they overlap, egress, work done again.",
        _MOVE,
    ),
)

_STOP = frozenset({Line.STOP_WHEN})

# Facts whose names are the job's own: NAME is as in its metrics lines, with _ for whatever is no letter or digit.
METRICS: tuple[FactInfo, ...] = (
    FactInfo(
        "metrics.NAME",
        _F,
        "",
        "A metric of the job's own: NAME in its lines in `$BROKER_METRICS`, `loss` among them, with `_` for every "
        "character that is no letter, digit or `_`. Missing until the copy that runs has told one, and when it is no "
        "finite number.",
        _STOP,
    ),
    FactInfo(
        "metrics.best_NAME",
        _F,
        "",
        "The lowest that the job ever told; the highest where `checkpoint.keep_best` of its job file names it with "
        "`mode: max`.",
        _STOP,
    ),
)

BY_NAME: Mapping[str, FactInfo] = {fact.name: fact for fact in FACTS}

_METRIC = re.compile(r"\bmetrics\.([A-Za-z_]\w{0,99})")
_NO_WORD = re.compile(r"\W", re.ASCII)


def facts_for(line: Line, text: str = "") -> Mapping[str, FactInfo]:
    """The facts that a condition of this list may use; its text says which metrics it means."""
    if line is not Line.STOP_WHEN:
        return _BY_LINE[line]
    named = {found[0]: fact_info(found[0]) for found in _METRIC.finditer(text)}
    return {**_BY_LINE[line], **{name: info for name, info in named.items() if info is not None}}


def fact_info(name: str) -> FactInfo | None:
    """What is known of a fact; None when there is none of that name."""
    if name in BY_NAME:
        return BY_NAME[name]
    if not _METRIC.fullmatch(name):
        return None
    return replace(METRICS[name.startswith("metrics.best_")], name=name)


_BY_LINE = {line: {fact.name: fact for fact in FACTS if line in fact.lines} for line in Line}


def offer_facts(quote: Quote, now_ms: int) -> Facts:
    """What is known of a candidate: ``offer.*``."""
    offer, model = quote.offer, quote.offer.model
    price = quote.price_micro_usd_h / MICRO_PER_USD
    facts: Facts = {
        "offer.cloud": offer.cloud,
        "offer.region": offer.region,
        "offer.zone": offer.zone,
        "offer.market": offer.market.value,
        "offer.instance_type": offer.instance_type,
        "offer.price": price,
        "offer.price_per_gpu": price / offer.gpus,
        "offer.age": quote.age_s(now_ms),
        "offer.gpus": offer.gpus,
        "offer.gpu.sku": model.sku,
        "offer.gpu.family": model.family,
        "offer.gpu.form": model.form,
        "offer.gpu.memory_gib": model.memory_gib,
        "offer.gpu.runtime": model.runtime,
        "offer.interconnect": offer.interconnect,
        "offer.fabric": offer.fabric,
    }
    # Zero means that the cloud does not say; "less than 64 GiB" must not be true of an unknown machine.
    if offer.vcpus:
        facts["offer.vcpus"] = offer.vcpus
    if offer.memory_gib:
        facts["offer.memory_gib"] = offer.memory_gib
    return facts


def job_facts(job: Job, remaining_s: float | None) -> Facts:
    """What is known of a job: ``job.*``.

    Args:
        job: As it stands.
        remaining_s: Expected training time left, or None when nobody can tell.
    """
    spec, progress = job.spec, job.progress
    facts: Facts = {
        "job.name": spec.name,
        "job.project": job.project_id,
        "job.priority": spec.priority.value,
        "job.nodes": spec.resources.nodes,
        "job.has_checkpoint": spec.checkpoint is not None,
        "job.has_commit": job.commit is not None,
    }
    if spec.team is not None:
        facts["job.team"] = spec.team
    if remaining_s is not None:
        facts["job.remaining"] = remaining_s
    if progress is not None and progress.step is not None:
        facts["job.step"] = progress.step
        if progress.total_steps:
            facts["job.progress"] = min(1.0, progress.step / progress.total_steps)
    return facts


def metric_facts(progress: Progress, back: int = 0) -> Facts:
    """What a job has told of itself: ``metrics.*``.

    Args:
        back: Which reading of each metric: 0 is the newest. One that has fewer is left out.
    """
    facts: Facts = {f"metrics.best_{_NO_WORD.sub('_', name)}": best for name, best in progress.best.items()}
    for name, values in progress.readings.items():
        if back < len(values):
            facts[f"metrics.{_NO_WORD.sub('_', name)}"] = values[-1 - back]
    return facts


def market_facts(snapshot: MarketSnapshot) -> Facts:
    """What is known of the market as a whole: ``market.*``."""
    return {"market.spot_failure_rate_1h": snapshot.spot_launch_failures_1h}


def here_facts(offer: Offer, price_micro_usd_h: int) -> Facts:
    """What is known of the place where the job runs now: ``here.*``, at the price of one node there now."""
    return {
        "here.cloud": offer.cloud,
        "here.region": offer.region,
        "here.market": offer.market.value,
        "here.price": price_micro_usd_h / MICRO_PER_USD,
        "here.gpu.sku": offer.gpu,
    }


def saving_facts(
    here_micro_usd: int, there_micro_usd: int, migration_micro_usd: int, payback_s: float | None
) -> Facts:
    """What a move would bring: ``saving.*`` and ``migration.*``.

    Args:
        here_micro_usd: Cost to finish where the job runs.
        there_micro_usd: Cost to finish on the candidate, the move included.
        migration_micro_usd: Cost of the move itself.
        payback_s: Until that is earned back; None when it never is.
    """
    facts: Facts = {
        "saving.usd": (here_micro_usd - there_micro_usd) / MICRO_PER_USD,
        "migration.cost_usd": migration_micro_usd / MICRO_PER_USD,
    }
    # A job with nothing left to pay for here saves no share of anything.
    if here_micro_usd > 0:
        facts["saving.fraction"] = 1 - there_micro_usd / here_micro_usd
    if payback_s is not None:
        facts["saving.payback"] = payback_s
    return facts
