"""The ``job`` of a test: what of a job file a policy can see, how much work it is, and where it is at the start."""

from dataclasses import replace
from decimal import Decimal
from typing import Final

from broker.core.errors import PolicyError
from broker.core.gpu import GPUS
from broker.core.model import Progress
from broker.core.offer import Market, Offer
from broker.core.size import parse_size
from broker.core.spec import MAX_NODES, Checkpoint, DataSet, JobSpec, Priority, Resources
from broker.core.time import MS
from broker.core.yaml_text import Node, Scalar, did_you_mean
from broker.decision.fit import gpu_request
from broker.jobs.gpus import read_gpus
from broker.paper.job import PaperJob, Reports, submitted
from broker.paper.testing.section import Section, texts
from broker.policy import fields

KEYS: Final = (
    "gpus",
    "nodes",
    "market",
    "allow",
    "deny",
    "name",
    "team",
    "project",
    "labels",
    "priority",
    "data",
    "checkpoint",
    "checkpoint_size",
    "deadline",
    "work",
    "steps",
    "steps_per_s",
    "reports",
    "saves_on_stop",
    "running_on",
    "trained",
)
_CHECKPOINT: Final = Checkpoint("checkpoints")
_MOST_STEPS: Final = 10**12
_MOST_BYTES: Final = 1 << 60


def read_job(
    part: Section, offers: dict[str, Offer], prices_micro_usd_h: dict[str, int] | None, start_ms: int
) -> PaperJob | None:
    """The job as it is at the start; None with a mistake in it.

    Args:
        offers: Everything that has a price, by key, in the order of the file.
        prices_micro_usd_h: Of these, at the start, where there is one; None where prices have mistakes of their own.
    """
    part.only(KEYS)
    spec = _spec(part, start_ms)
    if spec is None:
        return None
    work = _work(part, spec, offers)
    reports = part.read("reports", fields.choice(Reports), Reports.WHILE_TRAINING)
    size = part.read("checkpoint_size", _size, 0)
    if work is None:
        return None
    total_steps, steps_per_s = work
    job = submitted(
        spec,
        total_steps,
        steps_per_s,
        start_ms,
        project_id=part.read("project", Node.as_str, "default"),
        reports=reports,
        handles_term=part.read("saves_on_stop", Node.as_bool, None),
        checkpoint_bytes=size,
    )
    return _already_running(part, job, offers, prices_micro_usd_h)


def _spec(part: Section, start_ms: int) -> JobSpec | None:
    checkpoint = part.read("checkpoint", _checkpoint, _CHECKPOINT)
    if "gpus" not in part.node:
        part.note(PolicyError("job.gpus is missing", part.node.at, "gpus: H100:8"))
        return None
    gpus = part.read("gpus", read_gpus, None)
    # As in a job file: what cannot be resumed is not interrupted, unless it says so itself.
    markets = Resources(()).markets if checkpoint else (Market.ON_DEMAND,)
    deadline_s = part.read("deadline", fields.positive_duration, None)
    if gpus is None:
        return None
    return JobSpec(
        name=part.read("name", fields.name, "job"),
        run="python train.py",
        resources=Resources(
            gpus,
            part.read("nodes", lambda node: node.as_int(1, MAX_NODES), 1),
            part.read("market", fields.one_or_several(fields.choice(Market)), markets),
            part.read("allow", texts, ()),
            part.read("deny", texts, ()),
        ),
        team=part.read("team", Node.as_str, None),
        labels=part.read("labels", fields.labels, {}),
        priority=part.read("priority", fields.choice(Priority), Priority.NORMAL),
        data=tuple(DataSet(size) for size in (part.read("data", _size, 0),) if size),
        checkpoint=checkpoint,
        deadline_ms=None if deadline_s is None else start_ms + deadline_s * MS,
    )


