"""Manifests: what is written is read, whoever wrote it, and it stays small and fast."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.changes.change_set import table_of
from frazil.errors import ErrorKind, FormatError
from frazil.format import manifest as manifest_module
from frazil.format.envelope import FileType, open_envelope, seal
from frazil.format.flatbuffer import Buffer, OffsetVectors, TableLayout, TableWriter
from frazil.format.manifest import (
    ChunkTable,
    InlineRef,
    LocationCompression,
    Manifest,
    NativeRef,
    VirtualRef,
    decode_manifest,
    encode_manifest,
)

cases = settings(max_examples=examples(120))
ID = b"manifest-id!"
NODE = b"node-001"
OTHER = b"node-002"


def refs_of(table: ChunkTable) -> dict[tuple[int, ...], Any]:
    return {tuple(at): table.ref(row) for row, at in enumerate(table.index.tolist())}


def payload_of(file: bytes) -> bytes:
    return bytes(open_envelope(file, FileType.MANIFEST)[1])


CHUNK = bytes(range(12))
BIG = 2**64 - 1

# Random manifests -----------------------------------------------------------------------------

coordinate = st.sampled_from([0, 1, 2, 300, 2**32 - 1])
ids = st.sampled_from([CHUNK, b"a" * 12, bytes(12)])
sizes = st.sampled_from([0, 7, BIG])
places = st.sampled_from(["s3://a", "s3://é"])
refs = st.one_of(
    st.none(),
    st.builds(NativeRef, ids, sizes, sizes),
    st.builds(VirtualRef, st.sampled_from(["s3://a", "s3://é", "x" * 1500]), sizes, sizes),
    st.builds(VirtualRef, places, sizes, sizes, st.sampled_from(["e", "f"])),
    st.builds(VirtualRef, places, sizes, sizes, st.none(), st.sampled_from([1, 2**32 - 1])),
    st.builds(InlineRef, st.binary(max_size=9)),
)


def array(ndim: int) -> st.SearchStrategy[dict[tuple[int, ...], Any]]:
    return st.dictionaries(st.tuples(*[coordinate] * ndim), refs, min_size=1, max_size=8)


manifests = st.dictionaries(st.binary(min_size=8, max_size=8), st.integers(0, 3).flatmap(array), max_size=4)


@cases
@given(manifests)
def test_round_trip_of_random_manifests(model: dict[bytes, dict[tuple[int, ...], Any]]) -> None:
    """Deletions (None) are left out, and arrays without references."""
    arrays = {node: table_of(refs, len(next(iter(refs)))) for node, refs in model.items()}
    stored = {node: {at: ref for at, ref in refs.items() if ref} for node, refs in model.items()}
    stored = {node: refs for node, refs in stored.items() if refs}
    back = decode_manifest(encode_manifest(Manifest(ID, arrays)), "m")
    # Tables cut from one manifest are written as well as those they came from.
    for each in (back, decode_manifest(encode_manifest(back), "m")):
        assert (each.id, list(each.arrays)) == (ID, sorted(stored))
        assert {node: refs_of(table) for node, table in each.arrays.items()} == stored


# Files of other writers -----------------------------------------------------------------------


def manifest_file(refs: list[dict[int, Any]], root: dict[int, Any] | None = None) -> bytes:
    """A manifest of one array whose references have any fields, and a vtable of their own each.

    A value is bytes or coordinates (a vector), a struct, or a type with its number.
    """
    own = {slot: "u4" if isinstance(value, bytes) else value[0] for slot, value in (root or {}).items()}
    writer = TableWriter(TableLayout({0: "V12", 1: "u4", **own}, 8))
    entries, (arrays,) = writer.table_vectors(TableLayout({0: "V8", 1: "u4"}, 3), [1])
    entries.fields["f0"] = np.void(NODE)
    vector = OffsetVectors(writer, [len(refs)])
    entries.link(1, vector.positions)
    targets = []
    for fields in refs:
        kinds = {slot: value[0] if isinstance(value, tuple) else "u4" for slot, value in fields.items()}
        table = writer.tables(TableLayout(kinds, 14), 1)
        for slot, value in fields.items():
            if isinstance(value, tuple):
                table.fields[f"f{slot}"] = value[1]
            else:
                table.link(slot, [writer.vector(value)])
        targets.append(table.positions)
    vector.lead(np.concatenate(targets))
    ends = {slot: writer.vector(v) if isinstance(v, bytes) else v[1] for slot, v in (root or {}).items()}
    return seal(writer.finish({0: ID, 1: int(arrays), **ends}), FileType.MANIFEST)


def coords(*at: int) -> Any:
    return np.array(at, "<u4")


INLINE, OFFSET, LENGTH, CHUNK_ID, LOCATION, ETAG, MODIFIED, COMPRESSED, EXTRA = range(1, 10)
NATIVE = {CHUNK_ID: ("V12", np.void(CHUNK))}


def test_all_compressed_locations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small frames may stand for far more bytes than the file has."""
    locations = [f"s3://bucket-of-things/some/prefix/file-{i:07d}.nc" for i in range(9000)]
    manifest = Manifest(ID, {NODE: ChunkTable.from_virtual(grid(9000), locations, 0, 1)})
    monkeypatch.setattr(manifest_module, "_dictionary_helps", lambda *_: True)
    file = encode_manifest(manifest, locations=LocationCompression())
    total = sum(map(len, locations))
    monkeypatch.setattr(manifest_module, "MAX_PAYLOAD_BYTES", total)
    assert refs_of(decode_manifest(file, "m").arrays[NODE]) == refs_of(manifest.arrays[NODE])
    monkeypatch.setattr(manifest_module, "MAX_PAYLOAD_BYTES", total - 1)
    with pytest.raises(FormatError, match=f"compressed locations: expected {total - 1} bytes at most"):
        decode_manifest(file, "m")


