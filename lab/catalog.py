"""What the lab's clouds sell, and what differs from that in one run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from lab.listing import InstanceType, Listing, Zone, micro_usd
from lab.sold import aws, azure, coreweave, gcp, lambda_cloud

_SOLD = (aws, gcp, lambda_cloud, azure, coreweave)

TYPES: dict[str, InstanceType] = {kind.name: kind for cloud in _SOLD for kind in cloud.TYPES}
ZONES: dict[str, Zone] = {zone.id: zone for cloud in _SOLD for zone in cloud.ZONES}


def listings() -> Iterator[Listing]:
    """Every pool that the lab sells, in a fixed order."""
    for cloud in _SOLD:
        yield from cloud.listings()


@dataclass(frozen=True)
class Image:
    """What the machines of a pool boot with.

    Attributes:
        python: Path of the interpreter that `python3` starts there; None is the lab's own, which has torch.
        env: More variables for everything on the machine.
    """

    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """What differs from the catalogue in one run. Keys may be patterns: ``gcp/*/on_demand``.

    Attributes:
        prices: Offer key or pattern -> micro-USD an hour.
        stock: Offer key or pattern -> machines, None for unlimited.
        boot_s: Cloud -> seconds from running to user-data, on the lab's clock.
        pending_s: Request to running.
        stop_s: Request of an end to terminated.
        seed: Of ids and of the price history before the start.
        images: Offer key or pattern -> what its machines boot with; the last that matches counts.
        filler: Cloud -> rows of other machines in its price list: GCP in all, Azure in each region.
    """

    prices: Mapping[str, int]
    stock: Mapping[str, int | None]
    boot_s: Mapping[str, float]
    pending_s: int = 3
    stop_s: int = 5
    seed: int = 1
    images: Mapping[str, Image] = field(default_factory=dict)
    filler: Mapping[str, int] = field(default_factory=dict)

    def image(self, offer_key: str) -> Image:
        """What a machine of that pool boots with."""
        found = [image for pattern, image in self.images.items() if fnmatchcase(offer_key, pattern)]
        return found[-1] if found else Image()

    @classmethod
    def of(cls, document: Mapping[str, object] | None = None) -> "Scenario":
        """From a JSON object; prices are dollars as text or number, e.g. ``{"prices": {"gcp/*/spot": "2.95"}}``.

        Raises:
            ValueError: an unknown key, or a value of the wrong kind.
        """
        given = dict(document or {})
        known = {"prices", "stock", "boot_s", "pending_s", "stop_s", "seed", "images", "filler"}
        if unknown := set(given) - known:
            raise ValueError(f"scenario: unknown {sorted(unknown)}; known are {sorted(known)}")
        prices, stock, boot_s = (_mapping(given, name) for name in ("prices", "stock", "boot_s"))
        return cls(
            prices={key: micro_usd(str(value)) for key, value in prices.items()},
            stock={key: None if value is None else int(str(value)) for key, value in stock.items()},
            boot_s={"aws": 40.0, "gcp": 25.0} | {key: float(str(value)) for key, value in boot_s.items()},
            pending_s=int(str(given.get("pending_s", 3))),
            stop_s=int(str(given.get("stop_s", 5))),
            seed=int(str(given.get("seed", 1))),
            images={key: _image(key, value) for key, value in _mapping(given, "images").items()},
            filler={key: int(str(value)) for key, value in _mapping(given, "filler").items()},
        )


def _image(key: str, document: object) -> Image:
    if not isinstance(document, Mapping) or set(document) - {"python", "env"}:
        raise ValueError(f"scenario: images: {key}: known are python and env")
    python = document.get("python")
    env = {name: str(value) for name, value in _mapping(document, "env").items()}
    return Image(None if python is None else str(python), env)


def _mapping(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = document.get(name, {})
    if not isinstance(value, Mapping):
        raise ValueError(f"scenario: {name} must be an object")
    return value
