"""zarr-python over the plain files of an Icechunk repository: a read-only store, and an adapter of the kit.

    store = SnapshotStore(LocalStore("/data/repository"), {"branch": "main"})
    zarr.open_group(store, mode="r")

The files come from any store of zarr: `LocalStore`, `FsspecStore.from_url("https://...")` or `ObjectStore`.
The store needs the packages zarr, numpy, zstandard, flatbuffers and msgpack; the adapter at the end, the kit.
"""

import asyncio
import base64
import json
import re
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgpack  # type: ignore[import-untyped]
import numpy as np
import zstandard
from flatbuffers import flexbuffers  # type: ignore[import-untyped]
from icechunk_kit.adapter import serve
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore

LIMIT = 1 << 29  # bytes of a metadata file after decompression
CROCKFORD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789ABCDEFGHJKMNPQRSTVWXYZ")
FILE_TYPES = {"snapshots": 1, "manifests": 2, "transactions": 4, "repo": 6, "overwritten": 6}
NODE_TYPES = {1: "array", 2: "group"}
# The fields of each table, in the order of the schema. "!" marks a required field. A union is two fields: its
# type and its table. A letter is a number as in `struct`, `=12` means bytes inside of the table, and `*8` a
# vector of items of 8 bytes. `Empty` stands for what this reader does not use.
SCHEMA = {
    "Repo": "spec_version:B tags:[Ref]! branches:[Ref]! deleted_tags:[text]! snapshots:[SnapshotInfo]! "
    "status:Empty! metadata:[Item] updates:[Update]! repo_before_updates:text config:bytes",
    "Ref": "name:text! snapshot_index:I",
    "SnapshotInfo": "id:=12! parent_offset:i flushed_at:Q message:text! metadata:[Item] pruned:*12",
    "Item": "name:text! value:bytes!",
    "Update": "type:B! update:Empty! updated_at:Q backup_path:text",
    "Empty": "",
    "Snapshot": "id:=12! parent_id:=12 nodes:[Node]! flushed_at:Q message:text! metadata:[Item]! "
    "manifest_files:Empty!",
    "Node": "id:=8! path:text! user_data:bytes! type:B! array:Array!",
    "Array": "shape:*16! dimension_names:Empty manifests:[ManifestRef]!",
    "ManifestRef": "object_id:=12! extents:*8!",
    "Manifest": "id:=12! arrays:[ArrayManifest]! location_dictionary:bytes compression_algorithm:B",
    "ArrayManifest": "node_id:=8! refs:[ChunkRef]!",
    "ChunkRef": "index:*4! inline:bytes offset:Q length:Q chunk_id:=12 location:text checksum_etag:text "
    "checksum_last_modified:I compressed_location:bytes",
    "TransactionLog": "id:=12! new_groups:*8! new_arrays:*8! deleted_groups:*8! deleted_arrays:*8! "
    "updated_arrays:*8! updated_groups:*8! updated_chunks:[ArrayUpdatedChunks]!",
    "ArrayUpdatedChunks": "node_id:=8! chunks:[ChunkIndices]!",
    "ChunkIndices": "coords:*4!",
}
FIELDS = {table: [field.partition(":")[::2] for field in text.split()] for table, text in SCHEMA.items()}
UPDATES = re.findall(
    "[^ ]+",
    "RepoInitialized RepoMigrated ConfigChanged MetadataChanged TagCreated TagDeleted BranchCreated "
    "BranchDeleted BranchReset NewCommit CommitAmended NewDetachedSnapshot GCRan ExpirationRan "
    "FeatureFlagChanged RepoStatusChanged",
)


type Buffers = list[Buffer | None]  # in `SnapshotStore`, `list` is a method
type Indexes = np.ndarray[Any, np.dtype[np.int64]]
type Refs = dict[str, dict[str, str]]
type Rows = list[dict[str, Any]]
#: a manifest, its references of one array, and the index of each of them
type References = tuple[Table, Any, Indexes]
type Operation = Callable[..., Awaitable[Any]]


