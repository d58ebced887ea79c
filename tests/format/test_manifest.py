"""Manifests: what is written is read, whoever wrote it, and it stays small and fast."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from frazil.errors import ErrorKind, FormatError
from frazil.format import manifest as manifest_module
from frazil.format.envelope import FileType, open_envelope, seal
from frazil.format.flatbuffer import Buffer
from frazil.format.joined_files import decode_chunk_ranges
from frazil.format.manifest import (
    ChunkKind,
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


def ranges_of_file(file: bytes) -> list[tuple[Any, ...]]:
    """Return the kind, the file or location, the offset and the length of each reference, sorted."""
    part = decode_chunk_ranges(file, "m")
    sources = {
        ChunkKind.NATIVE: list(map(bytes, part.chunk_ids)),
        ChunkKind.VIRTUAL: part.locations.blobs(),
    }
    rows = zip(
        part.kind.tolist(), part.source.tolist(), part.offset.tolist(), part.length.tolist(), strict=True
    )
    return sorted((kind, sources[kind][row] if kind in sources else b"", *rest) for kind, row, *rest in rows)


def ranges_of_tables(manifest: Manifest) -> list[tuple[Any, ...]]:
    refs = [ref for table in manifest.arrays.values() for ref in refs_of(table).values()]
    return sorted(
        (ChunkKind.NATIVE, ref.chunk_id, ref.offset, ref.length)
        if isinstance(ref, NativeRef)
        else (ChunkKind.VIRTUAL, ref.location.encode(), ref.offset, ref.length)
        if isinstance(ref, VirtualRef)
        else (ChunkKind.INLINE, b"", 0, len(ref.data))
        for ref in refs
    )


def payload_of(file: bytes) -> bytes:
    return bytes(open_envelope(file, FileType.MANIFEST)[1])


def native(at: list[int], chunk_id: bytes, offset: int, length: int) -> ChunkTable:
    return ChunkTable.from_native([at], np.frombuffer(chunk_id, np.uint8)[None], 0, offset, length)


CHUNK = bytes(range(12))
BIG = 2**64 - 1

#: A reference, and the table that holds it: read and written.
CASES: dict[str, tuple[ChunkTable, Any]] = {
    "native": (native([1, 2], CHUNK, 3, 4), NativeRef(CHUNK, 3, 4)),
    "native, large range": (native([1], CHUNK, BIG, BIG), NativeRef(CHUNK, BIG, BIG)),
    "native, zero id": (native([1], bytes(12), 0, 0), NativeRef(bytes(12), 0, 0)),
    "virtual": (ChunkTable.from_virtual([[7]], ["s3://b/é"], 1, 2), VirtualRef("s3://b/é", 1, 2)),
    "virtual, etag": (
        ChunkTable.from_virtual([[7]], ["s3://b/k"], 1, 2, etag='"x"'),
        VirtualRef("s3://b/k", 1, 2, '"x"'),
    ),
    "virtual, time": (
        ChunkTable.from_virtual([[7]], ["s3://b/k"], 1, 2, modified=2**32 - 1),
        VirtualRef("s3://b/k", 1, 2, None, 2**32 - 1),
    ),
    "inline": (ChunkTable.from_inline([[0, 0, 0]], [b"data"]), InlineRef(b"data")),
    "inline, empty": (ChunkTable.from_inline([[0]], [b""]), InlineRef(b"")),
    "scalar array": (ChunkTable.from_inline([[]], [b"x"]), InlineRef(b"x")),
    "largest coordinate": (ChunkTable.from_inline([[2**32 - 1]], [b"x"]), InlineRef(b"x")),
}


@pytest.mark.parametrize(("table", "ref"), CASES.values(), ids=CASES.keys())
def test_round_trip_of_each_kind(table: ChunkTable, ref: Any) -> None:
    file = encode_manifest(Manifest(ID, {NODE: table}))
    back = decode_manifest(file, "m")
    assert back.id == ID
    assert dict(refs_of(back.arrays[NODE])) == {tuple(table.index[0].tolist()): ref}
    assert encode_manifest(back) == file


def test_many_arrays_of_all_kinds() -> None:
    arrays = {bytes([i]) * 8: table for i, (table, _) in enumerate(CASES.values())}
    back = decode_manifest(encode_manifest(Manifest(ID, dict(reversed(arrays.items())))), "m")
    assert list(back.arrays) == sorted(arrays)
    assert len(back.arrays) == len(arrays)
    assert NODE not in back.arrays
    for node, table in arrays.items():
        assert refs_of(back.arrays[node]) == refs_of(table)


def test_nothing() -> None:
    assert dict(decode_manifest(encode_manifest(Manifest(ID, {})), "m").arrays) == {}


def test_deletions_are_left_out() -> None:
    table = ChunkTable.merge_tables(
        [ChunkTable.from_inline([[0], [1]], [b"a", b"b"]), ChunkTable.from_absent([[1]])]
    )
    arrays = {NODE: table, OTHER: ChunkTable.from_absent([[5]])}
    back = decode_manifest(encode_manifest(Manifest(ID, arrays)), "m")
    assert {node: refs_of(table) for node, table in back.arrays.items()} == {NODE: {(0,): InlineRef(b"a")}}


# Random manifests -----------------------------------------------------------------------------

coordinate = st.sampled_from([0, 1, 2, 300, 2**32 - 2])
ids = st.sampled_from([CHUNK, b"a" * 12, bytes(12)])
sizes = st.integers(0, BIG)
places = st.sampled_from(["s3://a", "s3://b"])
refs = st.one_of(
    st.builds(NativeRef, ids, sizes, sizes),
    st.builds(VirtualRef, st.sampled_from(["s3://a", "s3://b", "x" * 1500]), sizes, sizes),
    st.builds(VirtualRef, places, sizes, sizes, st.sampled_from(["e", "f"])),
    st.builds(VirtualRef, places, sizes, sizes, st.none(), st.sampled_from([1, 9])),
    st.builds(InlineRef, st.binary(max_size=9)),
)


def array(ndim: int) -> st.SearchStrategy[dict[tuple[int, ...], Any]]:
    return st.dictionaries(st.tuples(*[coordinate] * ndim), refs, min_size=1, max_size=8)


manifests = st.dictionaries(st.binary(min_size=8, max_size=8), st.integers(0, 3).flatmap(array), max_size=4)


def one(at: tuple[int, ...], ref: Any) -> ChunkTable:
    match ref:
        case NativeRef(chunk_id, offset, length):
            return native(list(at), chunk_id, offset, length)
        case VirtualRef(location, offset, length, etag, modified):
            return ChunkTable.from_virtual([at], [location], offset, length, etag, modified)
    return ChunkTable.from_inline([at], [ref.data])


@cases
@given(manifests)
def test_round_trip_of_random_manifests(model: dict[bytes, dict[tuple[int, ...], Any]]) -> None:
    arrays = {
        node: ChunkTable.merge_tables([one(at, ref) for at, ref in refs.items()])
        for node, refs in model.items()
    }
    file = encode_manifest(Manifest(ID, arrays))
    back = decode_manifest(file, "m")
    assert {node: refs_of(table) for node, table in back.arrays.items()} == model
    assert ranges_of_file(file) == ranges_of_tables(back)
    # Tables cut from one manifest, and pickled ones, are written as well as those they came from.
    assert {
        node: refs_of(table) for node, table in decode_manifest(encode_manifest(back), "m").arrays.items()
    } == model


# Files of other writers -----------------------------------------------------------------------


class Foreign:
    """A flatbuffer as another writer may lay it out.

    Fields come in any order with gaps between them; each table has a vtable of its own, before or behind it,
    with slots that nobody knows. A table is a dict from slots to ``("<I", 5)``, bytes (a struct), a list (a
    vector of tables) or ``("vec", bytes, count)``.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.out = bytearray()

    def build(self, root: dict[int, Any]) -> bytes:
        self.out += bytes(8)
        at = self.table(root)
        self.out[:4] = struct.pack("<I", at)
        return bytes(self.out)

    def align(self, n: int, extra: int = 0) -> None:
        self.out += bytes(-(len(self.out) + extra) % n + n * self.random.randrange(2))

    def table(self, fields: dict[int, Any]) -> int:
        slots = self.random.sample(sorted(fields), len(fields))
        pad = self.random.randrange(3)
        size = 4 + 2 * (max(slots, default=0) + 1 + pad)
        vtable_first = self.random.random() < 0.5
        if vtable_first:
            self.align(4)
            vtable_at = len(self.out)
            self.out += bytes(size)
        self.align(8)
        at = len(self.out)
        self.out += bytes(4)
        places: dict[int, int] = {}
        for slot in slots:
            value = fields[slot]
            kind, raw = self.inline(value)
            self.align(kind)
            places[slot] = len(self.out) - at
            self.out += raw
        end = len(self.out)
        if not vtable_first:
            self.align(4)
            vtable_at = len(self.out)
            self.out += bytes(size)
        entries = [places.get(slot, 0) for slot in range((size - 4) // 2)]
        self.out[vtable_at : vtable_at + size] = struct.pack(f"<{size // 2}H", size, end - at, *entries)
        self.out[at : at + 4] = struct.pack("<i", at - vtable_at)
        for slot in slots:
            if not self.is_inline(fields[slot]):
                target = self.out_of_line(fields[slot])
                place = at + places[slot]
                self.out[place : place + 4] = struct.pack("<I", target - place)
        return at

    def is_inline(self, value: Any) -> bool:
        return isinstance(value, bytes) or (isinstance(value, tuple) and value[0] != "vec")

    def inline(self, value: Any) -> tuple[int, bytes]:
        if isinstance(value, bytes):
            return 1, value
        if self.is_inline(value):
            raw = struct.pack(*value)
            return len(raw), raw
        return 4, bytes(4)

    def out_of_line(self, value: Any) -> int:
        if isinstance(value, list):
            self.align(4)
            at = len(self.out)
            self.out += struct.pack("<I", len(value)) + bytes(4 * len(value))
            for i, child in enumerate(value):
                target, place = self.table(child), at + 4 + 4 * i
                self.out[place : place + 4] = struct.pack("<I", target - place)
            return at
        _, raw, count = value
        self.align(4)
        at = len(self.out)
        self.out += struct.pack("<I", count) + raw + b"\0"
        return at


def vec(raw: bytes) -> tuple[str, bytes, int]:
    return ("vec", raw, len(raw))


def coords(*at: int) -> tuple[str, bytes, int]:
    return ("vec", struct.pack(f"<{len(at)}I", *at), len(at))


def manifest_file(root: dict[int, Any], seed: int = 0) -> bytes:
    return seal([Foreign(seed).build(root)], FileType.MANIFEST)


def of_refs(refs: Iterable[dict[int, Any]], **root: Any) -> dict[int, Any]:
    return {0: ID, 1: [{0: NODE, 1: list(refs)}], **{int(key[1:]): value for key, value in root.items()}}


INLINE, OFFSET, LENGTH, CHUNK_ID, LOCATION, ETAG, MODIFIED, COMPRESSED, EXTRA = range(1, 10)
ANY = {OFFSET: ("<Q", 5), LENGTH: ("<Q", 6)}


@pytest.mark.parametrize("seed", range(25))
def test_any_layout(seed: int) -> None:
    wild = [
        {0: coords(2, 1), CHUNK_ID: CHUNK, **ANY, EXTRA: vec(b"?"), 12: ("<d", 1.5)},
        {0: coords(0, 4), LOCATION: vec(b"s3://b/k"), **ANY, ETAG: vec(b"e")},
        {0: coords(0, 1), LOCATION: vec(b"s3://b/k"), MODIFIED: ("<I", 77)},
        {0: coords(1, 1), INLINE: vec(b"bytes")},
        {0: coords(1, 0), LOCATION: vec(b"s3://b/l"), LENGTH: ("<Q", 6), 10: ("<B", 1)},
    ]
    random.Random(seed).shuffle(wild)
    root = of_refs(wild, _4=vec(b"extra"), _7=("<H", 3))
    root[1].append({0: OTHER, 1: [{0: coords(), INLINE: vec(b"scalar")}], 2: vec(b"extra")})
    manifest = decode_manifest(manifest_file(root, seed), "m")
    assert ranges_of_file(manifest_file(root, seed)) == ranges_of_tables(manifest)
    arrays = manifest.arrays
    assert refs_of(arrays[NODE]) == {
        (0, 1): VirtualRef("s3://b/k", 0, 0, None, 77),
        (0, 4): VirtualRef("s3://b/k", 5, 6, "e"),
        (1, 0): VirtualRef("s3://b/l", 0, 6),
        (1, 1): InlineRef(b"bytes"),
        (2, 1): NativeRef(CHUNK, 5, 6),
    }
    assert refs_of(arrays[OTHER]) == {(): InlineRef(b"scalar")}
    # Sorted, whatever the order in the file.
    table = arrays[NODE]
    assert table.index.tolist() == [[0, 1], [0, 4], [1, 0], [1, 1], [2, 1]]
    assert [table.find_chunk(at) for at in ((1, 0), (2, 1), (3, 0))] == [2, 4, -1]


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
    wild = [
        {0: coords(i), LOCATION: vec(b"s3://b/%d" % (i % 3)), ETAG: vec(b"e%d" % (i % 2))} for i in range(30)
    ]
    table = decode_manifest(manifest_file(of_refs(wild)), "m").arrays[NODE]
    assert len(table.foreign) == 6
    assert [table.ref(i) for i in (0, 7)] == [
        VirtualRef("s3://b/0", 0, 0, "e0"),
        VirtualRef("s3://b/1", 0, 0, "e1"),
    ]


DICTIONARY = zstandard.train_dictionary(
    500, [b"s3://bucket/some/where/%d.nc" % (i * 7919) for i in range(500)]
)


def packed(location: bytes, *, size: bool = False) -> tuple[str, bytes, int]:
    return vec(zstandard.ZstdCompressor(dict_data=DICTIONARY, write_content_size=size).compress(location))


WITH_DICTIONARY = {"_2": vec(DICTIONARY.as_bytes())}

#: What a reference has, what else is in the manifest, and how it reads.
PRIORITIES: dict[str, tuple[dict[int, Any], dict[str, Any], Any]] = {
    "chunk id before all": (
        {CHUNK_ID: CHUNK, LOCATION: vec(b"s3://x"), INLINE: vec(b"i"), COMPRESSED: vec(b"?")},
        {},
        NativeRef(CHUNK, 0, 0),
    ),
    "compressed before plain": (
        {LOCATION: vec(b"s3://x"), INLINE: vec(b"i"), COMPRESSED: packed(b"s3://bucket/y")},
        WITH_DICTIONARY,
        VirtualRef("s3://bucket/y", 0, 0),
    ),
    "location before inline": (
        {LOCATION: vec(b"s3://x"), INLINE: vec(b"i")},
        {},
        VirtualRef("s3://x", 0, 0),
    ),
    "content size known": (
        {COMPRESSED: packed(b"s3://bucket/y", size=True)},
        WITH_DICTIONARY,
        VirtualRef("s3://bucket/y", 0, 0),
    ),
    "algorithm 1 written": (
        {COMPRESSED: packed(b"s3://bucket/y")},
        {**WITH_DICTIONARY, "_3": ("<B", 1)},
        VirtualRef("s3://bucket/y", 0, 0),
    ),
    "algorithm 0: raw bytes": (
        {COMPRESSED: vec(b"s3://raw")},
        {"_3": ("<B", 0)},
        VirtualRef("s3://raw", 0, 0),
    ),
    "algorithm 1 without dictionary, plain location": (
        {LOCATION: vec(b"s3://x")},
        {"_3": ("<B", 1)},
        VirtualRef("s3://x", 0, 0),
    ),
    "a location of 1024 bytes": (
        {COMPRESSED: packed(b"x" * 1024)},
        WITH_DICTIONARY,
        VirtualRef("x" * 1024, 0, 0),
    ),
}


@pytest.mark.parametrize(("ref", "root", "wanted"), PRIORITIES.values(), ids=PRIORITIES.keys())
def test_which_field_counts(ref: dict[int, Any], root: dict[str, Any], wanted: Any) -> None:
    file = manifest_file(of_refs([{0: coords(0), **ref}, {0: coords(1), LOCATION: vec(b"s3://z")}], **root))
    table = decode_manifest(file, "m").arrays[NODE]
    assert refs_of(table) == {(0,): wanted, (1,): VirtualRef("s3://z", 0, 0)}


DAMAGED: dict[str, tuple[dict[int, Any], str]] = {
    "no dictionary": (of_refs([{0: coords(0), COMPRESSED: packed(b"s3://b")}]), "dictionary"),
    "unknown algorithm": (
        of_refs([{0: coords(0), COMPRESSED: packed(b"s3://b")}], _3=("<B", 2)),
        "location compression 2",
    ),
    "no frame": (
        of_refs([{0: coords(0), COMPRESSED: vec(b"junk")}], **WITH_DICTIONARY),
        "compressed location",
    ),
    "cut frame": (
        of_refs([{0: coords(0), COMPRESSED: vec(packed(b"s3://bucket/y")[1][:-2])}], **WITH_DICTIONARY),
        "compressed location",
    ),
    "a location of 1025 bytes": (
        of_refs([{0: coords(0), COMPRESSED: packed(b"x" * 1025)}], **WITH_DICTIONARY),
        "compressed location",
    ),
    "a location that claims 1025 bytes": (
        of_refs([{0: coords(0), COMPRESSED: packed(b"x" * 1025, size=True)}], **WITH_DICTIONARY),
        "at most 1024 bytes, got 1025",
    ),
    "no id": ({1: []}, "`id`"),
    "no coordinates": (of_refs([{INLINE: vec(b"x")}]), "`index`"),
    "no kind": (of_refs([{0: coords(0), OFFSET: ("<Q", 1)}]), "got none"),
    "two ranks": (
        of_refs([{0: coords(0), INLINE: vec(b"x")}, {0: coords(0, 1), INLINE: vec(b"x")}]),
        "numbers",
    ),
    "an array twice": ({0: ID, 1: [{0: NODE, 1: []}, {0: NODE, 1: []}]}, "2 arrays"),
}


@pytest.mark.parametrize(("root", "words"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_an_error_that_names_the_file(root: dict[int, Any], words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        decode_manifest(manifest_file(root), "manifests/XYZ")
    assert "manifests/XYZ" in str(caught.value)


# Sizes and speed ------------------------------------------------------------------------------


def grid(n: int) -> Any:
    return np.stack(np.divmod(np.arange(n), 1000), axis=1)


def virtual_table(n: int, distinct: int = 1000) -> ChunkTable:
    locations = [f"s3://bucket-of-things/some/prefix/file-{i:07d}.nc" for i in range(distinct)]
    chosen = (locations * (n // distinct + 1))[:n]
    return ChunkTable.from_virtual(grid(n), chosen, np.arange(n) * 1000, 1000)


def test_what_is_shared_is_stored_once() -> None:
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
    assert payload.count(b"s3://shared/one") == 1
    assert payload.count(b"etag-1") == 1
    assert len(payload_of(encode_manifest(Manifest(ID, {NODE: virtual_table(10_000, 10)})))) < 45 * 10_000


def test_an_absent_dictionary_is_explicit() -> None:
    root = Buffer(payload_of(encode_manifest(Manifest(ID, {NODE: virtual_table(5)})))).root()
    assert root.present(3).all()
    assert root.scalars(3, "u1", 1).tolist() == [0]
    assert not root.present(2).any()


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


def test_many_small_arrays() -> None:
    ids = [i.to_bytes(8, "big") for i in range(20_000)]
    table = ChunkTable.from_inline([[0]], [b"x"])
    manifest = Manifest(ID, dict.fromkeys(ids, table))
    file = encode_manifest(manifest)
    back = decode_manifest(file, "m")
    assert len(back.arrays) == 20_000
    assert refs_of(back.arrays[ids[-1]]) == {(0,): InlineRef(b"x")}
    assert encode_manifest(back) == file
