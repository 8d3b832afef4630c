"""The daemon: opens everything, wires it, and runs the loops. Nothing else imports all rooms.

Loops do constant work and take no input when woken: they read the rows again. The scheduler only sets events; what is
due when is written in rows, so a missed tick costs nothing. A loop that fails says so and goes on; only a lost lease
ends the daemon, since then another one has taken over.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from broker import assembly
from broker.checkpoint.commits import CheckpointStore
from broker.checkpoint.credentials import StoreSettings
from broker.clock import SystemClock, SystemIds
from broker.core.audit import Audit
from broker.core.errors import DiskFull, LeaseLost, SettingsError
from broker.core.model import Job, Node, Placement, PlacementState
from broker.core.offer import Market, MarketSnapshot, Offer
from broker.core.ports import Check, LaunchRequest
from broker.core.tariff import BillingRule
from broker.core.time import DAY_S
from broker.market.overlay_file import OverlayFile
from broker.market.poller import Poller
from broker.market.retention import Retention
from broker.market.snapshot import Snapshots
from broker.migration.auditor import Auditor
from broker.migration.blocking import Threads
from broker.migration.collect import Collector
from broker.migration.decide import Decider
from broker.migration.directives import Terms, directive
from broker.migration.keys import StoreKeys
from broker.migration.reconcile import Reconciler
from broker.migration.starting import Start
from broker.node.bundle import build_agent, user_data
from broker.policy.load import PolicySet
from broker.policy.schema import Verify
from broker.serve.api import create_app
from broker.serve.checks import CLOUD_S, NO_CLOUD, STORE_S, Asked, BoundedChecks
from broker.serve.feeds import feed_checks
from broker.serve.files import keep_agent
from broker.serve.local import ensure_operator_token
from broker.serve.notify import Notifier
from broker.serve.paid import Budgets, Prices, Spending
from broker.serve.public_url import check_public_url
from broker.serve.server import serve_api
from broker.serve.services import Health, Services
from broker.serve.tls import TlsFiles, ensure_tls
from broker.settings import Settings
from broker.store.history import HistoryStore
from broker.store.state import StateStore, Tx
from broker.wire.messages import Directive

log = structlog.get_logger(__name__)

# Real seconds between two looks at the policy folder.
POLICY_RELOAD_S = 2.0


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT. Nodes and jobs go on without us for their run lease.

    Raises:
        AlreadyRunning: another daemon holds the state database.
        StoreError: the checkpoint store cannot compare and swap, or cannot be reached.
    """
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    daemon = Daemon(settings)
    try:
        return await daemon.run()
    finally:
        daemon.close()


