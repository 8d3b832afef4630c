"""Offers of the price history, held in memory: there are as many of them as prices, and they hardly ever change.

Whoever writes an offer counts up ``PRAGMA user_version`` in the same transaction. A reader that sees the count it knows
need not read the offers again, and hands out the very same values as before.
"""

from collections.abc import Mapping
from operator import attrgetter

from sqlalchemy import Connection

from broker.core.offer import Market, Offer
from broker.store.fetch import fetch
from broker.store.ingest import OFFER_FIELDS

_ALL = f"SELECT id, {', '.join(OFFER_FIELDS)} FROM offer"
_shape = attrgetter(*OFFER_FIELDS)


class HeldOffers:
    """Not safe for use from several threads at once."""

    def __init__(self) -> None:
        self._count = -1
        self._offers: Mapping[int, Offer] = {}

    def read(self, connection: Connection) -> Mapping[int, Offer]:
        """By row, as of the connection's transaction."""
        [(count,)] = fetch(connection, "PRAGMA user_version")
        if count != self._count:
            before = self._offers
            self._offers = {row[0]: _same(before.get(row[0]), row[1:]) for row in fetch(connection, _ALL)}
            self._count = count
        return self._offers


def _same(held: Offer | None, row: tuple[object, ...]) -> Offer:
    """The offer that is held if the row says the same, else a new one."""
    if held is not None and _shape(held) == row:
        return held
    shape = dict(zip(OFFER_FIELDS, row, strict=True))
    return Offer(**shape | {"market": Market(shape["market"])})  # type: ignore[arg-type]
