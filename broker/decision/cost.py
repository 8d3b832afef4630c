"""What finishing a job costs: how much work is left, and the price of doing it somewhere.

The effective price of one hour of training is (price x life + egress) / (life - start-up - repeated work), the
start-up being billed within the life. A job that ends inside its first life pays one start-up and no more, so
the formula is used in its exact form:

    lives  = max(1, work / (life - start-up - repeat))
    billed = work + lives x start-up + (lives - 1) x repeat
    cost   = price x billed + lives x egress

It is continuous where the two cases meet, and an infinite life gives price x (work + start-up) + egress.
Source: the effective price of SkyNomad (arXiv 2601.06520) with repeated work added.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from broker.core.gpu import GPUS
from broker.core.model import Job, Placement
from broker.core.offer import Offer
from broker.core.spec import JobSpec
from broker.core.time import HOUR_S, format_duration
from broker.decision.fit import speed_tflops
from broker.decision.risk import useful_s
from broker.decision.subject import Subject, Timing

GIB = 2**30
LINDY_MIN_S = float(HOUR_S)


@dataclass(frozen=True)
class Work:
    """What is left of a job.

    Attributes:
        seconds: Training seconds left at the reference speed.
        reference_tflops: The speed that `seconds` are meant at.
        steps: Steps left, where the job reports them.
        steps_per_s: Measured by GPU SKU; with `steps` it beats any ratio of speeds.
        known: Whether the job reported enough to tell; otherwise it is a guess.
        detail: In words, for the decision's reasons.
        done_s: Training seconds done, at the same speed.
    """

    seconds: float
    reference_tflops: float
    steps: int | None
    steps_per_s: Mapping[str, float]
    known: bool
    detail: str
    done_s: float = 0.0

    def seconds_on(self, offer: Offer, spec: JobSpec) -> float:
        """Training seconds left on that offer, start-up not included."""
        measured = self.steps_per_s.get(offer.gpu, 0.0)
        if self.steps is not None and measured > 0:
            return self.steps / measured
        return self.seconds * self.reference_tflops / speed_tflops(offer, spec)


@dataclass(frozen=True)
class LandingTime:
    """How long a landing takes, in seconds.

    Attributes:
        overlap_s: Request to READY, checkpoint fetched: a moving job trains on at the old place meanwhile.
        gap_s: Stop there to training here.
    """

    overlap_s: float
    gap_s: float

    @property
    def start_up_s(self) -> float:
        """Request to training: billed, and nothing is learnt."""
        return self.overlap_s + self.gap_s


@dataclass(frozen=True)
class Cost:
    """What finishing somewhere comes to.

    Attributes:
        micro_usd: All nodes of the gang, everything counted.
        seconds: Expected wall-clock seconds until the job is done.
    """

    micro_usd: int
    seconds: float


def landing_time(timing: Timing, job: Job) -> LandingTime:
    """Boot, probe and checkpoint transfer overlap with training; the restore does not."""
    checkpoint_gib = (job.commit.bytes if job.commit else 0) / GIB
    return LandingTime(
        overlap_s=timing.boot_s + timing.probe_s + checkpoint_gib / timing.transfer_gib_s,
        gap_s=timing.restore_s,
    )


def remaining_work(subject: Subject, now_ms: int) -> Work:
    """From reported steps where there are any, else by Lindy: as long again as it has run, an hour at least."""
    placement = subject.active or subject.lost
    steps = _steps_left(subject)
    if steps is not None:
        rate, reference = _measured_rate(subject, placement)
        if rate > 0:
            seconds = steps / rate
            words = f"{steps} steps left, {format_duration(seconds)} at {rate:.3g} steps/s"
            done_s = _steps_in_all(subject) / rate - seconds
            return Work(seconds, reference, steps, subject.measured_steps_per_s, True, words, done_s)
    trained_s = _trained_s(subject, placement, now_ms)
    seconds = max(LINDY_MIN_S, trained_s)
    told = (
        "the job has not told how much is left"
        if steps is None
        else f"{steps} steps left, at a speed that nobody has measured yet"
    )
    words = (
        f"{told}; taken to need as long again as it has run "
        f"({format_duration(trained_s)}), an hour at least: {format_duration(seconds)}"
    )
    reference = speed_tflops(placement.offer, subject.job.spec) if placement else _slowest_asked_for(subject)
    return Work(seconds, reference, steps, subject.measured_steps_per_s, False, words, trained_s)


def repeat_s(subject: Subject) -> float:
    """Training lost when the job is stopped, in seconds: half a checkpoint interval, none if it saves on request."""
    checkpoint = subject.job.spec.checkpoint
    if subject.handles_term or checkpoint is None:
        return 0.0
    return checkpoint.every_s / 2


def finish_from_start(
    rate_micro_usd_h: int, work_s: float, life: float, start_up_s: float, repeat: float, egress_micro_usd: int
) -> Cost:
    """Cost to start somewhere and to finish there. `rate_micro_usd_h` is the whole gang's."""
    lives = max(1.0, work_s / useful_s(life, start_up_s + repeat))
    billed_s = work_s + lives * start_up_s + (lives - 1) * repeat
    return Cost(round(rate_micro_usd_h * billed_s / HOUR_S + lives * egress_micro_usd), billed_s)


