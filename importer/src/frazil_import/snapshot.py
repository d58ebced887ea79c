"""Snapshot files of the older formats: an array whose number of fields determines their names.

A snapshot is small compared with its manifests, and is decoded value by value. The draft writes maps with
these names instead.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from typing import Any, Final

from frazil.errors import FormatError
from frazil.format import msgpack
from frazil.format.envelope import FileType
from frazil_import.generations import (
    DRAFT,
    FolderLayout,
    FormatSigns,
    NodeId,
    OldManifestRef,
    OldNode,
    OldSnapshot,
    decoding,
    has_header,
    mapping,
    node_id,
    object_id,
    payload,
    text,
    timestamp,
    variant,
)

FIELDS: Final = (
    *("shape", "data_type", "chunk_shape", "chunk_key_encoding", "fill_value", "codecs"),
    *("storage_transformers", "dimension_names"),
)

#: The separators in the keys of chunks. Later formats find chunks by coordinates, with one form of keys.
_SEPARATORS: Final = {"Slash": "/", "Default": "/", "Dot": "/"}
_SIGNED: Final = ("Int8", "Int16", "Int32", "Int64")
_TYPES: Final = {
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("bool", "float16", "float32", "float64", "complex64", "complex128", "string", "bytes"),
}


def array_document(meta: Any, attributes: dict[str, Any] | None) -> dict[str, Any]:
    """Return the document of an array. Raise ``FormatError`` if its metadata are not Zarr metadata."""
    fields = _named(meta, FIELDS)
    names, (kind, fill) = fields.get("dimension_names"), variant(fields["fill_value"])
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": _whole(fields["shape"]),
        "data_type": _data_type(fields["data_type"]),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": _whole(fields["chunk_shape"])}},
        "chunk_key_encoding": {
            "name": "default",
            "configuration": {"separator": _SEPARATORS[text(fields["chunk_key_encoding"])]},
        },
        "fill_value": _FILLS[kind](fill),
        "codecs": list(map(_named_configuration, fields["codecs"])),
        "storage_transformers": list(map(_named_configuration, fields.get("storage_transformers") or ())),
        "attributes": attributes or {},
    }
    if names is not None:
        document["dimension_names"] = [None if name is None else text(name) for name in names]
    return document


def _whole(values: Any) -> list[int]:
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise FormatError(f"expected a shape, got {values!r:.80}")
    return values


def _data_type(value: Any) -> str | dict[str, Any]:
    if isinstance(value, str) and value in _TYPES:
        return value
    name, bits = variant(value)
    if name == "rawbits" and type(bits) is int and 0 < bits < 1 << 32 and not bits % 8:
        # The present name in zarr. No reader knows the old name, such as r16.
        return {"name": "raw_bytes", "configuration": {"length_bytes": bits // 8}}
    raise FormatError(f"expected a data type, got {value!r:.80}")


def _named_configuration(value: Any) -> dict[str, Any]:
    name, configuration = (
        (value["name"], value.get("configuration")) if isinstance(value, dict) else tuple(value)
    )
    if configuration is None:
        return {"name": text(name)}
    return {"name": text(name), "configuration": mapping(configuration)}


def _number(value: Any) -> float | str:
    """Return a float as JSON, which has no numbers for three values. The draft's JSON had null."""
    if value is None:
        return "NaN"
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"expected a number, got {value!r:.80}")
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _integer(value: Any) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 64:
        raise FormatError(f"expected a whole number, got {value!r:.80}")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise FormatError(f"expected true or false, got {value!r:.80}")
    return value


def _base64(value: Any) -> str:
    return base64.b64encode(bytes(value)).decode()


_FILLS: Final[dict[str, Callable[[Any], Any]]] = {
    "Bool": _boolean,
    **dict.fromkeys(_SIGNED, _integer),
    **dict.fromkeys((f"U{name}" for name in _SIGNED), _integer),
    **dict.fromkeys(("Float16", "Float32", "Float64"), _number),
    **dict.fromkeys(("Complex64", "Complex128"), lambda value: [_number(each) for each in value]),
    "String": text,
    "Bytes": _base64,
    "RawBits": _base64,
}


_HISTORY: Final = (
    *("manifest_files", "attribute_files", "total_parents", "short_term_parents", "short_term_history"),
    *("metadata", "started_at", "properties", "nodes"),
)
#: Number of fields -> their names: M0 to M4, M5 to M7, M8.
SNAPSHOT_FIELDS: Final[dict[int, tuple[str, ...]]] = {
    11: ("format_version", "format_flags", *_HISTORY),
    9: _HISTORY,
    8: (
        *("id", "parent_id", "flushed_at", "message", "properties", "manifest_files", "attribute_files"),
        "nodes",
    ),
}
_ENTRY: Final = ("id", "written_at", "message")
_NODE: Final = ("id", "path", "user_attributes", "node_data")
_MANIFEST_REF: Final = ("object_id", "extents")
_MAX_EXTENT: Final = 1 << 32


