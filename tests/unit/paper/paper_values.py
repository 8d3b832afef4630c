"""Small values for jobs on paper: two clouds, round numbers."""

from dataclasses import replace

from broker.core.offer import Market, Offer
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources

NOW = 1_790_000_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE

SPOT = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.SPOT, "H100-SXM5-80GB", 1)
ON_DEMAND = replace(SPOT, market=Market.ON_DEMAND)
GCP = Offer("gcp", "us-central1", "us-central1-a", "a3-highgpu-1g", Market.SPOT, "H100-SXM5-80GB", 1)
A100 = Offer("lambda", "us-west-1", "us-west-1", "gpu_1x_a100", Market.ON_DEMAND, "A100-SXM4-80GB", 1)

SPEC = JobSpec(
    "train",
    "python train.py",
    Resources((GpuRequest("H100"), GpuRequest("A100"))),
    checkpoint=Checkpoint("ckpt", every_s=600),
)