class Table:
    """A table of a FlatBuffer. It decodes a field when somebody asks for it."""

    def __init__(self, kind: str, data: bytes, position: int) -> None:
        self.data = data
        vtable = position - struct.unpack_from("<i", data, position)[0]
        if vtable < 0:
            raise ValueError("a table is outside of the FlatBuffer")
        slots = struct.unpack_from("<H", data, vtable)[0] // 2 - 2
        offsets = struct.unpack_from(f"<{slots}H", data, vtable + 4)
        pairs = zip(FIELDS[kind], offsets, strict=False)
        self.fields = {
            name: (form.rstrip("!"), position + offset) for (name, form), offset in pairs if offset
        }
        for name, form in FIELDS[kind]:
            if form.endswith("!") and name not in self.fields:
                raise ValueError(f"{kind} has no field {name}")

    def __getitem__(self, name: str) -> Any:
        return decode(self.data, *self.fields[name]) if name in self.fields else None


def decode(data: bytes, form: str, position: int) -> Any:
    if len(form) == 1:
        return struct.unpack_from("<" + form, data, position)[0]
    if form[0] == "=":
        return struct.unpack_from(form[1:] + "s", data, position)[0]
    target = position + struct.unpack_from("<I", data, position)[0]
    if form in SCHEMA:
        return Table(form, data, target)
    count = struct.unpack_from("<I", data, target)[0]
    width = 1 if form in ("text", "bytes") else 4 if form[0] == "[" else int(form[1:])
    content = struct.unpack_from(f"{width * count}s", data, target + 4)[0]
    if width == 1:
        return content.decode() if form == "text" else content
    return Vector(data, form, target + 4, count) if form[0] == "[" else np.frombuffer(content, f"V{width}")


class Vector:
    """A vector of tables or of texts. It decodes an item when somebody asks for it."""

    def __init__(self, data: bytes, form: str, position: int, count: int) -> None:
        self.data, self.form, self.position, self.count = data, form[1:-1], position, count

    def __getitem__(self, i: int) -> Any:
        if not 0 <= i < self.count:
            raise IndexError(f"there is no item {i} of {self.count}")
        return decode(self.data, self.form, self.position + 4 * i)

    def indexes(self, rank: int) -> Indexes:
        """The first field of all chunk references, their index, as an array of shape (references, rank)."""
        slots = self.position + 4 * np.arange(self.count)
        tables = slots + self.gather("<u4", slots)[:, 0]
        offsets = self.gather("<u2", tables - self.gather("<i4", tables)[:, 0] + 4)[:, 0]
        vectors = tables + offsets + self.gather("<u4", tables + offsets)[:, 0]
        if (offsets == 0).any() or (self.gather("<u4", vectors) != rank).any():
            raise ValueError(f"a chunk reference has no index of {rank} numbers")
        return self.gather("<u4", vectors + 4, rank)

    def gather(self, dtype: str, positions: Indexes, count: int = 1) -> Indexes:
        width = count * np.dtype(dtype).itemsize
        if positions.size and not 0 <= positions.min() <= positions.max() <= len(self.data) - width:
            raise ValueError("a chunk reference is outside of the FlatBuffer")
        data = np.frombuffer(self.data, np.uint8)[positions[:, None] + np.arange(width)]
        return np.asarray(data.view(dtype), np.int64)


def decompress(data: bytes, limit: int, dictionary: zstandard.ZstdCompressionDict | None = None) -> bytes:
    """The content of all zstd frames of `data`. Small parts keep the memory for a hostile file small."""
    parts: list[bytes] = []
    position = 0
    while position < len(data):
        frame = zstandard.ZstdDecompressor(dict_data=dictionary).decompressobj()
        while not frame.eof:
            if position >= len(data):
                raise ValueError("a zstd frame is cut")
            parts.append(frame.decompress(data[position : position + 4096]))
            position += 4096
            limit -= len(parts[-1])
            if limit < 0:
                raise ValueError("a file is too large after decompression")
        position = min(position, len(data)) - len(frame.unused_data)
    return b"".join(parts)


def base32(data: bytes) -> str:
    return base64.b32encode(data).rstrip(b"=").translate(CROCKFORD).decode()


