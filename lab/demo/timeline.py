"""A rehearsal as a picture: where the job trained, what that cost an hour, and when it changed hands. SVG, nothing else.

One lane an offer on which the job trained. A bar is a placement: light while it lands, solid while it trains, an
outline until the cloud confirms its end; a cross is a launch that the cloud refused. The thin line above is the
offer's price, at one scale for all lanes. A dashed line is a hand-over: above it the old generation could commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _LEFT, _RIGHT = 960, 210, 24
_TOP, _LANE, _BAR, _FOOT = 54, 96, 22, 62
_PRICE_HIGH, _BAR_AT = 34, 58  # within a lane: height of the price line's field, top of the bar
_MIN_GAP = 26  # between the labels of two prices

_STYLE = """
  :root { --ink: #1f2328; --soft: #656d76; --line: #d0d7de; --train: #1a7f37; --land: #9fd8ae; --price: #0969da; --cut: #bc4c00; }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #e6edf3; --soft: #8d96a0; --line: #3d444d; --train: #3fb950; --land: #1f5a2c; --price: #58a6ff; --cut: #f0883e; }
  }
  text { font: 12px system-ui, sans-serif; fill: var(--ink); }
  .soft { fill: var(--soft); font-size: 11px; }
  .title { font-size: 14px; font-weight: 600; }
  .axis { stroke: var(--line); stroke-width: 1; }
  .land { fill: var(--land); }
  .train { fill: var(--train); }
  .end { fill: none; stroke: var(--train); stroke-width: 1; }
  .price { fill: none; stroke: var(--price); stroke-width: 1.5; }
  .usd { fill: var(--price); font-size: 11px; }
  .cut { stroke: var(--cut); stroke-width: 1.5; stroke-dasharray: 4 3; }
  .cut-text { fill: var(--cut); font-size: 11px; }
  .refused { stroke: var(--soft); stroke-width: 1.5; }
"""


def draw(report: Mapping[str, Any]) -> str:
    """The picture of a ``demo/1`` report. Its times are the broker's clock."""
    return _Picture(report).text()


