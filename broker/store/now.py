"""The price now of every offer, held from one reading to the next: what is as it was is not made anew.

A poll tells of one cloud, and a hint, a doubt or a poll that failed of no price at all. That a row has stayed as it was is
seen in a tenth of the time that it takes to make a quote of it; and where all have, whoever has worked something out of
these prices may keep that too.
"""

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import ne

from sqlalchemy import Connection

from broker.core.gpu import GPUS
from broker.core.offer import Offer, Quote
from broker.store.fetch import fetch
from broker.store.offers import HeldOffers

_ROWS = """\
SELECT offer_id, price_micro_usd_h, effective_at_ms, observed_at_ms, source_id FROM price_now ORDER BY offer_id"""


class HeldPrices:
    """Not safe for use from several threads at once."""

    def __init__(self) -> None:
        self._held_offers = HeldOffers()
        self._offers: Mapping[int, Offer] = {}
        self._ids: Sequence[int] = ()
        self._offer_of_row: Sequence[Offer] = ()
        self._rows: Sequence[tuple[int, ...]] = ()
        self._quotes: dict[str, Quote] = {}

    def read(self, connection: Connection) -> Mapping[str, Quote]:
        """By offer key, as of the connection's transaction; the same mapping as before if no row has changed."""
        offers = self._held_offers.read(connection)
        sources = dict(fetch(connection, "SELECT id, name FROM source"))
        rows = fetch(connection, _ROWS)
        ids = [row[0] for row in rows]
        if offers is not self._offers or ids != self._ids:
            self._offers, self._ids, self._quotes = offers, ids, {}
            self._offer_of_row, self._rows = [offers[offer_id] for offer_id in ids], [()] * len(rows)
        changed = list(map(ne, rows, self._rows))
        if any(changed):
            quotes = self._quotes.copy()
            for offer, row in zip(
                compress(self._offer_of_row, changed), compress(rows, changed), strict=True
            ):
                if (
                    offer.gpu in GPUS
                ):  # else an earlier release's name for it; the next poll brings it by its own
                    _, price_micro_usd_h, effective_at_ms, observed_at_ms, source_id = row
                    quotes[offer.key] = Quote(
                        offer, price_micro_usd_h, effective_at_ms, observed_at_ms, sources[source_id]
                    )
            self._quotes = quotes
        self._rows = rows
        return self._quotes
