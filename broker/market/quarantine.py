"""Whether a price may be believed: from raw quotes of one whole poll to quotes and doubts. Pure.

A price that cannot be one (no number, not positive, not dollars, unknown GPU) is doubted for as long as it is
sold so, and one that its GPU cannot cost (`broker.market.bands`) until a second source or a person says the same. One
that merely looks wrong, beside the last one or on a list that may say one meter for another, is doubted until it has
held for a while (`broker.market.settling`). The old price stays meanwhile, and ages.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

from broker.core.gpu import GPUS
from broker.core.money import micro_usd
from broker.core.offer import Market, Offer, Quote, RawQuote
from broker.core.time import HOUR_S, MS, format_duration
from broker.market.bands import jump, outside_band
from broker.market.flips import has_two_meters
from broker.market.settling import SAME_SHARE, SHORT_MS, Pending, Wait, two_meters
from broker.store.doubts import Quarantined

# Clouds' clocks and ours may differ, and a price may start while we read; a day is an announcement.
_AHEAD_MS = HOUR_S * MS
# A spot price that has jumped goes on moving.
_JUMPED_SAME_SHARE = 0.10
# 2006-01-01: no price of a cloud is older; a date before it is a blank that some library has filled in.
_FIRST_CLOUD_MS = 1_136_073_600_000
_DIGITS_MAX = 6


@dataclass(frozen=True)
class Doubt:
    """A reading that is kept and not used.

    Attributes:
        raw: As read.
        reason: Why, for people.
        wait: What it waits for; None when it is no price.
        since_ms: Start of the first poll in a row that read this very price.
    """

    raw: RawQuote
    reason: str
    wait: Wait | None = None
    since_ms: int = 0

    def row(self, observed_at_ms: int) -> Quarantined:
        """As it is kept, after a poll that began then."""
        wait = self.wait
        if wait is None:
            return Quarantined(self.raw, self.reason, observed_at_ms, observed_at_ms, 1)
        return Quarantined(
            self.raw, self.reason, self.since_ms, observed_at_ms, wait.times, wait.held_ms, wait.needed_ms
        )


@dataclass(frozen=True)
class Sifted:
    """One poll, judged.

    Attributes:
        quotes: To believe; several of one offer when the cloud tells its history.
        doubts: By offer key, of the newest reading of each offer.
        released: Keys in quarantine before whose newest reading is believed now.
    """

    quotes: tuple[Quote, ...]
    doubts: Mapping[str, Doubt]
    released: tuple[str, ...]


def judge(
    raw: RawQuote,
    observed_at_ms: int,
    last: Quote | None,
    pending: Pending | None = None,
    on_demand_micro_usd_h: int | None = None,
    second_source: bool = False,
) -> Quote | Doubt:
    """One reading.

    Args:
        raw: As the provider read it.
        observed_at_ms: When its poll began.
        last: The price that holds by what we knew before.
        pending: An unbelieved earlier reading of the same offer.
        on_demand_micro_usd_h: What the same machine costs on demand.
        second_source: Another source says the same in this poll.
    """
    price = price_of(raw)
    if isinstance(price, str):
        return Doubt(raw, price)
    if raw.offer.gpu not in GPUS:
        return Doubt(raw, f"unknown GPU {raw.offer.gpu!r}")
    if raw.offer.gpus < 1:
        return Doubt(raw, f"{raw.offer.gpus} GPUs")
    if last is not None and (last.offer.gpu, last.offer.gpus) != (raw.offer.gpu, raw.offer.gpus):
        last = None  # another machine under the same name: what the one before cost says nothing
    since_ms = _since_ms(pending, price, observed_at_ms)
    effective_at_ms = raw.effective_at_ms
    if effective_at_ms is None or effective_at_ms < _FIRST_CLOUD_MS:
        unchanged = last is not None and last.price_micro_usd_h == price
        effective_at_ms = last.effective_at_ms if last is not None and unchanged else since_ms
    ahead_ms = effective_at_ms - observed_at_ms
    if ahead_ms > _AHEAD_MS:
        return Doubt(raw, f"takes effect only in {format_duration(ahead_ms / MS)}")
    quote = Quote(raw.offer, price, min(effective_at_ms, observed_at_ms), observed_at_ms, raw.source)
    wait = waits_for(quote, last, pending, on_demand_micro_usd_h)
    if wait is None or second_source or _is_second_source(quote, pending):
        return quote
    return Doubt(raw, wait.reason, wait, since_ms)


def sift(
    raws: Iterable[RawQuote],
    observed_at_ms: int,
    last: Mapping[str, Quote],
    pending: Mapping[str, Pending],
) -> Sifted:
    """All readings of one whole poll. An offer's newest one is what it costs now, whenever that began."""
    by_offer: dict[str, list[RawQuote]] = {}
    for raw in raws:
        by_offer.setdefault(raw.offer.key, []).append(raw)
    quotes: list[Quote] = []
    doubts: dict[str, Doubt] = {}
    on_demand: dict[str, Quote] = {}
    # On-demand first: what spot is compared with may have come back to the right meter in this very poll.
    for key in sorted(by_offer, key=_is_spot):
        *older, newest = _in_order(by_offer[key], observed_at_ms)
        before = _as_of(observed_at_ms, last.get(key))
        quotes += _history(older, newest, observed_at_ms, before)
        waiting = pending.get(key)
        verdict = _contested(newest, older) or judge(
            newest,
            observed_at_ms,
            before,
            waiting,
            _beside(newest.offer, on_demand, last),
            bool(older) and _is_said_elsewhere(newest, older),
        )
        if isinstance(verdict, Doubt):
            doubts[key] = verdict
            continue
        quotes.append(
            _current(verdict, before, _since_ms(waiting, verdict.price_micro_usd_h, observed_at_ms))
        )
        if has_two_meters(verdict.offer):
            on_demand[key] = verdict
    released = tuple(key for key in by_offer if key in pending and key not in doubts)
    return Sifted(tuple(quotes), doubts, released)


