"""The overlay in force: read again when its file has changed, and laid over each new set of prices once."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from broker.core.errors import SettingsError
from broker.core.offer import Offer, Quote
from broker.core.ports import Check
from broker.market.overlay import Overlay, Standing
from broker.market.overlay_text import entries_of, read_overlay
from broker.textfile import read_text

_HINT = '[market] overlay = "..." names it'
_NONE_SHOWN = 5


class OverlayFile:
    """A broken edit leaves what was in force; the mistake is told by `error`.

    Args:
        path: None: there is no file, and nothing is laid over anything.

    Raises:
        SettingsError: the file is wrong at the start, when nothing is in force yet.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.overlay = Overlay()
        self.error: SettingsError | None = None
        self._sha256 = ""
        self.reload()
        if self.error is not None:
            raise self.error

    def reload(self) -> bool:
        """Whether another overlay is in force than before. Changes are found by content."""
        if self.path is None:
            return False
        try:
            text = read_text(self.path, SettingsError, hint=_HINT)
            sha256 = hashlib.sha256(text.encode()).hexdigest()
            if sha256 == self._sha256:
                self.error = None
                return False
            self.overlay, self._sha256, self.error = read_overlay(text, str(self.path)), sha256, None
        except SettingsError as error:
            self.error = error
            return False
        return True

    def checks(self, quotes: Mapping[str, Quote], clouds: frozenset[str], now_ms: int) -> Iterator[Check]:
        """For `broker doctor`: mistakes, and entries that speak of nothing.

        Args:
            quotes: Of all clouds, now.
            clouds: That are configured.
        """
        if self.path is None:
            return
        if self.error is not None:
            yield Check("overlay", False, f"the version before it is in force: {self.error}")
        idle = list(self._idle(quotes, clouds))
        for why in idle[:_NONE_SHOWN]:
            yield Check("overlay", None, why)
        if len(idle) > _NONE_SHOWN:
            yield Check("overlay", None, f"and {len(idle) - _NONE_SHOWN} entries more that match nothing")
        if self.error is None and not idle:
            dated = self.overlay.dated
            live = sum(entry.holds(now_ms) for entry in dated)
            yield Check("overlay", True, f"{live} of {len(dated)} entries of {self.path} hold today")

    def _idle(self, quotes: Mapping[str, Quote], clouds: frozenset[str]) -> Iterator[str]:
        offers = [quote.offer for quote in quotes.values()]
        for kind, entry in entries_of(self.overlay):
            cloud = entry.offers.partition("/")[0]
            if not any(map(entry.matches, offers)):
                unknown = "*" not in cloud and "?" not in cloud and cloud not in clouds
                why = (
                    f"the cloud {cloud} is not configured" if unknown else "no offer that has a price matches"
                )
                yield f"{entry.place}: {kind} {entry.offers}: {why}"
        for credit in self.overlay.credits:
            if credit.cloud not in clouds:
                yield f"{credit.place}: credits: the cloud {credit.cloud} is not configured"


@dataclass(frozen=True)
class Laid:
    """Prices with an overlay over them.

    Attributes:
        quotes: What decisions reckon with for one more node.
        list_micro_usd_h: What the cloud says, by offer key, where that is another price.
        held_micro_usd_h: What a node is reckoned with that runs there already, where that is another price again.
    """

    quotes: Mapping[str, Quote]
    list_micro_usd_h: Mapping[str, int]
    held_micro_usd_h: Mapping[str, int]


class Laying:
    """Lays an overlay over the prices now. The same mappings come back until prices, overlay or its standing change."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._overlay = Overlay()
        self._quotes: Mapping[str, Quote] = {}
        self._standing: Standing | None = None
        self._laid = Laid({}, {}, {})
        self._touched: dict[str, tuple[Offer, bool]] = {}

    def over(self, quotes: Mapping[str, Quote], overlay: Overlay, standing: Standing, now_ms: int) -> Laid:
        """See `Laid`.

        Args:
            quotes: As `HistoryStore.now` has them.
            standing: As of `now_ms`.
        """
        with self._lock:
            if overlay is not self._overlay or quotes is not self._quotes or standing != self._standing:
                if overlay is not self._overlay:
                    self._touched = {}
                self._laid = self._lay(quotes, overlay, standing, now_ms)
                self._overlay, self._quotes, self._standing = overlay, quotes, standing
            return self._laid

    def _lay(self, quotes: Mapping[str, Quote], overlay: Overlay, standing: Standing, now_ms: int) -> Laid:
        if overlay == Overlay():
            return Laid(quotes, {}, {})
        laid = dict(quotes)
        before: dict[str, int] = {}
        held: dict[str, int] = {}
        for key, quote in quotes.items():
            if not self._speaks_of(overlay, key, quote.offer):
                continue
            ours, there = overlay.apply(quote, now_ms, standing), overlay.held(quote, now_ms, standing)
            if ours is not quote:
                laid[key] = ours
            if ours.price_micro_usd_h != quote.price_micro_usd_h:
                before[key] = quote.price_micro_usd_h
            if there is not None and there.price_micro_usd_h != ours.price_micro_usd_h:
                held[key] = there.price_micro_usd_h
        return Laid(laid, before, held)

    def _speaks_of(self, overlay: Overlay, key: str, offer: Offer) -> bool:
        """Whether any entry matches, whenever: asked once an offer and overlay."""
        known = self._touched.get(key)
        if known is None or (known[0] is not offer and known[0] != offer):
            speaks = overlay.speaks_of(offer) or any(
                credit.cloud == offer.cloud for credit in overlay.credits
            )
            known = self._touched[key] = offer, speaks
        return known[1]
