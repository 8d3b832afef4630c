"""Handing a job over: HEAD, commits, restores."""

from dataclasses import replace
from typing import Any

from broker.core.model import PlacementState
from tests.sim.faults import Kind
from tests.sim.mutants.mutant import Mutant


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
    def fence(store: Any, prefix: str, generation: int, nonce: str, holder: str, must_exist: bool) -> Any:
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


def _breaks_before_make(real: Any) -> Any:
    """The old copy is told to stop as soon as the new node has called."""

    def hand_over(plan: Any, job: Any) -> None:
        from broker.migration.handover import _cut

        mine = plan.placements_of(job)
        old = next((p for p in mine if p.state == PlacementState.ACTIVE), None)
        new = next((p for p in mine if p.state == PlacementState.PROBING), None)
        if old is not None and new is not None:
            _cut(plan, job, old, new)
        else:
            real(plan, job)

    return hand_over


def _waits_for_nobody(real: Any) -> Any:
    """Who was asked to save is fenced while it does."""

    def hand_over(plan: Any, job: Any) -> None:
        all_of = plan.placements_of
        plan.placements_of = lambda job: [p for p in all_of(job) if p.state != PlacementState.DRAINING]
        try:
            real(plan, job)
        finally:
            del plan.placements_of

    return hand_over


def _fences_once(real: Any) -> Any:
    """A fence that finds its own generation takes it for another's."""

    def fence(store: Any, prefix: str, generation: int, nonce: str, holder: str, must_exist: bool) -> Any:
        from broker.wire.errors import NewerGeneration
        from broker.wire.head import read_head

        found = read_head(store, prefix)
        if found is not None and found[0].generation == generation:
            raise NewerGeneration(f"{prefix}: HEAD has generation {generation} already")
        return real(store, prefix, generation, nonce, holder, must_exist)

    return fence


HANDING_OVER: dict[str, Mutant] = {
    "break_before_make": Mutant(
        "a copy is stopped before another is ready",
        "broker.migration.plan.hand_over",
        _breaks_before_make,
        frozenset({Kind.PRICE_JUMP}),
        seeds=(1,),
    ),
    "fence_before_drained": Mutant(
        "a copy that saves is not waited for",
        "broker.migration.plan.hand_over",
        _waits_for_nobody,
        frozenset({Kind.PRICE_JUMP, Kind.NOTICE}),
        seeds=(1,),
    ),
    "fence_once": Mutant(
        "a fence that is repeated is refused",
        "broker.checkpoint.commits.fence",
        _fences_once,
        frozenset({Kind.CAS_REPLY_LOST}),
        eager=3,
    ),
    "no_fence": Mutant(
        "a placement trains before HEAD is its own", "broker.migration.reconcile.Reconciler._fence", _no_fence
    ),
    "blind_write": Mutant(
        "HEAD is written without a condition",
        "broker.wire.head.swap_head",
        _blind_write,
        faults=frozenset({Kind.CAS_REPLY_LOST, Kind.NOTICE}),
        eager=5,
        seeds=(3,),
    ),
    "blind_commit": Mutant(
        "a commit writes HEAD without a condition",
        "broker.wire.commit.swap_head",
        _blind_write,
        faults=frozenset({Kind.NODE_CUT, Kind.PRICE_JUMP, Kind.STORE_SLOW}),
        eager=3,
        seeds=(3,),
    ),
    "one_nonce": Mutant(
        "all versions of HEAD have one nonce",
        "broker.wire.commit.swap_head",
        _one_nonce,
        frozenset({Kind.CAS_REPLY_LOST, Kind.NODE_CUT}),
        seeds=(2,),
    ),
    "lost_reply_is_yes": Mutant(
        "a commit whose reply was lost is taken for done",
        "broker.wire.commit.swap_head",
        _believes_lost_reply,
        frozenset({Kind.CAS_REPLY_LOST}),
        seeds=(1,),
    ),
    "fence_forgets": Mutant(
        "a fence drops the last commit", "broker.checkpoint.commits.fence", _fence_keeps_no_commit
    ),
    "commit_without_right": Mutant(
        "a commit takes whatever generation HEAD has",
        "tests.sim.copy.write_commit",
        _commits_without_the_right,
        faults=frozenset({Kind.NODE_CUT, Kind.PRICE_JUMP}),
        eager=3,
        seeds=(3,),
    ),
    "restore_unverified": Mutant(
        "a restore compares no hash",
        "broker.wire.restore._fetch",
        _restore_unverified,
        frozenset({Kind.CORRUPT, Kind.RECLAIM}),
        eager=3,
    ),
    "retention_eats": Mutant(
        "retention deletes a chunk that is needed", "tests.sim.copy.retain", _retain_too_much_gone, seeds=(3,)
    ),
    "generation_reused": Mutant(
        "two placements are granted one generation",
        "broker.migration.handover._grant",
        _grants_before_drained,
    ),
}
