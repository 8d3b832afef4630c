"""Writes the generated pages of docs/reference from the code, or checks that they are what the code says.

    python -m docs.generate            write
    python -m docs.generate --check    compare; exit 1 and name the pages that are out of date

To add a page, add a module to `docs/pages` with ``PAGE = "name.md"`` and ``def render() -> str``.
"""

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

from docs import pages

REFERENCE = Path(__file__).parent / "reference"


def render_all() -> dict[str, str]:
    """Text of every generated page, by file name.

    Raises:
        ValueError: two modules make the same page.
    """
    texts: dict[str, str] = {}
    for found in sorted(pkgutil.iter_modules(pages.__path__), key=lambda module: module.name):
        module = importlib.import_module(f"{pages.__name__}.{found.name}")
        name: str = module.PAGE
        if name in texts:
            raise ValueError(f"{module.__name__} makes {name}, which another module makes already")
        marker = f"<!-- Made by docs/pages/{found.name}.py; edit that, then run: make docs -->\n\n"
        texts[name] = marker + module.render().strip() + "\n"
    return texts


def write(folder: Path) -> list[str]:
    """Write the pages whose text differs; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    stale = out_of_date(folder)
    texts = render_all()
    for name in stale:
        (folder / name).write_text(texts[name], encoding="utf-8")
    return stale


def out_of_date(folder: Path) -> list[str]:
    """Names of pages that are missing or differ from what the code says."""
    return [name for name, text in render_all().items() if _read(folder / name) != text]


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: list[str] | None = None) -> int:
    """Command line; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.generate", description="Generated pages of docs/reference."
    )
    parser.add_argument("--check", action="store_true", help="compare only")
    if parser.parse_args(arguments).check:
        stale = out_of_date(REFERENCE)
        for name in stale:
            print(f"docs/reference/{name} is out of date; run: make docs", file=sys.stderr)
        return 1 if stale else 0
    for name in write(REFERENCE):
        print(f"wrote docs/reference/{name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
