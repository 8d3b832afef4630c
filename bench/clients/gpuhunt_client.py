"""gpuhunt answering filters from memory: the catalogue is read from files, nothing is fetched."""

import hashlib
import time
from pathlib import Path

from answering import cpu, serve
from gpuhunt import Catalog
from gpuhunt._internal import storage
from gpuhunt._internal.catalog import ProviderCatalog

CATALOG = Catalog(auto_reload=False)


def load(folder):
    """Parse a catalogue of a file a provider; CPU seconds and rows."""
    seconds, catalogues = cpu(lambda: {path.stem: _read(path) for path in sorted(Path(folder).glob("*.csv"))})
    CATALOG.catalog = {
        name: ProviderCatalog(version="bench", items=items) for name, items in catalogues.items()
    }
    CATALOG.loaded_at = time.monotonic()
    return {"cpu_s": seconds, "rows": sum(map(len, catalogues.values()))}


def query(filters):
    """Every hit of each filter; CPU seconds of all together, and a fingerprint of each filter's hits."""
    seconds, found = cpu(lambda: [CATALOG.query(**wanted) for wanted in filters])
    return {"cpu_s": seconds, "found": [_fingerprint(items) for items in found]}


def _read(path):
    with path.open(newline="") as file:
        return list(storage.load(file, provider=path.stem))


def _fingerprint(items):
    lines = sorted(
        (round(item.price * 1_000_000), f"{item.provider}/{item.location}/{item.instance_name}/{item.spot}")
        for item in items
    )
    return [len(lines), hashlib.sha256(repr(lines).encode()).hexdigest()]


serve({"load": load, "query": query})
