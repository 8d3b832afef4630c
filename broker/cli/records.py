"""A daemon's records as a market to play over: what `savings`, `shadow` and `simulate` have in common.

They read the daemon's own files, on its machine, beside it or without it: playing takes seconds of a CPU, which are not
taken from the loop that looks after nodes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker.core.model import Segment
from broker.core.offer import Market, Offer
from broker.core.ports import Clock, PriceSource
from broker.core.spec import JobSpec
from broker.core.tariff import BillingRule
from broker.core.time import MS, format_duration
from broker.market.overlay import Overlay
from broker.paper.history import (
    ASSUMED_PACE_S,
    Charges,
    Doings,
    HistoryMarket,
    InSight,
    Recorded,
    could_take,
    interruptions,
    skus_of,
)
from broker.paper.past import measured_timing
from broker.paper.run import EMPTY_POOL_S, Terms
from broker.policy.schema import Policy
from broker.settings import Settings
from broker.store.recorded import PriceRecord, reading_state
from broker.store.state import Tx
from providers import tariffs

# Answers of one run: a policy is asked once in a while where polls come faster than that.
_MOST_ASKS: Final = 4_000
# Offers that are weighed at a time, of each market and speed.
IN_SIGHT: Final = 10
_MOST_LAUNCHES: Final = 100_000


@dataclass(frozen=True)
class Clouds:
    """What clouds charge, as this configuration has them.

    Attributes:
        sources: That could be opened.
        renting: Of those, the ones where nodes can be rented.
    """

    sources: Mapping[str, PriceSource]
    renting: frozenset[str]
    _egress: dict[tuple[str, str | None], int] = field(default_factory=dict, repr=False, compare=False)

    def rule_of(self, cloud: str, market: Market) -> BillingRule:
        """As the daemon bills; by list for a cloud that is not configured."""
        source = self.sources.get(cloud)
        return source.billing_rule(market) if source else tariffs.billing_rule(cloud, market)

    def egress(self, source: Offer, target: Offer | None) -> int:
        """Micro-USD a GiB."""
        between = source.key, target.key if target else None
        found = self._egress.get(between)
        if found is None:
            prices = self.sources.get(source.cloud)
            ask = prices.egress_micro_usd_per_gib if prices else tariffs.egress_micro_usd_per_gib
            found = self._egress[between] = ask(source, target)
        return found


@dataclass(frozen=True)
class Records:
    """A daemon's history, and what else is needed to play over it.

    Attributes:
        segments: Billed stretches of all nodes.
        spot_launches: When, and whether a node came of it.
        landings: How many own landings `terms.timing` is the middle of; 0: the configured estimate.
    """

    prices: PriceRecord
    now_ms: int
    overlay: Overlay
    clouds: Clouds
    terms: Terms
    landings: int
    segments: Sequence[Segment]
    spot_launches: Sequence[tuple[int, bool]]

    def market(
        self,
        spec: JobSpec,
        policies: Iterable[Policy],
        from_ms: int,
        *,
        also: Collection[Offer] = (),
        bills_from_ms: int | None = None,
        only_clouds: Collection[str] | None = None,
        but_job: str = "",
    ) -> HistoryMarket:
        """What a job could have had under these policies, from then until now.

        Args:
            also: Where it has been: whatever the policies allow.
            bills_from_ms: Prices from then on are needed for bills, where that is earlier.
            only_clouds: None takes every cloud.
            but_job: Its own id; what became of its nodes is played, and not told.
        """
        told = tuple(policies)
        allowed, had = could_take(spec, told), {offer.key for offer in also}
        lines = any(policy.candidates.where for policy in told)  # which may refuse the cheapest

        def wanted(offer: Offer) -> bool:
            if offer.key in had:
                return True
            return (only_clouds is None or offer.cloud in only_clouds) and allowed(offer)

        gpus = skus_of(spec) | {offer.gpu for offer in also}
        first_ms = from_ms if bills_from_ms is None else min(from_ms, bills_from_ms)
        curves = self.prices.curves(gpus, wanted, first_ms, self.now_ms + 1)
        clouds = {curve.known.offer.cloud for curve in curves}
        looks = self.prices.looks(clouds, from_ms, self.now_ms + 1)
        return HistoryMarket(
            [Recorded(curve.known.offer, curve.points, curve.known.last_seen_ms) for curve in curves],
            looks,
            from_ms,
            self.now_ms,
            in_sight=None if lines else InSight(spec, IN_SIGHT),
            most_asks=_MOST_ASKS,
            charges=Charges(self.overlay.bill, self.overlay.over),
            doings=Doings(
                [segment for segment in self.segments if segment.job_id != but_job],
                interruptions(self.segments),
                self.spot_launches,
            ),
        )

    def assumptions(self, pace_ms: int, looks_assumed: bool = False) -> list[str]:
        """What is taken to be so, in sentences.

        Args:
            pace_ms: Polls that came closer together were passed over.
        """
        timing = self.terms.timing
        lands = f"{format_duration(timing.boot_s + timing.probe_s)} from a launch to ready, then {format_duration(timing.restore_s)}"
        lands += f" (the middle of {self.landings} of yours)" if self.landings else " (as configured)"
        told = [
            "a decision knows the prices that the last whole poll of each cloud had brought; bills know all prices, "
            "by each cloud's rule, with the overlay and without commitments and credits",
            "capacity is not recorded: every launch gets its nodes, and spot is interrupted where and when a cloud "
            f"took a spot node of yours in that pool, which is then empty for {format_duration(EMPTY_POOL_S)}",
            f"a landing takes {lands}",
            "no other job, no cap, no budget and no metrics of the job are there",
        ]
        told.append(
            f"of offers that are equally fast the {IN_SIGHT} cheapest of each market are weighed, or all under a policy "
            "with lines in `where`"
        )
        if pace_ms >= MS:
            told.append(
                f"of polls that came within {format_duration(pace_ms / MS)} only the first is answered"
            )
        if looks_assumed:
            told.append(
                f"polls before the first on record came every {format_duration(ASSUMED_PACE_S)}, and saw the same prices"
            )
        return told


@contextmanager
def opened(config: Path | None) -> Iterator[tuple[Settings, Records, Tx | None]]:
    """A daemon's records within the block, as of one moment; without its rows where no daemon has run here.

    Raises:
        NotFound, BrokerError: see `broker.store.recorded`.
        SettingsError: the configuration or its overlay is wrong.
    """
    from broker.clock import SystemClock
    from broker.market.overlay_file import OverlayFile

    settings = Settings.load(config)
    clock = SystemClock(settings.clock.rate, settings.clock.anchor_ms)
    overlay = OverlayFile(settings.market.overlay).overlay
    state = settings.state_dir / "state.db"
    with (
        PriceRecord.open(settings.state_dir / "history.db") as prices,
        reading_state(state, clock) if state.is_file() else nullcontext() as tx,
    ):
        clouds = _clouds(settings, clock)
        yield settings, records_of(prices, tx, clock.now_ms(), overlay, clouds, settings), tx


def records_of(
    prices: PriceRecord, tx: Tx | None, now_ms: int, overlay: Overlay, clouds: Clouds, settings: Settings
) -> Records:
    """What can be known of a daemon's past as of now."""
    given = settings.timing
    timing, landings = measured_timing(
        tx.placements() if tx else (), given.boot_estimate_s, given.probe_estimate_s, given.restore_estimate_s
    )
    launches = [
        (launch.at_ms, launch.ok)
        for launch in (tx.launches(0)[-_MOST_LAUNCHES:] if tx else ())
        if launch.market is Market.SPOT
    ]
    terms = Terms(timing=timing, rule_of=clouds.rule_of, egress=clouds.egress)
    segments = tx.segments() if tx else ()
    return Records(prices, now_ms, overlay, clouds, terms, landings, segments, launches)


def _clouds(settings: Settings, clock: Clock) -> Clouds:
    from broker.core.errors import ProviderError, SettingsError
    from providers.registry import open_source, rents

    sources: dict[str, PriceSource] = {}
    for name, section in settings.open_clouds.items():
        try:
            sources[name] = open_source(name, section.options, clock, "records")
        except (SettingsError, ProviderError):
            continue  # the daemon says so; here its list prices do
    return Clouds(sources, frozenset(name for name, source in sources.items() if rents(source)))
