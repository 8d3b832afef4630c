"""A ``*.test.yaml`` file: every mistake at its line and column, as in policy files.

policy: ride-the-spot.yaml          # beside this file
given: {job: ..., prices: ...}      # what all cases have in common; a case adds and overrides, key by key
cases:
  - name: leaves a dear place
    prices: {aws/use1-az6/p5.48xlarge/spot: "32.0x30m 61.0"}
    expect: [{at: 45m, decision: move}]
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from broker.core.errors import Place, PolicyError
from broker.core.time import DAY_S, HOUR_S, MS, format_duration, from_iso
from broker.core.yaml_text import Mapped, Node, parse
from broker.decision.subject import Caps, Timing
from broker.paper.testing.case import Case, CaseFile
from broker.paper.testing.expected import read_expectations, read_finally, read_never
from broker.paper.testing.job import read_job
from broker.paper.testing.offers import read_machines, read_market
from broker.paper.testing.section import Section
from broker.policy import fields
from broker.policy.load import load_policy, mistakes, read_file
from broker.policy.schema import Mode, Policy
from broker.textfile import read_text

SUFFIX: Final = ".test.yaml"
# 2026-01-05, a Monday, at midnight UTC.
START_MS: Final = 1_767_571_200_000
POLL_S: Final = 300

_MAX_BYTES: Final = 512 * 1024
_MOST_CASES: Final = 200
_MOST_POLLS: Final = 20_000
_LONGEST_S: Final = 30 * DAY_S
_KEYS: Final = (
    "name",
    "policy",
    "mode",
    "start",
    "until",
    "poll",
    "job",
    "prices",
    "stock",
    "offers",
    "spot_failure_rate",
    "spot_life",
    "timing",
    "limits",
    "notice",
    "expect",
    "never",
    "finally",
)
# Of these a case adds to what is given, key by key; of all others it overrides the whole.
_ADDED: Final = ("job", "prices", "stock", "offers", "spot_life", "timing", "limits")


def case_files(folder: Path) -> list[Path]:
    """The test files of a folder, by name."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def read_cases(path: Path) -> tuple[CaseFile | None, list[PolicyError]]:
    """A file of tests, or every mistake in it and in the policies that it names. Never raises."""
    errors: list[PolicyError] = []
    try:
        document = parse(read_text(path, PolicyError, max_bytes=_MAX_BYTES), str(path), PolicyError)
    except PolicyError as error:
        return None, [error]
    top = Section(document, errors)
    top.only(("policy", "mode", "given", "cases"))
    reader = _Reader(path, errors)
    given = top.section("given")
    if given is not None:
        given.only(key for key in _KEYS if key not in ("name", "policy", "mode"))
    shared = given.node if given is not None else None
    if "cases" not in document:
        top.note(PolicyError("cases is missing", document.at, "cases: [{name: ..., expect: [...]}]"))
    listed = top.read("cases", _cases, ())
    cases = [reader.case(node, shared, document) for node in listed]
    names: dict[str, Place] = {}
    for case in cases:
        if case is None:
            continue
        first = names.setdefault(case.name, case.place)
        if first is not case.place:
            top.note(PolicyError(f"the name {case.name!r} is taken on line {first.line}", case.place))
    if errors:
        return None, _in_order(errors)
    return CaseFile(path, tuple(c for c in cases if c is not None), tuple(reader.policies)), []


def _cases(node: Node) -> tuple[Mapped, ...]:
    listed = node.as_sequence()
    if not len(listed):
        raise node.fail("cases is empty", "write at least one")
    if len(listed) > _MOST_CASES:
        raise listed[_MOST_CASES].fail(f"{len(listed)} cases; {_MOST_CASES} are allowed in a file")
    return tuple(item.as_mapped() for item in listed)


def _in_order(errors: Iterable[PolicyError]) -> list[PolicyError]:
    """Of given values each case tells the same mistakes: once is enough."""
    once = {str(error): error for error in errors}
    return sorted(
        once.values(), key=lambda e: (e.place.file, e.place.line, e.place.column) if e.place else ("", 0, 0)
    )


