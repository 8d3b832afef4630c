"""The cases can fail: each of these mistakes, made on purpose, is found by at least one of them.

Every mistake says by which sentence it is found, so that none is "found" by a case that breaks for another reason.
"""

import asyncio
import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from broker.checkpoint.commits import CheckpointStore
from broker.core.ids import node_token
from broker.core.model import Job, Node, NodeState, Placement
from broker.core.ports import CloudNode, LaunchRequest, Provider
from broker.migration import handover, nodes, plan, reconcile, settle
from broker.migration.collect import Collector
from broker.migration.effects import DeleteNode, Fence
from broker.migration.reconcile import Reconciler, load
from broker.migration.view import Plan
from broker.wire.head import Head
from tests.exhaustive.cases import MODES, Recorded
from tests.exhaustive.harness import Broken, Harness
from tests.exhaustive.rows import Disk, Tx
from tests.exhaustive.scenarios import SCENARIOS


def bite(name: str, *modes: str, sweep: bool = False) -> str:
    """The first story that breaks: of the calm life, else of a case of these modes."""
    try:
        run = Recorded(Harness(SCENARIOS[name], {}, sweep))
        for mode in modes:
            for recorded, mischief in MODES[mode](run):
                recorded.struck(mischief)
    except Broken as error:
        return str(error)
    return "nothing broke"


def test_an_effect_before_its_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    def effects_first(self: Reconciler) -> int:
        with self.store.read() as tx:
            made = load(tx, self.clock.now_ms(), self.rules)
        plan.plan_pass(made, self._on_inconclusive(made))
        started = sum(self._start(effect) for effect in made.effects)

        def commit() -> None:
            with self.store.write() as tx:
                self._save(tx, made)

        asyncio.get_running_loop().call_soon(commit)
        return len(made.changed) + started

    monkeypatch.setattr(Reconciler, "one_pass", effects_first)
    assert "sent before its row said so" in bite("place")


def test_a_token_drawn_anew_for_a_resend(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Harness.launch

    def redrawn(self: Harness, node: Node, placement: Placement, job: Job) -> LaunchRequest:
        request = launch(self, node, placement, job)
        again = node.reason == "create sent again"
        return replace(request, token=node_token(self.ids.base32(26), node.rank)) if again else request

    monkeypatch.setattr(Harness, "launch", redrawn)
    assert "machines without a row" in bite("place", "failures")


def test_a_stop_before_its_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_row(made: Plan, node: Node, placement: Placement) -> None:
        made.effects.append(DeleteNode(node.token))

    monkeypatch.setattr(plan, "ask_for_end", without_row)
    assert "sent before its row said so" in bite("place")


def test_a_copy_told_to_stop_while_its_row_says_that_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    grant = handover._grant

    def eager(made: Plan, job: Job, old: Placement, new: Placement) -> None:
        grant(made, job, new)

    monkeypatch.setattr(handover, "_cut", eager)  # fence, and leave the old one ACTIVE
    assert "two placements of one job train" in bite("move")


def test_a_fence_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unfenced(self: Reconciler, effect: Fence) -> None:
        with self.store.write() as tx:
            made = load(tx, self.clock.now_ms(), self.rules)
            settle.settle_fence(made, effect)
            self._save(tx, made)

    monkeypatch.setattr(Reconciler, "_fence", unfenced)
    assert "told to run before HEAD was fenced" in bite("place")


@pytest.mark.parametrize(
    ("named", "story"), [(True, "generation 1 is held by bk-"), (False, "commits, train-aaaab-p2 may")]
)
def test_a_generation_given_twice(monkeypatch: pytest.MonkeyPatch, named: bool, story: str) -> None:
    fence = CheckpointStore.fence

    def nameless(self: CheckpointStore, job_id: str, generation: int, holder: str, must_exist: bool) -> Head:
        return fence(self, job_id, generation, holder if named else "", must_exist)

    def same_again(made: Plan, job: Job, new: Placement) -> None:
        generation = max(1, job.generation)
        made.job(job, generation=generation)
        made.placement(new, generation=generation)
        made.effects.append(Fence(job.id, new.id, generation))

    monkeypatch.setattr(handover, "_grant", same_again)
    monkeypatch.setattr(CheckpointStore, "fence", nameless)
    assert story in bite("move boundary cut")


def test_a_delete_sent_once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_DELETE_AGAIN_MS", 1 << 50)
    assert "only the dead-man switch" in bite("place", "effects")


def test_a_delete_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = nodes.ask_for_end

    def trusting(made: Plan, node: Node, placement: Placement) -> None:
        ask(made, node, placement)
        if made.nodes[node.token].delete_sent_at_ms is not None:
            made.node(made.nodes[node.token], NodeState.GONE, "deleted")

    monkeypatch.setattr(plan, "ask_for_end", trusting)
    assert "ledger" in bite("place", "effects")


def test_a_lost_reply_taken_for_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "_REFUSALS", (Exception,))
    assert "only the dead-man switch" in bite("place", "failures")


def test_silence_taken_for_death(monkeypatch: pytest.MonkeyPatch) -> None:
    listen = nodes._listen

    def impatient(made: Plan, node: Node) -> None:
        listen(made, node)
        if made.nodes[node.token].state == NodeState.UNREACHABLE:
            made.node(made.nodes[node.token], NodeState.GONE, "silent")

    monkeypatch.setattr(nodes, "_listen", impatient)
    assert "only the dead-man switch" in bite("silence for two minutes")


def test_an_outcome_written_to_the_row_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(made: Plan, node: Node, outcome: Any) -> None:
        if isinstance(outcome, CloudNode):
            sent = replace(node, state=NodeState.UNKNOWN, provider_id=None)
            made.nodes[node.token] = sent
            settle._seen(made, sent, outcome)

    monkeypatch.setattr(reconcile, "settle_create", stale)
    assert "comes from unknown" in bite("cancel requested", "replies")


def test_a_collector_that_reads_rows_first(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Collector._look

    async def rows_first(self: Collector, cloud: str, provider: Provider) -> None:
        await look(replace(self, store=_Old(self.store)), cloud, provider)  # type: ignore[arg-type]

    monkeypatch.setattr(Collector, "_look", rows_first)
    assert "report-only was latched" in bite("place", "listings", sweep=True)


class _Old:
    """A store whose reads show the moment in which it was made."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._then = copy.copy(store._disk)
        self._then.restore(store._disk.image())

    @property
    def installation_id(self) -> str:
        return str(self._store.installation_id)

    @property
    def write(self) -> Callable[[], Any]:
        return self._store.write  # type: ignore[no-any-return]

    @contextmanager
    def read(self) -> Iterator[Tx]:
        yield Tx(self._then, self._store._clock.now_ms(), writing=False)


def test_an_unmutated_life_breaks_nothing() -> None:
    assert bite("place", "effects", "failures", sweep=True) == "nothing broke"
    assert Disk().same_as(Disk())
