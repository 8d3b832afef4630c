"""What a daemon asks of its surroundings, and the agents on its nodes, without HTTP."""

from dataclasses import replace
from typing import Any

from broker.core.model import Job, Node, Placement, Segment
from broker.core.offer import Market, MarketSnapshot, Offer, Quote
from broker.core.ports import LaunchRequest
from broker.jobs.budget import Tally
from broker.market.snapshot import spot_failure_share
from broker.migration.directives import Terms, directive
from broker.policy.schema import Verify
from broker.serve.beats import take_beat
from broker.wire import messages as wire
from tests.exhaustive import checks
from tests.exhaustive.crew import Agent
from tests.exhaustive.mischief import Kill
from tests.exhaustive.rows import Disk, MemoryStore
from tests.exhaustive.script import AWS_FAR, AWS_NEAR, GCP, Outside

TURN_S = 20.0


def a_dollar_each(tx: Any, _now_ms: int) -> Tally:
    """What budgets are held against here: whatever a job does, it has cost a dollar."""
    return Tally(run={job.id: 1_000_000 for job in tx.jobs(open_only=True)})


class Surroundings(Outside):
    """Rows, prices and agents around one daemon, which may be away."""

    def _open_disk(self) -> Disk:
        return Disk()

    def _open_store(self) -> Any:
        return MemoryStore(self.disk, self.clock)

    def _history(self) -> Any:
        """What `Reconciler` wants of the price history: which offers there are."""
        return self

    @property
    def store(self) -> Any:
        """Of the daemon that runs."""
        assert self.daemon is not None, "no daemon runs"
        return self.daemon.store

    def disk_now(self) -> Disk:
        """The committed rows."""
        return self.disk

    def launch(self, node: Node, placement: Placement, job: Job) -> LaunchRequest:
        """A function of rows, as in the daemon."""
        return LaunchRequest(node.token, placement.offer, "#!", self.store.installation_id, node.event_seq)

    def now(self) -> dict[str, Quote]:
        """Quotes of the few offers that this world needs, as fresh as can be."""
        now_ms, found = self.clock.now_ms(), {}
        for key in (AWS_NEAR, AWS_FAR, GCP):
            change = self.world.pools[key].at(now_ms // 1000)
            offer = self._offer(key)
            found[key] = Quote(offer, change.price_micro_usd_h, change.at_s * 1000, now_ms, "world")
        return found

    def _offer(self, key: str) -> Offer:
        return self.clouds[key.split("/")[0]].offer(key)

    def snapshot(self) -> MarketSnapshot:
        """The market as of now, with what our own launches have found."""
        now_ms = self.clock.now_ms()
        with self.store.read() as tx:
            share = spot_failure_share(tx.launches(now_ms - 3_600_000))
            return MarketSnapshot(now_ms, self.now(), tx.pools(), spot_launch_failures_1h=share)

    def segments(self) -> list[Segment]:
        """What the ledger is computed from."""
        with self._open_store().read() as tx:
            found: list[Segment] = tx.segments()
        return found

    @property
    def was_down(self) -> bool:
        """Nobody ran a daemon for a while, so nodes had to help themselves."""
        return any(isinstance(act, Kill) and act.down_s for act in self.mischief.values())

    def unowned(self) -> int:
        """Machines that nobody wants, as the collector found last."""
        return (self.daemon.collector.unowned or 0) if self.daemon else 0

    def billing_rule(self, cloud: str, market: Market) -> Any:
        """Of the world's clouds."""
        return self.clouds[cloud].billing_rule(market)

    # -- agents -----------------------------------------------------------------------------------------------------

    def _run_agents(self) -> None:
        now_ms = self.clock.now_ms()
        for machine in self.world.machines():
            if machine.running_s is None or machine.stopping_s is not None:
                continue
            token = str(machine.labels["token"])
            agent = self.agents.get(token)
            if agent is None:
                part = self.scenario.part(self.placement_of(token))
                if now_ms < machine.running_s * 1000 + part.boot_s * 1000:
                    continue
                placement = self.placement_of(token)
                agent = self.agents[token] = Agent(
                    token, placement.id if placement else "", part, self.storage, now_ms
                )
            heard_s = (now_ms - agent.heard_ms) / 1000
            if heard_s > self.rules.run_lease_s:
                agent.lease_ended()
            if heard_s > self.rules.run_lease_s + self.rules.dead_man_s:
                self.end_from_inside(machine.id)
                continue
            ends = machine.interruption
            notice_s = None if ends is None else ends.deadline_s - now_ms / 1000
            agent.turn(TURN_S, now_ms, lambda beat, t=token: self._beat(t, beat), notice_s, self.exit_code)  # type: ignore[misc]

    def placement_of(self, token: str) -> Placement | None:
        """Whose node a token is."""
        disk = self.disk_now()
        node = disk.nodes.get(token)
        return None if node is None else disk.placements[node.placement_id]

    def _beat(self, token: str, beat: wire.Beat) -> wire.Directive | None:
        """`/agent/v1/beat`, without HTTP."""
        if self.daemon is None:
            return None
        with self.store.write() as tx:
            node = tx.node(token)
            if node is None:
                return None
            job, placement = tx.job(node.job_id), tx.placement(node.placement_id)
            taken = take_beat(replace(node, secret_sha256="s"), job, beat, self.clock.now_ms(), 1.0)
            for event in taken.events:
                tx.emit(event)
            tx.save(taken.node)
            tx.save(taken.job)
            policy = self.policies.policies.get(job.policy or "")
            access = wire.StoreAccess("folder", f"jobs/{job.id}")
            terms = Terms(self.rules, 1.0, access, policy.verify if policy else Verify())
            order = directive(taken.node, placement, taken.job, tx.nodes(placement_id=placement.id), terms)
            checks.ordered(placement, order)
            return order
