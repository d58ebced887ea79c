"""Small repositories in every older format, written here: no published package writes them any more.

All hold the same: three commits on ``main``, one on ``dev``, a tag, and from M8 on a deleted tag.

    Repository initialized ── first ── second (main)
                                  └─── side (dev)

``/t`` has an inline, two native and a virtual chunk, ``/s`` is a scalar; ``second`` rewrites (0, 1), deletes
(1, 0) and makes ``/g/new``.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard

from frazil.format.envelope import FileType, seal
from frazil.format.ids import id_to_text
from frazil_import.generations import GENERATIONS, Generation

NAMES = [generation.name for generation in GENERATIONS]
LOCATION = "s3://bucket/some/file.nc"
CHUNK = np.arange(6, dtype="<i4")


def sequence_name(number: int, characters: int = 8) -> str:
    """File name of the ref that commit ``number`` of a branch made, without ``.json``."""
    size = {8: 5, 13: 8}[characters]
    return id_to_text(((1 << 8 * size) - 1 - number).to_bytes(size))


class Pairs(list[tuple[Any, Any]]):
    """A map whose keys need not be hashable."""


def packed(value: Any) -> bytes:
    """MessagePack, each value in its shortest form."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return _integer(value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            return _sized(value.encode(), 0xA0, 32, (0xD9, 0xDA, 0xDB))
        case bytes():
            return _sized(value, 0, 0, (0xC4, 0xC5, 0xC6))
        case dict():
            return packed(Pairs(value.items()))
        case Pairs():
            body = b"".join(packed(each) for pair in value for each in pair)
            return _head(len(value), 0x80, (0xDE, 0xDF)) + body
        case list() | tuple():
            return _head(len(value), 0x90, (0xDC, 0xDD)) + b"".join(map(packed, value))
    raise TypeError(value)


def _integer(value: int) -> bytes:
    if 0 <= value < 128 or -32 <= value < 0:
        return bytes([value % 256])
    first, signed = (0xCC, False) if value >= 0 else (0xD0, True)
    for step, size in enumerate((1, 2, 4, 8)):
        try:
            return bytes([first + step]) + value.to_bytes(size, signed=signed)
        except OverflowError:
            continue
    raise OverflowError(value)


def _sized(data: bytes, short: int, below: int, codes: tuple[int, int, int]) -> bytes:
    if len(data) < below:
        return bytes([short + len(data)]) + data
    size = next(size for size in (1, 2, 4) if len(data) < 1 << 8 * size)
    return bytes([codes[(1, 2, 4).index(size)]]) + len(data).to_bytes(size) + data


def _head(count: int, short: int, codes: tuple[int, int]) -> bytes:
    if count < 16:
        return bytes([short + count])
    size = 2 if count < 1 << 16 else 4
    return bytes([codes[(2, 4).index(size)]]) + count.to_bytes(size)