class Repository:
    """The metadata files of a repository. `info` is the repo file, or None in version 1."""

    def __init__(self, files: Store, containers: Sequence[str] = ()) -> None:
        self.files, self.containers = files, containers
        self.info: Table | None = None

    async def open(self) -> "Repository":
        if await self.fetch("repo") is not None:
            self.info = await self.table("Repo", "repo")
        elif await self.fetch("refs/branch.main/ref.json") is None:
            raise FileNotFoundError("there is no repository")
        return self

    async def fetch(self, name: str, part: ByteRequest | None = None) -> bytes | None:
        buffer = await self.files.get(name, default_buffer_prototype(), part)
        return None if buffer is None else buffer.to_bytes()

    async def table(self, kind: str, name: str) -> Table:
        data = await self.fetch(name)
        if data is None:
            raise FileNotFoundError(f"there is no file {name}")
        if data[:12] != "ICE🧊CHUNK".encode():
            raise ValueError(f"{name} is no file of Icechunk")
        version, file_type, compression = data[36:39]
        if version not in (1, 2) or file_type != FILE_TYPES[name.split("/")[0]] or compression > 1:
            raise ValueError(f"{name} has version {version}, type {file_type}, compression {compression}")
        body = decompress(data[39:], LIMIT) if compression else data[39:]
        table = Table(kind, body, struct.unpack_from("<I", body)[0])
        if kind != "Repo" and base32(table["id"]) != name.split("/")[1]:
            raise ValueError(f"{name} has the id of another file")
        return table

    async def refs(self) -> Refs:
        refs: Refs = {"branches": {}, "tags": {}}
        if self.info is not None:
            snapshots = self.info["snapshots"]
            for kind in refs:
                rows = ((ref["name"], snapshots[ref["snapshot_index"] or 0]) for ref in self.info[kind])
                refs[kind] = {name: base32(row["id"]) for name, row in rows}
            return refs
        async for folder in self.files.list_dir("refs"):
            kind, _, name = folder.partition(".")
            document = await self.fetch(f"refs/{folder}/ref.json")
            if document is not None and not await self.files.exists(f"refs/{folder}/ref.json.deleted"):
                refs[{"branch": "branches", "tag": "tags"}[kind]][name] = json.loads(document)["snapshot"]
        return refs

    async def snapshot_id(self, ref: dict[str, str]) -> str:
        name: str | None
        ((kind, name),) = ref.items()
        if kind != "snapshot_id":
            name = (await self.refs())["branches" if kind == "branch" else "tags"].get(name)
        if name is None or not re.fullmatch("[0-9A-Z]{20}", name):
            raise FileNotFoundError(f"there is no snapshot for {ref}")
        return name

    async def history(self, ref: dict[str, str]) -> dict[str, Table]:
        """A table with message, time and metadata for each snapshot from `ref` to the first one, by id."""
        name: str | None = await self.snapshot_id(ref)
        history: dict[str, Table] = {}
        snapshots = self.info["snapshots"] if self.info is not None else ()
        rows = {base32(row["id"]): row for row in snapshots}
        while name:
            if name in history:
                raise ValueError(f"the snapshot {name} is its own ancestor")
            if self.info is None:
                row = await self.table("Snapshot", f"snapshots/{name}")
                parent = row["parent_id"]
            elif name in rows:
                row = rows[name]
                offset = row["parent_offset"] or 0
                parent = None if offset == -1 else snapshots[offset]["id"]
            else:
                raise FileNotFoundError(f"there is no snapshot {name}")
            history[name] = row
            name = base32(parent) if parent else None
        return history


