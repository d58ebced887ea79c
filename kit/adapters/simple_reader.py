"""A reader of repositories in a folder, and its adapter: `python adapters/simple_reader.py`.

It shares nothing with the kit but the loop of the adapter: it is a second reading of the specification.
"""

from __future__ import annotations

import json
import posixpath
import re
import struct
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
    number, digits = int.from_bytes(id), -(-len(id) * 8 // 5)
    number <<= digits * 5 - len(id) * 8
    return "".join(DIGITS[number >> 5 * place & 31] for place in reversed(range(digits)))


class Table:
    """A table of a FlatBuffer. A slot is the number of a field in the order of the schema."""

    def __init__(self, data: bytes, place: int | None = None) -> None:
        self.data = data
        self.place = self.number("<I", 0) if place is None else place
        self.vtable = self.place - self.number("<i", self.place)
        self.size = self.number("<H", self.vtable)

    def number(self, format: str, place: int) -> Any:
        check(0 <= place <= len(self.data) - struct.calcsize(format), "an offset leaves the file")
        return struct.unpack_from(format, self.data, place)[0]

    def field(self, slot: int, required: bool = False) -> int:
        entry = 4 + 2 * slot
        offset = self.number("<H", self.vtable + entry) if entry < self.size else 0
        check(offset or not required, f"the field {slot} is absent")
        return self.place + offset if offset else 0

    def get(self, slot: int, format: str, default: Any = 0, required: bool = False) -> Any:
        place = self.field(slot, required)
        return self.number(format, place) if place else default

    def vector(self, slot: int, size: int, required: bool = False) -> tuple[int, int]:
        """Return the place and the number of the elements."""
        if not (place := self.field(slot, required)):
            return 0, 0
        place += self.number("<I", place)
        count = self.number("<I", place)
        check(place + 4 + count * size <= len(self.data), "a vector leaves the file")
        return place + 4, count

    def bytes(self, slot: int, required: bool = False) -> bytes | None:
        place, count = self.vector(slot, 1, required)
        return self.data[place : place + count] if place else None

    def text(self, slot: int, required: bool = False) -> str:
        return (self.bytes(slot, required) or b"").decode()

    def structs(self, slot: int, format: str, required: bool = False) -> list[Any]:
        place, count = self.vector(slot, struct.calcsize(format), required)
        rows = struct.iter_unpack(format, self.data[place : place + count * struct.calcsize(format)])
        return [row if len(row) > 1 else row[0] for row in rows]

    def table(self, place: int) -> Table:
        return Table(self.data, place + self.number("<I", place))

    def tables(self, slot: int, required: bool = False) -> list[Table]:
        place, count = self.vector(slot, 4, required)
        return [self.table(place + 4 * number) for number in range(count)]


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
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.infos: list[Table] | None = None
        if (self.folder / "repo").exists():
            self.repo = repo = self.load("repo", 6)[0]
            self.infos = repo.tables(4, required=True)
            self.ids = [info.get(0, "12s", required=True) for info in self.infos]
            for refs, slot in ((self.tags, 1), (self.branches, 2)):
                for ref in repo.tables(slot, required=True):
                    name, number = ref.text(0, required=True), ref.get(1, "<I")
                    check(number < len(self.ids), "a reference points beyond the list of snapshots")
                    refs[name] = encode(self.ids[number])
            for table, slot in ((repo, 3), (repo, 5), (repo, 7), *((info, 3) for info in self.infos)):
                table.field(slot, required=True)
        elif (self.folder / "refs" / "branch.main" / "ref.json").exists():
            for path in (self.folder / "refs").glob("*/ref.json"):
                kind, _, name = path.parent.name.partition(".")
                if not path.with_name("ref.json.deleted").exists():
                    refs = self.branches if kind == "branch" else self.tags
                    refs[name] = json.loads(path.read_text())["snapshot"]
        else:
            raise KeyError("there is no repository")

    def load(self, key: str, kind: int) -> tuple[Table, int]:
        """Return the root table of a metadata file, and the version of its header."""
        data = (self.folder / key).read_bytes()
        check(len(data) >= 39 and data[:12] == MAGIC, "this is no file of Icechunk")
        version, type_, compression = data[36:39]
        check(version in (1, 2), "the version is not known")
        check(type_ == kind, "this is another type of file")
        check(compression in (0, 1), "the compression is not known")
        return Table(decompress(data[39:]) if compression else data[39:]), version

    def snapshot(self, id: str) -> tuple[Table, int]:
        valid = isinstance(id, str) and len(id) == 20 and set(id) <= set(DIGITS)
        if not valid or (self.infos and id not in map(encode, self.ids)):
            raise KeyError(f"there is no snapshot {id}")
        table, version = self.load(f"snapshots/{id}", 1)
        check(encode(table.get(0, "12s", required=True)) == id, "this is another snapshot")
        for slot in (4, 5, 6):
            table.field(slot, required=True)
        return table, version

    def resolve(self, ref: dict[str, str]) -> str:
        ((kind, name),) = ref.items()
        return {"branch": self.branches, "tag": self.tags}.get(kind, {name: name})[name]

    def nodes(self, ref: Any) -> dict[str, Table]:
        nodes = self.snapshot(self.resolve(ref))[0].tables(2, required=True)
        for node in nodes:
            for slot in (0, 2):
                node.field(slot, required=True)
            check(node.get(3, "B") in TYPES and node.field(4), "a node is no array and no group")
        return {node.text(1, required=True): node for node in nodes}

    def node(self, ref: dict[str, str], path: str) -> Table:
        return self.nodes(ref)[path]

    def ancestry(self, id: str) -> Iterator[tuple[str, str, int, Any, int]]:
        """Yield the id, message, time, properties and version of a snapshot and of its ancestors."""
        number = list(map(encode, self.ids)).index(id) if self.infos else 0
        for _ in self.infos or range(10**6):
            if self.infos:
                info = self.infos[number]
                yield encode(self.ids[number]), info.text(3), info.get(2, "<Q"), info.tables(4), 2
                number = info.get(1, "<i")
                if number < 0:
                    return
                check(number < len(self.ids), "a parent is beyond the list of snapshots")
            else:
                table, version = self.snapshot(id)
                yield id, table.text(4), table.get(3, "<Q"), table.tables(5), version
                if not (parent := table.get(1, "12s", None)):
                    return
                check(encode(parent) != id, "a snapshot is its own parent")
                id = encode(parent)
        raise ValueError("the ancestry has no end")

    def manifests(self, node: Table) -> list[tuple[str, list[tuple[int, int]]]]:
        refs = node.table(node.field(4)).tables(2, required=True) if node.get(3, "B") == 1 else []
        return [
            (encode(ref.get(0, "12s", required=True)), ref.structs(1, "<II", required=True)) for ref in refs
        ]

    def references(self, node: Table, manifest: str) -> tuple[Table, Table | None]:
        """Return a manifest, and the part of it that belongs to an array."""
        table = self.load(f"manifests/{manifest}", 2)[0]
        check(encode(table.get(0, "12s", required=True)) == manifest, "this is another manifest")
        id = node.get(0, "8s")
        arrays = [each for each in table.tables(1, required=True) if each.get(0, "8s", required=True) == id]
        return table, arrays[0] if arrays else None

    def chunk(self, node: Table, index: list[int]) -> bytes | None:
        for manifest, extents in self.manifests(node):
            check(len(extents) == len(index), "a manifest has another number of dimensions")
            if all(low <= at < high for at, (low, high) in zip(index, extents, strict=True)):
                table, array = self.references(node, manifest)
                if array is None:
                    return None
                place, count = array.vector(1, 4, required=True)
                low, high = 0, count
                while low < high:
                    middle = (low + high) // 2
                    reference = array.table(place + 4 * middle)
                    here = reference.structs(0, "<I", required=True)
                    if here == index:
                        return self.data(table, reference)
                    low, high = (middle + 1, high) if here < index else (low, middle)
                return None
        return None

    def data(self, manifest: Table, reference: Table) -> bytes:
        chunk, location, packed = reference.get(4, "12s", None), reference.text(5), reference.bytes(8)
        if chunk:
            path = self.folder / "chunks" / encode(chunk)
        elif packed is not None:
            if manifest.get(3, "B", 1):
                check(manifest.field(2), "there is no dictionary")
                dictionary = zstandard.ZstdCompressionDict(manifest.bytes(2))
                packed = zstandard.ZstdDecompressor(dict_data=dictionary).stream_reader(packed).read(1025)
                check(len(packed) <= 1024, "a location is too long")
            path = self.virtual(reference, packed.decode())
        elif location:
            path = self.virtual(reference, location)
        else:
            inline = reference.bytes(1)
            check(inline is not None, "a reference is empty")
            return inline or b""
        offset, length = reference.get(2, "<Q"), reference.get(3, "<Q")
        check(offset + length <= path.stat().st_size, "a chunk ends behind its file")
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def virtual(self, reference: Table, url: str) -> Path:
        if url.startswith("vcc://"):
            config = flexbuffers.Loads(self.repo.bytes(9))
            name, _, rest = url.removeprefix("vcc://").partition("/")
            prefixes = config["virtual_chunk_containers"].values()
            url = next(each["url_prefix"] for each in prefixes if each["name"] == name) + rest
        check(url.startswith("file://"), "only files can be read")
        url = "file://" + posixpath.normpath(url.removeprefix("file://"))
        check(any(url.startswith(prefix) for prefix in self.containers), "the location is not allowed")
        path = Path(url.removeprefix("file://"))
        modified = reference.get(7, "<I")
        if reference.field(6) or (modified and path.stat().st_mtime > modified):
            raise Modified(url)
        return path

    def refs(self) -> Any:
        return {"branches": self.branches, "tags": self.tags}

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
        return json.loads(self.node(ref, path).bytes(2) or b"")

    def read(self, ref: Any, path: str, chunks: Any) -> Any:
        node = self.node(ref, path)
        values = [self.chunk(node, index) for index in chunks]
        return [None if value is None else value.hex() for value in values]

    def count(self, ref: Any, path: str) -> int:
        node = self.node(ref, path)
        arrays = [self.references(node, name)[1] for name in {name for name, _ in self.manifests(node)}]
        return sum(array.vector(1, 4)[1] for array in arrays if array)

    def updates(self) -> Any:
        entries, table = [], self.repo
        for _ in range(1000):
            for each in table.tables(7, required=True):
                check(0 < each.get(0, "B") <= len(UPDATES), "the kind of an update is not known")
                entries.append({"kind": f"{UPDATES[each.get(0, 'B') - 1]}Update", "time": each.get(2, "<Q")})
            if not (backup := table.text(8)):
                return entries
            check("/" not in backup, "the name of a backup is a path")
            table = self.load(f"overwritten/{backup}", 6)[0]
        raise ValueError("the log of updates has no end")


def kind(error: Exception) -> str:
    kinds = {KeyError: "not-found", Modified: "modified", OSError: "storage"}
    return next((word for class_, word in kinds.items() if isinstance(error, class_)), "format")


def operation(name: str) -> Any:
    return lambda location, **arguments: getattr(Repository(location), name)(**arguments)


OPERATIONS = {
    name: operation(name)
    for name in ("refs", "log", "properties", "list", "metadata", "read", "count", "updates")
}

if __name__ == "__main__":
    serve(OPERATIONS, kind)
