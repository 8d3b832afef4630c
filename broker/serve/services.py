"""Everything the API needs of the daemon, handed over once. `broker.daemon` fills it in."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from broker.core.audit import Applied, Audit
from broker.core.model import Decision, Node
from broker.core.offer import Market, MarketSnapshot
from broker.core.ports import Check, Clock, Ids
from broker.core.spec import JobSpec
from broker.core.tariff import BillingRule
from broker.market.index import MarketIndex
from broker.market.overlay import Overlay
from broker.policy.load import PolicySet
from broker.settings import Settings
from broker.store.history import HistoryStore, Poll
from broker.store.state import StateStore, Tx
from broker.wire.messages import Directive


@dataclass(frozen=True)
class Health:
    """How the daemon's loops are doing.

    Attributes:
        pass_age_s: Real seconds since a reconcile pass last finished; None before the first.
        poll_age_s: Seconds since each cloud's prices were last read in full, by cloud; None: never yet.
        unowned_nodes: Machines with our tag that no row owns, as of the last search; None before the first.
        sweep_age_s: Seconds since each cloud's machines were last listed in full, by cloud; None: never yet.
        up_s: Seconds since the daemon started: at least as old is what it has never read.
    """

    pass_age_s: float | None = None
    poll_age_s: Mapping[str, float | None] = field(default_factory=dict)
    unowned_nodes: int | None = None
    sweep_age_s: Mapping[str, float | None] = field(default_factory=dict)
    up_s: float = 0.0


@dataclass(frozen=True)
class Services:
    """The daemon's parts as the API uses them. Callables are called from any thread unless they say otherwise.

    Attributes:
        wake: Ask for a reconcile pass soon.
        snapshot: All accepted quotes as of now.
        preview: What a job of this spec and project would be answered now; records nothing. Called on the loop.
        directive: The whole wish for a node, within the caller's transaction; durations on the node's clock.
        billing_rule: How a cloud bills a market.
        checks: `broker doctor` for all that only the daemon can see: (subject, finding). Slow: calls clouds.
        health: See `Health`.
        agent_bytes: The agent's zipapp; agent_sha256: of it, as pinned in user-data.
        agent_dir: Agents of this release and of those before it, one file a hash.
        source_dir: Tarballs of jobs, one file a hash.
        log_dir: Logs, one file a node and one a job.
        audit: Compare rows, clouds and checkpoint store; slow, on the loop.
        apply_audit: Do what an audit has shown: ids, and who says so. On the loop.
        clear_report_only: Who, and why; returns the audit once it is cleared. On the loop.
        unowned: Machines that no row wants, as of the last search of each cloud.
        poll: Read a cloud's prices now; what came of it, once they are judged. On the loop.
        next_polls_ms: When each cloud is read next, on our clock; one that is due now is not told.
        index: Of the newest snapshot's quotes, for whoever filters them.
        overlay: In force now.
        closed_clouds: Configured ones that cannot be asked, and why.
    """

    settings: Settings
    store: StateStore
    history: HistoryStore
    policies: PolicySet
    clock: Clock
    ids: Ids
    wake: Callable[[], None]
    snapshot: Callable[[], MarketSnapshot]
    preview: Callable[[JobSpec, str], Decision]
    directive: Callable[[Tx, Node], Directive]
    billing_rule: Callable[[str, Market], BillingRule]
    checks: Callable[[], Sequence[tuple[str, Check]]]
    health: Callable[[], Health]
    agent_bytes: bytes
    agent_sha256: str
    agent_dir: Path
    source_dir: Path
    log_dir: Path
    audit: Callable[[], Awaitable[Audit]]
    apply_audit: Callable[[Collection[str], str], Awaitable[Applied]]
    clear_report_only: Callable[[str, str], Awaitable[Audit]]
    unowned: Callable[[], Audit]
    poll: Callable[[str], Awaitable[Poll]]
    next_polls_ms: Callable[[], Mapping[str, int]]
    index: MarketIndex = field(default_factory=MarketIndex)
    overlay: Callable[[], Overlay] = Overlay
    closed_clouds: Mapping[str, str] = field(default_factory=dict)
