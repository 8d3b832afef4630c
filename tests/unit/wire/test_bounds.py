"""Bounds of what a node tells: every field of every message, found by its declaration, so that a new one counts too."""

import json
import math
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from broker.wire.bounds import MAX_ITEMS, MAX_NUMBER, MAX_TEXT, OutOfBounds, bounded, legible
from broker.wire.errors import Damaged
from broker.wire.head import Head, Link, decode_head, encode_head
from broker.wire.manifest import Chunk, FileEntry, Manifest, decode_manifest, encode_manifest
from broker.wire.messages import Beat, Hello, decode

HUGE_INTS = (MAX_NUMBER + 1, 2**63, 10**30, 10**400, -1, -(10**30))
BAD_TEXTS = ("\ud800", "a\0b", "x" * (MAX_TEXT + 1))


def declared(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Type of each field without ``Optional``, and whether it had one."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        if name not in {field.name for field in fields(kind)}:
            continue
        options = get_args(hint) if get_origin(hint) is Union else (hint,)
        found[name] = (next(o for o in options if o is not type(None)), len(options) > 1)
    return found


def full(kind: Any) -> Any:
    """A document with every field that the message can have."""
    if is_dataclass(kind):
        return {name: full(hint) for name, (hint, _) in declared(kind).items()}
    if get_origin(kind) is list:
        return [full(get_args(kind)[0])]
    if get_origin(kind) is dict:
        return {"key": 1.0}
    return {int: 7, float: 1.5, str: "text", bool: True}[kind]


def places(kind: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any, bool]]:
    """Every leaf of the message: where it is, of which type, whether it may be missing."""
    found: list[tuple[tuple[Any, ...], Any, bool]] = []
    for name, (hint, optional) in declared(kind).items():
        if is_dataclass(hint):
            found += places(hint, (*path, name))
        elif get_origin(hint) is list:
            found.append(((*path, name, 0), get_args(hint)[0], False))
        elif get_origin(hint) is dict:
            found.append(((*path, name, "key"), get_args(hint)[1], True))
        else:
            found.append(((*path, name), hint, optional))
    return found


def put(document: Any, path: tuple[Any, ...], value: Any) -> None:
    for step in path[:-1]:
        document = document[step]
    document[path[-1]] = value


