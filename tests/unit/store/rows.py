"""Values to store."""

from broker.core.model import Job, Node, NodeState, Placement, Purpose
from broker.core.offer import Market, Offer
from broker.core.spec import GpuRequest, JobSpec, Resources

OFFER = Offer(
    "aws", "us-east-1", "use1-az6", "p5.48xlarge", Market.SPOT, "H100-SXM5-80GB", 8, interconnect="nvlink"
)
SPEC = JobSpec("train", "python train.py", Resources((GpuRequest("H100", 8),)), labels={"a": "b"})


def job(job_id: str = "j1", **fields: object) -> Job:
    return Job(job_id, SPEC, "default", "ann", 5, **fields)  # type: ignore[arg-type]


def placement(placement_id: str = "p1", job_id: str = "j1", attempt: int = 1, **fields: object) -> Placement:
    return Placement(
        placement_id,
        job_id,
        attempt,
        OFFER,
        12_000_000,
        Purpose.PLACE,
        "default",
        "ann",
        5,
        **fields,  # type: ignore[arg-type]
    )


def node(token: str = "bk-a-0", placement_id: str = "p1", rank: int = 0, **fields: object) -> Node:
    return Node(
        token,
        placement_id,
        "j1",
        rank,
        "aws",
        "us-east-1",
        "use1-az6",
        "default",
        "ann",
        5,
        **fields,  # type: ignore[arg-type]
    )


RUNNING = NodeState.RUNNING