class SnapshotStore(Store):
    """A read-only store of zarr: the documents and chunks of one snapshot.

    Args:
        files: A store of zarr with the files of the repository.
        ref: `{"branch": NAME}`, `{"tag": NAME}` or `{"snapshot_id": ID}`.
        containers: The prefixes of `file` URLs whose virtual chunks may be read.
    """

    supports_writes = supports_deletes = False
    supports_listing = True

    def __init__(self, files: Store, ref: dict[str, str], containers: Iterable[str] = ()) -> None:
        super().__init__(read_only=True)
        self.files, self.ref, self.containers = files, ref, tuple(containers)
        self.manifests: dict[tuple[str, int], References] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SnapshotStore) and (self.files, self.ref) == (other.files, other.ref)

    async def _open(self) -> None:
        self.repository = await Repository(self.files).open()
        name = await self.repository.snapshot_id(self.ref)
        snapshot = await self.repository.table("Snapshot", f"snapshots/{name}")
        self.nodes = {node["path"]: node for node in snapshot["nodes"]}
        self._is_open = True  # only now: zarr asks for several keys at the same time

    async def references(
        self, path: str, coordinates: tuple[int, ...] | None = None
    ) -> AsyncIterator[References]:
        """For each manifest of an array: the manifest, the references, and the index of each reference.

        An index outside of the extents of the manifest becomes -1. With coordinates: only for the manifests
        whose extents hold this chunk.
        """
        node = self.nodes[path]
        for number, part in enumerate(node["array"]["manifests"] if node["type"] == 1 else ()):
            start, stop = part["extents"].view("<u4").reshape(-1, 2).T
            rank = len(start)
            if coordinates is not None and len(coordinates) != rank:
                raise ValueError(f"{path} has {rank} dimensions, not {len(coordinates)}")
            if coordinates is not None and not ((start <= coordinates) & (coordinates < stop)).all():
                continue
            if (path, number) not in self.manifests:
                manifest = await self.repository.table("Manifest", f"manifests/{base32(part['object_id'])}")
                arrays = (array["refs"] for array in manifest["arrays"] if array["node_id"] == node["id"])
                refs = next(arrays, None)
                indexes = np.empty((0, rank), int) if refs is None else refs.indexes(rank)
                indexes[((indexes < start) | (indexes >= stop)).any(axis=1)] = -1
                self.manifests[path, number] = manifest, refs, indexes
            yield self.manifests[path, number]

    async def chunk(self, path: str, coordinates: tuple[int, ...]) -> bytes | None:
        async for manifest, refs, indexes in self.references(path, coordinates):
            for i in np.flatnonzero((indexes == coordinates).all(axis=1))[:1]:
                return await self.content(manifest, refs[int(i)])
        return None

    async def content(self, manifest: Table, ref: Table) -> bytes:
        start, length = ref["offset"] or 0, ref["length"] or 0
        if ref["chunk_id"]:
            part = RangeByteRequest(start, start + length)
            data = await self.repository.fetch(f"chunks/{base32(ref['chunk_id'])}", part)
            if data is None:
                raise OSError("a chunk has no file")
        elif ref["compressed_location"] or ref["location"]:
            data = self.virtual(manifest, ref, start, length)
        elif ref["inline"] is not None:
            inline: bytes = ref["inline"]
            return inline
        else:
            raise ValueError("a chunk reference has no content")
        if len(data) != length:
            raise OSError("a chunk ends beyond its file")
        return data

    def virtual(self, manifest: Table, ref: Table, start: int, length: int) -> bytes:
        url, dictionary = ref["location"], manifest["location_dictionary"]
        if ref["compressed_location"]:
            data = ref["compressed_location"]
            if manifest["compression_algorithm"] in (None, 1) and dictionary:
                data = decompress(data, 1024, zstandard.ZstdCompressionDict(dictionary))
            url = data.decode()
        if url.startswith("vcc://"):  # the name of a container of the settings stands for its prefix
            name, _, rest = url[6:].partition("/")
            info = self.repository.info
            settings = flexbuffers.Loads(info and info["config"])
            containers = settings["virtual_chunk_containers"].values()
            url = next(item["url_prefix"] for item in containers if item.get("name") == name) + rest
        path = Path(unquote(url.removeprefix("file://")))
        if not url.startswith("file:///") or not url.startswith(self.containers) or ".." in path.parts:
            raise PermissionError(f"no container allows {url}")
        modified = int(path.stat().st_mtime)
        if ref["checksum_etag"] or (ref["checksum_last_modified"] or modified) < modified:
            raise ModifiedError(f"{url} changed")
        with path.open("rb") as file:
            file.seek(start)
            return file.read(length)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        await self._ensure_open()
        parts = re.fullmatch(r"(.*?)(?:/zarr\.json|/c((?:/\d+)*))", "/" + key)
        if parts is None or (parts[1] or "/") not in self.nodes:
            return None
        path = parts[1] or "/"
        data = self.nodes[path]["user_data"]
        if parts[2] is not None:
            data = await self.chunk(path, tuple(map(int, parts[2].split("/")[1:])))
        match byte_range if data is not None else None:
            case RangeByteRequest(start, end):
                data = data[start:end]
            case OffsetByteRequest(offset):
                data = data[offset:]
            case SuffixByteRequest(suffix):
                data = data[max(0, len(data) - suffix) :]
        return None if data is None else prototype.buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> Buffers:
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        return await self.get(key, default_buffer_prototype()) is not None

    async def list(self) -> AsyncIterator[str]:
        await self._ensure_open()
        for path in self.nodes:
            prefix = path.lstrip("/") + "/" * (path != "/")
            yield prefix + "zarr.json"
            async for _, _, indexes in self.references(path):
                for index in indexes[(indexes >= 0).all(axis=1)].tolist():
                    yield prefix + "/".join(["c", *map(str, index)])

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        async for key in self.list():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        await self._ensure_open()
        parent = "/" + prefix.strip("/")
        for path in self.nodes:
            above, _, name = path.rpartition("/")
            if path == parent:
                yield "zarr.json"
            elif (above or "/") == parent:
                yield name

    async def set(self, key: str, value: Buffer) -> None:
        raise PermissionError("the store is read-only")

    async def delete(self, key: str) -> None:
        raise PermissionError("the store is read-only")


