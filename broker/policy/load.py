"""Policy files from disk: one text to one policy, and a folder that is read again while the daemon runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker.core.errors import NotFound, PolicyError
from broker.core.offer import Offer
from broker.core.ports import Check
from broker.core.spec import JobSpec
from broker.core.yaml_text import Mapped, did_you_mean
from broker.policy import select as selection
from broker.policy.extend import Family, is_defaults, same
from broker.policy.schema import Policy
from broker.policy.sections import read_policy
from broker.policy.ties import tie_error, ties
from broker.textfile import read_text

# A policy is a page. The bound keeps a file that was put here by mistake from stalling the daemon.
MAX_BYTES: Final = 64 * 1024


def load_policy(text: str, file: str) -> Policy:
    """One policy file. What it extends is read from the folder of `file`.

    Args:
        text: Its content.
        file: Path, for messages and for the places that decisions keep.

    Raises:
        PolicyError: the first mistake in the file; `mistakes` has all.
    """
    policy, errors = judged(text, file)
    if errors:
        raise errors[0]
    assert policy is not None
    return policy


def mistakes(text: str, file: str) -> list[PolicyError]:
    """Every mistake in a policy file, in the order of its lines; none when it is well."""
    return judged(text, file)[1]


def judged(text: str, file: str) -> tuple[Policy | None, list[PolicyError]]:
    """A policy file with every mistake in it. With a mistake the policy must not be used."""
    return _read(text, file, Family(read_file))


def read_file(path: Path) -> str:
    """The text of a policy file.

    Raises:
        PolicyError: it cannot be read, is no ordinary file, no UTF-8, or far too long.
    """
    return read_text(path, PolicyError, max_bytes=MAX_BYTES)


def policy_files(folder: Path) -> list[Path]:
    """The policy files of a folder, by name. Tests (``*.test.yaml``) and defaults (``*.defaults.yaml``) are none."""
    return sorted(
        path for path in folder.glob("*.yaml") if not path.name.endswith((".test.yaml", ".defaults.yaml"))
    )


def defaults_files(folder: Path) -> list[Path]:
    """What the policies of a folder may extend and that is no policy itself, by name."""
    return sorted(folder.glob("*.defaults.yaml"))


def _read(text: str, file: str, family: Family) -> tuple[Policy | None, list[PolicyError]]:
    try:
        document, sha256 = family.whole(text, file)
    except PolicyError as error:
        return None, [error]
    policy, errors = read_policy(document, file, sha256, is_defaults=is_defaults(file))
    told = [_at_home(error, file, document) for error in errors]
    return policy, sorted(told, key=lambda e: (e.place.line, e.place.column) if e.place else (0, 0))


def _at_home(error: PolicyError, file: str, document: Mapped) -> PolicyError:
    """A mistake in a value that was inherited shows only here: with the place of `extends` too."""
    if error.place is None or error.place.file == file:
        return error
    return PolicyError(f"{error.message}, as {document['extends'].at} extends it", error.place, error.hint)


@dataclass(frozen=True)
class Changes:
    """What a reload found, by policy name.

    Attributes:
        added: Not there before.
        changed: Other content than before, now in force.
        removed: No longer there.
        errors: All mistakes as of now, also those that an earlier reload already told of.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    errors: tuple[PolicyError, ...] = ()

    def __bool__(self) -> bool:
        """Whether the policies in force are others than before."""
        return bool(self.added or self.changed or self.removed)


@dataclass(frozen=True)
class _Held:
    """What is known of one file.

    Attributes:
        texts: By file, what was read last: its own, and of those that it extends. Empty where it must be judged anew.
        policy: In force.
        errors: Why it is not the newest.
    """

    texts: Mapping[str, str | None]
    policy: Policy | None
    errors: tuple[PolicyError, ...] = field(default=())