def test_repeated_locations_become_one() -> None:
    wild = [{0: coords(i), LOCATION: b"s3://b/%d" % (i % 3), ETAG: b"e%d" % (i % 2)} for i in range(30)]
    table = decode_manifest(manifest_file(wild), "m").arrays[NODE]
    assert len(table.foreign) == 6
    assert [table.ref(i) for i in (0, 7)] == [
        VirtualRef("s3://b/0", 0, 0, "e0"),
        VirtualRef("s3://b/1", 0, 0, "e1"),
    ]


DICTIONARY = zstandard.train_dictionary(
    500, [b"s3://bucket/some/where/%d.nc" % (i * 7919) for i in range(500)]
)


def packed(location: bytes, *, size: bool = False) -> bytes:
    return zstandard.ZstdCompressor(dict_data=DICTIONARY, write_content_size=size).compress(location)


WITH_DICTIONARY = {2: DICTIONARY.as_bytes()}
PACKED = {COMPRESSED: packed(b"s3://bucket/y")}
UNPACKED = VirtualRef("s3://bucket/y", 0, 0)
PLAIN = {LOCATION: b"s3://x", INLINE: b"i"}

#: What a reference has, what else is in the manifest, and how it reads.
PRIORITIES: dict[str, tuple[dict[int, Any], dict[int, Any], Any]] = {
    "chunk id before all": ({**NATIVE, **PLAIN, COMPRESSED: b"?"}, {}, NativeRef(CHUNK, 0, 0)),
    "compressed before plain": ({**PLAIN, **PACKED}, WITH_DICTIONARY, UNPACKED),
    "location before inline": (PLAIN, {}, VirtualRef("s3://x", 0, 0)),
    "unknown fields": ({INLINE: b"i", EXTRA: b"?", 12: ("u8", 7)}, {4: b"extra"}, InlineRef(b"i")),
    "content size known": ({COMPRESSED: packed(b"s3://bucket/y", size=True)}, WITH_DICTIONARY, UNPACKED),
    "algorithm 1 written": (PACKED, {**WITH_DICTIONARY, 3: ("u1", 1)}, UNPACKED),
    "algorithm 0: raw bytes": ({COMPRESSED: b"s3://raw"}, {3: ("u1", 0)}, VirtualRef("s3://raw", 0, 0)),
    "algorithm 1 without dictionary, plain location": (PLAIN, {3: ("u1", 1)}, VirtualRef("s3://x", 0, 0)),
    "1024 bytes": ({COMPRESSED: packed(b"x" * 1024)}, WITH_DICTIONARY, VirtualRef("x" * 1024, 0, 0)),
}