@dataclass(frozen=True)
class Maker:
    """The form that one generation gives to things."""

    generation: Generation

    @property
    def name(self) -> str:
        return self.generation.name

    @property
    def number(self) -> int:
        """-1 for the draft, then 0 to 8."""
        return NAMES.index(self.name) - 1

    @property
    def is_draft(self) -> bool:
        return self.number < 0

    def raw(self, name: str) -> bytes:
        """An object's id."""
        return name.encode().ljust(16 if self.is_draft else 12, b".")

    def text(self, name: str) -> str:
        return id_to_text(self.raw(name))

    def id(self, name: str) -> Any:
        if self.is_draft:
            return list(self.raw(name))
        return [self.raw(name), []] if self.number >= 6 else self.text(name)

    def node(self, number: int) -> Any:
        if self.number < 2:
            return number
        raw = number.to_bytes(8)
        return [raw, []] if self.number >= 6 else id_to_text(raw)

    def struct(self, **fields: Any) -> Any:
        return fields if self.is_draft else list(fields.values())

    def file(self, value: Any, kind: FileType) -> bytes:
        if self.is_draft:
            return json.dumps(value).encode()
        body = packed(value)
        if self.number >= 5:
            return seal([body], kind, spec_version=1)
        return zstandard.compress(body) if self.number == 4 and kind is FileType.MANIFEST else body

    # what is in files

    def payload(self, kind: str, *given: Any) -> Any:
        match kind:
            case "inline":
                (data,) = given
                return {"Inline": list(data) if self.is_draft else data}
            case "native":
                name, offset, length = given
                return {"Ref": self.struct(id=self.id(name), offset=offset, length=length)}
        location, offset, length, *checksum = given
        if self.is_draft:
            return {"Virtual": {"location": location, "offset": offset, "length": length}}
        if self.number < 3:
            return {"Virtual": [{"Absolute": location}, offset, length]}
        return {"Virtual": [location, offset, length, checksum[0] if checksum else None]}

    def manifest(self, name: str, arrays: dict[int, dict[tuple[int, ...], Any]]) -> bytes:
        flat = [(node, index, payload) for node, each in arrays.items() for index, payload in each.items()]
        if self.is_draft:
            chunks = {
                json.dumps([node, list(index)], separators=(",", ":")): value for node, index, value in flat
            }
            return self.file({"chunks": chunks}, FileType.MANIFEST)
        if self.number < 6:
            refs = Pairs(([self.node(node), list(index)], value) for node, index, value in flat)
            return self.file([int(self.number == 5), {}, refs], FileType.MANIFEST)
        nested = Pairs(
            (self.node(node), Pairs((list(index), value) for index, value in each.items()))
            for node, each in arrays.items()
        )
        head = {6: [1, {}], 7: [1, {}, self.id(name)], 8: [self.id(name)]}[self.number]
        return self.file([*head, nested], FileType.MANIFEST)

    def array(self, meta: list[Any], manifests: dict[str, Any]) -> Any:
        names = (
            "shape",
            "data_type",
            "chunk_shape",
            "chunk_key_encoding",
            "fill_value",
            "codecs",
            "storage_transformers",
            "dimension_names",
        )
        refs = []
        for name, extents in manifests.items():
            box = extents if self.number >= 7 or self.is_draft else []
            flags: dict[str, list[int]] = {"flags": []} if self.is_draft else {}
            refs.append(self.struct(object_id=self.id(name), **flags, extents=box))
        if self.is_draft:
            meta = list(meta)
            meta[5] = [{"name": codec[0], "configuration": codec[1]} for codec in meta[5]]
        return {"Array": [dict(zip(names, meta, strict=True)) if self.is_draft else meta, refs]}

    def tree(self, nodes: dict[str, tuple[int, Any, Any]]) -> Any:
        return {
            path: self.struct(id=self.node(number), path=path, user_attributes=attributes, node_data=data)
            for path, (number, attributes, data) in nodes.items()
        }

    def snapshot(
        self,
        name: str,
        day: int,
        message: str,
        history: list[Any],
        nodes: Any,
        files: list[str],
        **metadata: Any,
    ) -> bytes:
        entry = self.entry(name, day, message)
        started = time_of(day)
        if self.is_draft:
            value: Any = {
                "metadata": entry,
                "started_at": started,
                "properties": metadata,
                "total_parents": len(history),
                "short_term_parents": len(history),
                "short_term_history": history,
                "nodes": nodes,
            }
            return self.file(value, FileType.SNAPSHOT)
        tail = {4: [0, 7], 5: [1, 7], 6: [1, 7], 7: [1, 7, 3], 8: [7, 3]}.get(self.number, [0])
        listed = [[self.id(each), *tail] for each in files]
        if self.number == 8:
            parent = history[0][0] if history else None
            value = [self.id(name), parent, started, message, metadata, listed, [], nodes]
        else:
            value = [listed, [], len(history), len(history), history, entry, started, metadata, nodes]
            if self.number < 5:
                value = [0, {}, *value]
        return self.file(value, FileType.SNAPSHOT)

    def entry(self, name: str, day: int, message: str) -> Any:
        if self.is_draft:
            return {"id": self.id(name), "message": message, "written_at": time_of(day)}
        return [self.id(name), time_of(day), message]

    def log(self, *lists: list[int], chunks: dict[int, list[Any]]) -> bytes:
        fields = [[self.node(node) for node in each] for each in lists]
        updated = Pairs((self.node(node), at) for node, at in chunks.items())
        return self.file([*([] if self.number == 8 else [0]), *fields, updated], FileType.TRANSACTION_LOG)

    def ref(self, name: str) -> bytes:
        if not self.is_draft:
            return json.dumps({"snapshot": self.text(name)}).encode()
        return json.dumps({"snapshot": self.id(name), "timestamp": time_of(1), "properties": {}}).encode()

    def sequence(self, branch: str, number: int) -> str:
        name = sequence_name(number, 13 if self.number == 0 else 8)
        return f"{self.generation.layout.branch}{branch}/{name}.json"

    def tag(self, name: str) -> str:
        return f"{self.generation.layout.tag}{name}" + (".json" if self.is_draft else "/ref.json")


def time_of(day: int) -> str:
    return f"2024-10-{day:02}T12:00:00.000001999Z"


