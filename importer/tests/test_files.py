"""The formats before spec version 1: names of refs, MessagePack as columns, every kind of file; damage."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zarr
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from importer.tests.writer import NAMES, Maker, Pairs, packed, sequence_name

from frazil.errors import FormatError
from frazil.format import msgpack
from frazil.format.envelope import FileType, seal
from frazil.format.ids import id_to_text
from frazil.format.manifest import InlineRef, NativeRef, VirtualRef
from frazil.format.snapshot import encode_snapshot, initial_snapshot
from frazil_import.generations import COLON, DOT, DRAFT, GENERATIONS, name_to_id, ref_files, sequence_number
from frazil_import.manifest import decode_old_log, decode_old_manifest
from frazil_import.snapshot import array_document, decode_old_snapshot
from frazil_import.tokens import Tokens

generations = pytest.mark.parametrize("name", NAMES)
NAME = "file-name"


def maker(name: str) -> Maker:
    return Maker(next(each for each in GENERATIONS if each.name == name))


class TestRefs:
    @given(st.integers(0, (1 << 40) - 2), st.sampled_from([8, 13]))
    def test_newest_first(self, number: int, characters: int) -> None:
        name, following = (sequence_name(n, characters) for n in (number, number + 1))
        assert (sequence_number(name), len(name)) == (number, characters)
        assert following < name
        for wrong in (name[1:], name.lower() + "z", "U" + name[1:], "Z" * 13, "ref"):
            assert sequence_number(wrong) is None

    def test_files(self) -> None:
        names: tuple[str, ...] = (
            "branch.a b!/ZZZZZZZX.json",
            "branch.a b!/ZZZZZZZY.json",
            "tag.t.json/ref.json",
            "other",
        )
        names += ("tag.gone/ref.json", "tag.gone/ref.json.deleted", "branch:x/ZZZZZZZZ.json")
        names += ("branch.main/ref.json", "branch.main/ZZZZZZZY.txt")
        keys = [f"refs/{name}" for name in names]
        files = ref_files(keys, DOT)
        assert files.branches == {"a b!": {2: keys[0], 1: keys[1]}}
        assert (files.tags, files.deleted_tags) == ({"t.json": keys[2]}, {"gone"})
        assert ref_files(keys, COLON).branches == {"x": {0: keys[6]}}
        draft = ref_files(["r/v1.json", "r/main/ZZZZZZZZ.json", "r/main/x.json", "r/readme"], DRAFT)
        assert draft.branches == {"main": {0: "r/main/ZZZZZZZZ.json"}}
        assert draft.tags == {"v1": "r/v1.json"}

    @given(st.sampled_from([12, 16]).flatmap(lambda size: st.binary(min_size=size, max_size=size)))
    def test_file_names_of_ids(self, id_: bytes) -> None:
        assert name_to_id(id_to_text(id_)) == id_
        assert name_to_id(id_to_text(id_)[:-1]) is None


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner, max_size=5),
    max_leaves=60,
)


class TestTokens:
    @given(VALUES)
    def test_every_value_has_a_token(self, value: Any) -> None:
        tokens = Tokens(packed(value))
        assert rebuilt(tokens, 0) == value

    def test_values_across_blocks(self) -> None:
        value = [b"x" * 70_000, *range(40_000), "y" * 300, [[]] * 40_000, b"z" * 33_000]
        tokens = Tokens(packed(value))
        children = tokens.children(0)
        assert tokens.numbers(children[1:40_001]).tolist() == list(range(40_000))
        assert tokens.content(children[[0, -1]]).lengths.tolist() == [70_000, 33_000]
        assert len(children) == 40_004
        assert len(tokens.children(int(children[-2]))) == 40_000

    @pytest.mark.parametrize(
        "data", ["", "91", "9100ff", "c1", "d40000", "c70000", "da0001", "a3414243ff", "dd00000001", "81a161"]
    )
    def test_damage(self, data: str) -> None:
        with pytest.raises(FormatError):
            Tokens(bytes.fromhex(data))


def rebuilt(tokens: Tokens, at: int) -> Any:
    """A value from its tokens."""
    code = int(tokens.code[at])
    one = np.array([at])
    if tokens.of_kind("array", at):
        return [rebuilt(tokens, child) for child in tokens.children(at).tolist()]
    if tokens.of_kind("map", at):
        values = [rebuilt(tokens, child) for child in tokens.children(at).tolist()]
        return dict(zip(values[::2], values[1::2], strict=True))
    if tokens.of_kind("text", at):
        return tokens.content(one).text(0)
    if tokens.of_kind("bytes", at):
        return tokens.content(one).bytes(0)
    if code < 0x80 or 0xCC <= code <= 0xCF:
        return int(tokens.numbers(one)[0])
    start = int(tokens._starts[at])
    size = {0xCA: 5, 0xCB: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}.get(code, 1)
    return msgpack.loads(tokens._data[start : start + size].tobytes())


class TestFiles:
    @pytest.mark.parametrize("name", ["M1", "M3", "M5", "M8"])
    def test_manifest_of_many_references(self, name: str) -> None:
        """In any order, of several nodes and ranks; checksums mixed."""
        make = maker(name)
        chance = random.Random(3)
        arrays: dict[int, dict[tuple[int, ...], Any]] = {}
        wanted: dict[tuple[Any, int], dict[tuple[int, ...], Any]] = {}
        checksums = [None, {"ETag": "a"}, {"ETag": "b"}, {"LastModified": 7}]
        for number in (1, 2, 300):
            node = number if make.number < 2 else number.to_bytes(8)
            ranks = (1, 3) if make.number < 6 else (2,)
            for _ in range(700):
                index = tuple(
                    chance.randrange(1 << chance.choice([3, 12, 30])) for _ in range(chance.choice(ranks))
                )
                size = chance.choice([1, 200, 70_000, 1 << 40])
                ref: Any
                match chance.randrange(3):
                    case 0:
                        data = chance.randbytes(chance.choice([0, 5, 400]))
                        value, ref = make.payload("inline", data), InlineRef(data)
                    case 1:
                        chunk = f"chunk{chance.randrange(50)}"
                        value = make.payload("native", chunk, size, size + 1)
                        ref = NativeRef(make.raw(chunk), size, size + 1)
                    case _:
                        location = f"s3://é/{'x' * chance.choice([1, 40, 300])}{chance.randrange(9)}"
                        checksum = chance.choice(checksums) if make.number >= 3 else None
                        value = make.payload("virtual", location, size, 5, checksum)
                        state: dict[str, Any] = checksum or {}
                        ref = VirtualRef(location, size, 5, state.get("ETag"), state.get("LastModified"))
                arrays.setdefault(number, {})[index] = value
                wanted.setdefault((node, len(index)), {})[index] = ref
        tables = decode_old_manifest(make.manifest("m", arrays), NAME, DOT).tables
        assert tables.keys() == wanted.keys()
        for key, table in tables.items():
            refs = {tuple(at): table.ref(row) for row, at in enumerate(table.index.tolist())}
            assert refs == wanted[key]
            assert list(refs) == sorted(refs)

    def test_later_files_are_not_of_these_formats(self) -> None:
        with pytest.raises(FormatError, match="file-name: "):
            decode_old_snapshot(encode_snapshot(initial_snapshot(1)), NAME, DOT)


FILLS = [
    ("bool", {"Bool": True}, True),
    ("int8", {"Int8": -3}, -3),
    ("int64", {"Int64": -(1 << 63)}, -(1 << 63)),
    ("uint64", {"UInt64": (1 << 64) - 1}, (1 << 64) - 1),
    ("float16", {"Float16": 1.5}, 1.5),
    ("float32", {"Float32": float("nan")}, "NaN"),
    ("float32", {"Float32": float("-inf")}, "-Infinity"),
    ("float64", {"Float64": float("inf")}, "Infinity"),
    ("float64", {"Float64": "NaN"}, "NaN"),
    ("float64", {"Float64": 3}, 3.0),
    ("complex64", {"Complex64": [1.5, -2.0]}, [1.5, -2.0]),
    ("complex128", {"Complex128": [float("nan"), float("inf")]}, ["NaN", "Infinity"]),
    ("string", {"String": "é"}, "é"),
    ("bytes", {"Bytes": [1, 200]}, "Acg="),
    ("float64", {"Float64": None}, "NaN"),
    ({"rawbits": 16}, {"RawBits": [1, 2]}, "AQI="),
]


class TestMetadata:
    @pytest.mark.parametrize(("data_type", "fill", "wanted"), FILLS, ids=lambda each: str(each)[:20])
    @pytest.mark.filterwarnings("ignore:The data type")
    def test_fill_values(self, data_type: Any, fill: Any, wanted: Any) -> None:
        codec = {"string": "vlen-utf8", "bytes": "vlen-bytes"}.get(str(data_type), "bytes")
        codecs = [[codec, {"endian": "little"} if codec == "bytes" else None]]
        meta = [[2], data_type, [2], "Slash", fill, codecs, None, None]
        document = array_document(meta, {"a": 1})
        assert document["fill_value"] == wanted
        assert json.loads(json.dumps(document)) == document
        metadata = zarr.core.metadata.v3.ArrayV3Metadata.from_dict(document)
        assert json.loads(json.dumps(metadata.to_dict()["fill_value"])) == wanted

    def test_parts(self) -> None:
        codecs = [["transpose", {"order": [1, 0]}], ["bytes", {"endian": "big"}]]
        parts = [["x", {"k": 1}], ["y", None]]
        meta = [[0, 9], "int16", [1, 4], "Dot", {"Int16": 0}, codecs, parts, ["é", None]]
        document = array_document(meta, None)
        assert document["codecs"] == [{"name": n, "configuration": c} for n, c in codecs]
        assert document["storage_transformers"] == [{"name": "x", "configuration": {"k": 1}}, {"name": "y"}]
        assert document["chunk_key_encoding"]["configuration"] == {"separator": "/"}

    def test_attributes_elsewhere(self) -> None:
        make = maker("M5")
        tree = make.tree({"/": (1, {"Ref": [make.id("a"), 3]}, "Group")})
        node = decode_old_snapshot(make.snapshot("s", 1, "x", [], tree, []), NAME, DOT).nodes[0]
        assert node.attributes_elsewhere
        assert node.document["attributes"] == {}

    @pytest.mark.parametrize("history", [[3, 2, 1], [1, 2, 3], [2], []])
    def test_the_newest_of_the_history_is_the_parent(self, history: list[int]) -> None:
        """A writer put the newest one last for a day."""
        make = maker("D")
        entries = [make.entry(f"s{day}", day, "") for day in history]
        snapshot = decode_old_snapshot(make.snapshot("s", 9, "x", entries, {}, []), NAME, DRAFT)
        assert snapshot.parent == (make.raw(f"s{max(history)}") if history else None)


# ---- damage -----------------------------------------------------------------------------------------


@pytest.fixture
def bounded() -> Iterator[None]:
    tracemalloc.start()
    start = time.process_time()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6
    assert time.process_time() - start < 60


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff" * 1000,
        b"\xdf\xff\xff\xff\xff" + b"\x00" * 1000,
        b"\xc6\xff\xff\xff\xff",
        packed([1, {}, Pairs([([0, [1 << 40]], {"Inline": b""})])]),
        packed([1, {}, Pairs([([0, [[1]]], {"Inline": b""})])]),
        packed([1, {}, Pairs([([0, [1]], {"Else": b""})])]),
        packed([1, {}, Pairs([([0, [1]], {"Ref": ["x" * 20, -1, 1]})])]),
        packed([1, {}, Pairs([([0, [1]], {"Virtual": ["x", 1, 1, {"Other": 1}]})])]),
        packed([1, {}, Pairs([([0, [1]], {"Virtual": [{"Relative": "x"}, 1, 1]})])]),
        packed([1, {}, Pairs([(["node", [1]], {"Inline": b""})])]),
        packed([1, {}, 5]),
        packed([[b"m" * 12, []], {"a": 1}]),
        json.dumps({"chunks": {"[1,[2]]": {"Inline": [256]}}}).encode(),
        json.dumps({"chunks": {"[1,[-2]]": {"Inline": [1]}}}).encode(),
        json.dumps({"chunks": {"x": {"Inline": [1]}}}).encode(),
        json.dumps({"chunks": {"[1,[2]]": {"Ref": {"id": [1], "offset": 0, "length": 1}}}}).encode(),
    ],
    ids=range(18),
)
def test_hostile_bytes(body: bytes) -> None:
    for layout in (DOT, DRAFT):
        for decode in (decode_old_manifest, decode_old_snapshot):
            with pytest.raises(FormatError, match=NAME):
                decode(body, NAME, layout)
    with pytest.raises(FormatError, match=NAME):
        decode_old_log(body, NAME)


def test_what_decompresses_to_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil_import.generations.MAX_PAYLOAD_BYTES", 1 << 20)
    bomb = bytes(1 << 25)
    tracemalloc.start()
    for data in (zstandard.compress(bomb), seal([bomb], FileType.MANIFEST, spec_version=1)):
        with pytest.raises(FormatError, match=NAME):
            decode_old_manifest(data, NAME, DOT)
    monkeypatch.setattr("frazil_import.generations.MAX_PAYLOAD_BYTES", 1 << 30)
    monkeypatch.setattr("frazil_import.tokens.MAX_TOKENS", 1 << 16)
    with pytest.raises(FormatError, match=f"{NAME}: more than 65536 values"):
        decode_old_manifest(zstandard.compress(bytes(1 << 20)), NAME, DOT)
    assert tracemalloc.get_traced_memory()[1] < 128e6
    tracemalloc.stop()