class ModifiedError(OSError):
    """The file of a virtual chunk changed."""


async def snapshot(repository: Repository, ref: dict[str, str], path: str | None = None) -> SnapshotStore:
    store = await SnapshotStore.open(repository.files, ref, repository.containers)
    if path is not None and path not in store.nodes:
        raise FileNotFoundError(f"there is no node {path}")
    return store


async def value(store: SnapshotStore, path: str, name: str) -> bytes | None:
    buffer = await store.get(f"{path}/{name}".lstrip("/"), default_buffer_prototype())
    return None if buffer is None else buffer.to_bytes()


async def log(repository: Repository, ref: dict[str, str]) -> Rows:
    rows = await repository.history(ref)
    return [{"id": name, "message": row["message"], "time": row["flushed_at"]} for name, row in rows.items()]


async def nodes(repository: Repository, ref: dict[str, str]) -> Rows:
    types = {path: node["type"] for path, node in (await snapshot(repository, ref)).nodes.items()}
    return [{"path": path, "type": NODE_TYPES[types[path]]} for path in sorted(types, key=str.encode)]


async def metadata(repository: Repository, ref: dict[str, str], path: str) -> Any:
    return json.loads(await value(await snapshot(repository, ref, path), path, "zarr.json") or b"")


async def read(
    repository: Repository, ref: dict[str, str], path: str, chunks: list[list[int]]
) -> list[str | None]:
    store = await snapshot(repository, ref, path)
    contents = [await value(store, path, "/".join(["c", *map(str, index)])) for index in chunks]
    return [None if content is None else content.hex() for content in contents]


async def count(repository: Repository, ref: dict[str, str], path: str) -> int:
    parts = (await snapshot(repository, ref, path)).references(path)
    return sum([int((indexes >= 0).all(axis=1).sum()) async for _, _, indexes in parts])


def plain(ref: Any, budget: list[None]) -> Any:
    """The value of a FlexBuffer. The budget bounds the work for values that contain each other."""
    budget.pop()
    if ref.IsMap:
        keys = [key.AsKeyBytes.decode() for key in ref.AsMap.Keys]
        return {key: plain(item, budget) for key, item in zip(keys, ref.AsMap.Values, strict=True)}
    return [plain(item, budget) for item in ref.AsVector] if ref.IsVector else ref.Value


