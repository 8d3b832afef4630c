"""What a GB costs that leaves a region, for clouds as traces name them. List prices; a GB is taken for a GiB.

AWS: one price for nearly all ways out of a region; the exceptions are below. Source: Amazon's list for 1,122 pairs, as
github.com/andylizf/skynomad-artifact has it (research/data/aws_egress_pricing.csv, 2026-08).
Google: cloud.google.com/vpc/network-pricing, 2025-10: 0.02 within a continent, 0.05 between North America and Europe,
0.08 to and from Asia. To another cloud: Google 0.12, Amazon 0.09; CoreWeave, Lambda and their like let data go for nothing.
"""

from broker.core.errors import UsageError

_INTERNET_USD = {"gcp": 0.12, "aws": 0.09}

_AWS_FROM_USD = {
    "us-": 0.02,
    "ca-central-": 0.02,
    "eu-": 0.02,
    "ca-west-": 0.08,
    "mx-": 0.08,
    "ap-east-1": 0.09,
    "ap-east-2": 0.08,
    "ap-northeast-1": 0.09,
    "ap-northeast-2": 0.08,
    "ap-northeast-3": 0.09,
    "ap-south-": 0.086,
    "ap-southeast-1": 0.09,
    "ap-southeast-2": 0.098,
    "ap-southeast-3": 0.10,
    "ap-southeast-4": 0.10,
    "ap-southeast-5": 0.08,
    "ap-southeast-6": 0.098,
    "ap-southeast-7": 0.08,
    "sa-": 0.138,
    "il-": 0.08,
    "me-central-": 0.085,
    "me-south-": 0.1105,
    "af-": 0.147,
}
_GULF = ("il-", "me-", "af-")
# From, to: other prices. The first line that matches counts.
_AWS_EXCEPTIONS: tuple[tuple[tuple[str, ...], tuple[str, ...], float], ...] = (
    (("us-east-1",), ("us-east-2",), 0.01),
    (("us-east-2",), ("us-east-1",), 0.01),
    (("us-", "ca-central-", "eu-"), ("ap-southeast-7",), 0.08),
    (("eu-",), ("ca-west-", "mx-"), 0.05),
    (("ca-west-", "mx-"), ("us-", "ca-", "mx-"), 0.02),
    (("ca-west-", "mx-"), ("eu-", "sa-"), 0.05),
    (("ca-west-", "mx-"), _GULF, 0.14),
    (("ap-east-2",), ("ap-northeast-3",), 0.09),
    (("ap-east-2",), ("mx-", "sa-"), 0.14),
    (("ap-east-2",), _GULF, 0.11),
    (("ap-northeast-3",), ("ap-east-2",), 0.08),
    (("ap-southeast-1",), ("ap-southeast-5", "ap-southeast-7"), 0.08),
    (("ap-southeast-2",), ("ap-southeast-4", "ap-southeast-6"), 0.08),
    (("ap-southeast-3",), ("ap-northeast-3",), 0.09),
    (("ap-southeast-3",), ("sa-",), 0.138),
    (("ap-southeast-4",), ("ap-southeast-2", "ap-southeast-6"), 0.08),
    (("ap-southeast-4",), ("il-", "me-"), 0.14),
    (("ap-southeast-5", "ap-southeast-7"), ("sa-",), 0.14),
    (("ap-southeast-5", "ap-southeast-7"), _GULF, 0.11),
    (("ap-southeast-6",), ("ap-southeast-2", "ap-southeast-4"), 0.08),
    (("il-",), ("ap-southeast-2", "ap-southeast-4", "ap-southeast-6"), 0.15),
    (("me-central-",), ("ap-southeast-7",), 0.1105),
    (("sa-",), ("ap-southeast-7",), 0.14),
)


def usd_per_gb(origin: tuple[str, str], target: tuple[str, str]) -> float:
    """From one ``(cloud, region)`` to another; nothing within a region.

    Raises:
        UsageError: a region of AWS that is not known.
    """
    if origin == target:
        return 0.0
    if origin[0] != target[0]:
        return _INTERNET_USD.get(origin[0], 0.0)
    if origin[0] == "aws":
        return _within_aws(origin[1], target[1])
    if origin[0] == "gcp":
        continents = {origin[1].split("-")[0], target[1].split("-")[0]}
        return 0.08 if "asia" in continents else 0.02 if len(continents) == 1 else 0.05
    return 0.0


def _within_aws(origin: str, target: str) -> float:
    for starts, ends, usd in _AWS_EXCEPTIONS:
        if origin.startswith(starts) and target.startswith(ends):
            return usd
    start = max((start for start in _AWS_FROM_USD if origin.startswith(start)), key=len, default=None)
    if start is None or not any(target.startswith(known) for known in _AWS_FROM_USD):
        raise UsageError(f"what AWS charges from {origin} to {target} is not known")
    return _AWS_FROM_USD[start]