@pytest.mark.parametrize(("ref", "root", "wanted"), PRIORITIES.values(), ids=PRIORITIES.keys())
def test_which_field_counts(ref: dict[int, Any], root: dict[int, Any], wanted: Any) -> None:
    file = manifest_file([{0: coords(1), LOCATION: b"s3://z"}, {0: coords(0), **ref}], root)
    table = decode_manifest(file, "m").arrays[NODE]
    assert refs_of(table) == {(0,): wanted, (1,): VirtualRef("s3://z", 0, 0)}
    assert table.index.tolist() == [[0], [1]]  # sorted, whatever the order in the file


DAMAGED: dict[str, tuple[dict[int, Any], dict[int, Any], str]] = {
    "no dictionary": (PACKED, {}, "dictionary"),
    "unknown algorithm": (PACKED, {3: ("u1", 2)}, "location compression 2"),
    "no frame": ({COMPRESSED: b"junk"}, WITH_DICTIONARY, "compressed location"),
    "cut frame": ({COMPRESSED: PACKED[COMPRESSED][:-2]}, WITH_DICTIONARY, "compressed location"),
    "1025 bytes": ({COMPRESSED: packed(b"x" * 1025)}, WITH_DICTIONARY, "compressed location"),
    "a claim of 1025 bytes": (
        {COMPRESSED: packed(b"x" * 1025, size=True)},
        WITH_DICTIONARY,
        "at most 1024 bytes, got 1025",
    ),
    "no kind": ({OFFSET: ("u8", 1)}, {}, "got none"),
}