async def properties(repository: Repository, ref: dict[str, str]) -> dict[str, Any]:
    row = next(iter((await repository.history(ref)).values()))
    items = {item["name"]: item["value"] for item in row["metadata"] or ()}
    if repository.info is None:
        return {name: msgpack.unpackb(data) for name, data in items.items()}
    return {name: plain(flexbuffers.GetRoot(data), [None] * 100_000) for name, data in items.items()}


async def updates(repository: Repository) -> Rows:
    rows: Rows = []
    info, names = repository.info, set()
    while info is not None:
        rows += [
            {"kind": UPDATES[row["type"] - 1] + "Update", "time": row["updated_at"]}
            for row in info["updates"]
        ]
        name = info["repo_before_updates"]
        if name is not None and (name in names or "/" in name):
            raise ValueError(f"the log of updates cannot continue in {name}")
        names.add(name)
        info = None if name is None else await repository.table("Repo", f"overwritten/{name}")
    return rows


async def diff(repository: Repository, **ends: str) -> dict[str, Any]:
    stores = [await snapshot(repository, {"snapshot_id": ends[end]}) for end in ("from", "to")]
    before, after = ({node["id"]: path for path, node in store.nodes.items()} for store in stores)
    both = before.keys() & after.keys()
    ids: dict[str, set[bytes]] = {"new": set(), "deleted": set(), "updated": set()}
    chunks: dict[bytes, set[tuple[int, ...]]] = {}
    names: list[str] = []
    for name, row in (await repository.history({"snapshot_id": ends["to"]})).items():
        if name == ends["from"]:
            break
        names += [name, *map(base32, () if row["pruned"] is None else row["pruned"])]
    else:
        raise ValueError(f"{ends['from']} is no ancestor of {ends['to']}")
    for name in names:
        table = await repository.table("TransactionLog", f"transactions/{name}")
        for kind in ids:
            ids[kind].update(bytes(i) for nodes in ("groups", "arrays") for i in table[f"{kind}_{nodes}"])
        for array in table["updated_chunks"]:
            indexes = chunks.setdefault(array["node_id"], set())
            indexes.update(tuple(chunk["coords"].view("<u4").tolist()) for chunk in array["chunks"])
    for i in chunks.keys() & after.keys():
        rank = len(json.loads(bytes(stores[1].nodes[after[i]]["user_data"]))["shape"])
        if any(len(index) != rank for index in chunks[i]):
            raise ValueError(f"a transaction log has coordinates of {after[i]} that have not {rank} numbers")
    return {
        "new": sorted(after[i] for i in ids["new"] & after.keys() - both),
        "deleted": sorted(before[i] for i in ids["deleted"] & before.keys() - both),
        "updated": sorted(after[i] for i in ids["updated"] & both),
        "chunks": {after[i]: sorted(map(list, indexes)) for i, indexes in chunks.items() if i in after},
        "moved": sorted([before[i], after[i]] for i in both if before[i] != after[i]),
    }


def operation(function: Operation) -> Callable[..., Any]:
    async def answer(location: dict[str, Any], arguments: dict[str, Any]) -> Any:
        if "path" not in location:
            raise NotImplementedError
        files = LocalStore(location["path"], read_only=True)
        return await function(await Repository(files, location.get("containers", ())).open(), **arguments)

    return lambda location, **arguments: asyncio.run(answer(location, arguments))


def kind(error: BaseException) -> str:
    kinds = {
        FileNotFoundError: "not-found",
        PermissionError: "invalid",
        ModifiedError: "modified",
        OSError: "storage",
    }
    return next((word for base, word in kinds.items() if isinstance(error, base)), "format")


FUNCTIONS: tuple[Operation, ...] = (log, metadata, read, count, properties, updates, diff)
OPERATIONS: dict[str, Operation] = {"refs": Repository.refs, "list": nodes}
OPERATIONS |= {function.__name__: function for function in FUNCTIONS}

if __name__ == "__main__":
    serve({name: operation(function) for name, function in OPERATIONS.items()}, kind)
