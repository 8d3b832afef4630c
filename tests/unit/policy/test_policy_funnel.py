"""What each line of a policy takes out of a market; and that it is the same as what a decision takes out."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.offer import Market, Offer, Quote
from broker.core.spec import GpuRequest, JobSpec, Resources
from broker.decision.fit import refuse_offer, refuse_quote
from broker.policy.funnel import funnel
from broker.policy.load import load_policy

NOW = 1_790_000_000_000
AWS = Offer("aws", "us-east-1", "use1-az6", "p5.48xlarge", Market.SPOT, "H100-SXM5-80GB", 8)
GCP = Offer("gcp", "us-central1", "us-central1-a", "a3-highgpu-8g", Market.ON_DEMAND, "H100-SXM5-80GB", 8)
CHINA = replace(AWS, region="cn-north-1", zone="cnn1-az1")
L4 = replace(GCP, instance_type="g2-standard-4", gpu="L4-24GB", gpus=1)
RESERVED = replace(AWS, market=Market.RESERVED)


def quote(offer: Offer, usd_h: float, age_s: float = 60) -> Quote:
    seen = NOW - round(age_s * 1000)
    return Quote(offer, round(usd_h * 1e6), seen, seen, "test")


MARKET_NOW = [
    quote(AWS, 30),
    quote(GCP, 88),
    quote(CHINA, 20),
    quote(L4, 0.7),
    quote(RESERVED, 25),
    quote(replace(AWS, zone="use1-az2"), 31, 3600),
]


def test_each_line_with_what_it_takes_out_and_the_cheapest_that_is_left() -> None:
    policy = load_policy(
        """\
policy: p
candidates:
  clouds: [aws, gcp]
  regions: {deny: ["cn-*"]}
  where: ['offer.gpu.memory_gib >= 80', 'offer.price < 50.0 || job.priority == "urgent"', 'job.nodes == 1']
""",
        "p.yaml",
    )
    found = funnel(policy, MARKET_NOW, NOW)
    assert [(s.line, s.removed, s.alone, s.left, s.judged) for s in found.steps] == [
        ("candidates.clouds: [aws, gcp]", 0, 0, 6, True),
        ("candidates.regions.deny: [cn-*]", 1, 1, 5, True),
        ("place.order: [owned, spot, on_demand]", 1, 1, 4, True),
        ("candidates.max_quote_age: 10m", 1, 1, 3, True),
        ("offer.gpu.memory_gib >= 80", 1, 1, 2, True),
        ('offer.price < 50.0 || job.priority == "urgent"', 0, 0, 2, True),
        ("job.nodes == 1", 0, 0, 2, False),
    ]
    assert found.steps[4].place == "p.yaml:5"
    assert (found.total, found.left, found.to_blame) == (6, 2, None)
    assert found.cheapest
    assert found.cheapest.offer == AWS


def test_the_line_that_takes_the_last_one_out() -> None:
    policy = load_policy(
        "policy: p\ncandidates: {where: ['offer.price < 25.0', 'offer.gpus == 4']}\n", "p.yaml"
    )
    found = funnel(policy, MARKET_NOW, NOW)
    assert (found.left, found.cheapest) == (0, None)
    assert found.to_blame
    assert found.to_blame.line == "offer.gpus == 4"
    empty = funnel(policy, [], NOW)
    assert (empty.total, empty.to_blame) == (0, None)


PATTERNS = st.lists(
    st.sampled_from(["us-*", "cn-*", "*central*", "us-east-1", "eu-*"]), unique=True, min_size=1, max_size=2
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["aws", "gcp", "azure"]), unique=True, min_size=1),
    PATTERNS,
    PATTERNS,
    st.lists(st.sampled_from(["owned", "spot", "on_demand", "reserved"]), unique=True, min_size=1),
    st.sampled_from(["30s", "10m", "2h"]),
)
def test_it_is_what_a_decision_would_take_out(clouds, allow, deny, order, age) -> None:
    allow = [pattern for pattern in allow if pattern not in deny] or ["*"]
    text = (
        f"policy: p\ncandidates: {{clouds: {clouds}, regions: {{allow: {allow}, deny: {deny}}}, max_quote_age: {age}}}\n"
        f"place: {{order: {order}}}\n"
    )
    policy = load_policy(text, "p.yaml")
    spec = JobSpec("t", "true", Resources((GpuRequest("H100"),), markets=tuple(Market)))
    left = [
        q
        for q in MARKET_NOW
        if refuse_offer(q.offer, spec, policy) is None
        and not refuse_quote(q, None, NOW, policy.candidates.max_quote_age_s)
    ]
    found = funnel(policy, MARKET_NOW, NOW)
    assert found.left == len(left)
    assert sum(step.removed for step in found.steps) == len(MARKET_NOW) - len(left)
