"""Broken brokers: each one line wrong, switched on in tests only. A checker that lets one live is no checker.

Production code has no switches: a mutant replaces one function of it while its seeds run.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any
from unittest.mock import patch

from broker.core.errors import ProviderError
from broker.core.model import NodeState, PlacementState, Reason
from broker.migration.effects import CreateNode, DeleteNode
from tests.sim.faults import Kind

Break = Callable[[Any], Any]


@dataclass(frozen=True)
class Mutant:
    """One break.

    Attributes:
        what: What is wrong, in words.
        where: Dotted name of the function.
        broken: From the real function to the broken one.
        faults: Kinds that it takes; they are on in every seed.
        seeds: Seeds that are known to find it, tried first.
        also: A second line to break, where either alone holds.
    """

    what: str
    where: str
    broken: Break
    faults: frozenset[Kind] = frozenset()
    seeds: tuple[int, ...] = ()
    hours: float = 1.0
    also: tuple[tuple[str, Break], ...] = ()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While this lasts, the broker is broken."""
        with ExitStack() as stack:
            for where, broken in ((self.where, self.broken), *self.also):
                owner, name = _owner(where)
                stack.enter_context(patch.object(owner, name, broken(getattr(owner, name))))
            yield


def _owner(where: str) -> tuple[Any, str]:
    parts = where.split(".")
    for size in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for name in parts[size:-1]:
            owner = getattr(owner, name)
        return owner, parts[-1]
    raise AssertionError(where)


def _returns(value: Any) -> Break:
    return lambda real: lambda *args, **more: value


# -- creating -----------------------------------------------------------------------------------------------------------


def _random_token(real: Any) -> Any:
    calls = iter(range(10**9))

    async def call(self: Any, effect: Any, node: Any, placement: Any, job: Any) -> Any:
        if isinstance(effect, CreateNode):
            node = replace(node, token=f"bk-{next(calls):026d}-{node.rank}")
        return await real(self, effect, node, placement, job)

    return call


def _create_before_its_row(real: Any) -> Any:
    """The request leaves in the state that a crash leaves behind: nothing in the rows tells of it."""

    def create(plan: Any, node: Any) -> None:
        if not (plan.paused or plan.report_only):
            plan.effects.append(CreateNode(node.token))

    return create


def _resend_at_once(real: Any) -> Any:
    def look_up(plan: Any, node: Any, placement: Any) -> None:
        if placement.state != PlacementState.INTENDED:
            plan.node(node, NodeState.GONE, "given up")
        else:
            real(plan, node, placement)

    return look_up


# -- ending -------------------------------------------------------------------------------------------------------------


def _delete_before_its_row(real: Any) -> Any:
    def ask(plan: Any, node: Any, placement: Any) -> None:
        if node.state in (NodeState.RUNNING, NodeState.REQUESTED, NodeState.UNREACHABLE):
            plan.effects.append(DeleteNode(node.token))
        else:
            real(plan, node, placement)

    return ask


def _delete_once(real: Any) -> Any:
    def ask(plan: Any, node: Any, placement: Any) -> None:
        if node.state == NodeState.RELEASING and node.delete_sent_at_ms is not None:
            plan.node(node, NodeState.GONE, "deleted")
        else:
            real(plan, node, placement)

    return ask


def _rank_0_only(real: Any) -> Any:
    def ask(plan: Any, node: Any, placement: Any) -> None:
        if node.rank == 0 or node.state in (NodeState.INTENDED, NodeState.UNKNOWN):
            real(plan, node, placement)
        else:
            plan.node(node, NodeState.GONE, "its gang is released")

    return ask


def _gang_half_kept(real: Any) -> Any:
    """A node that is gone does not end its placement."""

    def tend(plan: Any, placement: Any) -> None:
        before = plan.placements[placement.id]
        real(plan, placement)
        gone = [n for n in plan.nodes_of(placement) if n.state == NodeState.GONE]
        now = plan.placements[placement.id]
        if (
            gone
            and len(gone) < len(plan.nodes_of(placement))
            and now.state == PlacementState.RELEASING != before.state
        ):
            plan.placements[placement.id] = plan.changed[f"placement {placement.id}"] = before

    return tend


