import pytest
from situations import A100, H100_X8, SPOT_AWS, SPOT_GCP, policy, resources, spec

from broker.core.offer import Market, Offer
from broker.core.spec import GpuRequest, JobSpec
from broker.decision.fit import gpu_request, refuse_gpu, refuse_offer
from broker.policy.schema import Candidates, Place, Policy


@pytest.mark.parametrize(
    ("offer", "request_", "fits"),
    [
        (SPOT_AWS, GpuRequest("H100"), True),
        (SPOT_AWS, GpuRequest("H100-SXM5-80GB"), True),
        (SPOT_AWS, GpuRequest("H100-PCIe-80GB"), False),
        (SPOT_AWS, GpuRequest("H100", form="PCIe"), False),
        (SPOT_AWS, GpuRequest("H100", memory_gib_min=80), True),
        (SPOT_AWS, GpuRequest("H100", memory_gib_min=94), False),
        (SPOT_AWS, GpuRequest("H100", count=8), False),
        (H100_X8, GpuRequest("H100", count=4), True),
        (A100, GpuRequest("H100"), False),
    ],
)
def test_gpu(offer: Offer, request_: GpuRequest, fits: bool) -> None:
    assert (gpu_request(offer, (request_,)) is not None) is fits


def test_of_several_alternatives_the_most_gpus() -> None:
    eight = GpuRequest("H100", count=8)
    assert gpu_request(H100_X8, (GpuRequest("H100"), eight)) == eight


def test_the_wrong_gpu_is_told_beside_the_wanted_one() -> None:
    wanted = spec(resources=resources(gpus=(GpuRequest("H100", 8, 80, "SXM"), GpuRequest("H200", 8))))
    assert refuse_gpu(A100, wanted).why == (
        "has 1 x A100-SXM4-80GB; the job wants 8 x H100 (SXM, from 80 GiB) or 8 x H200"
    )


ONLY_SPOT = resources(markets=(Market.SPOT,))


@pytest.mark.parametrize(
    ("a_spec", "a_policy", "words"),
    [
        (spec(), policy(), None),
        (spec(resources=resources(allow=("aws/us-east-1",))), policy(), None),
        (spec(resources=resources(allow=("aws/us-*/use1-az6",))), policy(), None),
        (spec(resources=resources(allow=("gcp", "aws/eu-*"))), policy(), "allows only gcp, aws/eu-*"),
        (spec(resources=resources(deny=("aws/*/use1-az6",))), policy(), "denies aws/*/use1-az6"),
        (spec(resources=resources(markets=(Market.ON_DEMAND,))), policy(), "does not accept the market spot"),
        (spec(checkpoint=None, resources=ONLY_SPOT), policy(), None),
        (spec(), policy(candidates=Candidates(clouds=("gcp",))), "only the clouds gcp"),
        (spec(), policy(candidates=Candidates(regions_allow=("eu-*",))), "only the regions eu-*"),
        (spec(), policy(candidates=Candidates(regions_deny=("us-*",))), "denies the region us-east-1"),
        (spec(), policy(place=Place(order=(Market.ON_DEMAND,))), "does not place on spot"),
    ],
)
def test_spot_on_aws(a_spec: JobSpec, a_policy: Policy, words: str | None) -> None:
    refusal = refuse_offer(SPOT_AWS, a_spec, a_policy)
    assert refusal is None if words is None else refusal is not None and words in refusal.why


def test_a_job_narrows_a_policy_and_never_widens_it() -> None:
    narrow = policy(candidates=Candidates(clouds=("gcp",)))
    wide = spec(resources=resources(allow=("aws", "gcp")))
    assert refuse_offer(SPOT_AWS, wide, narrow) is not None
    assert refuse_offer(SPOT_GCP, wide, narrow) is None
    no_gcp = spec(resources=resources(deny=("gcp",)))
    assert refuse_offer(SPOT_GCP, no_gcp, narrow) is not None
