"""Regions that the API names and its document does not: known for as long as they are named, in a bounded number."""

import re
from collections.abc import Collection, Iterable

from broker.core.time import DAY_S, MS

# `PublicRegionCode` of the API's document 1.8.3. Regions come and go, so those that the API names are added.
REGIONS = (
    "asia-northeast-1",
    "asia-northeast-2",
    "asia-south-1",
    "australia-east-1",
    "europe-central-1",
    "me-west-1",
    "us-east-1",
    "us-east-2",
    "us-east-3",
    "us-midwest-1",
    "us-midwest-2",
    "us-south-1",
    "us-south-2",
    "us-south-3",
    "us-west-1",
    "us-west-2",
    "us-west-3",
)
# Every type is priced in every region, so that each name costs as many quotes as there are types.
MOST_NEW = 16
# A region is named only while it has capacity of some kind.
_KEPT_MS = 7 * DAY_S * MS
_FORM = re.compile(r"[a-z]{2,12}(-[a-z]{2,12}){1,2}-[0-9]{1,2}")


class Regions:
    """What the API has named so far.

    Attributes:
        refused: Names of the last reply that are none, or one too many.
    """

    def __init__(self) -> None:
        self._named_ms: dict[str, int] = {}
        self.refused: tuple[str, ...] = ()

    def take(self, names: Iterable[str], at_ms: int) -> None:
        """Remember what one reply has named."""
        new = set(names).difference(REGIONS)
        self._named_ms = {
            name: named_ms
            for name, named_ms in self._named_ms.items()
            if name in new or abs(at_ms - named_ms) <= _KEPT_MS
        }
        refused = []
        for name in sorted(new):
            fits = name in self._named_ms or len(self._named_ms) < MOST_NEW
            if fits and _FORM.fullmatch(name):
                self._named_ms[name] = at_ms
            else:
                refused.append(name)
        self.refused = tuple(refused)

    def known(self) -> Collection[str]:
        """Those of the document and those that were named."""
        return {*REGIONS, *self._named_ms}
