"""Tables of ``history.db``, in Core: a poll brings ten thousand prices, and an object for each would double its time.

`price_point` has no rowid and ascends by (offer, time): of the layouts measured with ten million points it is the
smallest (231 MB), and finding the price of one offer at one moment takes 11 microseconds.
"""

from sqlalchemy import (
    REAL,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

from broker.store.tables import NAMING, Int64

METADATA = MetaData(naming_convention=NAMING)

OFFER = Table(
    "offer",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False),
    Column("cloud", Text, nullable=False),
    Column("region", Text, nullable=False),
    Column("zone", Text, nullable=False),
    Column("instance_type", Text, nullable=False),
    Column("market", Text, nullable=False),
    Column("gpu", Text, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("vcpus", Integer, nullable=False),
    Column("memory_gib", Integer, nullable=False),
    Column("interconnect", Text, nullable=False),
    Column("fabric", Text, nullable=False),
    UniqueConstraint("key"),
    sqlite_strict=True,
)

SOURCE = Table(
    "source",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    UniqueConstraint("name"),
    sqlite_strict=True,
)

PRICE_POINT = Table(
    "price_point",
    METADATA,
    Column("offer_id", Integer, ForeignKey("offer.id"), primary_key=True),
    Column("effective_at_ms", Int64, primary_key=True),
    # Part of the key: a cloud may correct a price for the same moment, and a back-test must not see the correction
    # before we did.
    Column("observed_at_ms", Int64, primary_key=True),
    Column("price_micro_usd_h", Int64, nullable=False),
    Column("source_id", Integer, ForeignKey("source.id"), nullable=False),
    CheckConstraint("price_micro_usd_h > 0", name="ck_price_point_positive"),
    sqlite_with_rowid=False,
    sqlite_strict=True,
)

PRICE_NOW = Table(
    "price_now",
    METADATA,
    Column("offer_id", Integer, ForeignKey("offer.id"), primary_key=True, autoincrement=False),
    Column("effective_at_ms", Int64, nullable=False),
    Column("observed_at_ms", Int64, nullable=False),  # last seen
    Column("price_micro_usd_h", Int64, nullable=False),
    Column("source_id", Integer, ForeignKey("source.id"), nullable=False),
    sqlite_strict=True,
)

POLL = Table(
    "poll",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("cloud", Text, nullable=False),
    Column("started_at_ms", Int64, nullable=False),
    Column("ended_at_ms", Int64, nullable=False),
    Column("ok", Integer, nullable=False),
    Column("offers", Integer, nullable=False),
    Column("changes", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("kind", Text, nullable=False, server_default="prices"),  # a `store.history.PollKind`
    Index(None, "cloud", "started_at_ms"),
    sqlite_strict=True,
)

HINT = Table(
    "hint",
    METADATA,
    Column("offer_key", Text, primary_key=True),
    Column("signal", Text, primary_key=True),  # a `core.availability.Signal`
    Column("low", REAL, nullable=False),
    Column("high", REAL, nullable=False),
    Column("observed_at_ms", Int64, nullable=False),
    Column("source", Text, nullable=False),
    sqlite_with_rowid=False,
    sqlite_strict=True,
)

QUARANTINE = Table(
    "quarantine",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("offer_key", Text, nullable=False),
    Column("offer", Text, nullable=False),  # JSON: its GPU may be one that we do not know
    Column("price_text", Text, nullable=False),
    Column("currency", Text, nullable=False),
    Column("effective_at_ms", Int64),
    Column("source", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("first_seen_ms", Int64, nullable=False),
    Column("last_seen_ms", Int64, nullable=False),
    Column("times_seen", Integer, nullable=False),
    Column("released_at_ms", Int64),
    Column("held_ms", Int64, nullable=False, server_default="0"),
    Column("needed_ms", Int64),  # NULL: no time proves anything
    Index(None, "offer_key", "released_at_ms"),
    sqlite_strict=True,
)