@dataclass
class _Reader:
    """Reads the cases of one file."""

    path: Path
    errors: list[PolicyError]
    policies: dict[Path, Policy | None] = field(default_factory=dict)

    def case(self, node: Mapped, given: Mapped | None, top: Mapped) -> Case | None:
        """One case; None with a mistake in it."""
        Section(node, self.errors).only(_KEYS)
        part = Section(_merged(node, given, top), self.errors)
        before = len(self.errors)
        name = part.read("name", Node.as_str, "")
        if "name" not in node:
            part.note(PolicyError("name is missing", node.at, "name: leaves a dear place"))
        policy = self._policy(part)
        start_ms = part.read("start", _moment, START_MS)
        poll_s = part.read("poll", fields.positive_duration, POLL_S)
        machines = read_machines(part)
        found = read_market(part, machines, start_ms, poll_s)
        job_part = part.section("job")
        if job_part is None and "job" not in part.node:
            part.note(PolicyError("job is missing", node.at, "job: {gpus: H100:8, work: 40h}"))
        job = None
        if job_part is not None:
            offers, prices = (found.offers, found.first_prices) if found else ({}, None)
            job = read_job(job_part, offers, prices, start_ms)
        expect, never = read_expectations(part), read_never(part)
        finally_ = read_finally(part)
        timing, caps = _timing(part), _caps(part)
        notice = part.read("notice", Node.as_bool, True)
        if "expect" not in node and "never" not in node and "finally" not in node:
            part.note(PolicyError("the case expects nothing", node.at, "expect, never or finally"))
        if len(self.errors) > before or policy is None or found is None or job is None:
            return None
        named_s = [w.to_ms // MS for w in (*(e.when for e in expect), *(n.when for n in never if n.when))]
        named_s += [track // MS for track in found.lengths_ms]
        to_the_end = "finally" in part.node or any(n.when is None for n in never)
        until_s = self._until(part, named_s, poll_s, to_the_end)
        if not self._few_polls(part, until_s, poll_s):
            return None
        return Case(
            name=name,
            place=node.at,
            policy=policy,
            start_ms=start_ms,
            until_ms=start_ms + until_s * MS,
            job=job,
            market=found.market,
            offers=tuple(found.offers.values()),
            timing=timing,
            caps=caps,
            notice=notice,
            expect=expect,
            never=never,
            finally_=finally_,
        )

    def _policy(self, part: Section) -> Policy | None:
        if "policy" not in part.node:
            part.note(PolicyError("policy is missing", part.node.at, "policy: ride-the-spot.yaml"))
            return None
        name = part.read("policy", Node.as_str, None)
        mode = part.read("mode", fields.choice(Mode), None)
        if name is None:
            return None
        path = self.path.parent / name
        if path not in self.policies:
            self.policies[path] = self._load(path, part.node["policy"].at)
        policy = self.policies[path]
        return replace(policy, mode=mode) if policy is not None and mode is not None else policy

    def _load(self, path: Path, at: Place) -> Policy | None:
        if not path.is_file():
            self.errors.append(
                PolicyError(f"policy: there is no file {path}", at, "it is relative to this file")
            )
            return None
        try:
            text = read_file(path)
            wrong = mistakes(text, str(path))
            self.errors += wrong
            return None if wrong else load_policy(text, str(path))
        except PolicyError as error:
            self.errors.append(error)
            return None

    def _until(self, part: Section, named_s: list[int], poll_s: int, to_the_end: bool) -> int:
        """How long the run may last: told, else to the last time that the case names, or to the job's own end."""
        told = part.read("until", fields.positive_duration, None)
        if told is not None:
            return told
        to_the_end_s = min(_LONGEST_S, _MOST_POLLS * poll_s) if to_the_end else 0
        return max(to_the_end_s, HOUR_S, *named_s)

    def _few_polls(self, part: Section, until_s: int, poll_s: int) -> bool:
        polls = until_s // poll_s
        if polls <= _MOST_POLLS:
            return True
        at = part.node.place("until" if "until" in part.node else "poll" if "poll" in part.node else "name")
        told = f"{format_duration(until_s)} with a poll every {format_duration(poll_s)}"
        part.note(PolicyError(f"{told} are {polls} polls; {_MOST_POLLS} are allowed", at))
        return False


def _merged(case: Mapped, given: Mapped | None, top: Mapped) -> Mapped:
    """A case with what is given beneath it; every value keeps its own place."""
    layers: list[Mapped] = [*([given] if given is not None else []), case]
    entries: dict[str, Node] = {}
    keys: dict[str, Place] = {}
    for key in ("policy", "mode"):
        if key in top:
            entries[key], keys[key] = top[key], top.place(key)
    for layer in layers:
        for key, value in layer.items():
            below = entries.get(key)
            if key in _ADDED and isinstance(below, Mapped) and isinstance(value, Mapped):
                value = _over(below, value)
            entries[key], keys[key] = value, layer.place(key)
    return Mapped(entries, keys, case.at, case.name, PolicyError)


def _over(below: Mapped, above: Mapped) -> Mapped:
    entries = {**dict(below.items()), **dict(above.items())}
    keys = {key: above.place(key) if key in above else below.place(key) for key in entries}
    return Mapped(entries, keys, above.at, above.name, PolicyError)


def _moment(node: Node) -> int:
    try:
        return from_iso(node.as_str())
    except ValueError as error:
        raise node.fail(f"{node.name}: {error}") from None


def _timing(part: Section) -> Timing:
    node = part.section("timing")
    if node is None:
        return Timing()
    node.only(("boot", "probe", "restore"))
    default = Timing()
    return Timing(
        boot_s=node.read("boot", fields.duration, default.boot_s),
        probe_s=node.read("probe", fields.duration, default.probe_s),
        restore_s=node.read("restore", fields.duration, default.restore_s),
    )


def _caps(part: Section) -> Caps:
    node = part.section("limits")
    if node is None:
        return Caps()
    node.only(("max_usd_per_hour", "max_nodes"))
    return Caps(
        max_micro_usd_per_hour=node.read("max_usd_per_hour", fields.positive_money, None),
        max_nodes=node.read("max_nodes", lambda value: value.as_int(1), None),
    )