def pending_of(doubted: Mapping[str, Quarantined]) -> dict[str, Pending]:
    """What is in quarantine, as readings to confirm. One that is no price confirms nothing: 0 is near no price."""
    pending = {}
    for key, entry in doubted.items():
        price = price_of(entry.raw)
        pending[key] = Pending(
            price if isinstance(price, int) else 0,
            entry.last_seen_ms,
            entry.times_seen,
            entry.held_ms,
            entry.needed_ms is not None,
            entry.first_seen_ms,
            entry.raw.source,
        )
    return pending


def price_of(raw: RawQuote) -> int | str:
    """Positive micro-USD an hour, or why it is no price."""
    if raw.currency.upper() != "USD":
        return f"priced in {raw.currency or 'no currency'}, not in USD"
    text = raw.price_text.strip()
    try:
        # Before anything is made of it: "1E999999" is a number, and one of a million digits.
        if Decimal(text).is_finite() and Decimal(text).adjusted() > _DIGITS_MAX:
            return f"{raw.price_text!r} dollars an hour is no price that anyone pays"
        price = micro_usd(text)
    except (ValueError, InvalidOperation):
        return f"{raw.price_text!r} is not a price"
    if price == 0:
        return "the price is zero"
    return price if price > 0 else "the price is negative"


def waits_for(
    quote: Quote, last: Quote | None, pending: Pending | None, on_demand_micro_usd_h: int | None
) -> Wait | None:
    """What a price waits for before it is believed; None for nothing. Arguments as of `judge`."""
    offer, price = quote.offer, quote.price_micro_usd_h
    before = last.price_micro_usd_h if last else None
    # What is believed already, by time or a person's word, is not doubted anew.
    if price == before:
        return None
    same_share = _JUMPED_SAME_SHARE
    wait: Wait | None = None
    if outside := outside_band(offer, price, before):
        wait = Wait(outside, None)
    elif before is not None and has_two_meters(offer):
        same_share = SAME_SHARE
        wait = two_meters(offer, price, before, on_demand_micro_usd_h)
    elif before is not None and (jumped := jump(offer, price, before)):
        wait = Wait(jumped, SHORT_MS)
    return wait and wait.after(pending, price, quote.observed_at_ms, same_share)