def _silence_is_death(real: Any) -> Any:
    def listen(plan: Any, node: Any) -> None:
        if (
            node.seen_at_ms is not None
            and plan.now_ms - node.seen_at_ms > plan.rules.unreachable_after_s * 1000
        ):
            plan.node(node, NodeState.GONE, "silent")
        else:
            real(plan, node)

    return listen


def _one_denial(real: Any) -> Any:
    def settle(plan: Any, node: Any, outcome: Any) -> None:
        if outcome is None and node.state not in (NodeState.UNKNOWN, NodeState.GONE):
            plan.node(node, gone_confirmations=plan.rules.gone_confirmations)
        else:
            real(plan, node, outcome)

    return settle


def _errors_are_denials(real: Any) -> Any:
    return lambda plan, node, outcome: real(
        plan, node, None if isinstance(outcome, ProviderError) else outcome
    )


# -- HEAD ---------------------------------------------------------------------------------------------------------------


def _no_fence(real: Any) -> Any:
    async def fence(self: Any, effect: Any) -> None:
        from broker.migration.reconcile import load
        from broker.migration.settle import settle_fence

        with self.store.write() as tx:
            plan = load(tx, self.clock.now_ms(), self.rules)
            settle_fence(plan, effect)
            self._save(tx, plan)

    return fence


def _blind_write(real: Any) -> Any:
    def swap(store: Any, prefix: str, etag: Any, head: Any) -> Any:
        from broker.wire.head import encode_head, head_key

        store.put(head_key(prefix), encode_head(head))
        return head

    return swap


def _one_nonce(real: Any) -> Any:
    return lambda store, prefix, etag, head: real(store, prefix, etag, replace(head, nonce="n"))


def _believes_lost_reply(real: Any) -> Any:
    """A swap whose reply was lost is taken for done."""

    def swap(store: Any, prefix: str, etag: Any, head: Any) -> Any:
        from broker.wire.errors import UnknownWrite
        from broker.wire.head import encode_head, head_key

        try:
            store.put(head_key(prefix), encode_head(head), if_match=etag, if_absent=etag is None)
        except UnknownWrite:
            return head
        return head

    return swap


def _fence_keeps_no_commit(real: Any) -> Any:
    def fence(store: Any, prefix: str, generation: int, nonce: str, holder: str) -> Any:
        from broker.wire.head import Head, read_head, swap_head

        found = read_head(store, prefix)
        new = Head(generation, 0, nonce, holder=holder)
        return swap_head(store, prefix, found[1] if found else None, new)

    return fence


def _commits_without_the_right(real: Any) -> Any:
    """A commit takes HEAD's own generation instead of the one that it was given."""

    def write(store: Any, prefix: str, generation: int, *args: Any, **more: Any) -> Any:
        from broker.wire.head import read_head

        found = read_head(store, prefix)
        return real(store, prefix, found[0].generation if found else generation, *args, **more)

    return write


def _restore_unverified(real: Any) -> Any:
    def fetch(store: Any, prefix: str, chunk: Any) -> Any:
        found = store.get(f"{prefix}/{chunk.key}")
        assert found is not None
        return found[0]

    return fetch


def _retain_too_much_gone(real: Any) -> Any:
    return lambda store, prefix, generation, keep_last, *a, **m: _forgetful(
        store, prefix, real, generation, keep_last
    )


def _forgetful(store: Any, prefix: str, real: Any, generation: int, keep_last: int) -> Any:
    done = real(store, prefix, generation, keep_last)
    chunks = [key for key, _ in store.list(f"{prefix}/chunks/")]
    for key in chunks[-1:]:
        store.delete(key)
    return done


def _grants_before_drained(real: Any) -> Any:
    """The same generation is granted again and again."""

    def grant(plan: Any, job: Any, new: Any) -> None:
        from broker.migration.effects import Fence

        generation = max(1, job.generation)
        plan.job(job, generation=generation)
        plan.placement(new, generation=generation)
        plan.effects.append(Fence(job.id, new.id, generation))

    return grant


# -- collecting ---------------------------------------------------------------------------------------------------------


async def _nothing(self: Any) -> None:
    return None


