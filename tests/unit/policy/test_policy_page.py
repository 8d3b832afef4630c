"""The page about policy files says what the reader does."""

import re
from collections.abc import Iterator
from pathlib import Path

from broker.core.errors import PolicyError
from broker.core.yaml_text import parse
from broker.policy.load import load_policy, mistakes
from broker.policy.section import Key, Table
from broker.policy.sections import KEYS, read_policy

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "policy-file.md").read_text()
ROWS = re.findall(r"^\| `([a-z0-9_.]+)` \| ?(.*?) ?\| ", PAGE, re.MULTILINE)


def test_the_example_loads() -> None:
    example, *_ = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert load_policy(example, "example.yaml").name == "ride-the-spot"


def _known_keys(path: str, text: str) -> list[str]:
    """The keys of a section, as the reader itself lists them to somebody who got one wrong."""
    (error,) = (e for e in mistakes(text, "p.yaml") if e.message.startswith("unknown key"))
    assert error.hint is not None
    names = error.hint.removeprefix("known keys are ").split(", ")
    return [f"{path}.{name}" if path else name for name in names]


def test_every_key_has_its_row_and_every_row_its_key() -> None:
    sections = {
        "": "policy: p\nzzzzzz: 1\n",
        "match": "policy: p\nmatch: {zzzzzz: 1}\n",
        "candidates": "policy: p\ncandidates: {zzzzzz: 1}\n",
        "candidates.regions": "policy: p\ncandidates: {regions: {zzzzzz: 1}}\n",
        "place": "policy: p\nplace: {zzzzzz: 1}\n",
        "migrate": "policy: p\nmigrate: {zzzzzz: 1}\n",
        "verify": "policy: p\nverify: {zzzzzz: 1}\n",
        "budget": "policy: p\nbudget: {zzzzzz: 1}\n",
        "stop": "policy: p\nstop: {nan_loss: true, zzzzzz: 1}\n",
        "limits": "policy: p\nlimits: {zzzzzz: 1}\n",
    }
    known = {key for path, text in sections.items() for key in _known_keys(path, text)}
    rows = {key for key, _ in ROWS}
    assert rows == known - (set(sections) - {"migrate"})


def _table(keys: Table, path: str = "") -> Iterator[tuple[str, Key]]:
    for name, key in keys.items():
        if key.kind is not None:
            yield f"{path}{name}", key
        yield from _table(key.inside, f"{path}{name}.")


def test_the_rows_are_those_of_the_table_that_the_reader_goes_by() -> None:
    rows = [
        f"| `{name}` | {key.default} | {key.meaning} |".replace("|  |", "| |") for name, key in _table(KEYS)
    ]
    assert re.findall(r"^\| `[a-z0-9_.]+` \|.*$", PAGE, re.MULTILINE) == rows


def test_the_defaults_on_the_page_are_the_readers() -> None:
    bare = load_policy("policy: p\n", "p.yaml")
    for key, default in ROWS:
        if not default.startswith("`"):
            continue
        text = "policy: p\n"
        *path, last = key.split(".")
        text += "".join(f"{'  ' * depth}{part}:\n" for depth, part in enumerate(path))
        text += f"{'  ' * len(path)}{last}: {default.strip('`')}\n"
        if path == ["stop"]:
            continue  # the whole section is absent by default
        written, errors = read_policy(parse(text, "p.yaml", PolicyError), "p.yaml", bare.sha256)
        assert errors == [], key
        assert written == bare, key


def test_the_example_of_extends_does_what_the_page_says(tmp_path: Path) -> None:
    for text in re.findall(r"```yaml\n(# .*?)```", PAGE, re.DOTALL):
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
    file = tmp_path / "nights.yaml"
    policy = load_policy(file.read_text(), str(file))
    assert (policy.migrate.min_saving, policy.migrate.hold_s) == (0.2, 1800)
    assert policy.candidates.regions_deny == ("cn-*",)


def test_the_mistake_on_the_page_is_told_like_that() -> None:
    text = "policy: night\ncandidates:\n  where:\n    - 'offer.prise < 3.0'\n"
    (error,) = mistakes(text, "policies/night.yaml")
    assert f"```text\n{error}\n```" in PAGE