def _is_second_source(quote: Quote, pending: Pending | None) -> bool:
    """Whether what waits was said by another source."""
    if pending is None or pending.source in ("", quote.source):
        return False
    return pending.says(quote.price_micro_usd_h)


def _is_said_elsewhere(newest: RawQuote, older: Sequence[RawQuote]) -> bool:
    """Whether the newest word of another source in this poll is the same price."""
    price = price_of(newest)
    if not isinstance(price, int):
        return False
    others = {raw.source: price_of(raw) for raw in older if raw.source != newest.source}
    return price in others.values()


def _history(
    older: Sequence[RawQuote], newest: RawQuote, observed_at_ms: int, before: Quote | None
) -> Iterable[Quote]:
    """What a cloud tells of the past, as far as it is believed.

    History out of order or out of band is not worth a quarantine; the newest reading is what counts. One that begins
    in our future, as our clock is behind, is no history: it would be dated as the newest is.
    """
    if not older:
        return
    began_ms = min(_start_ms(newest, observed_at_ms), observed_at_ms)
    for raw in older:
        past = judge(raw, observed_at_ms, before)
        if isinstance(past, Quote) and _start_ms(raw, observed_at_ms) < began_ms:
            yield past


def _contested(newest: RawQuote, older: Sequence[RawQuote]) -> Doubt | None:
    for raw in older:
        if raw.effective_at_ms == newest.effective_at_ms and price_of(raw) != price_of(newest):
            return Doubt(newest, f"two prices at once: {raw.price_text} and {newest.price_text}")
    return None


def _as_of(at_ms: int, before: Quote | None) -> Quote | None:
    """A price that a clock which was ahead has dated holds as of now."""
    if before is None or before.observed_at_ms <= at_ms:
        return before
    return replace(before, effective_at_ms=min(before.effective_at_ms, at_ms), observed_at_ms=at_ms)


def _since_ms(pending: Pending | None, price_micro_usd_h: int, observed_at_ms: int) -> int:
    return pending.since_ms(price_micro_usd_h, observed_at_ms) if pending else observed_at_ms


def _current(quote: Quote, before: Quote | None, since_ms: int) -> Quote:
    """A price now that claims to be older than the one it replaces holds since we first saw it, not since before."""
    if before is None or quote.effective_at_ms >= before.effective_at_ms:
        return quote
    if quote.price_micro_usd_h == before.price_micro_usd_h:
        return replace(quote, effective_at_ms=before.effective_at_ms)
    return replace(quote, effective_at_ms=max(since_ms, before.effective_at_ms))


def _is_spot(offer_key: str) -> bool:
    return offer_key.endswith(f"/{Market.SPOT}")


def _beside(offer: Offer, fresh: Mapping[str, Quote], last: Mapping[str, Quote]) -> int | None:
    """On-demand price of the same machine, where it matters."""
    if offer.market is not Market.SPOT or not has_two_meters(offer):
        return None
    key = replace(offer, market=Market.ON_DEMAND).key
    quote = fresh.get(key) or last.get(key)
    return quote.price_micro_usd_h if quote else None


def _in_order(readings: list[RawQuote], observed_at_ms: int) -> list[RawQuote]:
    """The newest last; of what begins at one moment the order of arrival decides nothing."""
    if len(readings) == 1:
        return readings

    def order(raw: RawQuote) -> tuple[int | str, ...]:
        offer = raw.offer
        shape = offer.gpu, offer.gpus, offer.vcpus
        return _start_ms(raw, observed_at_ms), raw.source, raw.currency, raw.price_text, *shape

    return sorted(readings, key=order)


def _start_ms(raw: RawQuote, observed_at_ms: int) -> int:
    return observed_at_ms if raw.effective_at_ms is None else raw.effective_at_ms