def finish_running(
    rate_micro_usd_h: int, work_s: float, life: float, start_up_s: float, repeat: float
) -> Cost:
    """Cost to finish where it trains already: the first start is paid.

    Egress after a later interruption is left out, since nobody knows yet where to: staying is never made to look
    dearer than it is.
    """
    lives = max(1.0, work_s / useful_s(life, start_up_s + repeat))
    billed_s = work_s + (lives - 1) * (start_up_s + repeat)
    return Cost(round(rate_micro_usd_h * billed_s / HOUR_S), billed_s)


def _steps_left(subject: Subject) -> int | None:
    job = subject.job
    if job.progress is None or job.progress.total_steps is None:
        return None
    if subject.active is not None and job.progress.step is not None:
        done = job.progress.step
    else:
        done = (job.commit.step or 0) if job.commit else 0
    return max(0, job.progress.total_steps - done)


def _steps_in_all(subject: Subject) -> int:
    progress = subject.job.progress
    return (progress.total_steps or 0) if progress else 0


def _measured_rate(subject: Subject, placement: Placement | None) -> tuple[float, float]:
    """Steps a second, and the speed of the GPUs that did them; (0, 0) when nothing was measured."""
    progress, spec = subject.job.progress, subject.job.spec
    if placement is not None:
        reference = speed_tflops(placement.offer, spec)
        # Right after a move the last reading is still the old placement's, and its rate the old GPU's.
        began_ms = placement.training_at_ms or placement.active_at_ms or placement.created_at_ms
        if progress and progress.steps_per_s and progress.at_ms >= began_ms:
            return progress.steps_per_s, reference
        if subject.measured_steps_per_s.get(placement.offer.gpu):
            return subject.measured_steps_per_s[placement.offer.gpu], reference
    for sku, rate in sorted(subject.measured_steps_per_s.items()):
        if rate > 0 and sku in GPUS:
            return rate, _asked_speed(sku, subject)
    return 0.0, 0.0


def _trained_s(subject: Subject, placement: Placement | None, now_ms: int) -> float:
    if subject.trained_s is not None:
        return subject.trained_s
    if placement is None or placement.training_at_ms is None:
        return 0.0
    return max(0, (placement.gone_at_ms or now_ms) - placement.training_at_ms) / 1000


def _asked_speed(sku: str, subject: Subject) -> float:
    """Speed of the job's gang if it ran on that SKU, by the alternative that names it."""
    resources = subject.job.spec.resources
    counts = [r.count for r in resources.gpus if r.type in (sku, GPUS[sku].family)]
    return GPUS[sku].speed * max(counts, default=resources.gpus[0].count) * resources.nodes


def _slowest_asked_for(subject: Subject) -> float:
    """Speed to mean a guess at, before the first start: the slowest GPU that the job file accepts."""
    speeds = [
        _asked_speed(sku, subject)
        for sku, model in GPUS.items()
        if any(request.type in (sku, model.family) for request in subject.job.spec.resources.gpus)
    ]
    return min(speeds, default=math.nan)
