"""From `broker.toml` to the values that the rooms take. Pure but for opening providers, and the ticks of a running loop."""

from collections.abc import Awaitable, Callable, Mapping

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from broker.core.errors import ProviderError, SettingsError
from broker.core.model import PlacementState
from broker.core.ports import Clock, PriceSource, Provider
from broker.decision.subject import Caps, Timing
from broker.migration.rules import Rules
from broker.settings import Settings
from providers.registry import open_source, rents

# A drain must have killed the job before its placement's deadline takes the node away.
_DRAIN_SHARE = 0.8


def open_clouds(
    settings: Settings, clock: Clock, installation_id: str
) -> tuple[dict[str, PriceSource], dict[str, str]]:
    """Sources of prices by cloud, and why the others could not be opened: one cloud's mistake stops no other."""
    opened: dict[str, PriceSource] = {}
    closed: dict[str, str] = {}
    for cloud, section in settings.open_clouds.items():
        try:
            opened[cloud] = open_source(cloud, section.options, clock, installation_id)
        except (SettingsError, ProviderError) as error:
            closed[cloud] = str(error)
    return opened, closed


def that_rent(sources: Mapping[str, PriceSource]) -> dict[str, Provider]:
    """Those of them that nodes can be rented from."""
    return {cloud: source for cloud, source in sources.items() if rents(source)}


def poll_intervals(settings: Settings) -> Mapping[str, int]:
    """Seconds of our clock between two polls, by cloud."""
    return {name: cloud.poll_interval_s for name, cloud in settings.open_clouds.items()}


def rules(settings: Settings) -> Rules:
    """The numbers of the protocol."""
    timing = settings.timing
    return Rules(
        deadlines_s={
            PlacementState.INTENDED: timing.request_deadline_s,
            PlacementState.REQUESTED: timing.request_deadline_s,
            PlacementState.BOOTING: timing.boot_deadline_s,
            PlacementState.PROBING: timing.probe_deadline_s,
            PlacementState.READY: timing.ready_deadline_s,
            PlacementState.DRAINING: timing.drain_deadline_s,
            PlacementState.RELEASING: timing.release_deadline_s,
        },
        unreachable_after_s=timing.unreachable_after_s,
        run_lease_s=timing.run_lease_s,
        dead_man_s=timing.dead_man_s,
        beat_s=timing.beat_s,
        drain_s=_DRAIN_SHARE * timing.drain_deadline_s,
        empty_pool_s=timing.empty_pool_for_s,
        recoveries_per_hour=settings.limits.recoveries_per_hour,
        notice_s=timing.notice_s,
        collect_grace_s=timing.collect_grace_s,
    )


def caps(settings: Settings) -> Caps:
    """Deployment-wide bounds."""
    limits = settings.limits
    return Caps(max_micro_usd_per_hour=limits.max_micro_usd_per_hour, max_nodes=limits.max_nodes)


def timing(settings: Settings) -> Timing:
    """What a landing is expected to take."""
    given = settings.timing
    return Timing(
        boot_s=given.boot_estimate_s, probe_s=given.probe_estimate_s, restore_s=given.restore_estimate_s
    )


def ticking(*ticks: tuple[Callable[[], object], float]) -> AsyncIOScheduler:
    """A scheduler that wakes loops, and does nothing else: the work of a late or doubled tick is the same.

    Args:
        ticks: What to call on the event loop, and every how many seconds of the machine's clock.
    """
    defaults = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
    scheduler = AsyncIOScheduler(job_defaults=defaults)
    for work, every_s in ticks:
        scheduler.add_job(_on_the_loop(work), "interval", seconds=every_s)
    return scheduler


def _on_the_loop(work: Callable[[], object]) -> Callable[[], Awaitable[None]]:
    """The scheduler gives a plain function to a thread, where neither events nor policies are safe to touch."""

    async def tick() -> None:
        work()

    return tick
