"""A reader of repositories in a folder, and its adapter: `python kit/tests/simple_reader.py`.

It shares nothing with the kit but the loop of the adapter: it is a second reading of the specification.
"""

from __future__ import annotations

import json
import posixpath
import re
import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import zstandard
from flatbuffers import flexbuffers  # type: ignore[import-untyped]
from icechunk_kit.adapter import serve

flexbuffers.Key.__str__ = lambda key: key.Bytes.decode()  # the library reads ASCII only
MAGIC = bytes.fromhex("494345f09fa78a4348554e4b")
DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LIMIT = 2**30
TYPES = {1: "array", 2: "group"}
UPDATES = re.findall(
    "[^ ]+",
    "RepoInitialized RepoMigrated ConfigChanged MetadataChanged TagCreated TagDeleted BranchCreated "
    "BranchDeleted BranchReset NewCommit CommitAmended NewDetachedSnapshot GCRan ExpirationRan "
    "FeatureFlagChanged RepoStatusChanged",
)


class Modified(Exception):
    """The object of a virtual chunk changed."""


def check(condition: object, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def encode(id: bytes) -> str:
    digits = -(-len(id) * 8 // 5)
    number = int.from_bytes(id) << digits * 5 - len(id) * 8
    return "".join(DIGITS[number >> 5 * place & 31] for place in reversed(range(digits)))


class Table:
    """A table of a FlatBuffer. A slot is the number of a field in the order of the schema."""

    def __init__(self, data: bytes, place: int) -> None:
        self.data, self.place = data, place + self.number(data, "<I", place)
        self.vtable = self.place - self.number(data, "<i", self.place)
        self.size = self.number(data, "<H", self.vtable)

    @staticmethod
    def number(data: bytes, format: str, place: int) -> Any:
        check(place >= 0, "an offset leaves the file")
        return struct.unpack_from(format, data, place)[0]

    def field(self, slot: int) -> int:
        """Return the place of a field, or 0."""
        entry = 4 + 2 * slot
        offset = self.number(self.data, "<H", self.vtable + entry) if entry < self.size else 0
        return self.place + offset if offset else 0

    def require(self, *slots: int) -> Table:
        check(all(map(self.field, slots)), f"one of the fields {slots} is absent")
        return self

    def get(self, slot: int, format: str, default: Any = 0) -> Any:
        return self.number(self.data, format, place) if (place := self.field(slot)) else default

    def vector(self, slot: int, size: int) -> tuple[int, int]:
        """Return the place and the number of the elements."""
        if not (place := self.field(slot)):
            return 0, 0
        place += self.number(self.data, "<I", place)
        count = self.number(self.data, "<I", place)
        check(place + 4 + count * size <= len(self.data), "a vector leaves the file")
        return place + 4, count

    def bytes(self, slot: int) -> bytes:
        place, count = self.vector(slot, 1)
        return self.data[place : place + count]

    def text(self, slot: int) -> str:
        return self.bytes(slot).decode()

    def structs(self, slot: int, format: str) -> list[Any]:
        place, count = self.vector(slot, struct.calcsize(format))
        return list(struct.iter_unpack(format, self.data[place : place + count * struct.calcsize(format)]))

    def tables(self, slot: int, *required: int) -> list[Table]:
        place, count = self.vector(slot, 4)
        return [Table(self.data, place + 4 * number).require(*required) for number in range(count)]


def decompress(data: bytes) -> bytes:
    """Return the content of all frames. Small pieces bound the memory."""
    parts, size, frame = [], 0, zstandard.ZstdDecompressor().decompressobj()
    for start in range(0, len(data), 4096):
        piece = data[start : start + 4096]
        while piece:
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            parts.append(frame.decompress(piece))
            size += len(parts[-1])
            check(size <= LIMIT, "the file is too large")
            piece = frame.unused_data
    check(frame.eof, "the file is cut")
    return b"".join(parts)


class Repository:
    def __init__(self, location: dict[str, Any]) -> None:
        self.folder, self.containers = Path(location["path"]), location.get("containers", [])
        self.names: dict[str, dict[str, str]] = {"branch": {}, "tag": {}}
        self.infos: dict[str, Table] = {}
        if (self.folder / "repo").exists():
            self.repo = self.load("repo", 6, 1, 2, 3, 4, 5, 7)[0]
            self.infos = {encode(info.get(0, "12s")): info for info in self.repo.tables(4, 0, 3)}
            for kind, slot in (("tag", 1), ("branch", 2)):
                for ref in self.repo.tables(slot, 0):
                    self.names[kind][ref.text(0)] = list(self.infos)[ref.get(1, "<I")]
        elif (self.folder / "refs" / "branch.main" / "ref.json").exists():
            for path in (self.folder / "refs").glob("*/ref.json"):
                kind, _, name = path.parent.name.partition(".")
                if not path.with_name("ref.json.deleted").exists():
                    self.names[kind][name] = json.loads(path.read_text())["snapshot"]
        else:
            raise KeyError("there is no repository")

    def load(self, key: str, kind: int, *required: int) -> tuple[Table, int]:
        """Return the root table of a metadata file, and the version of its header."""
        data = (self.folder / key).read_bytes()
        check(len(data) >= 39 and data[:12] == MAGIC, "this is no file of Icechunk")
        version, type_, compression = data[36:39]
        check(version in (1, 2), "the version is not known")
        check(type_ == kind, "this is another type of file")
        check(compression in (0, 1), "the compression is not known")
        table = Table(decompress(data[39:]) if compression else data[39:], 0).require(*required)
        check(kind == 6 or encode(table.get(0, "12s")) == key[-20:], "this is the file of another object")
        return table, version

    def snapshot(self, id: str) -> tuple[Table, int]:
        if not re.fullmatch(f"[{DIGITS}]{{20}}", id) or (self.infos and id not in self.infos):
            raise KeyError(f"there is no snapshot {id}")
        return self.load(f"snapshots/{id}", 1, 0, 2, 4, 5, 6)

    def resolve(self, ref: dict[str, str]) -> str:
        ((kind, name),) = ref.items()
        return self.names.get(kind, {name: name})[name]

    def nodes(self, ref: Any) -> dict[str, Table]:
        nodes = self.snapshot(self.resolve(ref))[0].tables(2, 0, 1, 2, 3, 4)
        check(all(node.get(3, "B") in TYPES for node in nodes), "a node is no array and no group")
        return {node.text(1): node for node in nodes}

    def ancestry(self, id: str) -> Iterator[tuple[str, str, int, Any, int]]:
        """Yield the id, message, time, properties and version of a snapshot and of its ancestors."""
        ids = list(self.infos)
        for _ in ids or range(10**6):
            if ids:
                info = self.infos[id]
                yield id, info.text(3), info.get(2, "<Q"), info.tables(4), 2
                number = info.get(1, "<i")
                parent = ids[number] if number >= 0 else None
            else:
                table, version = self.snapshot(id)
                yield id, table.text(4), table.get(3, "<Q"), table.tables(5), version
                parent = encode(table.get(1, "12s")) if table.field(1) else None
            if parent is None:
                return
            check(parent != id, "a snapshot is its own parent")
            id = parent
        raise ValueError("the ancestry has no end")

    def manifests(self, node: Table) -> list[tuple[str, list[tuple[int, int]]]]:
        refs = Table(node.data, node.field(4)).require(2).tables(2, 0, 1) if node.get(3, "B") == 1 else []
        return [(encode(ref.get(0, "12s")), ref.structs(1, "<II")) for ref in refs]

    def references(self, node: Table, name: str) -> tuple[Table, int, int]:
        """Return a manifest, and the place and the number of the references of an array."""
        manifest = self.load(f"manifests/{name}", 2, 0, 1)[0]
        arrays = [each for each in manifest.tables(1, 0, 1) if each.get(0, "8s") == node.get(0, "8s")]
        return (manifest, *(arrays[0].vector(1, 4) if arrays else (0, 0)))

    def chunk(self, node: Table, index: list[int]) -> bytes | None:
        for name, extents in self.manifests(node):
            check(len(extents) == len(index), "a manifest has another number of dimensions")
            if all(low <= at < high for at, (low, high) in zip(index, extents, strict=True)):
                manifest, place, count = self.references(node, name)

                def coordinates(number: int) -> list[int]:
                    reference = Table(manifest.data, place + 4 * number).require(0)  # noqa: B023
                    return [at for (at,) in reference.structs(0, "<I")]

                number = bisect_left(range(count), index, key=coordinates)
                if number < count and coordinates(number) == index:
                    return self.data(manifest, Table(manifest.data, place + 4 * number))
                return None
        return None

    def data(self, manifest: Table, reference: Table) -> bytes:
        url, packed = reference.text(5), reference.bytes(8)
        if packed and manifest.get(3, "B", 1):
            dictionary = zstandard.ZstdCompressionDict(manifest.require(2).bytes(2))
            packed = zstandard.ZstdDecompressor(dict_data=dictionary).stream_reader(packed).read(1025)
            check(len(packed) <= 1024, "a location is too long")
        if chunk := reference.get(4, "12s"):
            path = self.folder / "chunks" / encode(chunk)
        elif packed or url:
            path = self.virtual(reference, packed.decode() or url)
        else:
            return reference.require(1).bytes(1)
        offset, length = reference.get(2, "<Q"), reference.get(3, "<Q")
        check(offset + length <= path.stat().st_size, "a chunk ends behind its file")
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def virtual(self, reference: Table, url: str) -> Path:
        if url.startswith("vcc://"):
            name, _, rest = url.removeprefix("vcc://").partition("/")
            containers = flexbuffers.Loads(self.repo.bytes(9))["virtual_chunk_containers"].values()
            url = next(each["url_prefix"] for each in containers if each["name"] == name) + rest
        check(url.startswith("file://"), "only files can be read")
        path = Path(posixpath.normpath(url.removeprefix("file://")))
        check(any(path.as_uri().startswith(each) for each in self.containers), "the location is not allowed")
        modified = reference.get(7, "<I")
        if reference.field(6) or (modified and path.stat().st_mtime > modified):
            raise Modified(url)
        return path

    def refs(self) -> Any:
        return {"branches": self.names["branch"], "tags": self.names["tag"]}

    def log(self, ref: Any) -> Any:
        ancestry = self.ancestry(self.resolve(ref))
        return [{"id": id, "message": message, "time": time} for id, message, time, *_ in ancestry]

    def properties(self, ref: Any) -> Any:
        *_, items, version = next(self.ancestry(self.resolve(ref)))
        loads = flexbuffers.Loads if version == 2 else msgpack.unpackb
        return {item.text(0): loads(item.bytes(1)) for item in items}

    def list(self, ref: Any) -> Any:
        ordered = sorted(self.nodes(ref).items(), key=lambda item: item[0].encode())
        return [{"path": path, "type": TYPES[node.get(3, "B")]} for path, node in ordered]

    def metadata(self, ref: Any, path: str) -> Any:
        return json.loads(self.nodes(ref)[path].bytes(2))

    def read(self, ref: Any, path: str, chunks: Any) -> Any:
        node = self.nodes(ref)[path]
        values = [self.chunk(node, index) for index in chunks]
        return [None if value is None else value.hex() for value in values]

    def count(self, ref: Any, path: str) -> int:
        node = self.nodes(ref)[path]
        return sum(self.references(node, name)[2] for name in {name for name, _ in self.manifests(node)})

    def updates(self) -> Any:
        entries, table = [], self.repo
        for _ in range(1000):
            entries += table.tables(7, 0, 1)
            if not (backup := table.text(8)):
                return [
                    {"kind": UPDATES[e.get(0, "B") - 1] + "Update", "time": e.get(2, "<Q")} for e in entries
                ]
            table = self.load(f"overwritten/{Path(backup).name}", 6)[0]
        raise ValueError("the log of updates has no end")


def kind(error: Exception) -> str:
    kinds = {KeyError: "not-found", Modified: "modified", OSError: "storage"}
    return next((word for class_, word in kinds.items() if isinstance(error, class_)), "format")


def operation(name: str) -> Any:
    return lambda location, **arguments: getattr(Repository(location), name)(**arguments)


NAMES = ("refs", "log", "properties", "list", "metadata", "read", "count", "updates")
OPERATIONS = {name: operation(name) for name in NAMES}

if __name__ == "__main__":
    serve(OPERATIONS, kind)
