"""``/metrics``: Prometheus. Everything is read from rows at the scrape, so a restart loses no count.

Labels are clouds, regions, GPUs and states; never jobs, which would make a series each. `METRICS` is the list that
the reference page is generated from.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool

from broker.core.model import DecisionKind, JobState, Node, NodeState, Placement, PlacementState
from broker.core.money import usd
from broker.serve.auth import Broker
from broker.serve.services import Services
from broker.store.access import PAUSED, REPORT_ONLY

_HOUR_MS = 3_600_000

# name, help, labels
METRICS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("broker_pass_age_seconds", "Real seconds since a reconcile pass finished.", ()),
    (
        "broker_poll_age_seconds",
        "Seconds since a cloud's prices were last read in full; since the daemon's start when they never were.",
        ("cloud",),
    ),
    ("broker_poll_interval_seconds", "How often a cloud's prices are to be read.", ("cloud",)),
    ("broker_poll_failing", "1 when the newest poll of a cloud failed.", ("cloud",)),
    ("broker_offers", "Accepted quotes.", ("cloud", "market")),
    ("broker_offers_quarantined", "Offers whose newest reading is in quarantine.", ("cloud",)),
    (
        "broker_offer_price_usd_per_hour",
        "Cheapest accepted price per GPU.",
        ("cloud", "region", "gpu", "market"),
    ),
    ("broker_jobs", "Jobs by state.", ("state",)),
    ("broker_placements", "Placements that are not gone, by state.", ("state",)),
    ("broker_nodes", "Nodes that are not gone, by cloud and state.", ("cloud", "state")),
    (
        "broker_unowned_nodes",
        "Machines with our tag that no row owns, of the clouds that have been listed. Alert when above 0 for 10 "
        "minutes.",
        (),
    ),
    (
        "broker_sweep_age_seconds",
        "Seconds since a cloud's machines were last listed in full; since the daemon's start when they never were.",
        ("cloud",),
    ),
    (
        "broker_intent_age_seconds",
        "Age of the oldest create, delete or fence without an outcome; 0 when there is none.",
        (),
    ),
    (
        "broker_releases_overdue",
        "Placements whose machines are still not gone after `timing.release_deadline`.",
        (),
    ),
    (
        "broker_burn_usd_per_hour",
        "What nodes whose meter runs cost an hour, by their decision's price.",
        ("cloud",),
    ),
    ("broker_decisions_last_hour", "Answers of policies in the last hour.", ("kind", "acted")),
    ("broker_events_total", "Events ever written.", ()),
    ("broker_switch", "1 when the switch is on.", ("switch",)),
)

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response)
async def metrics(broker: Broker) -> Response:
    """Prometheus text. No token: it carries no names of people or jobs, and listens on loopback by default."""
    registry = CollectorRegistry()
    registry.register(_Scrape(broker))
    return Response(await run_in_threadpool(generate_latest, registry), media_type=CONTENT_TYPE_LATEST)


class _Scrape(Collector):
    """One scrape."""

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._families: dict[str, Metric] = {}

    def collect(self) -> Iterator[Metric]:
        """All families, those without a value too, so that a dashboard finds every name."""
        for name, text, labels in METRICS:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            self._families[name] = kind(name, text, labels=labels)
        steps: tuple[Callable[[], None], ...] = (self._loops, self._market, self._rows)
        for step in steps:
            step()
        yield from self._families.values()

    def describe(self) -> Iterator[Metric]:
        """Nothing in advance: registering must not read the database."""
        return iter(())

    def _set(self, name: str, value: float, *labels: str) -> None:
        family = self._families[name]
        assert isinstance(family, GaugeMetricFamily | CounterMetricFamily)
        family.add_metric(labels, value)

    def _loops(self) -> None:
        health = self._broker.health()
        if health.pass_age_s is not None:
            self._set("broker_pass_age_seconds", health.pass_age_s)
        if health.unowned_nodes is not None:
            self._set("broker_unowned_nodes", health.unowned_nodes)
        # A series for each cloud from the start: one that has never answered must raise the same alert as one that
        # has stopped.
        for cloud in sorted({*self._broker.settings.open_clouds, *health.poll_age_s, *health.sweep_age_s}):
            for name, ages in (("poll", health.poll_age_s), ("sweep", health.sweep_age_s)):
                age_s = ages.get(cloud)
                self._set(f"broker_{name}_age_seconds", health.up_s if age_s is None else age_s, cloud)
        for cloud, section in self._broker.settings.open_clouds.items():
            self._set("broker_poll_interval_seconds", section.poll_interval_s, cloud)
            for newest in self._broker.history.polls(cloud, 1):
                self._set("broker_poll_failing", 0 if newest.ok else 1, cloud)

    def _market(self) -> None:
        snapshot = self._broker.snapshot()
        offers = Counter((q.offer.cloud, q.offer.market.value) for q in snapshot.quotes.values())
        for labels, count in sorted(offers.items()):
            self._set("broker_offers", count, *labels)
        for cloud, count in sorted(Counter(key.split("/")[0] for key in snapshot.quarantined).items()):
            self._set("broker_offers_quarantined", count, cloud)
        cheapest: dict[tuple[str, ...], float] = {}
        for quote in snapshot.quotes.values():
            offer = quote.offer
            series = (offer.cloud, offer.region, offer.gpu, offer.market.value)
            price = float(usd(quote.price_micro_usd_h)) / offer.gpus
            cheapest[series] = min(price, cheapest.get(series, price))
        for labels_of_price, price in sorted(cheapest.items()):
            self._set("broker_offer_price_usd_per_hour", price, *labels_of_price)

    def _rows(self) -> None:
        now_ms = self._broker.clock.now_ms()
        with self._broker.store.read() as tx:
            jobs = Counter(job.state for job in tx.jobs())
            placements = {placement.id: placement for placement in tx.placements(open_only=True)}
            nodes = tx.nodes(open_only=True)
            decisions = tx.decisions(None, 100_000, since_ms=now_ms - _HOUR_MS)
            last_seq = tx.last_seq()
            switches = {name: tx.switch(name) for name in (PAUSED, REPORT_ONLY)}
        for state in JobState:
            self._set("broker_jobs", jobs[state], state.value)
        by_state = Counter(placement.state for placement in placements.values())
        for placement_state in PlacementState:
            if placement_state != PlacementState.GONE:
                self._set("broker_placements", by_state[placement_state], placement_state.value)
        for (cloud, node_state), count in sorted(Counter((n.cloud, n.state) for n in nodes).items()):
            assert node_state != NodeState.GONE
            self._set("broker_nodes", count, cloud, node_state.value)
        intents = open_intents_ms(placements.values(), nodes)
        self._set("broker_intent_age_seconds", max(0, now_ms - min(intents, default=now_ms)) / 1000)
        bound_ms = 1000 * self._broker.settings.timing.release_deadline_s
        overdue = (p for p in placements.values() if p.state == PlacementState.RELEASING)
        self._set("broker_releases_overdue", sum(now_ms - p.state_since_ms > bound_ms for p in overdue))
        burn: defaultdict[str, int] = defaultdict(int)
        for node in nodes:
            if (
                node.billed_from_ms is not None
                and node.ended_at_ms is None
                and node.placement_id in placements
            ):
                burn[node.cloud] += placements[node.placement_id].price_micro_usd_h
        for cloud, rate_micro_usd_h in sorted(burn.items()):
            self._set("broker_burn_usd_per_hour", float(usd(rate_micro_usd_h)), cloud)
        answers = Counter((decision.kind, decision.acted) for decision in decisions)
        for kind in DecisionKind:
            for acted in (False, True):
                self._set("broker_decisions_last_hour", answers[kind, acted], kind.value, str(acted).lower())
        self._set("broker_events_total", last_seq)
        for name, on in switches.items():
            self._set("broker_switch", on, name)


def open_intents_ms(placements: Iterable[Placement], nodes: Iterable[Node]) -> list[int]:
    """When each intent that has no outcome yet was written: creates, deletes, fences.

    A fence is granted when the last thing that it waited for has happened, so the youngest state of the job's
    placements dates it.
    """
    waiting = (NodeState.INTENDED, NodeState.UNKNOWN, NodeState.RELEASING)
    found = [node.state_since_ms for node in nodes if node.state in waiting]
    of_job: defaultdict[str, list[Placement]] = defaultdict(list)
    for placement in placements:
        of_job[placement.job_id].append(placement)
    for together in of_job.values():
        if any(p.state == PlacementState.READY and p.generation is not None for p in together):
            found.append(max(p.state_since_ms for p in together))
    return found
