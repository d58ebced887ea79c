"""The new files of an imported repository: references, chunk files, containers, nodes and transaction logs.

References that no array of any snapshot uses are left out. A node in a new manifest has one rank, so one old
file may become several. Each bucket and folder with a reference gets a container, where the old formats had
one for a whole scheme. A log is computed from two versions, column by column, where the old repository has
none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import itemgetter
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from frazil.changes.diff import differing
from frazil.changes.zarr_metadata import parse_node
from frazil.errors import ErrorKind, FormatError, InvalidInputError, StorageError
from frazil.format.chunk_table import ChunkKind, ChunkTable, VirtualObjects
from frazil.format.columns import U8, U32, Ragged
from frazil.format.ids import (
    CHUNKS,
    CONFIG,
    NODE_ID_BYTES,
    distinct_ids,
    id_list,
    id_matrix,
    id_to_text,
    ids_to_text,
)
from frazil.format.manifest import LocationCompression, Manifest, encode_manifest
from frazil.format.snapshot import ManifestRef, Node, NodeTable
from frazil.format.transaction_log import TransactionLog
from frazil.repository.settings.config import RepositoryConfig, VirtualChunkContainer
from frazil.repository.settings.config_document import from_document
from frazil.storage.access import require_hint
from frazil.storage.base import Storage
from frazil.storage.credential_families import AnyCredential
from frazil.storage.foreign_objects import ForeignObjects, address_of, open_foreign
from frazil_import.generations import (
    NodeId,
    OldLog,
    OldManifest,
    OldManifestRef,
    OldNode,
    OldSnapshot,
    decoding,
    mapping,
    text,
)
from frazil_import.source import NewIds, Source, Users, in_parallel, new_node_id

_FILE: Final = "file://"
#: Scheme -> store as a configuration document, if the old configuration has none.
_DEFAULT_STORES: Final[dict[str, Any]] = {
    "s3": {"s3": {}},
    "tigris": {"tigris": {}},
    "gs": {"gcs": {}},
    "gcs": {"gcs": {}},
    "az": {"azure": {}},
    "azure": {"azure": {}},
    "abfs": {"azure": {}},
    "http": {"http": {}},
    "https": {"http": {}},
}


def url_prefixes(locations: Iterable[str]) -> frozenset[str]:
    """Return the buckets, or the common folder, of locations."""
    urls = set(locations)
    files = {location for location in urls if location.startswith(_FILE)}
    parts = [f"{location}///".split("/") for location in urls - files]
    out = {f"{scheme}//{bucket}/" for scheme, _, bucket, *_ in parts if scheme}
    if files:
        # The common prefix of the first and the last path in order is the prefix of all.
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(min(files), max(files), strict=False))
        common = "".join(map(itemgetter(0), pairs))
        out.add(common[: common.rindex("/") + 1])
    return frozenset(out)


def new_config(
    settings: Mapping[str, Any],
    prefixes: Iterable[str],
    extra: Iterable[VirtualChunkContainer],
    over: RepositoryConfig | None,
) -> tuple[RepositoryConfig, list[str]]:
    """Return the configuration to save, and the prefixes that were left out with the reasons."""
    with decoding(CONFIG):
        document = {
            "inline_chunk_threshold_bytes": settings.get("inline_chunk_threshold_bytes"),
            "compression": {"level": (settings.get("compression") or {}).get("level")},
        }
        config = from_document(document)
        old = {
            text(container["url_prefix"]): mapping(container["store"])
            for container in mapping(settings.get("virtual_chunk_containers") or {}).values()
        }
        left_out = []
        for prefix in prefixes:
            store = _store(prefix, old)
            try:
                if store is None:
                    raise InvalidInputError(
                        "its location must be in S3, GCS, Azure, on a web server or in local files"
                    )
                stored = {"virtual_chunk_containers": {prefix: {"url_prefix": prefix, "store": store}}}
                container = (from_document(stored).virtual_chunk_containers or {})[prefix]
                container.validate()
            except InvalidInputError as error:
                left_out.append(f"a container for virtual chunks below {prefix}: {error}")
                continue
            config.set_virtual_chunk_container(container)
    for container in extra:
        config.set_virtual_chunk_container(container)
    return config if over is None else config.merge(over), left_out


def _store(prefix: str, old: Mapping[str, Any]) -> Any:
    """Return the store as a configuration document. None if there is none for such locations."""
    scheme = prefix.partition("://")[0]
    if scheme == "file":
        return {"local_file_system": unquote(prefix.removeprefix(_FILE))}
    fitting = [prefixes for prefixes in old if prefix.startswith(prefixes)]
    if not fitting:
        return _DEFAULT_STORES.get(scheme)
    ((variant, options),) = old[max(fitting, key=len)].items()
    # Up to 0.1.0a15, the names of variants are in camel case.
    name = re.sub("(?<!^)(?=[A-Z])", "_", str(variant)).lower()
    if name == "s3_compatible":
        # Old versions always used path style for such servers. Later it became an option.
        options = {"force_path_style": True, **(options or {})}
    return {name: options or {}}


#: From locations to sizes in bytes, -1 for an unknown size.
Sizes = Callable[[Sequence[str]], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class ConvertedManifest:
    """A new manifest file: the values for snapshots, and the boxes of its arrays, uint32 (ndim, 2)."""

    id: bytes
    size: int
    references: int
    bounds: Mapping[tuple[bytes, int], U32]


@dataclass(frozen=True, slots=True)
class ManifestConversion:
    """The result for one old manifest.

    Attributes:
        converted: New manifests.
        files: Bytes of the new manifests.
        chunks: Ids of the chunk files that it refers to, uint8 (n, 12), each once.
        chunk_names: Ids of the draft for these ids.
        prefixes: URL prefixes of its virtual chunks.
        unused: Number of references that were left out.
        cut: Number of references that were shortened to the end of their objects.
        has_flags: Whether the old file has format flags.
    """

    converted: tuple[ConvertedManifest, ...]
    files: tuple[bytes, ...]
    chunks: U8
    chunk_names: Mapping[bytes, bytes]
    prefixes: frozenset[str]
    unused: int
    cut: int
    has_flags: bool


def convert(
    old: OldManifest,
    old_id: bytes,
    users: Users,
    ids: NewIds,
    chunks_at: str | None,
    level: int,
    sizes: Sizes | None = None,
) -> ManifestConversion:
    """Convert one manifest.

    With the URL prefix ``chunks_at``, chunk files become virtual chunks below it. ``sizes`` returns the sizes
    of virtual objects, for references that must be shortened.
    """
    ranks: dict[bytes, set[int]] = {}
    for (_, rank), new in users.items():
        for id_ in new:
            ranks.setdefault(id_, set()).add(rank)
    variants: list[dict[bytes, ChunkTable]] = [{} for _ in range(max(map(len, ranks.values()), default=0))]
    used = cut = 0
    for (node, rank), new in users.items():
        table = old.tables.get((node, rank))
        if table is None:
            continue
        used += len(table)
        for id_ in new:
            variants[sorted(ranks[id_]).index(rank)][id_] = table.prune()
    chunks = [id_matrix([])]
    prefixes: set[str] = set()
    converted, files = [], []
    for number, tables in enumerate(filter(None, variants)):
        arrays = {}
        for id_, table in tables.items():
            chunks.append(table.chunk_ids)
            prefixes |= url_prefixes(table.foreign.locations.texts())
            if sizes is not None:
                table, number_cut = cut_at_the_end(table, sizes)
                cut += number_cut
            arrays[id_] = table if chunks_at is None else as_virtual(table, chunks_at, old.chunk_names)
        manifest = Manifest(ids.manifest(old_id, number), arrays)
        file = encode_manifest(manifest, level=level, locations=LocationCompression())
        files.append(file)
        bounds = {(id_, table.ndim): table.bounds() for id_, table in arrays.items()}
        count = sum(map(len, arrays.values()))
        converted.append(ConvertedManifest(manifest.id, len(file), count, bounds))
    unused = sum(map(len, old.tables.values())) - used
    return ManifestConversion(
        tuple(converted),
        tuple(files),
        distinct_ids(np.concatenate(chunks)),
        old.chunk_names,
        frozenset(prefixes),
        unused,
        cut,
        old.has_flags,
    )


def cut_at_the_end(table: ChunkTable, sizes: Sizes) -> tuple[ChunkTable, int]:
    """Shorten virtual references to the known sizes of their objects. Return the number of changes."""
    object_sizes = sizes(table.foreign.locations.texts())
    rows = np.flatnonzero(table.kind == ChunkKind.VIRTUAL)
    ends = object_sizes[table.source[rows]]
    left = ends - np.minimum(table.offset[rows], np.uint64(1 << 62)).astype(np.int64)
    long = (ends >= 0) & (left > 0) & (table.length[rows] > np.maximum(left, 0).astype(np.uint64))
    length = table.length.copy()
    length[rows[long]] = left[long].astype(np.uint64)
    return replace(table, length=length), int(np.count_nonzero(long))


def old_names(ids: U8, names: Mapping[bytes, bytes]) -> list[str]:
    """Return the old file names of chunks."""
    if not names:
        return ids_to_text(ids)
    return [id_to_text(names.get(id_, id_)) for id_ in id_list(ids)]


def as_virtual(table: ChunkTable, prefix: str, names: Mapping[bytes, bytes]) -> ChunkTable:
    """Return the same references, with chunk files as virtual objects below ``prefix``."""
    native = table.kind == ChunkKind.NATIVE
    own = old_names(table.chunk_ids, names)
    urls = list(map(prefix.__add__, own))
    foreign = VirtualObjects.concat(
        [
            table.foreign,
            VirtualObjects(Ragged.of_text(urls), Ragged.empty(len(own)), np.zeros(len(own), "u4")),
        ]
    )
    source: NDArray[np.uint32] = table.source + np.where(native, np.uint32(len(table.foreign)), np.uint32(0))
    kind = np.where(native, np.uint8(ChunkKind.VIRTUAL), table.kind)
    nothing = table.chunk_ids[:0]
    return ChunkTable(table.index, kind, source, table.offset, table.length, nothing, foreign, table.inline)


_UNKNOWN = -1


def sizes_of(
    settings: Mapping[str, Any], config: RepositoryConfig | None, credentials: Mapping[str, AnyCredential]
) -> Sizes | None:
    """Return a function that looks up sizes of objects below the prefixes of ``credentials``, or None.

    ``config`` says where the objects are, or otherwise the ``settings`` of the old repository. These settings
    are hints: see ``frazil.storage.access``. Each object is looked up once. A missing object has no size.
    """
    if not credentials:
        return None
    new_settings, _ = new_config(settings, credentials, (), config)
    containers = new_settings.virtual_chunk_containers or {}
    readers: dict[str, ForeignObjects] = {}
    for prefix in credentials.keys() & containers.keys():
        container = containers[prefix]
        if container.from_repository:
            require_hint(container.store, container.url_prefix)
        readers[prefix] = open_foreign(container.store, credentials[prefix], container.url_prefix)
    cache: dict[str, int] = {}

    def size(location: str) -> int:
        prefix = max(filter(location.startswith, readers), key=len, default=None)
        if prefix is None:
            return _UNKNOWN
        try:
            return int(readers[prefix].size(location))
        except (StorageError, InvalidInputError):
            return _UNKNOWN

    def look_up(locations: Sequence[str]) -> NDArray[np.int64]:
        unknown = [location for location in dict.fromkeys(locations) if location not in cache]
        cache.update(zip(unknown, in_parallel(size, unknown), strict=True))
        return np.fromiter(map(cache.__getitem__, locations), np.int64, len(locations))

    return look_up


def container_of(source: Source) -> VirtualChunkContainer:
    """Return a container for the chunk files of the source."""
    address = address_of(source.storage, source.layout.chunks)
    if address is None:
        raise InvalidInputError(
            "the source of referenced chunks must be a local folder or a bucket, got "
            f"{source.storage.label()}. Copy the chunks instead",
            ErrorKind.STORAGE_CONFIG,
        )
    return VirtualChunkContainer(*address)


def copy_chunks(
    source: Source, target: Storage, ids: U8, names: Sequence[str]
) -> tuple[list[int], tuple[str, ...]]:
    """Copy the chunk files ``names`` to the new ids, and return their sizes, and the missing files."""
    existing_sizes = {info.key: info.size for info in target.list(CHUNKS)}
    folder = source.layout.chunks

    def copy(pair: tuple[str, str]) -> int | None:
        new, old = (f"{CHUNKS}/{pair[0]}", f"{folder}/{pair[1]}")
        try:
            if new in existing_sizes:
                old_info = source.storage.head(old)
                if old_info is not None and old_info.size == existing_sizes[new]:
                    return 0
            data = source.storage.get(old)
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                return None
            raise
        target.put(new, data)
        return len(memoryview(data))

    sizes = in_parallel(copy, zip(ids_to_text(ids), names, strict=True))
    missing = tuple(old for old, size in zip(names, sizes, strict=True) if size is None)
    return list(filter(None, sizes)), missing


def new_nodes(
    snapshot: OldSnapshot, name: str, manifests: Mapping[bytes, Sequence[ConvertedManifest]]
) -> NodeTable:
    """Return the nodes of a snapshot. ``manifests`` are by old id."""
    try:
        return NodeTable.from_nodes([_node(node, manifests) for node in snapshot.nodes])
    except InvalidInputError as error:
        raise FormatError(f"{name}: {error.message}") from error


def _node(node: OldNode, manifests: Mapping[bytes, Sequence[ConvertedManifest]]) -> Node:
    id_ = new_node_id(node.id, node.path)
    document = json.dumps(node.document).encode()
    array = parse_node(document)
    if array is not None:
        refs = [
            ref
            for old in node.manifests or ()
            for converted in manifests.get(old.id, ())
            if (ref := _ref(old, converted, id_, len(array.shape))) is not None
        ]
        array = replace(array, manifests=tuple(refs))
    return Node(id_, node.path, document, array)


def _ref(old: OldManifestRef, converted: ConvertedManifest, node: bytes, rank: int) -> ManifestRef | None:
    """Return the reference to a new manifest. None if it has no chunk of the array in the old extents."""
    box = converted.bounds.get((node, rank))
    if box is None:
        return None
    if old.extents is None:
        return ManifestRef(converted.id, box)
    first, end = (np.array(corner, np.int64) for corner in old.extents)
    low, high = np.maximum(box[:, 0], first), np.minimum(box[:, 1], end)
    if (low >= high).any():
        return None
    return ManifestRef(converted.id, np.stack((low, high), axis=1).astype(np.uint32))


#: From a node's id and the ids of its manifests to its references.
Tables = Callable[[bytes, Sequence[bytes]], ChunkTable | None]


def translated(old: OldLog, id_: bytes, before: NodeTable, after: NodeTable) -> TransactionLog:
    """Return the new form of an old log of the commit ``id_``."""
    arrays = {**_kinds(before), **_kinds(after)}
    ranks: dict[bytes, int] = {}
    for nodes in (before, after):
        ranks.update(zip(id_list(nodes.ids), nodes.array_length.lengths.tolist(), strict=True))
    updated = [node for node in old.updated if isinstance(node, bytes) and node in arrays]
    return TransactionLog(
        id_,
        new_groups=_ids(old.new_groups),
        new_arrays=_ids(old.new_arrays),
        deleted_groups=_ids(old.deleted_groups),
        deleted_arrays=_ids(old.deleted_arrays),
        updated_arrays=_ids(node for node in updated if arrays[node]),
        updated_groups=_ids(node for node in updated if not arrays[node]),
        updated_chunks={
            node: index
            for node, index in old.updated_chunks.items()
            if isinstance(node, bytes) and len(index) and ranks.get(node) == index.shape[1]
        },
    )


def worked_out(id_: bytes, before: NodeTable, after: NodeTable, tables: Tables) -> TransactionLog:
    """Return the log of a commit that changed ``before`` to ``after``."""
    old, new = _kinds(before), _kinds(after)
    added, removals = new.keys() - old.keys(), old.keys() - new.keys()
    documents, documents_after = (
        dict(zip(id_list(nodes.ids), nodes.user_data.blobs(), strict=True)) for nodes in (before, after)
    )
    updated = [
        node for node, document in documents_after.items() if documents.get(node, document) != document
    ]
    manifests_before, manifests_after = _manifests(before), _manifests(after)
    chunks = {
        node: changed
        for node, used in manifests_after.items()
        if used != (refs_before := manifests_before.get(node, []))
        if len(changed := _changed_chunks(tables(node, refs_before), tables(node, used)))
    }
    return TransactionLog(
        id_,
        new_groups=_ids(node for node in added if not new[node]),
        new_arrays=_ids(node for node in added if new[node]),
        deleted_groups=_ids(node for node in removals if not old[node]),
        deleted_arrays=_ids(node for node in removals if old[node]),
        updated_arrays=_ids(node for node in updated if new[node]),
        updated_groups=_ids(node for node in updated if not new[node]),
        updated_chunks=chunks,
    )


def _changed_chunks(before: ChunkTable | None, after: ChunkTable | None) -> U32:
    """Return sorted coordinates (k, ndim) of references that differ or are in only one of the tables."""
    if before is not None and after is not None:
        return differing(before, after)
    table = before if after is None else after
    assert table is not None  # the array has other manifests than before
    return table.index


def _kinds(nodes: NodeTable) -> dict[bytes, bool]:
    """Return for each node id whether the node is an array."""
    return dict(zip(*nodes.identities(np.arange(len(nodes))), strict=True))


def _manifests(nodes: NodeTable) -> dict[bytes, list[bytes]]:
    """Return the ids of the manifests of each node id."""
    rows = nodes.manifests
    return dict(zip(id_list(nodes.ids), map(np.ndarray.tolist, map(rows.row, range(len(rows)))), strict=True))


def _ids(ids: Iterable[NodeId]) -> NDArray[np.uint8]:
    return id_matrix(sorted(id_ for id_ in ids if isinstance(id_, bytes)), NODE_ID_BYTES)
