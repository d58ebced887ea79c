"""The FlatBuffers tables of the format, and a writer and a reader of buffers that follow them.

A table is a dict. A field that is not in the dict is absent. An object id is bytes, a struct of numbers a
tuple, a union a pair of the member's name and its table. The key `later` of a table lists fields that a later
schema could add: pairs of a type and a value.
"""

from __future__ import annotations

import struct
from typing import Any

type Document = dict[str, Any]

SCALARS = {"bool": "?", "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i"}
#: The layout of each struct, and the alignment.
STRUCTS = {
    "ObjectId8": ("<8s", 1),
    "ObjectId12": ("<12s", 1),
    "DimensionShape": ("<QQ", 8),
    "ChunkIndexRange": ("<II", 4),
    "ManifestFileInfo": ("<12s4xQI4x", 8),
}
UNIONS = {"NodeData": ["ArrayNodeData", "GroupNodeData"]}
_TEXT = """
Repo: spec_version u8, tags [Ref], branches [Ref], deleted_tags [string], snapshots [SnapshotInfo],
  status RepoStatus, metadata [MetadataItem], latest_updates [Update], repo_before_updates string,
  config [u8], enabled_feature_flags [u16], disabled_feature_flags [u16], extra [u8]
Ref: name string, snapshot_index u32
SnapshotInfo: id ObjectId12, parent_offset i32, flushed_at u64, message string, metadata [MetadataItem],
  pruned_ancestor_tx_logs [ObjectId12]
RepoStatus: availability u8, set_at u64, limited_availability_reason string
Update: update_type UpdateType, updated_at u64, backup_path string
RepoInitializedUpdate:
RepoMigratedUpdate: from_version u8, to_version u8
ConfigChangedUpdate:
MetadataChangedUpdate:
TagCreatedUpdate: name string
TagDeletedUpdate: name string, previous_snap_id ObjectId12
BranchCreatedUpdate: name string
BranchDeletedUpdate: name string, previous_snap_id ObjectId12
BranchResetUpdate: name string, previous_snap_id ObjectId12
NewCommitUpdate: branch string, new_snap_id ObjectId12
CommitAmendedUpdate: branch string, previous_snap_id ObjectId12, new_snap_id ObjectId12
NewDetachedSnapshotUpdate: new_snap_id ObjectId12
GCRanUpdate:
ExpirationRanUpdate:
FeatureFlagChangedUpdate: id u16, new_value bool, is_set bool
RepoStatusChangedUpdate: status RepoStatus
MetadataItem: name string, value [u8]
Snapshot: id ObjectId12, parent_id ObjectId12, nodes [NodeSnapshot], flushed_at u64, message string,
  metadata [MetadataItem], manifest_files [ManifestFileInfo], manifest_files_v2 [ManifestFileInfoV2],
  extra [u8]
NodeSnapshot: id ObjectId8, path string, user_data [u8], node_data NodeData, extra [u8]
GroupNodeData:
ArrayNodeData: shape [DimensionShape], dimension_names [DimensionName], manifests [ManifestRef],
  shape_v2 [DimensionShapeV2]
DimensionShapeV2: array_length u64, num_chunks u32
DimensionName: name string
ManifestRef: object_id ObjectId12, extents [ChunkIndexRange]
ManifestFileInfoV2: id ObjectId12, size_bytes u64, num_chunk_refs u32, extra [u8]
Manifest: id ObjectId12, arrays [ArrayManifest], location_dictionary [u8],
  compression_algorithm u8=1, extra [u8]
ArrayManifest: node_id ObjectId8, refs [ChunkRef], extra [u8]
ChunkRef: index [u32], inline [u8], offset u64, length u64, chunk_id ObjectId12, location string,
  checksum_etag string, checksum_last_modified u32, compressed_location [u8], extra [u8]
TransactionLog: id ObjectId12, new_groups [ObjectId8], new_arrays [ObjectId8], deleted_groups [ObjectId8],
  deleted_arrays [ObjectId8], updated_arrays [ObjectId8], updated_groups [ObjectId8],
  updated_chunks [ArrayUpdatedChunks], moved_nodes [MoveOperation], extra [u8]
ArrayUpdatedChunks: node_id ObjectId8, chunks [ChunkIndices]
ChunkIndices: coords [u32]
MoveOperation: from string, to string, node_id ObjectId8, node_type u8
"""
#: The fields of each table in the order of their slots: name, type, default. A union takes two slots.
TABLES: dict[str, list[tuple[str, str, int]]] = {}
for _line in _TEXT.replace("\n  ", " ").strip().splitlines():
    _name, _, _fields = _line.partition(":")
    TABLES[_name] = []
    for _field in filter(None, _fields.strip().split(", ")):
        _key, _type = _field.split()
        _type, _, _default = _type.partition("=")
        TABLES[_name].append((_key, _type, int(_default or 0)))
# The tables of updates stand in the order of the union
UNIONS["UpdateType"] = [name for name in TABLES if name.endswith("Update") and name != "Update"]


def _layout(kind: str) -> tuple[int, int]:
    """Return the size and the alignment of a value inside a table or a vector. Other values are offsets."""
    if kind in STRUCTS:
        return struct.calcsize(STRUCTS[kind][0]), STRUCTS[kind][1]
    size = struct.calcsize(SCALARS.get(kind, "I"))
    return size, size