class Daemon:
    """All parts, wired; `run` is their life."""

    def __init__(self, settings: Settings) -> None:
        _make_state_dir(settings.state_dir)
        self.settings = settings
        self.overlay = OverlayFile(settings.market.overlay)
        self.clock = SystemClock(settings.clock.rate, settings.clock.anchor_ms)
        self._started_ms = self.clock.now_ms()
        self.ids = SystemIds()
        self.rules = assembly.rules(settings)
        self.store = StateStore.open(settings.state_dir / "state.db", self.clock, self.ids)
        self.history = HistoryStore.open(settings.state_dir / "history.db")
        self.tls = self._renew_tls()
        paid = Prices(self.history, self.billing_rule, lambda: self.overlay.overlay)
        self.snapshots = Snapshots(self.history, self.overlay, Spending(paid).micro_usd)
        keep_s = settings.market.keep_history_s
        self.retention = Retention(self.history, self.store, self.clock, keep_s)
        self.policies = PolicySet(settings.policies.dir)
        self.agent = build_agent()
        self.agent_sha256 = keep_agent(settings.agent_dir, self.agent)
        self.sources, self.closed_clouds = assembly.open_clouds(
            settings, self.clock, self.store.installation_id
        )
        self.providers = assembly.that_rent(self.sources)
        self.store_settings = StoreSettings.of(settings.store, settings.store_dir)
        self.checkpoints = CheckpointStore(self.store_settings)
        self.keys = StoreKeys(self.store_settings, self.rules.run_lease_s / self.clock.rate)
        self.blocking = Threads()
        self.bounded = BoundedChecks()
        self.notifier = Notifier()
        self._stop = asyncio.Event()
        self._woken = asyncio.Event()
        self._collect_due = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._passed_at_s: float | None = None
        self.poller = Poller(
            self.sources,
            self.history,
            self.clock,
            intervals_s=assembly.poll_intervals(settings),
            polled=self.wake,
        )
        self.reconciler = Reconciler(
            self.store, self.history, self.providers, self.checkpoints, self.policies, self.clock,
            self.blocking, self.rules, self.launch_request, self.wake,
        )  # fmt: skip
        self.decider = Decider(
            self.store, self.policies, self.clock, self.ids, self.rules, assembly.caps(settings), assembly.timing(settings),
            self.snapshot, self.egress, Budgets(paid).tally,
        )  # fmt: skip
        self.collector = Collector(self.store, self.providers, self.clock, self.blocking, self.rules)
        self.auditor = Auditor(self.collector, self.checkpoints, self.closed_clouds)
        self.start = Start(self.store, self.checkpoints, self.blocking, self.auditor)

    async def run(self) -> int:
        """Start the loops and the server; return when told to stop."""
        await self.start.try_store()
        for name in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(name, self._stop.set)
        ensure_operator_token(self.settings.state_dir, self.store, self.ids)
        scheduler = self._scheduler()
        tasks = [
            asyncio.create_task(work)
            for work in (
                serve_api(
                    create_app(self._services()), self.settings, self.tls, self._stop, renew=self._renew_tls
                ),
                self.poller.run(),
                self._reconcile(),
                self._collect(),
                self._look_at_clouds(),
                self.retention.run(),
            )
        ]
        scheduler.start()
        try:
            await _first_end(tasks)
            log.info("daemon.stopping")
            return 0
        finally:
            self.notifier.stopping()
            scheduler.shutdown(wait=False)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Let the next daemon in."""
        self.blocking.close()
        self.history.close()
        self.store.close()

    def wake(self) -> None:
        """Ask for a pass soon, from any thread."""
        self._loop.call_soon_threadsafe(self._woken.set)

    # -- loops ----------------------------------------------------------------------------------------------------

    def _scheduler(self) -> AsyncIOScheduler:
        timing, rate = self.settings.timing, self.clock.rate
        return assembly.ticking(
            (self._woken.set, timing.reconcile_interval_s / rate),
            (self._collect_due.set, timing.collect_interval_s / rate),
            (self.retention.due.set, DAY_S / rate),
            (self._reload_policies, POLICY_RELOAD_S),
            (self._reload_overlay, POLICY_RELOAD_S),
        )

    async def _reconcile(self) -> None:
        """Bring the world to the rows, then ask the policies; what they intend is planned in the next pass."""
        await self.start.look_first()
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                self.reconciler.one_pass()
                if self.decider.one_pass():
                    self._woken.set()
            except LeaseLost:
                raise
            except DiskFull as error:
                log.error("pass.failed", reason=str(error))
                await asyncio.sleep(1.0)
                continue
            except Exception:
                log.exception("pass.failed")
                await asyncio.sleep(1.0)
                continue
            if self._passed_at_s is None:
                log.info("daemon.ready", installation_id=self.store.installation_id)
            self._passed_at_s = time.monotonic()
            self.notifier.ready("serving")
            self.notifier.pass_finished("reconciling")

    async def _collect(self) -> None:
        """Look for machines that nobody owns: at once after a start, then by the schedule."""
        while True:
            await self._guarded("collect", self.collector.one_pass)
            await self._collect_due.wait()
            self._collect_due.clear()

    async def _look_at_clouds(self) -> None:
        """Say once, for each cloud, whether it can be used and what is missing."""
        if not self.settings.open_clouds:
            log.warning("cloud.none", detail=NO_CLOUD)
        for cloud, why in self.closed_clouds.items():
            log.error("cloud.unusable", cloud=cloud, check="configuration", detail=why)
        for cloud, source in self.sources.items():
            for check in await asyncio.to_thread(source.check):
                if check.ok is False:
                    log.error("cloud.unusable", cloud=cloud, check=check.name, detail=check.detail)
                else:
                    log.info("cloud.checked", cloud=cloud, check=check.name, ok=check.ok, detail=check.detail)

    def _reload_policies(self) -> None:
        told = {str(error) for error in self.policies.errors}
        changes = self.policies.reload()
        for error in changes.errors:
            if str(error) not in told:
                log.error("policy.broken", error=str(error))
        if changes:
            log.info("policy.reloaded", added=changes.added, changed=changes.changed, removed=changes.removed)
            self._woken.set()

    def _reload_overlay(self) -> None:
        told = str(self.overlay.error)
        if self.overlay.reload():
            log.info("overlay.reloaded", file=str(self.overlay.path))
            self._woken.set()
        if self.overlay.error is not None and str(self.overlay.error) != told:
            log.error("overlay.broken", error=str(self.overlay.error))

    @staticmethod
    async def _guarded(name: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except LeaseLost:
            raise
        except Exception:
            log.exception(f"{name}.failed")

    # -- what the parts ask of each other -------------------------------------------------------------------------

    def snapshot(self) -> MarketSnapshot:
        """The market as of now."""
        with self.store.read() as tx:
            prices_only = frozenset(self.sources.keys() - self.providers.keys())
            return self.snapshots.of(tx, self.clock.now_ms(), prices_only)

    def egress(self, source: Offer, target: Offer | None) -> int:
        """Price of a GiB out of a place; free when the cloud is not configured any more."""
        prices = self.sources.get(source.cloud)
        return prices.egress_micro_usd_per_gib(source, target) if prices else 0

    def billing_rule(self, cloud: str, market: Market) -> BillingRule:
        """How a cloud bills; the plain rule for one that is not configured any more."""
        prices = self.sources.get(cloud)
        return prices.billing_rule(market) if prices else BillingRule(source="cloud not configured")

    def launch_request(self, node: Node, placement: Placement, job: Job) -> LaunchRequest:
        """The request for one node: a function of rows and configuration, so that a resend is equal."""
        rate = self.clock.rate
        script = user_data(
            public_url=self.settings.server.url,
            token=node.token,
            ca_pem=self.tls.ca_pem,
            agent_sha256=self.agent_sha256,
            cloud=node.cloud,
            notice_s=self.rules.notice_s / rate,
            notice_poll_s=5.0 / rate,
            give_up_s=self.rules.deadlines_s[PlacementState.BOOTING] / rate,
        )
        return LaunchRequest(
            token=node.token,
            offer=placement.offer,
            user_data=script,
            installation_id=self.store.installation_id,
            event_seq=node.event_seq,
            notice_s=self.rules.notice_s,
            labels={"broker-job": job.id},
        )

    def directive(self, tx: Tx, node: Node) -> Directive:
        """What we want of a node now."""
        placement = tx.placement(node.placement_id)
        job = tx.job(node.job_id)
        assert placement is not None, f"node {node.token} has no placement"
        assert job is not None, f"node {node.token} has no job"
        policy = self.policies.policies.get(job.policy or "")
        terms = Terms(
            rules=self.rules,
            rate=self.clock.rate,
            store=self.keys.for_job(job.id),
            verify=policy.verify if policy else Verify(),
        )
        return directive(node, placement, job, tx.nodes(placement_id=placement.id), terms)

    def checks(self) -> Sequence[tuple[str, Check]]:
        """`broker doctor`: clouds, store, policies."""
        found = [(cloud, Check("configuration", False, why)) for cloud, why in self.closed_clouds.items()]
        if not self.settings.open_clouds:
            found.append(("clouds", Check("enabled", False, NO_CLOUD)))
        asked = {
            cloud: Asked("answers", cloud, CLOUD_S, source.check) for cloud, source in self.sources.items()
        }
        asked["server"] = Asked("public_url", self.settings.server.url, CLOUD_S, self._check_public_url)
        asked["store"] = Asked("compare and swap", self._store_name(), STORE_S, self._check_store)
        found += self.bounded.run(asked)
        found += feed_checks(self.history, assembly.poll_intervals(self.settings), self.clock.now_ms())
        clouds, now_ms = frozenset(self.settings.open_clouds), self.clock.now_ms()
        found += [("market", check) for check in self.overlay.checks(self.history.now(), clouds, now_ms)]
        found += [("policies", check) for check in self.policies.checks()]
        return found

    def _store_name(self) -> str:
        store = self.store_settings
        return (
            f"{store.endpoint or 'AWS S3'}, bucket {store.bucket}"
            if store.kind == "s3"
            else f"the folder {store.path}"
        )

    def _check_public_url(self) -> Sequence[Check]:
        away = [cloud for cloud in self.providers if cloud != "local"]
        return check_public_url(self.settings.server.url, self.tls.ca_pem, away)

    def _check_store(self) -> Sequence[Check]:
        self.checkpoints.self_test()
        return [Check("compare and swap", True, "one winner in every race")]

    def health(self) -> Health:
        """How the loops are doing."""
        age = None if self._passed_at_s is None else time.monotonic() - self._passed_at_s
        now_ms = self.clock.now_ms()
        sweeps = {
            cloud: None if sweep.at_ms is None else (now_ms - sweep.at_ms) / 1000
            for cloud, sweep in self.collector.sweeps.items()
        }
        up_s = (now_ms - self._started_ms) / 1000
        return Health(age, self.poller.ages_s(), self.collector.unowned, sweeps, up_s)

    def unowned(self) -> Audit:
        """What the last searches have found; a cloud that could not be opened was never searched."""
        return self.collector.last().without(self.closed_clouds)

    def _renew_tls(self) -> TlsFiles:
        """Certificates live on the world's clock, whatever rate ours has."""
        return ensure_tls(self.settings, SystemClock().now_ms())

    def _services(self) -> Services:
        return Services(
            settings=self.settings, store=self.store, history=self.history, policies=self.policies, clock=self.clock,
            ids=self.ids, wake=self.wake, snapshot=self.snapshot, preview=self.decider.preview,
            directive=self.directive, billing_rule=self.billing_rule, checks=self.checks, health=self.health,
            agent_bytes=self.agent, agent_sha256=self.agent_sha256, agent_dir=self.settings.agent_dir,
            source_dir=self.settings.source_dir, log_dir=self.settings.log_dir, audit=self.auditor.audit, apply_audit=self.auditor.apply,
            clear_report_only=self.auditor.clear, unowned=self.unowned, poll=self.poller.ask, next_polls_ms=self.poller.next_ms,
            overlay=lambda: self.overlay.overlay, closed_clouds=self.closed_clouds,
        )  # fmt: skip


def _make_state_dir(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        hint = "[state] dir must be a folder that we may write to"
        raise SettingsError(f"cannot use {folder} for our state: {error.strerror}", hint=hint) from error


async def _first_end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until the server (the first) has stopped as asked, or any loop raises."""
    waiting = set(tasks)
    while tasks[0] in waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