def _rows_first(real: Any) -> Any:
    class OldRows:
        """A store whose nodes were read before the cloud was asked."""

        def __init__(self, store: Any) -> None:
            self._store = store
            self.installation_id = store.installation_id
            self.write = store.write
            with store.read() as tx:
                self._known = {node.token: node for node in tx.nodes()}

        @contextmanager
        def read(self) -> Iterator[Any]:
            with self._store.read() as tx:
                tx.node = self._known.get
                yield tx

    async def look(self: Any, cloud: str, provider: Any) -> None:
        await real(replace(self, store=OldRows(self.store)), cloud, provider)

    return look


def _no_grace(real: Any) -> Any:
    def judged(
        listed: Any, row: Any, log: Any, id: str, now_ms: int, rules: Any, *more: Any, **named: Any
    ) -> Any:
        return real(listed, row, log, id, now_ms, replace(rules, collect_grace_s=-3600.0), *more, **named)

    return judged


def _never_foreign(real: Any) -> Any:
    return lambda self, seq: False


def _no_latch(real: Any) -> Any:
    return lambda store, why: None


async def _no_first_look(self: Any) -> None:
    return None


# -- limits and prices ----------------------------------------------------------------------------------------------------


def _whatever_came(real: Any) -> Any:
    """A poll that broke off counts for what came before."""

    def run(self: Any, result: Any) -> None:
        quotes = []
        try:
            for quote in self._quotes():
                quotes.append(quote)
        except ProviderError:
            if not quotes:
                return real(self, result)
        result.set_result(quotes)
        return None

    return run


def _believes_everything(real: Any) -> Any:
    return lambda offer, price, last: ""


def _no_cooldown(real: Any) -> Any:
    return lambda situation: Reason("migrate.cooldown", True, "ignored")


def _limits_ignored(real: Any) -> Any:
    return lambda situation, by_choice=True: ()


