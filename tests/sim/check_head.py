"""What happens to HEAD, and what copies say of it (I1, I2, I12, I13)."""

from typing import TYPE_CHECKING

from broker.wire.head import HEAD_NAME, Head, decode_head
from broker.wire.manifest import decode_manifest
from tests.sim import check_handing_over
from tests.sim.copy import Copy
from tests.sim.history import short

if TYPE_CHECKING:
    from tests.sim.node import SimNode
    from tests.sim.truth import Truth


def put(truth: "Truth", key: str, before: bytes | None, data: bytes, who: str) -> None:
    """An object of the checkpoint store has been written."""
    if not key.endswith(f"/{HEAD_NAME}"):
        return
    job_id = key.split("/")[1]
    old, new, known = decode_head(before) if before else None, decode_head(data), truth.head(job_id)
    if old is not None and new.generation < old.generation:
        truth.sim.violate("I1 one commit point", f"{who} set HEAD of {job_id} back to {new.generation}")
    if old is None or new.generation > old.generation:
        _fenced(truth, job_id, old, new, who)
    if new.manifest and (old is None or new.manifest != old.manifest):
        _committed(truth, job_id, old, new, who)
    known.generation, known.seq = new.generation, new.seq
    truth.sim.note(
        "head", job=job_id, generation=new.generation, seq=new.seq, step=known.step, who=short(who)
    )


def _fenced(truth: "Truth", job_id: str, old: Head | None, new: Head, who: str) -> None:
    sim = truth.sim
    truth.head(job_id).fenced_at_s = sim.loop.now_s
    if not who.startswith("daemon"):
        sim.violate("I1 one commit point", f"{who} fenced {job_id}")
    if old is not None and (new.seq, new.manifest) != (old.seq, old.manifest):
        sim.violate("I2 never back", f"a fence of {job_id} dropped commit {old.seq}")
    job = truth.jobs.get(job_id)
    if (job is None or job.generation < new.generation) and not sim.restored_lately():
        sim.violate("I12 intent first", f"{job_id}: fenced {new.generation} before a row named it")
    check_handing_over.fenced(truth, job_id)


def _committed(truth: "Truth", job_id: str, old: Head | None, new: Head, who: str) -> None:
    known, sim = truth.head(job_id), truth.sim
    step = _step_of(truth, job_id, new)
    if old is None or new.generation != old.generation:
        sim.violate("I1 one commit point", f"{who} committed {job_id} under {new.generation}, HEAD had {old}")
    owner = known.owner.setdefault(new.generation, who)
    if owner != who:
        sim.violate("I1 one commit point", f"{who} and {owner} commit under {new.generation}")
    if new.seq != known.seq + 1:
        sim.violate("I2 never back", f"{job_id}: commit {new.seq} after {known.seq}")
    if step < known.step:
        sim.violate("I2 never back", f"{job_id}: step {step} after {known.step}, no fallback recorded")
    known.step = step
    known.commits[new.seq] = (new.generation, step, who)


def _step_of(truth: "Truth", job_id: str, head: Head) -> int:
    objects = truth.sim.bucket.objects
    data = objects.get(f"jobs/{job_id}/{head.manifest}")
    if data is None:
        truth.sim.violate("I2 never back", f"HEAD of {job_id} names {head.manifest}, which is not there")
        return 0
    manifest = decode_manifest(data)
    for entry in manifest.files:
        for chunk in entry.chunks:
            if f"jobs/{job_id}/{chunk.key}" not in objects:
                truth.sim.violate("I2 never back", f"HEAD of {job_id} names a chunk that is not there")
    return manifest.step or 0


def fell_back(truth: "Truth", node: "SimNode", copy: Copy) -> None:
    """A copy has restored an older commit, and its beat says so."""
    known = truth.head(copy.order.job_id)
    if not known.damaged:
        truth.sim.violate("I2 never back", f"{node.token} fell back although nothing is damaged")
    known.step = copy.restored_step
    truth.sim.chaos.reached("restore fell back over a corrupt chunk")


def said_committed(truth: "Truth", node: "SimNode", copy: Copy, seq: int, step: int) -> None:
    """An agent believes that its commit is in."""
    was = truth.head(copy.order.job_id).commits.get(seq)
    if was != (copy.generation, step, node.token):
        truth.sim.violate("I13 honest commits", f"{node.token} believes in commit {seq}; HEAD had {was}")
