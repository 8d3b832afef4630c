import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.errors import Damaged
from broker.wire.manifest import (
    Ancestor,
    Chunk,
    FileEntry,
    Manifest,
    chunk_folder,
    decode_manifest,
    encode_manifest,
    is_inside,
    link_is_inside,
    load_manifest,
    origin,
)

SHA = "ab" * 32
numbers = st.integers(min_value=1, max_value=10**9)
metrics = st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False), max_size=2)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=5)
paths = st.lists(names, min_size=1, max_size=3).map("/".join).filter(is_inside)


@st.composite
def entries(draw):
    sizes = draw(st.lists(st.integers(min_value=1, max_value=64), max_size=4))
    chunks = tuple(Chunk(f"{chunk_folder(1, 2)}{SHA}", SHA, size) for size in sizes)
    return FileEntry(draw(paths), sum(sizes), draw(numbers), draw(st.integers(0, 0o777)), chunks)


manifests = st.builds(
    Manifest,
    generation=numbers,
    seq=numbers,
    files=st.lists(entries(), max_size=3).map(tuple),
    step=st.none() | numbers,
    created_ms=numbers,
    metrics=metrics,
    ancestors=st.lists(
        st.builds(Ancestor, names, names, numbers, st.none() | numbers, metrics), max_size=2
    ).map(tuple),
)


@given(manifests)
def test_survives_the_store_and_its_key_tells_who_wrote_it(manifest):
    data, link = encode_manifest(manifest)
    assert decode_manifest(data) == manifest
    assert origin(link.manifest) == (manifest.generation, manifest.seq)
    assert link.sha256 in link.manifest


@given(numbers, numbers)
def test_a_chunk_key_tells_who_wrote_it(generation, seq):
    assert origin(f"{chunk_folder(generation, seq)}{SHA}") == (generation, seq)


@pytest.mark.parametrize(
    "key", ["HEAD", "chunks/x", f"chunks/g1/s1/{SHA}", f"x/{chunk_folder(1, 1)}{SHA}", ""]
)
def test_a_key_of_somebody_else_has_no_origin(key):
    assert origin(key) is None


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "a//b", "", ".", "a/\0"])
def test_a_path_that_leads_out_is_refused(path):
    data, _ = encode_manifest(Manifest(1, 1, (FileEntry(path, 0, 0, 0o644),)))
    with pytest.raises(ValueError, match="leads out"):
        decode_manifest(data)


def test_links_that_lead_out_are_told():
    assert link_is_inside("a/b", "../c")
    assert not link_is_inside("a/b", "../../c")
    assert not link_is_inside("a", "/etc/passwd")


def test_a_manifest_that_contradicts_itself_is_refused():
    data, _ = encode_manifest(Manifest(1, 1, (FileEntry("a", 5, 0, 0o644),)))
    with pytest.raises(ValueError, match="add up"):
        decode_manifest(data)
    with pytest.raises(ValueError, match="format"):
        decode_manifest(data.replace(b"broker-manifest/1", b"broker-manifest/9"))
    with pytest.raises(ValueError, match="not a manifest"):
        decode_manifest(json.dumps({"format": "broker-manifest/1"}).encode())


def test_a_key_that_a_newer_version_added_is_ignored():
    data, _ = encode_manifest(Manifest(1, 1, ()))
    assert decode_manifest(json.dumps({**json.loads(data), "later": 1}).encode()) == Manifest(1, 1, ())


def test_what_does_not_match_its_hash_is_not_believed(store):
    data, link = encode_manifest(Manifest(1, 1, ()))
    store.put(f"j/{link.manifest}", data)
    assert load_manifest(store, "j", link) == Manifest(1, 1, ())
    with pytest.raises(Damaged, match="hash"):
        load_manifest(store, "j", replace(link, sha256="0" * 64))
    with pytest.raises(Damaged, match="missing"):
        load_manifest(store, "other", link)
