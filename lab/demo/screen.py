"""What a person sees: prices, the job, its placements and what was decided; live on a terminal, lines elsewhere."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lab.demo.director import Story, offer_key

_BARS = "▁▂▃▄▅▆▇█"
_LINES = 12
_STATE_STYLE = {
    "active": "bold green",
    "ready": "green",
    "draining": "yellow",
    "releasing": "dim",
    "gone": "dim",
}


class Screen:
    """Draws a story. A context manager."""

    def __init__(self, console: Console, title: str) -> None:
        self.console = console
        self.title = title
        self._live = (
            Live(console=console, refresh_per_second=5, transient=False) if console.is_terminal else None
        )
        self._printed = 0
        self._commands = 0

    def __enter__(self) -> "Screen":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, story: Story) -> None:
        """Draw what is new."""
        if self._live:
            self._live.update(self._page(story))
            return
        for command in story.commands[self._commands :]:
            self.console.print(f"$ {command.line}", style="bold", highlight=False)
            self.console.print(Text.from_ansi(command.output))
        self._commands = len(story.commands)
        for at_ms, text in story.said[self._printed :]:
            line = f"{_clock(at_ms, story)}  {text}"
            self.console.print(line, highlight=False, markup=False, overflow="ellipsis", no_wrap=True)
        self._printed = len(story.said)

    def _page(self, story: Story) -> RenderableType:
        if not story.job.get("spec"):
            return Panel(_typed(story), title=self.title)
        parts: list[RenderableType] = [_prices(story), _job(story), _placements(story), _said(story)]
        return Panel(Group(*parts), title=self.title)


def _typed(story: Story) -> RenderableType:
    text = Text()
    for command in story.commands:
        text.append(f"$ {command.line}\n", "bold")
        text.append_text(Text.from_ansi(command.output))
        text.append("\n")
    return text


def _prices(story: Story) -> Table:
    table = Table(title="prices of one H100", box=None, pad_edge=False, expand=True)
    for name in ("offer", "$/h", "age", ""):
        table.add_column(name, justify="right" if name in ("$/h", "age") else "left", no_wrap=True)
    active = story.active
    here = offer_key(active["offer"]) if active else ""
    for quote in sorted(story.prices, key=lambda q: q["price_micro_usd_h"])[:7]:
        style = "bold green" if quote["key"] == here else ""
        note = "◀ trains here" if quote["key"] == here else quote["note"]
        table.add_row(
            quote["key"],
            f"{quote['price_micro_usd_h'] / 1e6:.4f}",
            f"{quote['age_s']:.0f}s",
            note,
            style=style,
        )
    return table


def _job(story: Story) -> RenderableType:
    progress = story.job.get("progress") or {}
    step, total = progress.get("step") or 0, progress.get("total_steps") or 0
    head = Text.assemble(
        (f"\njob {story.job['id']}  ", "bold"), (str(story.job["state"]), "bold green"),
        f"  step {step}/{total or '?'}  loss {progress.get('loss') or 0:.4f}  ", (sparkline(story.losses), "cyan"),
    )  # fmt: skip
    return Group(head, ProgressBar(total=max(total, 1), completed=step, width=100), Text("\n"))


def _placements(story: Story) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    for name, width in (("", 4), ("placement", 38), ("state", 10)):
        table.add_column(name, width=width, no_wrap=True)
    table.add_column("why", ratio=1, no_wrap=True, overflow="ellipsis")
    for placement in story.placements[-6:]:
        state = placement["state"]
        table.add_row(
            placement["id"].rsplit("-", 1)[-1], offer_key(placement["offer"]),
            Text(state, _STATE_STYLE.get(state, "cyan")), placement["reason"],
        )  # fmt: skip
    return table


def _said(story: Story) -> Text:
    text = Text("\n", no_wrap=True, overflow="ellipsis")
    for at_ms, line in story.said[-_LINES:]:
        style = "yellow" if line.startswith("lab:") else "bold" if line.startswith("decision") else ""
        text.append(f"{_clock(at_ms, story)}  ", "dim")
        text.append(line + "\n", style)
    return text


def sparkline(values: Sequence[float], width: int = 30) -> str:
    """The last values as bars, lowest to highest."""
    shown = list(values[-width:])
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in shown)


def _clock(at_ms: int | None, story: Story) -> str:
    """Minutes and seconds of the rehearsal's clock since the job was submitted."""
    began = story.job.get("created_at_ms", at_ms or 0)
    seconds = max(0, ((at_ms or began) - began) // 1000)
    return f"+{seconds // 60:02d}:{seconds % 60:02d}"


def last_screen(console: Console, found: dict[str, Any]) -> None:
    """The end: where it trained, what it cost, and whether the weights are the same."""
    table = Table(title="where it trained", box=None, pad_edge=False)
    for name in ("placement", "offer", "from", "to", "resumed at step", "ended because"):
        table.add_column(name)
    trained = [p for p in found["placements"] if p["training_at_ms"]]
    begin = min(p["created_at_ms"] for p in found["placements"])
    for p in trained:
        end = p["stopped_at_ms"] or p["gone_at_ms"]
        table.add_row(
            p["id"].rsplit("-", 1)[-1], p["offer"], _span(p["training_at_ms"] - begin), _span(end - begin),
            str(p["resumed_step"] or 0), p["reason"],
        )  # fmt: skip
    console.print(table)
    for handover in found["migrations"] + found["interruptions"]:
        console.print(
            f"{handover['from']} → {handover['to']}: pause {handover['pause_s']:.0f} s "
            f"({handover['pause_s'] / found['clock_rate']:.1f} s of real time), {handover['steps_redone']} steps redone",
            highlight=False,
        )
    ledger = found["ledger"]
    console.print(
        f"paid ${ledger['paid_usd']:.4f} (the lab's own bill: ${ledger['lab_bill_usd']:.4f}, within a cent: "
        "EC2 tells when a machine was launched, not when its meter began some seconds later); "
        f"staying on the first offer would have cost ${ledger['stay_usd']:.4f} so far, as AWS charges each hour of spot at "
        f"the price when it began, and ${ledger['stay_usd_h']:.2f}/h from the next hour on, against "
        f"${ledger['here_usd_h']:.2f}/h where it ended",
        highlight=False,
    )
    same = found["final_weights_sha256"] == found["uninterrupted_weights_sha256"]
    console.print(
        f"final weights {found['final_weights_sha256'][:16]}… "
        + ("bit-identical to the uninterrupted run" if same else "DIFFER from the uninterrupted run"),
        style="bold green" if same else "bold red",
        highlight=False,
    )
    console.print(
        f"nodes created: {found['nodes_created']}, nodes left: {found['nodes_left']}, "
        f"{found['wall_s']:.0f} s of real time at {found['clock_rate']:g} times its speed",
        highlight=False,
    )


def _span(ms: int) -> str:
    return f"+{ms // 60_000:02d}:{ms // 1000 % 60:02d}"