@pytest.mark.parametrize(("ref", "root", "words"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_an_error_that_names_the_file(
    ref: dict[int, Any], root: dict[int, Any], words: str
) -> None:
    file = manifest_file([{0: coords(1), **NATIVE}, {0: coords(0), **ref}], root)
    with pytest.raises(FormatError, match=f"manifests/XYZ: .*{words}"):
        decode_manifest(file, "manifests/XYZ")


def test_references_of_another_rank_are_apart() -> None:
    odd = {0: coords(0, 1), INLINE: b"x"}
    file = manifest_file(
        [odd, {0: coords(1), INLINE: b"y"}, odd, {0: coords(0), INLINE: b"z"}, {**odd, 0: coords()}]
    )
    table = decode_manifest(file, "m").arrays[NODE]
    expected: dict[int, dict[tuple[int, ...], bytes]] = {
        0: {(): b"x"},
        1: {(0,): b"z", (1,): b"y"},
        2: {(0, 1): b"x"},
        3: {},
    }
    for ndim, refs in expected.items():
        assert refs_of(table.of_rank(ndim)) == {at: InlineRef(data) for at, data in refs.items()}


# Sizes and speed ------------------------------------------------------------------------------


def grid(n: int) -> Any:
    return np.stack(np.divmod(np.arange(n), 1000), axis=1)


def virtual_table(n: int, distinct: int = 1000) -> ChunkTable:
    locations = [f"s3://bucket-of-things/some/prefix/file-{i:07d}.nc" for i in range(distinct)]
    chosen = (locations * (n // distinct + 1))[:n]
    return ChunkTable.from_virtual(grid(n), chosen, np.arange(n) * 1000, 1000)


def test_what_is_shared_is_stored_once_in_a_group() -> None:
    ids = np.arange(12, dtype=np.uint8)[None]
    table = ChunkTable.merge_tables(
        [
            ChunkTable.from_virtual([[i] for i in range(50)], ["s3://shared/one"] * 50, 0, 1, etag="etag-1"),
            ChunkTable.from_virtual([[i] for i in range(50, 99)], ["s3://shared/one"] * 49, 0, 1, modified=5),
            ChunkTable.from_virtual([[99]], ["s3://shared/one"], 0, 1, etag="etag-1"),
            ChunkTable.from_native([[i] for i in range(200, 210)], ids, [0] * 10, range(10), 1),
        ]
    )
    payload = payload_of(encode_manifest(Manifest(ID, {NODE: table, OTHER: table})))
    assert payload.count(b"s3://shared/one") == 2  # references with an etag, and those with a time
    assert payload.count(b"etag-1") == 1
    in_turns = ChunkTable.from_virtual(
        grid(10_000), [f"s3://b/{row % 10}/name" for row in range(10_000)], 0, 1
    )
    for each in (virtual_table(10_000, 10), in_turns):
        assert len(payload_of(encode_manifest(Manifest(ID, {NODE: each})))) < 75 * 10_000


def test_a_dictionary_is_stored_where_it_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    table = virtual_table(2000, 500)
    manifest, plain = Manifest(ID, {NODE: table}), encode_manifest(Manifest(ID, {NODE: table}))
    # Shared and compressed with the whole file, plain locations win.
    assert encode_manifest(manifest, locations=LocationCompression()) == plain
    monkeypatch.setattr(manifest_module, "_dictionary_helps", lambda *_: True)
    assert encode_manifest(manifest, locations=LocationCompression(min_num_chunks=2001)) == plain
    file = encode_manifest(manifest, locations=LocationCompression())
    assert b"some/prefix/file-0000001" not in payload_of(file)
    root = Buffer(payload_of(file)).root()
    assert root.scalars(3, "u1", 1).tolist() == [1]
    assert 0 < len(root.vectors(2).bytes(0)) <= 2048
    back = decode_manifest(file, "m").arrays[NODE]
    assert refs_of(back) == refs_of(table)
    assert len(back.foreign) == 500
    # Readers refuse longer locations in compressed form: these stay plain.
    long = ChunkTable.from_virtual(grid(2000), [f"s3://{'x' * 1100}{i}" for i in range(2000)], 0, 1)
    file = encode_manifest(Manifest(ID, {NODE: long}), locations=LocationCompression())
    assert refs_of(decode_manifest(file, "m").arrays[NODE]) == refs_of(long)


def test_no_dictionary_from_too_little_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "_dictionary_helps", lambda *_: True)
    for locations in (["a"] * 2000, [""] * 2000, ["ab", "c"] * 1000):
        table = ChunkTable.from_virtual(grid(2000), locations, 0, 1)
        file = encode_manifest(Manifest(ID, {NODE: table}), locations=LocationCompression())
        assert refs_of(decode_manifest(file, "m").arrays[NODE]) == refs_of(table)


def test_a_manifest_that_readers_would_refuse_is_not_encoded() -> None:
    # Readers count a shared location for every reference to it.
    table = ChunkTable.from_virtual(grid(3000), ["x" * 1_000_000] * 3000, 0, 1)
    with pytest.raises(FormatError, match="at most 2147483648") as caught:
        encode_manifest(Manifest(ID, {NODE: table}))
    assert caught.value.kind == ErrorKind.SERIALIZATION


def test_a_million_references() -> None:
    manifest = Manifest(ID, {NODE: virtual_table(1_000_000)})
    tracemalloc.start()
    file = encode_manifest(manifest)
    encode_peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    decode_manifest(file, "m")
    decode_peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert encode_peak < 80e6
    assert decode_peak < 150e6
