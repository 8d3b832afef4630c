"""The plot: a person submits a job, the market jumps, a cloud takes its node back, and the job ends as if nothing had been."""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.demo.play import FIRST, GCP, JUMP, Play
from lab.demo.stage import ROOT, Command, DemoFailed, Stage

# Steps that the job must have trained on its new node before that one is taken back.
SETTLED_STEPS = 50
LIMIT_S = 150.0
_SECRET = r"brk_\w+"


@dataclass
class Story:
    """What has been seen so far; the screen draws it and the checker starts from it.

    Attributes:
        job: The job's row, its placements inside.
        said: Lines in the order they happened: (our clock in ms or None, text).
    """

    commands: list[Command] = field(default_factory=list)
    job: dict[str, Any] = field(default_factory=dict)
    placements: list[dict[str, Any]] = field(default_factory=list)
    prices: list[dict[str, Any]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    said: list[tuple[int | None, str]] = field(default_factory=list)
    jumped_at_ms: int | None = None
    interrupted_at_ms: int | None = None
    at_ms: int = 0

    @property
    def job_id(self) -> str:
        """Of the one job."""
        return str(self.job["id"])

    @property
    def share(self) -> float:
        """Steps done, 0..1."""
        progress = self.job.get("progress") or {}
        total = progress.get("total_steps") or 0
        return float(progress.get("step") or 0) / total if total else 0.0

    @property
    def active(self) -> dict[str, Any] | None:
        """The placement that trains now."""
        return next((p for p in self.placements if p["id"] == self.job.get("active_placement_id")), None)


class Director:
    """Plays one rehearsal on a stage."""

    def __init__(self, stage: Stage, play: Play, show: Callable[[Story], None]) -> None:
        self.stage = stage
        self.play = play
        self.story = Story()
        self._show = show
        self._events = 0
        self._first_gcp_step: int | None = None

    def run(self) -> Story:
        """Play to the end.

        Raises:
            DemoFailed: the job did not end well, or not in time.
        """
        deadline = time.monotonic() + LIMIT_S
        self._person()
        while True:
            self._look()
            if self.story.jumped_at_ms is None:
                self._maybe_jump()
            elif self.story.interrupted_at_ms is None:
                self._maybe_interrupt()
            state = self.story.job["state"]
            if state in ("failed", "cancelled"):
                raise DemoFailed(
                    f"the job is {state}: {self.story.job['reason']}\n{self.stage.tail('broker')}"
                )
            if state == "succeeded" and all(p["state"] == "gone" for p in self.story.placements):
                return self.story
            if time.monotonic() > deadline:
                where = [(p["id"], p["state"], p["reason"]) for p in self.story.placements]
                raise DemoFailed(
                    f"not over after {LIMIT_S:.0f} s: job {state}, {where}\n{self.stage.tail('broker')}"
                )
            time.sleep(0.2)

    def _person(self) -> None:
        """What a person types, in the order of the tutorial."""
        config = os.path.relpath(self.stage.config, ROOT)
        created = self._type("token", "create", "--role", "engineer", "--name", "ada", "--config", config)
        found = re.search(_SECRET, created)
        if found is None:
            raise DemoFailed(f"no token in the answer:\n{created}")
        self._type("login", "--config", config, "--token", found.group())
        self._type("jobs", "check", "docs/examples/train.yaml")
        self._type("submit", "docs/examples/train.yaml")
        (job,) = self.stage.get("/jobs", all=True)["items"]
        self.story.job = {"id": job["id"], "state": job["state"]}

    def _type(self, *words: str) -> str:
        """Run a command and show it, without the secret that it may hold; returns what it answered."""
        done = self.stage.type(*words)
        shown = Command(re.sub(_SECRET, "brk_…", done.line), re.sub(_SECRET, "brk_…", done.output))
        self.story.commands.append(shown)
        self._show(self.story)
        return done.output

    def _look(self) -> None:
        story = self.story
        detail = self.stage.get(f"/jobs/{story.job_id}")
        story.job, story.placements = detail["job"], detail["placements"]
        prices = self.stage.get("/prices", gpu="H100", count=1)
        story.prices, story.at_ms = prices["items"], prices["at_ms"]
        loss = (story.job.get("progress") or {}).get("loss")
        if loss is not None and (not story.losses or story.losses[-1] != loss):
            story.losses.append(loss)
        for event in self.stage.get(f"/jobs/{story.job_id}/events", after=self._events)["items"]:
            self._events = event["seq"]
            if text := told(event):
                story.said.append((event["at_ms"], text))
        self._show(story)

    def _say(self, text: str) -> int:
        self.story.said.append((self.story.at_ms, text))
        return self.story.at_ms

    def _maybe_jump(self) -> None:
        """The dear place gets dearer while a cheap one becomes obtainable."""
        if self.story.job["state"] != "running" or self.story.share < self.play.jump_at:
            return
        first = self.story.active
        if first is None or offer_key(first["offer"]) != FIRST:
            raise DemoFailed(
                f"the job should train on {FIRST}; it trains on {first and offer_key(first['offer'])}"
            )
        self.stage.lab.stock(GCP, 1)
        price = self.stage.lab.price(FIRST, factor=JUMP)
        self.story.jumped_at_ms = self._say(
            f"lab: {FIRST} now costs ${price / 1e6:.4f}/h (x {JUMP}); {GCP} has stock"
        )

    def _maybe_interrupt(self) -> None:
        """The cloud of the new node wants it back."""
        active = self.story.active
        if active is None or offer_key(active["offer"]) != GCP or self.story.job["state"] != "running":
            return
        step = (self.story.job.get("progress") or {}).get("step") or 0
        if active["last_step"] is not None and self._first_gcp_step is None:
            self._first_gcp_step = active["last_step"]
        if self._first_gcp_step is None or step < self._first_gcp_step + SETTLED_STEPS:
            return
        if self.story.share < self.play.interrupt_at:
            return
        machine = next(
            m for m in self.stage.lab.state()["machines"] if m["offer_key"] == GCP and m["state"] == "running"
        )
        self.stage.lab.interrupt(machine["id"])
        self.stage.lab.stock(GCP, 0)
        self.story.interrupted_at_ms = self._say("lab: GCP takes its node back: interruption notice")


def offer_key(offer: dict[str, Any]) -> str:
    """The key of an offer document."""
    return f"{offer['cloud']}/{offer['zone']}/{offer['instance_type']}/{offer['market']}"


def told(event: dict[str, Any]) -> str:
    """An event as a line for people; empty for what they need not see."""
    kind, data = event["kind"], event["data"]
    match kind:
        case "decision.place" | "decision.move":
            return f"decision: {data['summary']}"
        case "decision.stay":
            return f"decision: {data['summary']}" if "hold" in data["summary"] else ""
        case "probe.accepted" | "probe.rejected":
            return f"{kind}: {'; '.join(data.get('reasons', [])) or data.get('verdict')}"
        case "checkpoint.fenced":
            return f"HEAD fenced: generation {data['generation']} may commit from now on, no older one"
        case "checkpoint.restored":
            return f"restored checkpoint of step {data.get('step')}"
        case "notice.received" if data["source"] != "shutdown":
            return f"node: interruption notice ({data['source']}), {data['seconds_left']:.0f} s left"
        case "job.running" | "job.moving" | "job.recovering" | "job.succeeded" | "job.failed":
            return f"{kind}: {data.get('reason', '')}"
        case "placement.releasing":
            return f"{event['placement_id'].rsplit('-', 1)[1]} released: {data.get('reason', '')}"
        case "placement.gone":
            return (
                f"{event['placement_id'].rsplit('-', 1)[1]} gone: the cloud confirms that its node is no more"
            )
    return ""