MUTANTS: dict[str, Mutant] = {
    "random_token": Mutant("each create has a token of its own", "broker.migration.reconcile.Reconciler._call", _random_token),
    "one_token_per_gang": Mutant("the nodes of a gang share a token", "broker.migration.decide.node_token", lambda real: lambda stem, rank: real(stem, 0)),
    "create_before_intent": Mutant("a create is sent while its row says intended", "broker.migration.nodes._create", _create_before_its_row),
    "unknown_given_up": Mutant("a create without an answer is forgotten", "broker.migration.nodes._look_up", _resend_at_once, frozenset({Kind.LATE, Kind.REPLY_LOST})),
    "delete_before_intent": Mutant("a delete is sent before the row says releasing", "broker.migration.plan.ask_for_end", _delete_before_its_row),
    "delete_not_confirmed": Mutant("a delete that was sent is a delete that was done", "broker.migration.plan.ask_for_end", _delete_once, frozenset({Kind.REQUEST_LOST})),
    "gang_half_deleted": Mutant("only rank 0 is deleted", "broker.migration.plan.ask_for_end", _rank_0_only),
    "gang_half_kept": Mutant("a gang goes on without a node", "broker.migration.plan.tend_nodes", _gang_half_kept, frozenset({Kind.RECLAIM})),
    "silence_is_death": Mutant("unreachable is taken for dead", "broker.migration.nodes._listen", _silence_is_death, frozenset({Kind.NODE_CUT})),
    "one_denial": Mutant("a cloud is believed at its first word", "broker.migration.reconcile.settle_find", _one_denial, frozenset({Kind.OMITTED, Kind.NODE_CUT})),
    "errors_are_denials": Mutant("a cloud that does not answer has denied", "broker.migration.reconcile.settle_find", _errors_are_denials),
    "no_fence": Mutant("a placement trains before HEAD is its own", "broker.migration.reconcile.Reconciler._fence", _no_fence),
    "blind_write": Mutant("HEAD is written without a condition", "broker.wire.head.swap_head", _blind_write, faults=frozenset({Kind.CAS_REPLY_LOST, Kind.PRICE_JUMP, Kind.STORE_SLOW})),
    "blind_commit": Mutant("a commit writes HEAD without a condition", "broker.wire.commit.swap_head", _blind_write, faults=frozenset({Kind.NODE_CUT, Kind.PRICE_JUMP, Kind.STORE_SLOW})),
    "one_nonce": Mutant("all versions of HEAD have one nonce", "broker.wire.commit.swap_head", _one_nonce, frozenset({Kind.CAS_REPLY_LOST, Kind.NODE_CUT})),
    "lost_reply_is_yes": Mutant("a commit whose reply was lost is taken for done", "broker.wire.commit.swap_head", _believes_lost_reply, frozenset({Kind.CAS_REPLY_LOST})),
    "fence_forgets": Mutant("a fence drops the last commit", "broker.checkpoint.commits.fence", _fence_keeps_no_commit),
    "commit_without_right": Mutant("a commit takes whatever generation HEAD has", "tests.sim.copy.write_commit", _commits_without_the_right, faults=frozenset({Kind.NODE_CUT, Kind.PRICE_JUMP, Kind.STORE_SLOW})),
    "restore_unverified": Mutant("a restore compares no hash", "broker.wire.restore._fetch", _restore_unverified, frozenset({Kind.CORRUPT, Kind.RECLAIM})),
    "retention_eats": Mutant("retention deletes a chunk that is needed", "tests.sim.copy.retain", _retain_too_much_gone),
    "generation_reused": Mutant("two placements are granted one generation", "broker.migration.handover._grant", _grants_before_drained),
    "no_collector": Mutant("nobody looks for orphans", "broker.migration.collect.Collector.one_pass", lambda real: _nothing, faults=frozenset({Kind.LATE, Kind.CAPACITY, Kind.QUOTA, Kind.PRICE_JUMP, Kind.RECLAIM})),
    "rows_first": Mutant("the collector reads rows before the cloud", "broker.migration.collect.Collector._look", _rows_first, frozenset({Kind.CLOCK, Kind.RECLAIM, Kind.LATE})),
    "no_grace": Mutant("the collector ends what has just been made", "broker.migration.collect.orphans", _no_grace, faults=frozenset({Kind.LATE, Kind.CAPACITY, Kind.QUOTA, Kind.PRICE_JUMP, Kind.RECLAIM})),
    "restored_kills": Mutant("a restored database ends what it does not know", "broker.migration.audit.Log.foreign", _never_foreign, frozenset({Kind.RESTORE, Kind.PRICE_JUMP})),
    "no_latch": Mutant("report-only is never latched", "broker.migration.collect.latch_report_only", _no_latch, frozenset({Kind.RESTORE})),
    "no_first_look": Mutant("a daemon starts without looking at the HEADs", "broker.migration.auditor.Auditor.look_first", lambda real: _no_first_look, frozenset({Kind.RESTORE})),
    "epoch_unchecked": Mutant("a replaced daemon goes on writing", "broker.store.state.check_lease", _returns(None), frozenset({Kind.TWO_DAEMONS})),
    "no_recovery_cap": Mutant("recoveries are not capped", "broker.migration.decide.Decider._too_many_recoveries", _returns(None), frozenset({Kind.STORM, Kind.RECLAIM})),
    "no_cooldown": Mutant("the cooldown is ignored", "broker.decision.limits._cooldown", _no_cooldown, faults=frozenset({Kind.PRICE_JUMP})),
    "no_move_limits": Mutant("moves are not limited", "broker.decision.plan.move_limits", _limits_ignored, faults=frozenset({Kind.PRICE_JUMP})),
    "no_caps": Mutant("the caps of the deployment are ignored", "broker.decision.choose.refuse_rate", _returns(""), frozenset({Kind.PRICE_JUMP})),
    "partial_poll": Mutant("a poll that broke off is believed", "broker.market.reader.Reader._run", _whatever_came, frozenset({Kind.PARTIAL_PAGE, Kind.PRICE_JUMP})),
    "no_quarantine": Mutant("every price is believed", "broker.market.quarantine.doubt_price", _believes_everything, frozenset({Kind.GLITCH})),
    "stale_prices": Mutant(
        "neither the age of a price nor the hold matters; either alone keeps stale prices from moving a job",
        "broker.decision.moving.refuse_quote",
        _returns(""),
        faults=frozenset({Kind.FEED_STOPS, Kind.PRICE_JUMP}),
        also=(("broker.decision.plan.hold_reason", _returns(Reason("migrate.hold", True, "ignored"))),),
    ),
}  # fmt: skip