class _Picture:
    """Coordinates of one report."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        self.report = report
        self.placements: list[Mapping[str, Any]] = report["placements"]
        trained = sorted(
            (p for p in self.placements if p["training_at_ms"]), key=lambda p: int(p["training_at_ms"])
        )
        # In the order in which the job came there; an offer that it came back to keeps its lane.
        self.lanes: list[str] = list(dict.fromkeys(str(p["offer"]) for p in trained))
        self.begin_ms = min(int(p["created_at_ms"]) for p in self.placements)
        self.end_ms = max(
            int(p[name])
            for p in self.placements
            for name in ("created_at_ms", "stopped_at_ms", "gone_at_ms")
            if p[name]
        )
        self.prices: dict[str, Sequence[tuple[int, int]]] = {
            key: report.get("prices", {}).get(key, []) for key in self.lanes
        }
        shown = [price for steps in self.prices.values() for _, price in self._seen(steps)]
        self.dearest_micro_usd_h = max(shown, default=1)
        self.height = _TOP + _LANE * len(self.lanes) + _FOOT

    def text(self) -> str:
        """The whole file."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {self.height}" width="{_WIDTH}" '
            f'height="{self.height}" role="img" aria-labelledby="title what">',
            f'<title id="title">{escape(self._title())}</title>',
            f'<desc id="what">{escape(self._told())}</desc>',
            f"<style>{_STYLE}</style>",
            f'<text class="title" x="12" y="24">{escape(self._title())}</text>',
            f'<text class="soft" x="12" y="42">{escape(self._told())}</text>',
            *self._axis(),
        ]
        for lane, key in enumerate(self.lanes):
            parts += self._lane(lane, key)
        parts += [line for handover in self._handovers() for line in self._cut(handover)]
        parts += self._legend()
        return "\n".join([*parts, "</svg>", ""])

    def x(self, at_ms: float) -> float:
        """Of a moment; what lies outside is drawn at the edge."""
        share = (at_ms - self.begin_ms) / max(1, self.end_ms - self.begin_ms)
        return round(_LEFT + min(1.0, max(0.0, share)) * (_WIDTH - _LEFT - _RIGHT), 1)

    def _title(self) -> str:
        places = len({p["offer"] for p in self.placements if p["training_at_ms"]})
        return f"One training job on {places} offers in {self._minutes(self.end_ms):.0f} minutes"

    def _told(self) -> str:
        ledger = self.report["ledger"]
        same = self.report["final_weights_sha256"] == self.report["uninterrupted_weights_sha256"]
        weights = "bit-identical to an uninterrupted run" if same else "DIFFERENT from an uninterrupted run"
        return (
            f"paid ${ledger['paid_usd']:.2f}; staying on the first offer ${ledger['stay_usd']:.2f} so far; "
            f"final weights {weights}; rehearsal on simulated clouds, seed {self.report['seed']}"
        )

    def _minutes(self, at_ms: int) -> float:
        return (at_ms - self.begin_ms) / 60_000

    def _axis(self) -> Iterator[str]:
        bottom = _TOP + _LANE * len(self.lanes)
        total = self._minutes(self.end_ms)
        every = next((step for step in (1, 2, 5, 10, 20, 30) if total / step <= 12), 60)
        for minute in range(0, int(total) + 1, every):
            x = self.x(self.begin_ms + minute * 60_000)
            yield f'<line class="axis" x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom + 4}"/>'
            yield f'<text class="soft" x="{x}" y="{bottom + 18}" text-anchor="middle">{minute} min</text>'

    def _lane(self, lane: int, key: str) -> Iterator[str]:
        top = _TOP + lane * _LANE
        cloud, zone, kind, market = key.split("/")
        yield f'<text x="12" y="{top + _BAR_AT + 8}">{escape(f"{cloud} {zone}")}</text>'
        yield f'<text class="soft" x="12" y="{top + _BAR_AT + 23}">{escape(f"{kind}, {market}")}</text>'
        yield from self._price(top, self._seen(self.prices[key]))
        for placement in self.placements:
            if placement["offer"] == key:
                yield from self._bar(top + _BAR_AT, placement)

    def _seen(self, steps: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """Price steps within the picture, the one in force at its beginning first."""
        before = [price for at_ms, price in steps if at_ms <= self.begin_ms]
        within = [(at_ms, price) for at_ms, price in steps if self.begin_ms < at_ms <= self.end_ms]
        return [(self.begin_ms, before[-1]), *within] if before else within

    def _price(self, top: int, steps: Sequence[tuple[int, int]]) -> Iterator[str]:
        if not steps:
            return

        def y(price_micro_usd_h: int) -> float:
            return round(top + _BAR_AT - 8 - _PRICE_HIGH * price_micro_usd_h / self.dearest_micro_usd_h, 1)

        line = [f"M{self.x(steps[0][0])},{y(steps[0][1])}"]
        line += [f"H{self.x(at_ms)} V{y(price)}" for at_ms, price in steps[1:]]
        line.append(f"H{self.x(self.end_ms)}")
        yield f'<path class="price" d="{" ".join(line)}"/>'
        last_x = -_MIN_GAP
        for at_ms, price in steps:
            if (x := self.x(at_ms)) >= last_x + _MIN_GAP:
                yield f'<text class="usd" x="{x + 3}" y="{y(price) - 4}">${price / 1e6:.2f}/h</text>'
                last_x = round(x)

    def _bar(self, y: int, p: Mapping[str, Any]) -> Iterator[str]:
        created, active, training = p["created_at_ms"], p["active_at_ms"], p["training_at_ms"]
        gone = p["gone_at_ms"] or self.end_ms
        if not active:  # it never got the job: refused by the cloud, or given up on the way
            x, middle = self.x(created), y + _BAR / 2
            yield f'<path class="refused" d="M{x - 4},{middle - 4} l8,8 m0,-8 l-8,8"><title>{escape(p["reason"])}</title></path>'
            return
        stopped = p["stopped_at_ms"] or gone
        yield self._box("land", created, training or stopped, y, f"lands: {p['id']}")
        if training:
            steps = f"steps {p['resumed_step'] or 0} to {p['last_step']}"
            yield self._box("train", training, stopped, y, f"trains: {p['id']}, {steps}")
        yield self._box("end", stopped, gone, y, f"ends: {p['reason']}")

    def _box(self, kind: str, from_ms: int, to_ms: int, y: int, told: str) -> str:
        x, width = self.x(from_ms), round(max(1.0, self.x(to_ms) - self.x(from_ms)), 1)
        return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{_BAR}"><title>{escape(told)}</title></rect>'

    def _handovers(self) -> list[Mapping[str, Any]]:
        found = [("moved", h) for h in self.report["migrations"]]
        found += [("taken back", h) for h in self.report["interruptions"]]
        return [{**h, "how": how} for how, h in sorted(found, key=lambda pair: int(pair[1]["cutover_at"]))]

    def _cut(self, handover: Mapping[str, Any]) -> Iterator[str]:
        x = self.x(handover["cutover_at"])
        old, new = (_TOP + self.lanes.index(handover[end]) * _LANE + _BAR_AT for end in ("from", "to"))
        yield f'<line class="cut" x1="{x}" y1="{min(old, new)}" x2="{x}" y2="{max(old, new) + _BAR}"/>'
        told = (
            f"{handover['how']}: step {handover['resumed_step']}, {handover['steps_redone']} redone, "
            f"pause {handover['pause_s']:.0f} s"
        )
        # On the side where there is room, in the free strip under the upper bar.
        side = 'text-anchor="end" x="%s"' % (x - 6) if x > _WIDTH * 0.6 else f'x="{x + 6}"'
        yield f'<text class="cut-text" {side} y="{min(old, new) + _BAR + 13}">{escape(told)}</text>'

    def _legend(self) -> Iterator[str]:
        y, x = self.height - 22, 12
        for kind, text, room in (
            ("land", "lands: boots, is probed, fetches the checkpoint", 300),
            ("train", "trains", 80),
            ("end", "ends", 72),
        ):
            yield f'<rect class="{kind}" x="{x}" y="{y}" width="16" height="11"/>'
            yield f'<text class="soft" x="{x + 22}" y="{y + 10}">{text}</text>'
            x += room
        yield f'<line class="price" x1="{x}" y1="{y + 6}" x2="{x + 16}" y2="{y + 6}"/>'
        yield f'<text class="soft" x="{x + 22}" y="{y + 10}">price</text>'
        yield f'<path class="refused" d="M{x + 76},{y + 2} l8,8 m0,-8 l-8,8"/>'
        yield f'<text class="soft" x="{x + 90}" y="{y + 10}">no capacity</text>'
        yield f'<line class="cut" x1="{x + 176}" y1="{y - 1}" x2="{x + 176}" y2="{y + 13}"/>'
        yield f'<text class="soft" x="{x + 184}" y="{y + 10}">HEAD fenced: the old copy can commit no more</text>'
