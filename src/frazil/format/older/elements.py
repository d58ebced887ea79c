"""The values of the older formats, independent of their bytes, and the small parts that all files share.

M5 to M8 have the header of the later formats. M4 compresses its manifests without a header.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.format.chunk_table import ChunkTable
from frazil.format.columns import U32
from frazil.format.envelope import (
    MAGIC,
    FileType,
    Reading,
    decompress,
    largest_payload,
    open_envelope,
    reading,
)
from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES, id_from_text

#: The size of an id in the draft.
DRAFT_ID_BYTES = 16

#: The id of a node: a number in D, M0 and M1, 8 bytes in later formats.
type NodeId = int | bytes


@dataclass(frozen=True, slots=True)
class OldManifestRef:
    """A manifest of an array.

    ``extents`` is a half-open box (first, end), or None for all references of the file.
    """

    id: bytes
    extents: tuple[tuple[int, ...], tuple[int, ...]] | None


@dataclass(frozen=True, slots=True)
class OldNode:
    """A group, or an array with ``manifests``.

    ``document`` contains its metadata as a ``zarr.json``. If ``attributes_elsewhere`` is True, its attributes
    are in a file of a kind that was never defined.
    """

    id: NodeId
    path: str
    document: dict[str, Any]
    manifests: tuple[OldManifestRef, ...] | None
    attributes_elsewhere: bool = False

    @property
    def rank(self) -> int:
        """The number of dimensions of the array."""
        return len(self.document["shape"])


@dataclass(frozen=True, slots=True)
class OldRef:
    """The contents of a ref file: the snapshot, and further values in some versions.

    ``committed_at`` is in microseconds since 1970, None if the file has no time.
    """

    snapshot: bytes
    committed_at: int | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OldSnapshot:
    """A snapshot file."""

    id: bytes  # The id in the file. The first versions wrote another one into the initial snapshot
    parent: bytes | None  # The id of the parent, None if there is none
    flushed_at: int  # The time of the commit, microseconds since 1970
    message: str  # The message of the commit
    metadata: dict[str, Any]  # JSON-like values by name
    nodes: tuple[OldNode, ...]  # The groups and arrays
    total_parents: int | None = None  # The number of ancestors, None if the file does not have it
    #: The names of fields with values for which a snapshot of spec version 2 has no place
    unplaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OldManifest:
    """A manifest file."""

    id: bytes | None  # The id in the file, None in formats without one
    #: The references by node and rank. Entries with another rank than the node's array have no meaning
    tables: Mapping[tuple[NodeId, int], ChunkTable]
    chunk_names: Mapping[bytes, bytes]  # The ids of the draft (16 bytes) of the chunks in the tables
    has_flags: bool = False  # Whether the file has format flags, whose meaning was never defined


@dataclass(frozen=True, slots=True)
class OldLog:
    """A transaction log. ``updated_chunks`` maps nodes to coordinates, uint32 (k, ndim), sorted."""

    new_groups: frozenset[NodeId]
    new_arrays: frozenset[NodeId]
    deleted_groups: frozenset[NodeId]
    deleted_arrays: frozenset[NodeId]
    updated: frozenset[NodeId]
    updated_chunks: Mapping[NodeId, U32]


def decoding(name: str) -> Reading:
    """Return a context like ``reading``, for values whose shape is only known when they are used."""
    return reading(name, KeyError, AttributeError, InvalidInputError)


def object_id(value: Any) -> bytes:
    """Return an id from one of its three forms: text, [bytes, []], or the 16 numbers of the draft."""
    if isinstance(value, str):
        return id_from_text(value)
    if isinstance(value, list) and len(value) == 2 and value[1] == []:
        return _bytes(value[0], OBJECT_ID_BYTES)
    return _bytes(value, DRAFT_ID_BYTES)


def node_id(value: Any) -> NodeId:
    """Return the id of a node from a number, text, or [bytes, []]."""
    if isinstance(value, str):
        return id_from_text(value, NODE_ID_BYTES)
    if isinstance(value, list) and len(value) == 2 and value[1] == []:
        return _bytes(value[0], NODE_ID_BYTES)
    if type(value) is int and 0 <= value < 1 << 32:
        return value
    raise FormatError(f"expected the id of a node, got {value!r:.80}")


def timestamp(value: Any) -> int:
    """Return an RFC 3339 text, which may have nanoseconds, as microseconds since 1970.

    >>> timestamp("1970-01-01T00:00:01.000002999Z")
    1000002
    """
    when = datetime.fromisoformat(text(value))
    if when.tzinfo is None or when < datetime(1970, 1, 1, tzinfo=UTC):
        raise FormatError(f"expected a time since 1970 with a time zone, got {value!r:.80}")
    delta = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def text(value: Any) -> str:
    """Return a value that must be text."""
    if not isinstance(value, str):
        raise FormatError(f"expected text, got {value!r:.80}")
    return value


def mapping(value: Any) -> dict[str, Any]:
    """Return a value that must be a map."""
    if not isinstance(value, dict):
        raise FormatError(f"expected a map, got {value!r:.80}")
    return value


def variant(value: Any) -> tuple[str, Any]:
    """Return the name and the content of an enum's value; a bare name has the content None."""
    if isinstance(value, str):
        return value, None
    if isinstance(value, dict) and len(value) == 1:
        name, content = next(iter(value.items()))
        return name, content
    raise FormatError(f"expected a name or a map of one key, got {value!r:.80}")


def _bytes(value: Any, size: int) -> bytes:
    if not isinstance(value, list) or len(value) != size:
        raise FormatError(f"expected an id of {size} bytes, got {value!r:.80}")
    return bytes(value)


_ZSTD: Final = b"\x28\xb5\x2f\xfd"
#: The file identifier of flatbuffers. Files of spec version 1 have it after the same header.
_LATER: Final = b"Ichk"
#: More than any writer of these formats could build in memory as objects.
MAX_PAYLOAD_BYTES: Final = 1 << 30


def has_header(data: Any) -> bool:
    """Return whether a file begins with the header."""
    return bytes(memoryview(data)[: len(MAGIC)]) == MAGIC


def payload(data: Any, kind: FileType) -> bytes:
    """Return the MessagePack or JSON of a file. Raise ``FormatError`` if the file has another format."""
    if has_header(data):
        body = bytes(open_envelope(data, kind, MAX_PAYLOAD_BYTES)[1])
        if body[4:8] == _LATER:
            raise FormatError(
                "expected a file of an older format, got one of spec version 1", ErrorKind.INVALID_FILE_FORMAT
            )
        return body
    raw = bytes(data)
    most = min(MAX_PAYLOAD_BYTES, largest_payload(len(raw)))
    return bytes(decompress(memoryview(raw), most)) if raw.startswith(_ZSTD) else raw