class Buffer(bytearray):
    """A buffer to write, with the places of the tables in it by the identity of their dicts."""

    tables: dict[int, int]


def pack(kind: str, document: Document) -> bytes:
    """Return the buffer of a root table, with the file identifier that the reference writes.

    A dict that stands in several places is one table to which several offsets lead.
    """
    out = Buffer(b"\0\0\0\0Ichk")
    out.tables = {}
    struct.pack_into("<I", out, 0, _table(out, kind, document))
    return bytes(out)


def _align(out: Buffer, alignment: int, ahead: int = 0) -> None:
    out += bytes(-(len(out) + ahead) % alignment)


def _table(out: Buffer, kind: str, document: Document) -> int:
    unknown = set(document) - {name for name, _, _ in TABLES[kind]} - {"later"}
    assert not unknown, f"{kind} has no field {unknown}"
    slots: list[tuple[str, Any] | None] = []
    for name, type_, _ in TABLES[kind]:
        value = document.get(name)
        if type_ in UNIONS:
            slots.append(value and ("u8", value[2] if len(value) > 2 else UNIONS[type_].index(value[0]) + 1))
            slots.append(value and (value[0], value[1]))
        else:
            slots.append(None if value is None else (type_, value))
    slots += document.get("later", [])
    while slots and slots[-1] is None:
        slots.pop()
    # Large fields stand first: then only the table itself needs padding.
    position, places = 4, {}
    for number, slot in sorted(enumerate(slots), key=lambda item: -_layout(item[1][0])[1] if item[1] else 0):
        if slot:
            size, alignment = _layout(slot[0])
            position += -position % alignment
            places[number] = position
            position += size
    vtable = struct.pack(
        f"<HH{len(slots)}H", 4 + 2 * len(slots), position, *(places.get(i, 0) for i in range(len(slots)))
    )
    _align(out, 8, len(vtable))
    start = len(out) + len(vtable)
    out += vtable + struct.pack("<i", len(vtable)) + bytes(position - 4)
    for number, place in places.items():
        slot = slots[number]
        assert slot is not None
        _value(out, start + place, *slot)
    return start


def _value(out: Buffer, place: int, kind: str, value: Any) -> None:
    """Write a value at its place. What does not fit there goes to the end of the buffer."""
    if kind in SCALARS:
        struct.pack_into("<" + SCALARS[kind], out, place, value)
    elif kind in STRUCTS:
        struct.pack_into(STRUCTS[kind][0], out, place, *(value if isinstance(value, tuple) else (value,)))
    else:
        target = out.tables.get(id(value), 0) if kind in TABLES else _vector(out, kind, value)
        if target <= place:  # an offset leads forward only
            target = out.tables[id(value)] = _table(out, kind, value)
        struct.pack_into("<I", out, place, target - place)


def _vector(out: Buffer, kind: str, value: Any) -> int:
    if kind in ("string", "[u8]"):
        data = value.encode() if isinstance(value, str) else bytes(value)
        _align(out, 4)
        start = len(out)
        out += struct.pack("<I", len(data)) + data + b"\0" * (kind == "string")
        return start
    item = kind[1:-1]
    size, alignment = _layout(item)
    _align(out, max(alignment, 4), 4)
    start = len(out)
    out += struct.pack("<I", len(value)) + bytes(size * len(value))
    for number, each in enumerate(value):
        _value(out, start + 4 + number * size, item, each)
    return start


def unpack(kind: str, data: bytes, place: int | None = None) -> Document:
    """Return the table at a place of a buffer, by default its root. Absent scalars have their default."""
    if place is None:
        place = int(struct.unpack_from("<I", data)[0])
    vtable = place - int(struct.unpack_from("<i", data, place)[0])
    slots = struct.unpack_from(f"<{struct.unpack_from('<H', data, vtable)[0] // 2}H", data, vtable)[2:]
    document: Document = {}
    number = 0
    for name, type_, default in TABLES[kind]:
        offset = slots[number] if number < len(slots) else 0
        number += 1
        if type_ in UNIONS:
            member = data[place + offset] if offset else 0
            offset, number = (slots[number] if number < len(slots) else 0), number + 1
            if member and offset:
                name_ = UNIONS[type_][member - 1]
                document[name] = (name_, _read(data, place + offset, name_))
        elif offset:
            document[name] = _read(data, place + offset, type_)
        elif type_ in SCALARS:
            document[name] = default
    return document


def _read(data: bytes, place: int, kind: str) -> Any:
    if kind in SCALARS:
        return struct.unpack_from("<" + SCALARS[kind], data, place)[0]
    if kind in STRUCTS:
        values = struct.unpack_from(STRUCTS[kind][0], data, place)
        return values[0] if len(values) == 1 else values
    place += int(struct.unpack_from("<I", data, place)[0])
    if kind in TABLES:
        return unpack(kind, data, place)
    count = int(struct.unpack_from("<I", data, place)[0])
    if kind in ("string", "[u8]"):
        content = data[place + 4 : place + 4 + count]
        return content.decode() if kind == "string" else content
    size, _ = _layout(kind[1:-1])
    return [_read(data, place + 4 + number * size, kind[1:-1]) for number in range(count)]
