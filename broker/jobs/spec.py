"""The job file: YAML to `JobSpec`, strict. Every mistake has its file, line, column and, where we know, a way out.

    spec, source = load_job(Path("train.yaml"))

Reads the file and looks at the source folder; no clock, no network. The fields are in docs/reference/job-file.md.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TypeVar

from broker.core.errors import Place, SpecError
from broker.core.ids import slug
from broker.core.offer import Market
from broker.core.size import format_size, parse_size
from broker.core.spec import MAX_NODES, Checkpoint, DataSet, JobSpec, KeepBest, Priority, Resources
from broker.core.time import LAST_MS, LONGEST_S, from_iso, parse_duration
from broker.core.yaml_text import Mapped, Node, Scalar, Sequence, did_you_mean, parse
from broker.jobs import later
from broker.jobs.gpus import check_gpu, read_gpus
from broker.jobs.source import SourceRequest, missing_requirements, missing_script, source_files
from broker.textfile import read_text

TOP = (
    "name",
    "team",
    "labels",
    "priority",
    "resources",
    "source",
    "setup",
    "run",
    "env",
    "data",
    "checkpoint",
    "stop",
    "policy",
)
RESOURCES = ("nodes", "gpus", "market", "allow", "deny")
SOURCE = ("path", "exclude")
DATA = ("from", "size")
CHECKPOINT = ("dir", "every", "keep_last", "keep_best")
KEEP_BEST = ("metric", "mode")
STOP = ("deadline",)
CLOUDS = ("aws", "gcp", "azure", "lambda", "coreweave", "local")

# A job file is a page, and `run` may be a script. A larger one brings its script along in source.
MAX_BYTES = 128 * 1024
# Each retention lists what is kept; more is no retention.
MAX_KEEP_LAST = 1000
# 1 EiB. Decisions reckon in floats, which an integer without bound may not fit.
MAX_DATA_BYTES = 1 << 60

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?")
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHERE = re.compile(r"[\w*.-]+(/[\w*.-]+){0,2}")
_OURS = ("BROKER_", "SKYPILOT_")

V = TypeVar("V")


def load_job(path: Path) -> tuple[JobSpec, SourceRequest | None]:
    """Read a job file. The spec's `source` is None: its hash is not known before the tarball is built.

    Raises:
        SpecError: the file cannot be read, or something in it is wrong.
    """
    return parse_job(read_text(path, SpecError, max_bytes=MAX_BYTES), str(path), path.parent)


def parse_job(text: str, file: str, folder: Path) -> tuple[JobSpec, SourceRequest | None]:
    """Read the text of a job file.

    Args:
        file: For messages.
        folder: What `source` is relative to.

    Raises:
        SpecError: something in it is wrong.
    """
    top = parse(text, file, SpecError)
    top.only(TOP, later.TOP)
    checkpoint = _checkpoint(top)
    run = top.need("run", "the command that trains: run: python train.py")
    spec = JobSpec(
        name=_name(top.need("name", "name: my-training")),
        run=run.as_str(),
        resources=_resources(top, has_checkpoint=checkpoint is not None),
        team=_text(top, "team"),
        labels=_labels(top),
        priority=Priority(node.as_choice(Priority)) if (node := top.get("priority")) else Priority.NORMAL,
        setup=_text(top, "setup"),
        env=_env(top),
        data=_data(top),
        checkpoint=checkpoint,
        deadline_ms=_deadline(top),
        policy=_text(top, "policy"),
    )
    source = _source(top, folder)
    _check_files(spec, source, top, text)
    return spec, source


def check_spec(spec: JobSpec) -> JobSpec:
    """What the reader above promises, checked again for a spec from outside: a client may have a reader of its own.

    Raises:
        SpecError: a value that no job file could have given.
    """
    gpus = tuple(check_gpu(gpu) for gpu in spec.resources.gpus)
    checkpoint = spec.checkpoint
    problems = {
        "name": _NAME.fullmatch(spec.name) is None,
        "run": not spec.run.strip(),
        "resources.gpus": not gpus,
        "resources.nodes": not 1 <= spec.resources.nodes <= MAX_NODES,
        "resources.markets": not spec.resources.markets,
        "env": any(_env_problem(name) for name in spec.env),
        "checkpoint.dir": checkpoint is not None and not _is_own_folder(checkpoint.dir),
        "checkpoint.keep_last": checkpoint is not None and not 1 <= checkpoint.keep_last <= MAX_KEEP_LAST,
        "checkpoint.every_s": checkpoint is not None and not 1 <= checkpoint.every_s <= LONGEST_S,
        "data.size_bytes": any(not 0 <= data.size_bytes <= MAX_DATA_BYTES for data in spec.data),
        "deadline_ms": spec.deadline_ms is not None and not 0 <= spec.deadline_ms <= LAST_MS,
    }
    if wrong := [name for name, is_wrong in problems.items() if is_wrong]:
        raise SpecError(f"not a job: {', '.join(wrong)} has a value that no job file may have")
    return replace(spec, resources=replace(spec.resources, gpus=gpus))


# -- one function a field ---------------------------------------------------------------------------------------------


def _name(node: Node) -> str:
    name = node.as_str()
    if _NAME.fullmatch(name) is None:
        raise node.fail(
            f"name: {name!r} must be 1 to 48 lower-case letters, digits and dashes", f"name: {slug(name, 48)}"
        )
    return name


def _text(top: Mapped, key: str) -> str | None:
    node = top.get(key)
    return None if node is None else node.as_str()


def _resources(top: Mapped, *, has_checkpoint: bool) -> Resources:
    resources = top.need("resources", "resources: {gpus: H100:8}").as_mapped()
    resources.only(RESOURCES, later.RESOURCES)
    gpus = read_gpus(resources.need("gpus", "gpus: H100:8"))
    nodes = node.as_int(1, MAX_NODES) if (node := resources.get("nodes")) else 1
    markets = _markets(resources.get("market"), has_checkpoint)
    return Resources(gpus, nodes, markets, _places(resources, "allow"), _places(resources, "deny"))


def _markets(node: Node | None, has_checkpoint: bool) -> tuple[Market, ...]:
    if node is None:
        # What cannot be resumed must not be interrupted, unless the file says so itself.
        return Resources(()).markets if has_checkpoint else (Market.ON_DEMAND,)
    items = list(node) if isinstance(node, Sequence) else [node]
    markets: list[Market] = []
    for item in items:
        market = Market(item.as_choice(Market))
        if market in markets:
            raise item.fail(f"{item.name}: {market} is there twice")
        markets.append(market)
    if not markets:
        raise node.fail(f"{node.name} is empty", f"choose from {', '.join(Market)}")
    return tuple(markets)


def _places(resources: Mapped, key: str) -> tuple[str, ...]:
    node = resources.get(key)
    patterns = []
    for item in node.as_sequence() if node is not None else ():
        pattern = item.as_str()
        if _WHERE.fullmatch(pattern) is None:
            raise item.fail(f"{item.name}: {pattern!r} is not cloud, cloud/region or cloud/region/zone")
        cloud = pattern.split("/")[0]
        if "*" not in cloud and cloud not in CLOUDS:
            hint = did_you_mean(cloud, CLOUDS) or f"clouds are {', '.join(CLOUDS)}"
            raise item.fail(f"{item.name}: unknown cloud {cloud!r}", hint)
        patterns.append(pattern)
    return tuple(patterns)


def _labels(top: Mapped) -> dict[str, str]:
    node = top.get("labels")
    return {} if node is None else {key: value.as_str() for key, value in node.as_mapped().items()}


def _env(top: Mapped) -> dict[str, str]:
    node = top.get("env")
    if node is None:
        return {}
    mapped, values = node.as_mapped(), {}
    for key, value in mapped.items():
        if problem := _env_problem(key):
            raise SpecError(f"env.{key}: {problem}", mapped.place(key))
        if not isinstance(value, Scalar) or value.value is None:
            raise value.wrong("text or a number", 'an empty value is ""')
        values[key] = value.text  # as written: 1e3 stays 1e3 and yes stays yes
    return values


def _env_problem(name: str) -> str | None:
    if _ENV.fullmatch(name) is None:
        return "not a name that a shell can set"
    return "names with this start are set by the broker" if name.startswith(_OURS) else None


def _data(top: Mapped) -> tuple[DataSet, ...]:
    node = top.get("data")
    sets = []
    for item in node.as_sequence() if node is not None else ():
        mapped = item.as_mapped()
        mapped.only(DATA, later.DATA)
        size = _as(mapped.need("size", "size: 300GiB; it prices a move"), _data_size, "a size", "300GiB")
        sets.append(DataSet(size, _text(mapped, "from") or ""))
    return tuple(sets)


def _checkpoint(top: Mapped) -> Checkpoint | None:
    node = top.get("checkpoint")
    if node is None:
        return None
    mapped = node.as_mapped()
    mapped.only(CHECKPOINT, later.CHECKPOINT)
    folder = mapped.need("dir", "where the job writes its checkpoints: dir: checkpoints")
    if not _is_own_folder(folder.as_str()):
        raise folder.fail(f"{folder.name}: {folder.value} is not a folder of its own", "dir: checkpoints")
    checkpoint = Checkpoint(folder.as_str(), keep_best=_keep_best(mapped))
    if (every := mapped.get("every")) is not None:
        checkpoint = replace(checkpoint, every_s=_as(every, _positive_duration, "a duration", "10m"))
    if (keep_last := mapped.get("keep_last")) is not None:
        checkpoint = replace(checkpoint, keep_last=keep_last.as_int(1, MAX_KEEP_LAST))
    return checkpoint


def _is_own_folder(text: str) -> bool:
    """The agent copies, sets aside and restores what is in there: it must not be the job's whole world."""
    path = Path(text)
    return ".." not in path.parts and path not in (Path("/"), Path("."))


