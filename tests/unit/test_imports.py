"""The import table of ARCHITECTURE.md is true."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ANYTHING_BUT = {"broker.daemon": {"lab", "broker.cli"}, "broker.assembly": {"lab", "broker.cli"}}


def table() -> dict[str, set[str]]:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `([a-z.]+)` \| ((?:`[a-z.]+` ?)*)\|$", text, re.MULTILINE)
    return {room: set(re.findall(r"`([a-z.]+)`", allowed)) for room, allowed in rows}


def room_of(module: str) -> str:
    parts = module.split(".")
    if module.startswith("broker.settings_"):
        return "broker.settings"  # parts of it
    return ".".join(parts[:2]) if parts[0] == "broker" and len(parts) > 1 else parts[0]


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file}: relative import"
            names = (
                {f"{node.module}.{alias.name}" for alias in node.names}
                if node.module == "broker"
                else {node.module}
            )
            found |= names
    return {name for name in found if name.split(".")[0] in ("broker", "providers", "lab")}


FILES = sorted(f for top in ("broker", "providers", "lab") for f in (ROOT / top).rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_room_imports_only_what_the_table_allows(file: Path):
    module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    room = room_of(module)
    if module in ("broker", "broker.__main__"):
        return
    for name in imports(file):
        target = room_of(name)
        if target in (room, "broker", "broker.__version__"):
            continue
        if room in ANYTHING_BUT:
            assert target not in ANYTHING_BUT[room], f"{module} imports {name}"
        else:
            assert target in table()[room], f"{module} imports {name}; ARCHITECTURE.md does not allow it"


def test_the_table_names_every_room():
    rooms = {room_of(".".join(f.relative_to(ROOT).with_suffix("").parts)) for f in FILES}
    rooms -= {"broker", "broker.__init__", "broker.__main__", "broker.assembly", "broker.daemon"}
    assert rooms <= set(table()), "a room without a row"


def test_the_node_side_is_python_39():
    for file in FILES:
        if file.is_relative_to(ROOT / "broker/wire") or file.is_relative_to(ROOT / "broker/node"):
            ast.parse(file.read_text(), feature_version=(3, 9))


def test_architecture_fits_two_hundred_lines():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 200
