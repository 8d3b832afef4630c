"""Runs gpuhunt's own program in its own virtual environment: ``python collect.py gcp --output gcp.csv``.

Nothing of gpuhunt is changed for AWS, Azure and Lambda. For Google two things are, before it runs: the price list is read
over the REST transport of Google's client, since the lab's face speaks no gRPC; and TPUs are left out, since the lab sells
none.
"""

import functools
import sys
from pathlib import Path
from typing import Any


def without_grpc() -> None:
    """Google's clients, told what their documented arguments say."""
    from google.cloud import billing_v1

    catalogue: Any = billing_v1
    catalogue.CloudCatalogClient = functools.partial(billing_v1.CloudCatalogClient, transport="rest")


def without_tpus() -> None:
    """They have an API of their own, and a table that gpuhunt 0.1.34 reads when it is loaded and does not come with."""
    import gpuhunt

    table = Path(gpuhunt.__file__).parent / "resources" / "tpu_pricing.json"
    if not table.exists():
        table.write_text("{}")
    from gpuhunt.providers import gcp

    gcp._make_tpu_offers = lambda project: []


if __name__ == "__main__":
    if sys.argv[1:2] == ["gcp"]:
        without_grpc()
        without_tpus()
    from gpuhunt.__main__ import main

    main()
