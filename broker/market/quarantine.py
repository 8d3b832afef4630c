"""Whether a price may be believed: from raw quotes of one whole poll to quotes and doubts. Pure.

A price that cannot be one (no number, not positive, not dollars, unknown GPU) is doubted for as long as it is
sold so. One that merely looks wrong (`broker.market.bands`) is doubted until a second poll says the same; the old
price stays meanwhile, and ages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

from broker.core.gpu import GPUS
from broker.core.money import micro_usd
from broker.core.offer import Quote, RawQuote
from broker.core.time import HOUR_S, MS, format_duration
from broker.market.bands import doubt_price

# Clouds' clocks and ours may differ, and a price may start while we read; a day is an announcement.
_AHEAD_MS = HOUR_S * MS
_SAME_SHARE = 0.10
_DIGITS_MAX = 6


@dataclass(frozen=True)
class Pending:
    """A reading that waits for confirmation.

    Attributes:
        price_micro_usd_h: What it said.
        seen_at_ms: When the poll that read it began.
    """

    price_micro_usd_h: int
    seen_at_ms: int


@dataclass(frozen=True)
class Doubt:
    """A reading that is kept and not used.

    Attributes:
        raw: As read.
        reason: Why, for people.
    """

    raw: RawQuote
    reason: str


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
    raw: RawQuote, observed_at_ms: int, last: Quote | None, pending: Pending | None = None
) -> Quote | Doubt:
    """One reading.

    Args:
        raw: As the provider read it.
        observed_at_ms: When its poll began.
        last: The price that holds by what we knew before.
        pending: An unbelieved earlier reading of the same offer.
    """
    price = price_of(raw)
    if isinstance(price, str):
        return Doubt(raw, price)
    if raw.offer.gpu not in GPUS:
        return Doubt(raw, f"unknown GPU {raw.offer.gpu!r}")
    if raw.offer.gpus < 1:
        return Doubt(raw, f"{raw.offer.gpus} GPUs")
    effective_at_ms = raw.effective_at_ms
    if effective_at_ms is None:
        unchanged = last is not None and last.price_micro_usd_h == price
        effective_at_ms = last.effective_at_ms if last is not None and unchanged else observed_at_ms
    ahead_ms = effective_at_ms - observed_at_ms
    if ahead_ms > _AHEAD_MS:
        return Doubt(raw, f"takes effect only in {format_duration(ahead_ms / MS)}")
    doubt = doubt_price(raw.offer, price, last.price_micro_usd_h if last else None)
    # What is believed already, by a second poll's word or a person's, is not doubted anew.
    believed = last is not None and last.price_micro_usd_h == price
    if doubt and not believed and not _confirms(price, observed_at_ms, pending):
        return Doubt(raw, doubt)
    return Quote(raw.offer, price, min(effective_at_ms, observed_at_ms), observed_at_ms, raw.source)


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
    for key, readings in by_offer.items():
        *older, newest = sorted(readings, key=lambda raw: _start_ms(raw, observed_at_ms))
        before = last.get(key)
        for raw in older:
            past = judge(raw, observed_at_ms, before)
            # History out of order or out of band is not worth a quarantine; the newest reading is what counts. One
            # that begins in our future, as our clock is behind, is no history: it would be dated as the newest is.
            began_ms = min(_start_ms(newest, observed_at_ms), observed_at_ms)
            if isinstance(past, Quote) and _start_ms(raw, observed_at_ms) < began_ms:
                quotes.append(past)
        rival = next((raw for raw in older if _contradicts(raw, newest)), None)
        if rival is not None:
            doubts[key] = Doubt(newest, f"two prices at once: {rival.price_text} and {newest.price_text}")
            continue
        verdict = judge(newest, observed_at_ms, before, pending.get(key))
        if isinstance(verdict, Doubt):
            doubts[key] = verdict
        else:
            quotes.append(_current(verdict, before))
    released = tuple(key for key in by_offer if key in pending and key not in doubts)
    return Sifted(tuple(quotes), doubts, released)


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


def _confirms(price: int, observed_at_ms: int, pending: Pending | None) -> bool:
    """A later poll that says about the same; twice within one poll is one witness."""
    return (
        pending is not None
        and pending.seen_at_ms < observed_at_ms
        and abs(price - pending.price_micro_usd_h) <= _SAME_SHARE * pending.price_micro_usd_h
    )


def _contradicts(raw: RawQuote, newest: RawQuote) -> bool:
    return raw.effective_at_ms == newest.effective_at_ms and price_of(raw) != price_of(newest)


def _current(quote: Quote, before: Quote | None) -> Quote:
    """A price now that claims to be older than the one it replaces holds since we saw it, not since before."""
    if before is None or quote.effective_at_ms >= before.effective_at_ms:
        return quote
    if quote.price_micro_usd_h == before.price_micro_usd_h:
        return replace(quote, effective_at_ms=before.effective_at_ms)
    return replace(quote, effective_at_ms=quote.observed_at_ms)


def _start_ms(raw: RawQuote, observed_at_ms: int) -> int:
    return observed_at_ms if raw.effective_at_ms is None else raw.effective_at_ms