def get(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


LEAVES = [(kind, *place) for kind in (Beat, Hello) for place in places(kind)]


def of_type(*wanted: Any) -> list[Any]:
    return [
        pytest.param(kind, path, optional, id=f"{kind.__name__}.{'.'.join(map(str, path))}")
        for kind, path, hint, optional in LEAVES
        if hint in wanted
    ]


def test_every_leaf_is_of_a_type_that_has_bounds_and_is_tried_below():
    assert {hint for _, _, hint, _ in LEAVES} == {int, float, str, bool, Any}
    assert bounded(decode(Beat, full(Beat))) == decode(Beat, full(Beat))


@pytest.mark.parametrize("value", HUGE_INTS)
@pytest.mark.parametrize(("kind", "path", "optional"), of_type(int))
def test_an_integer_out_of_bounds_is_left_out_or_refused(kind, path, optional, value):
    document = full(kind)
    put(document, path, value)
    if optional:
        assert get(asdict(decode(kind, document)), path) is None
    else:
        with pytest.raises(OutOfBounds, match=path[-1]):
            decode(kind, document)
    put(document, path, MAX_NUMBER)
    assert get(asdict(decode(kind, document)), path) == MAX_NUMBER


@pytest.mark.parametrize("value", [10**400, math.inf, math.nan])
@pytest.mark.parametrize(("kind", "path", "optional"), of_type(float))
def test_a_number_that_is_none_is_kept_where_it_may_be_missing(kind, path, optional, value):
    document = full(kind)
    put(document, path, value)
    if not optional:
        with pytest.raises(OutOfBounds, match=path[-1]):
            decode(kind, document)
        return
    found = asdict(decode(kind, document))
    for step in path[:-1]:
        found = found[step]
    assert isinstance(found.get(path[-1]), float | None)


@pytest.mark.parametrize("value", BAD_TEXTS)
@pytest.mark.parametrize(("kind", "path", "optional"), of_type(str, Any))
def test_a_text_can_be_sent_and_has_a_length(kind, path, optional, value):
    document = full(kind)
    put(document, path, value)
    text = get(asdict(decode(kind, document)), path)
    assert text.encode()
    assert "\0" not in text
    assert 0 < len(text) <= MAX_TEXT


@pytest.mark.parametrize("value", [10**30, math.nan, [[10**400]], {"\ud800": {"x": -(10**20)}}])
@pytest.mark.parametrize(("kind", "path", "optional"), of_type(Any))
def test_what_has_no_shape_is_bounded_all_the_way_down(kind, path, optional, value):
    document = full(kind)
    put(document, path, value)
    text = json.dumps(asdict(decode(kind, document)), allow_nan=False, ensure_ascii=False)
    assert text.encode()
    assert "000000" not in text


def test_collections_and_depth_have_an_end():
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    document = full(Beat) | {"facts": {str(i): deep for i in range(MAX_ITEMS + 5)}}
    document["job"]["restore"]["fell_back"] = ["x"] * (MAX_ITEMS + 5)
    document["progress"]["metrics"] = {str(i): 1.0 for i in range(MAX_ITEMS + 5)}
    beat = decode(Beat, document)
    assert beat.job.restore is not None
    assert beat.progress is not None
    assert len(beat.facts) == len(beat.job.restore.fell_back) == len(beat.progress.metrics) == MAX_ITEMS
    assert json.dumps(beat.facts)


def test_legible_leaves_good_texts_alone():
    for text in ("", "step 12", "Schöne Größe 🚀"):
        assert legible(text) == text


HEAD = json.loads(encode_head(Head(1, 2, "n", "m", "s", Link("p", "q"), "h")))
MANIFEST = json.loads(
    encode_manifest(
        Manifest(
            1,
            2,
            (FileEntry("a", 3, 1_800_000_000_000_000_000, 0o644, (Chunk("k", "s", 3),)),),
            step=9,
            metrics={"loss": 1.0},
        )
    )[0]
)


@pytest.mark.parametrize("value", [*HUGE_INTS, "1", 1.5, True, None])
@pytest.mark.parametrize("name", ["generation", "seq"])
def test_a_head_with_a_number_out_of_bounds_is_damaged(name, value):
    with pytest.raises(Damaged):
        decode_head(json.dumps(HEAD | {name: value}).encode())
    assert decode_head(json.dumps(HEAD | {name: MAX_NUMBER}).encode())


@pytest.mark.parametrize("name", ["nonce", "manifest", "sha256", "holder"])
def test_a_head_with_a_text_that_cannot_be_sent_is_damaged(name):
    with pytest.raises(Damaged):
        decode_head(json.dumps(HEAD | {name: "\ud800"}).encode())


def test_deep_json_is_damaged():
    with pytest.raises(Damaged):
        decode_head(b"[" * 100_000)
    with pytest.raises(ValueError, match="not a manifest"):
        decode_manifest(b"[" * 100_000)


@pytest.mark.parametrize("value", HUGE_INTS)
@pytest.mark.parametrize("path", [("generation",), ("seq",), ("files", 0, "size"), ("files", 0, "mode")])
def test_a_manifest_with_a_number_out_of_bounds_is_none(path, value):
    document = json.loads(json.dumps(MANIFEST))
    put(document, path, value)
    with pytest.raises(ValueError, match="integer"):
        decode_manifest(json.dumps(document).encode())


@pytest.mark.parametrize("value", HUGE_INTS)
def test_a_step_that_is_none_loses_no_checkpoint(value):
    document = MANIFEST | {"step": value, "metrics": {"loss": 1.0, "name": "x", "odd": value}}
    document["ancestors"] = [{"manifest": "m", "sha256": "s", "seq": 1, "step": value}]
    manifest = decode_manifest(json.dumps(document).encode())
    assert (manifest.step, manifest.ancestors[0].step, manifest.files[0].size) == (None, None, 3)
    assert "name" not in manifest.metrics