def _keep_best(checkpoint: Mapped) -> KeepBest | None:
    node = checkpoint.get("keep_best")
    if node is None:
        return None
    mapped = node.as_mapped()
    mapped.only(KEEP_BEST, later.KEEP_BEST)
    mode = found.as_choice(("min", "max")) if (found := mapped.get("mode")) else "min"
    return KeepBest(mapped.need("metric", "metric: eval_loss").as_str(), mode)


def _deadline(top: Mapped) -> int | None:
    node = top.get("stop")
    if node is None:
        return None
    mapped = node.as_mapped()
    mapped.only(STOP, later.STOP)
    deadline = mapped.get("deadline")
    return None if deadline is None else _as(deadline, from_iso, "a date and time", "2026-12-24T08:00:00Z")


def _source(top: Mapped, folder: Path) -> SourceRequest | None:
    node = top.get("source")
    if node is None:
        return None
    exclude: tuple[str, ...] = ()
    path = node
    if isinstance(node, Mapped):
        node.only(SOURCE, later.SOURCE)
        path = node.need("path", "path: .")
        patterns = node.get("exclude")
        exclude = tuple(item.as_str() for item in patterns.as_sequence()) if patterns is not None else ()
    found = folder / path.as_str()
    if not found.is_dir():
        what = "is not a folder" if found.exists() else "does not exist"
        raise path.fail(
            f"source: {found} {what}", "it is relative to the job file; source: . is its own folder"
        )
    return SourceRequest(found, exclude)