T_META = [[2, 6], "int32", [1, 3], "Dot", {"Int32": -1}, [["bytes", {"endian": "little"}]], None, ["y", None]]
S_META = [[], "float64", [], "Slash", {"Float64": 0.0}, [["bytes", {"endian": "little"}]], None, None]
NEW_META = [
    [2],
    "complex64",
    [2],
    "Slash",
    {"Complex64": [1.5, -2.0]},
    [["bytes", {"endian": "little"}]],
    None,
    None,
]
BOX = [[0, 0], [2, 2]]


def repository(name: str) -> dict[str, bytes]:
    """Every file of a repository of the generation ``name``."""
    make = Maker(next(each for each in GENERATIONS if each.name == name))
    layout = make.generation.layout
    suffix = layout.suffixes[0]
    first: dict[tuple[int, ...], Any] = {
        (0, 0): make.payload("inline", CHUNK[:3].tobytes()),
        (0, 1): make.payload("native", "pack", 4, 12),
        (1, 0): make.payload("virtual", LOCATION, 1 << 33, 12, {"ETag": "e"}),
        (1, 1): make.payload("native", "chunk", 0, 12),
    }
    second = {index: value for index, value in first.items() if index != (1, 0)}
    second[0, 1] = make.payload("native", "other", 0, 12)
    scalar: dict[tuple[int, ...], Any] = {(): make.payload("inline", struct.pack("<d", 2.5))}
    group, attributes = "Group", {"Inline": {"title": "é", "n": [1, 2.5, None, True]}}
    nodes: dict[str, tuple[int, Any, Any]] = {
        "/": (1, attributes, group),
        "/g": (2, None, group),
        "/t": (3, {"Inline": {}}, make.array(T_META, {"m1": BOX})),
        "/s": (4, None, make.array(S_META, {"m1": [[], []]})),
    }
    later = nodes | {
        "/g": (2, {"Inline": {"new": 2}}, group),
        "/t": (3, {"Inline": {"new": 1}}, make.array(T_META, {"m2": BOX})),
        "/s": (4, None, make.array(S_META, {"m2": [[], []]})),
        "/g/new": (5, None, make.array(NEW_META, {"m2": [[0], [1]]})),  # which has nothing of it
    }
    start = make.entry("start", 1, "Repository initialized")
    one = make.entry("first", 2, "first")
    files = {
        f"snapshots/{make.text('start')}": make.snapshot("start", 1, "Repository initialized", [], {}, []),
        f"snapshots/{make.text('first')}": make.snapshot(
            "first", 2, "first", [start], make.tree(nodes), ["m1"], author="me"
        ),
        f"snapshots/{make.text('second')}": make.snapshot(
            "second", 3, "second", [one, start], make.tree(later), ["m2"]
        ),
        f"snapshots/{make.text('side')}": make.snapshot(
            "side", 2, "side", [one, start], make.tree({"/": nodes["/"]}), []
        ),
        f"manifests/{make.text('m1')}": make.manifest("m1", {3: first, 4: scalar}),
        f"manifests/{make.text('m2')}": make.manifest("m2", {3: second, 4: scalar}),
    }
    files = {
        key.replace("snapshots", layout.snapshots).replace("manifests", layout.manifests) + suffix: data
        for key, data in files.items()
    }
    files |= {
        f"{layout.chunks}/{make.text('pack')}": b"head" + CHUNK[3:].tobytes(),
        f"{layout.chunks}/{make.text('chunk')}": (CHUNK[3:] * 10).tobytes(),
        f"{layout.chunks}/{make.text('other')}": (CHUNK[3:] * 100).tobytes(),
        **{make.sequence("main", n): make.ref(name) for n, name in enumerate(("start", "first", "second"))},
        **{make.sequence("dev", n): make.ref(name) for n, name in enumerate(("first", "side"))},
        make.tag("v 1!"): make.ref("first"),
    }
    if make.number >= 2:
        index = [[0, 0], [0, 1], [1, 0], [1, 1]]
        files |= {
            f"transactions/{make.text('first')}": make.log(
                [1, 2], [3, 4], [], [], [1, 2, 3, 4], [], chunks={4: [[]], 3: index}
            ),
            f"transactions/{make.text('second')}": make.log(
                [], [5], [], [], [2, 3, 5], [], chunks={3: [[1, 0], [0, 1]]}
            ),
            f"transactions/{make.text('side')}": make.log([], [], [2], [3, 4], [], [], chunks={}),
        }
    if make.number >= 3:
        tag = "S3Compatible" if make.number < 8 else "s3_compatible"
        files["config.yaml"] = (
            "inline_chunk_threshold_bytes: 99\nvirtual_chunk_containers:\n  s3:\n    name: s3\n"
            f"    url_prefix: s3://\n    store: !{tag}\n      region: us-east-1\n"
        ).encode()
    if make.number == 8:
        files[make.tag("gone")] = make.ref("first")
        files[make.tag("gone") + ".deleted"] = b""
    return files
