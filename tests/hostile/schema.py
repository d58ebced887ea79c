"""The schema of the metadata files as a table, and a walk over all fields of one file.

The table has the fields of each table of the specification in the order of their slots, with a type:

    u1 u2 u4 u8 i4    a number in the table         8 or 12     an id of so many bytes in the table
    text, bytes       a vector of bytes             [8] [12]    a vector of ids
    [u2] [u4] ...     a vector of numbers           [16]        a vector of structs of so many bytes
    Name, [Name]      a table, a vector of tables   [text]      a vector of texts
    ?                 a union, whose type is the field before
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from frazil.format.envelope import FileType
from frazil.format.ids import MANIFESTS, REPO, SNAPSHOTS, TRANSACTIONS

_TABLES = {
    "Repo": (
        "spec_version:u1 tags:[Ref] branches:[Ref] deleted_tags:[text] snapshots:[SnapshotInfo] "
        "status:RepoStatus metadata:[MetadataItem] latest_updates:[Update] repo_before_updates:text "
        "config:bytes enabled_feature_flags:[u2] disabled_feature_flags:[u2] extra:bytes"
    ),
    "Ref": "name:text snapshot_index:u4",
    "SnapshotInfo": (
        "id:12 parent_offset:i4 flushed_at:u8 message:text metadata:[MetadataItem] "
        "pruned_ancestor_tx_logs:[12]"
    ),
    "MetadataItem": "name:text value:bytes",
    "RepoStatus": "availability:u1 set_at:u8 limited_availability_reason:text",
    "Update": "update_type:u1 update:? updated_at:u8 backup_path:text",
    "Snapshot": (
        "id:12 parent_id:12 nodes:[NodeSnapshot] flushed_at:u8 message:text metadata:[MetadataItem] "
        "manifest_files:[32] manifest_files_v2:[ManifestFileInfoV2] extra:bytes"
    ),
    "NodeSnapshot": "id:8 path:text user_data:bytes node_data_type:u1 node_data:? extra:bytes",
    "ArrayNodeData": (
        "shape:[16] dimension_names:[DimensionName] manifests:[ManifestRef] shape_v2:[DimensionShapeV2]"
    ),
    "DimensionShapeV2": "array_length:u8 num_chunks:u4",
    "DimensionName": "name:text",
    "ManifestRef": "object_id:12 extents:[8]",
    "ManifestFileInfoV2": "id:12 size_bytes:u8 num_chunk_refs:u4 extra:bytes",
    "Manifest": "id:12 arrays:[ArrayManifest] location_dictionary:bytes compression_algorithm:u1 extra:bytes",
    "ArrayManifest": "node_id:8 refs:[ChunkRef] extra:bytes",
    "ChunkRef": (
        "index:[u4] inline:bytes offset:u8 length:u8 chunk_id:12 location:text checksum_etag:text "
        "checksum_last_modified:u4 compressed_location:bytes extra:bytes"
    ),
    "TransactionLog": (
        "id:12 new_groups:[8] new_arrays:[8] deleted_groups:[8] deleted_arrays:[8] updated_arrays:[8] "
        "updated_groups:[8] updated_chunks:[ArrayUpdatedChunks] moved_nodes:[MoveOperation] extra:bytes"
    ),
    "ArrayUpdatedChunks": "node_id:8 chunks:[ChunkIndices]",
    "ChunkIndices": "coords:[u4]",
    "MoveOperation": "from:text to:text node_id:8 node_type:u1",
    "UpdateOfRef": "name:text first_snap_id:12 second_snap_id:12",
}
SCHEMA: dict[str, list[tuple[str, str]]] = {
    table: [(name, type_) for name, _, type_ in (each.partition(":") for each in fields.split())]
    for table, fields in _TABLES.items()
}
#: The tables of unions, by table and field, then by type; other types have the second table, if there is one.
UNIONS = {("NodeSnapshot", "node_data"): {1: "ArrayNodeData"}}
_UPDATES_WITH_NAMES = (6, 7, 8, 9, 10, 11, 12)
UNIONS["Update", "update"] = dict.fromkeys(_UPDATES_WITH_NAMES, "UpdateOfRef")

#: Folder or key -> the type of the file, and its root table.
KINDS: dict[str, tuple[FileType, str]] = {
    REPO: (FileType.REPO_INFO, "Repo"),
    SNAPSHOTS: (FileType.SNAPSHOT, "Snapshot"),
    MANIFESTS: (FileType.MANIFEST, "Manifest"),
    TRANSACTIONS: (FileType.TRANSACTION_LOG, "TransactionLog"),
}

_WIDTHS = {"u1": 1, "u2": 2, "u4": 4, "u8": 8, "i4": 4}


@dataclass(frozen=True, slots=True)
class Place:
    """One field of one table.

    ``path`` is like ``snapshots[1].flushed_at``. ``entry`` is the position of its entry in the vtable, ``at``
    its position in the table, ``start`` the position of the first element of a vector, and ``count`` the
    number of elements, which are ``width`` bytes each.
    """

    path: str
    type: str
    entry: int
    at: int
    start: int = 0
    count: int = 0
    width: int = 0

    @property
    def is_vector(self) -> bool:
        return self.start > 0

    @property
    def is_number(self) -> bool:
        return self.type in _WIDTHS


def places(data: bytes, table: str) -> Iterator[Place]:
    """Yield the fields of a flatbuffer whose root is a table of this name."""
    yield from _fields(data, _u(data, 0, 4), table, "")


def _u(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")


def _fields(data: bytes, table: int, name: str, path: str) -> Iterator[Place]:
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = _u(data, vtable, 2)
    union_type = 0
    for slot, (field, type_) in enumerate(SCHEMA[name]):
        entry = vtable + 4 + 2 * slot
        offset = _u(data, entry, 2) if 4 + 2 * slot < size else 0
        if not offset:
            continue
        at, label = table + offset, f"{path}{field}"
        target = at + _u(data, at, 4)
        if type_ in _WIDTHS:
            union_type = _u(data, at, 1)
            yield Place(label, type_, entry, at, width=_WIDTHS[type_])
        elif type_.isdigit():
            yield Place(label, type_, entry, at, width=int(type_))
        elif type_ == "?":
            yield Place(label, type_, entry, at)
            if (member := UNIONS[name, field].get(union_type)) is not None:
                yield from _fields(data, target, member, f"{label}.")
        elif type_ in SCHEMA:
            yield Place(label, type_, entry, at)
            yield from _fields(data, target, type_, f"{label}.")
        else:
            yield from _vector(data, Place(label, type_, entry, at, target + 4, _u(data, target, 4)))


def _vector(data: bytes, place: Place) -> Iterator[Place]:
    inner = place.type.strip("[]")
    if inner in ("text", "bytes") and not place.type.startswith("["):
        width = 1
    elif inner in SCHEMA or inner == "text":
        width = 4
    else:
        width = _WIDTHS.get(inner) or int(inner)
    yield Place(place.path, place.type, place.entry, place.at, place.start, place.count, width)
    for number in range(min(place.count, len(data))):  # a damaged vector claims any number
        at = place.start + 4 * number
        if inner in SCHEMA:
            yield from _fields(data, at + _u(data, at, 4), inner, f"{place.path}[{number}].")
        elif inner == "text" and place.type.startswith("["):
            target = at + _u(data, at, 4)
            text = Place(f"{place.path}[{number}]", "text", 0, at, target + 4, _u(data, target, 4), 1)
            yield text