def _work(part: Section, spec: JobSpec, offers: dict[str, Offer]) -> tuple[int, dict[str, float]] | None:
    """Steps and speeds: told, or a step a second on the first offer that fits the job."""
    steps = part.read("steps", lambda node: node.as_int(1, _MOST_STEPS), None)
    speeds = part.read("steps_per_s", _speeds, None)
    work_s = part.read("work", fields.positive_duration, None)
    if (steps is None) != (speeds is None):
        at = part.node.place("steps" if steps is not None else "steps_per_s")
        part.note(PolicyError("steps and steps_per_s belong together", at))
        return None
    if steps is not None and speeds is not None:
        if work_s is not None:
            part.note(
                PolicyError("work is told by steps already", part.node.place("work"), "take one of them out")
            )
        return steps, speeds
    if work_s is None:
        if "work" not in part.node:
            hint = "work: 40h, of training on the first offer that fits"
            part.note(PolicyError("job.work is missing", part.node.at, hint))
        return None
    fitting = next((o.gpu for o in offers.values() if gpu_request(o, spec.resources.gpus)), None)
    asked = spec.resources.gpus[0].type
    named = next(sku for sku, model in GPUS.items() if asked in (sku, model.family))
    return work_s, {fitting or named: 1.0}


def _already_running(
    part: Section, job: PaperJob, offers: dict[str, Offer], prices_micro_usd_h: dict[str, int] | None
) -> PaperJob | None:
    """A job that trains at the start, with its last commit made at that moment."""
    key = part.read("running_on", Node.as_str, None)
    trained_s = part.read("trained", fields.duration, 0)
    if key is None:
        if trained_s:
            at = part.node.place("trained")
            part.note(
                PolicyError("a job that has trained is somewhere", at, "say where: running_on: aws/...")
            )
        return job
    if prices_micro_usd_h is None:
        return None
    if key not in prices_micro_usd_h:
        problem = "has no price at the start" if key in offers else "is not in prices"
        part.note(
            PolicyError(f"running_on: {key} {problem}", part.node["running_on"].at, did_you_mean(key, offers))
        )
        return None
    offer, price = offers[key], prices_micro_usd_h[key]
    if gpu_request(offer, job.spec.resources.gpus) is None:
        at = part.node["running_on"].at
        part.note(PolicyError(f"running_on: the job does not run on {offer.gpus} x {offer.gpu}", at))
        return None
    rate = job.pace.on(offer)
    if trained_s * rate >= job.total_steps:
        part.note(
            PolicyError("the job is done already", part.node.place("trained"), "trained is part of work")
        )
        return None
    if trained_s and job.spec.checkpoint is not None:
        job = replace(job, saved_steps=trained_s * rate, saved_ms=job.now_ms, seq=1)
    if job.reports is not Reports.NOTHING:
        job = replace(job, told=Progress(job.now_ms, int(job.saved_steps), job.total_steps, rate))
    return job.launched(offer, price, job.now_ms, 0).until(job.now_ms)


# --- Single values ----------------------------------------------------------------------------------------------


def _checkpoint(node: Node) -> Checkpoint | None:
    if isinstance(node, Scalar) and node.value == "none":
        return None
    return replace(_CHECKPOINT, every_s=fields.positive_duration(node))


def _size(node: Node) -> int:
    try:
        size = parse_size(node.as_str())
    except ValueError as error:
        raise node.fail(f"{node.name}: {error}") from None
    if size > _MOST_BYTES:
        raise node.fail(f"{node.name}: {node.value} is more than 1 EiB")
    return size


def _speeds(node: Node) -> dict[str, float]:
    mapped = node.as_mapped()
    speeds = {}
    for sku, value in mapped.items():
        if sku not in GPUS:
            raise PolicyError(f"unknown GPU {sku}", mapped.place(sku), did_you_mean(sku, GPUS))
        rate = value.as_decimal()
        if not 0 < rate <= Decimal(1_000_000):
            raise value.fail(f"{value.name}: more than 0 and at most a million steps a second")
        speeds[sku] = float(rate)
    if not speeds:
        raise node.fail(f"{node.name} is empty", "H100-SXM5-80GB: 2.5")
    return speeds