def decode_old_snapshot(data: Any, name: str, layout: FolderLayout) -> OldSnapshot:
    """Read a snapshot of an older format. Raise ``FormatError`` with ``name`` for other bytes."""
    with decoding(name):
        fields = _fields(data, layout)
        if "metadata" in fields:
            own = _named(fields["metadata"], _ENTRY)
            id_, flushed_at, message = object_id(own["id"]), own["written_at"], own["message"]
            parent = _newest(fields["short_term_history"])
        else:
            id_, flushed_at, message = object_id(fields["id"]), fields["flushed_at"], fields["message"]
            parent = None if fields["parent_id"] is None else object_id(fields["parent_id"])
        nodes = tuple(_node(path, value) for path, value in mapping(fields["nodes"]).items())
        properties = mapping(fields["properties"])
        length = len(fields.get("short_term_history") or ())
        # A field that repeats another one is not lost.
        lost = {
            "started_at": fields.get("started_at", flushed_at) != flushed_at,
            "short_term_parents": fields.get("short_term_parents", length) != length,
            "format_flags": bool(fields.get("format_flags")),
            "attribute_files": bool(fields.get("attribute_files")),
        }
        return OldSnapshot(
            id_,
            parent,
            timestamp(flushed_at),
            text(message),
            properties,
            nodes,
            fields.get("total_parents"),
            tuple(name for name, is_lost in lost.items() if is_lost),
        )


def format_signs(data: Any, name: str, layout: FolderLayout, has_config: bool) -> FormatSigns:
    """Return the properties of a snapshot file that show its generation."""
    with decoding(name):
        fields = _fields(data, layout)
        files = fields.get("manifest_files") or []
        ids = [_named(node, _NODE)["id"] for node in mapping(fields["nodes"]).values()]
        own = fields["id"] if "id" in fields else _named(fields["metadata"], _ENTRY)["id"]
        return FormatSigns(
            has_header(data),
            len(fields),
            len(files[0]) if files else None,
            isinstance(own, str),
            type(ids[0]) is int if ids else None,
            has_config,
        )


def _fields(data: Any, layout: FolderLayout) -> dict[str, Any]:
    body = payload(data, FileType.SNAPSHOT)
    if layout is DRAFT and body[:1] in (b"{", b" ", b"\n"):
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False).encode()  # raises an error for a lone surrogate
        return mapping(value)
    value = msgpack.loads(body)
    names = SNAPSHOT_FIELDS.get(len(value)) if isinstance(value, list) else None
    if names is None:
        raise FormatError(f"expected a snapshot of 8, 9 or 11 fields, got {value!r:.80}")
    return dict(zip(names, value, strict=True))


def _named(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return a struct as a map. The files store an array of its fields, the draft a map."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list) or len(value) != len(names):
        raise FormatError(f"expected {', '.join(names)}, got {value!r:.80}")
    return dict(zip(names, value, strict=True))


def _newest(history: Any) -> bytes | None:
    """Return the parent: the first or the last entry of the history, because writers differ in the order."""
    if not history:
        return None
    first, last = (_named(history[at], _ENTRY) for at in (0, -1))
    newest = first if timestamp(first["written_at"]) >= timestamp(last["written_at"]) else last
    return object_id(newest["id"])


def _node(path: Any, value: Any) -> OldNode:
    fields = _named(value, _NODE)
    if text(path) != fields["path"] or not path.startswith("/") or (path != "/" and path.endswith("/")):
        raise FormatError(f"expected a node at {path!r:.80}, got one at {fields['path']!r:.80}")
    attributes, elsewhere = None, False
    if fields.get("user_attributes") is not None:
        where, content = variant(fields["user_attributes"])
        elsewhere = where == "Ref"
        if not elsewhere:
            attributes = mapping(content)
    id_: NodeId = node_id(fields["id"])
    kind, content = variant(fields["node_data"])
    if kind == "Group":
        group = {"zarr_format": 3, "node_type": "group", "attributes": attributes or {}}
        return OldNode(id_, path, group, None, elsewhere)
    if kind != "Array":
        raise FormatError(f"expected a group or an array, got {kind!r:.80}")
    meta, refs = content
    document = array_document(meta, attributes)
    rank = len(document["shape"])
    return OldNode(id_, path, document, tuple(_manifest_ref(ref, rank) for ref in refs), elsewhere)


def _manifest_ref(value: Any, rank: int) -> OldManifestRef:
    fields = _named(value, _MANIFEST_REF)
    extents = fields["extents"]
    if not extents:
        return OldManifestRef(object_id(fields["object_id"]), None)
    first, end = (tuple(map(int, corner)) for corner in extents)
    inside = all(0 <= at <= _MAX_EXTENT for at in (*first, *end))
    if not len(first) == len(end) == rank or not inside:
        raise FormatError(f"expected the extents of a manifest in {rank} dimensions, got {extents!r:.80}")
    return OldManifestRef(object_id(fields["object_id"]), (first, end))