def _check_files(spec: JobSpec, source: SourceRequest | None, top: Mapped, text: str) -> None:
    run = top.need("run", "")
    try:
        files = source_files(source) if source is not None else []
    except SpecError as error:
        raise top.need("source", "").fail(error.message, error.hint) from None
    missing: list[tuple[str, str, Node]] = []
    if spec.setup is not None and (wanted := missing_requirements(spec.setup, files)):
        missing.append((wanted, f"setup installs {wanted}", top.need("setup", "")))
    # Without a source, setup may bring any script.
    if (source is not None or spec.setup is None) and (script := missing_script(spec.run, spec.setup, files)):
        missing.append((script, f"run starts {script}", run))
    for file, what, node in missing:
        message, hint = "but nothing brings it to the node", "add source: ."
        if source is not None:
            message, hint = "which is not in source", _nearest(file, files) or f"source is {source.folder}"
        raise SpecError(f"{what}, {message}", _place_of(file, node.at, text), hint)


def _nearest(file: str, files: list[str]) -> str | None:
    """A hint only among files of its kind: a job file is nobody's misspelt script."""
    return did_you_mean(file, [name for name in files if PurePath(name).suffix == PurePath(file).suffix])


def _place_of(word: str, start: Place, text: str) -> Place:
    """Where a word of a value stands: the first of its lines that has the word."""
    for number, line in enumerate(text.splitlines()[start.line - 1 :], start.line):
        column = line.find(word, start.column - 1 if number == start.line else 0)
        if column >= 0:
            return Place(start.file, number, column + 1, line)
    return start


def _as(node: Node, read: Callable[[str], V], wanted: str, example: str) -> V:
    """A text that a reader of `broker.core` understands; its ValueError is for the person."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        raise node.wrong(wanted, f"as in {example}")
    try:
        return read(node.as_str())
    except ValueError as error:
        raise node.fail(f"{node.name}: {error}") from None


def _data_size(text: str) -> int:
    size_bytes = parse_size(text)
    if size_bytes > MAX_DATA_BYTES:
        raise ValueError(f"{text[:40]!r} is more than {format_size(MAX_DATA_BYTES)}")
    return size_bytes


def _positive_duration(text: str) -> int:
    seconds = parse_duration(text)
    if seconds < 1:
        raise ValueError(f"{text!r} must be at least 1s")
    return seconds