class PolicySet:
    """The policies of a folder. A broken edit leaves the policy before it in force, and is told in `errors`.

    Changes are found by content, never by time stamp: two edits within one tick of a clock, or a copy that
    keeps its times, are seen too. Not safe for threads; the daemon reloads and selects on its loop.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, _Held] = {}
        self._folder_error: PolicyError | None = None
        self.reload()

    @property
    def policies(self) -> Mapping[str, Policy]:
        """In force, by name."""
        held = sorted(self._files.items())
        return {entry.policy.name: entry.policy for _, entry in held if entry.policy is not None}

    @property
    def errors(self) -> tuple[PolicyError, ...]:
        """Mistakes in the folder as it was read last."""
        folder = (self._folder_error,) if self._folder_error else ()
        return (*folder, *(error for _, held in sorted(self._files.items()) for error in held.errors))

    def checks(self) -> list[Check]:
        """For `broker doctor`: what is in force, and each mistake."""
        names = ", ".join(self.policies) or "none"
        former = ", ".join(
            Path(file).name for file, held in sorted(self._files.items()) if held.policy and held.errors
        )
        detail = f"in force: {names}" + (f"; of {former} the version before the mistake" if former else "")
        mistakes = [Check(error.code, False, str(error)) for error in self.errors]
        return [Check("files", bool(self.policies), detail), *mistakes]

    def get(self, name: str) -> Policy:
        """A policy by its name.

        Raises:
            NotFound: there is none.
        """
        known = self.policies
        if name not in known:
            raise NotFound(
                f"there is no policy named {name}; {did_you_mean(name, known) or 'see broker policy list'}"
            )
        return known[name]

    def select(self, spec: JobSpec, project_id: str) -> Policy:
        """The policy that decides for a job: see `broker.policy.select`.

        Raises:
            NotFound: the job names a policy that is not there, or no policy speaks for it.
            PolicyError: two acting policies with the same precedence match.
        """
        return selection.select(self.policies.values(), spec, project_id)

    def choose(
        self, spec: JobSpec, project_id: str, former: str | None, trained_on: Offer | None
    ) -> selection.Choice:
        """The same for a job that was taken in already, which no mistake in a file may stop."""
        return selection.choose(self.policies.values(), spec, project_id, former, trained_on)

    def beside(self, chosen: Policy, spec: JobSpec, project_id: str) -> list[Policy]:
        """Observing policies that match the job without deciding for it."""
        return selection.beside(self.policies.values(), chosen, spec, project_id)

    def reload(self) -> Changes:
        """Read the folder again. Never raises: mistakes are in `errors`, and what was in force stays."""
        before = self.policies
        if not self.folder.is_dir():
            # A folder that is gone is a mistake of whoever runs us, and no wish to drop every policy.
            self._folder_error = PolicyError(f"{self.folder}: there is no such folder")
            return Changes(errors=self.errors)
        self._folder_error = None
        files = {str(p): self._file(p) for p in policy_files(self.folder)}
        self._files = _without_namesakes(_without_ties(files, before), before)
        after = self.policies
        return Changes(
            added=tuple(name for name in after if name not in before),
            changed=tuple(n for n, p in after.items() if n in before and p.sha256 != before[n].sha256),
            removed=tuple(name for name in before if name not in after),
            errors=self.errors,
        )

    def _file(self, path: Path) -> _Held:
        file = str(path)
        old = self._files.get(file)
        in_force = old.policy if old else None
        if old is not None and old.texts and same(old.texts, read_file):
            return old
        try:
            text = read_file(path)
        except PolicyError as error:
            return _Held({}, in_force, (error,))
        family = Family(read_file)
        policy, errors = _read(text, file, family)
        return _Held({file: text, **family.texts}, in_force if errors else policy, tuple(errors))


def _without_ties(files: dict[str, _Held], before: Mapping[str, Policy]) -> dict[str, _Held]:
    """Acting policies that tie for every job: those in force before stay, and a newcomer among them is a mistake.

    When all of them are read at once, at a start, nobody knows which came first. Then all are in force: jobs go on
    under the one that decides for them, and new ones are refused until one of the files is mended.
    """
    was = {policy.file: policy for policy in before.values()}
    for group in ties(held.policy for _, held in sorted(files.items()) if held.policy is not None):
        stay = [p for p in group if p.name in before and before[p.name].sha256 == p.sha256]
        stay = stay or ([] if before else list(group))
        first = (stay or group)[0]
        for policy in group:
            if policy is first:
                continue
            in_force = policy if policy in stay else was.get(policy.file)
            errors = (*files[policy.file].errors, tie_error(policy, first))
            # Its text is forgotten, so that the file is judged anew once another one has been mended.
            files[policy.file] = _Held({}, in_force, errors)
    return files


def _without_namesakes(files: dict[str, _Held], before: Mapping[str, Policy]) -> dict[str, _Held]:
    """Two files, one name: the one that had it before keeps it, else the first by path. The other is a mistake."""
    owner: dict[str, str] = {}
    had = {policy.file for policy in before.values()}
    for file in sorted(files, key=lambda f: (f not in had, f)):
        policy = files[file].policy
        if policy is None:
            continue
        first = owner.setdefault(policy.name, file)
        if first != file:
            error = PolicyError(
                f"{file}: the name {policy.name} is taken by {first}",
                hint="a policy's name is unique in its folder",
            )
            # Its text is forgotten, so that the file is judged anew once the other one has given the name up.
            files[file] = _Held({}, None, (*files[file].errors, error))
    return files
