"""The generations of the format before spec version 1, as tables of their differences, and their values.

The names of the refs determine the *layout* of a repository. Each file shows the other differences itself, so
the generation is determined for messages only. The name of a branch file is its sequence number, counted down
from the largest number, in base 32: in 64 bits in M0 (13 characters, with a zero bit at the end), in 40 bits
in all other formats. A tag is one file. A second file in the same folder marks the tag as deleted.

M5 to M8 have the header of the later formats. M4 compresses its manifests without a header.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

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


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """Where a repository has its files."""

    branch: str  # The beginning of the path of a branch, up to its name
    tag: str  # The beginning of the path of a tag, up to its name
    snapshots: str = "snapshots"  # The folder of snapshots
    manifests: str = "manifests"  # The folder of manifests
    transactions: str | None = "transactions"  # The folder of transaction logs, or None
    chunks: str = "chunks"  # The folder of chunks
    #: The suffixes of snapshots and manifests, in the order in which readers look
    suffixes: tuple[str, ...] = ("",)

    @property
    def refs(self) -> str:
        """The folder of all refs."""
        return self.branch.partition("/")[0]


#: In the draft, a tag is a file next to the folders of branches.
DRAFT: Final = FolderLayout("r/", "r/", "s", "m", None, "c", (".json", "", ".msgpack"))
COLON: Final = FolderLayout("refs/branch:", "refs/tag:")
DOT: Final = FolderLayout("refs/branch.", "refs/tag.")

#: The folder of the branch ``main``, where every repository has files -> the layout.
LAYOUTS: Final = {f"{layout.branch}main": layout for layout in (DOT, COLON, DRAFT)}


@dataclass(frozen=True, slots=True)
class FormatSigns:
    """The properties of a snapshot file that distinguish the generations."""

    has_header: bool  # Whether it begins with the header of 39 bytes
    fields: int  # The number of fields of its outermost value
    #: The number of fields of an entry in its list of manifests; None without manifests
    file_fields: int | None
    text_ids: bool  # Whether its ids are text
    numbered: bool | None  # Whether the ids of its nodes are numbers; None without nodes
    has_config: bool  # Whether the repository has a config.yaml


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation. None in one of the last six fields fits any value (see ``FormatSigns``)."""

    name: str
    writers: str
    layout: FolderLayout
    has_header: bool | None = None
    fields: int | None = None
    file_fields: int | None = None
    text_ids: bool | None = None
    numbered: bool | None = None
    has_config: bool | None = None

    def __str__(self) -> str:
        return f"{self.name}, {self.writers}"

    def fits(self, signs: FormatSigns) -> bool:
        """Return whether a snapshot file may be of this generation."""
        pairs = ((getattr(self, name), getattr(signs, name)) for name in FormatSigns.__slots__)
        return all(trait is None or actual is None or trait == actual for trait, actual in pairs)


def _alpha(versions: str) -> str:
    return f"as written by icechunk {versions}"


GENERATIONS: Final = (
    Generation("D", "the draft of 2024", DRAFT),
    Generation("M0", _alpha("0.1.0a1"), COLON),
    Generation("M1", _alpha("0.1.0a2 to 0.1.0a4"), DOT, False, 11, 2, True, True, False),
    Generation("M2", _alpha("0.1.0a5 to 0.1.0a7"), DOT, False, 11, 2, True, False, False),
    Generation("M3", _alpha("0.1.0a8"), DOT, False, 11, 2, True, False, True),
    Generation("M4", _alpha("0.1.0a9"), DOT, False, 11, 3, True, False),
    Generation("M5", _alpha("0.1.0a10"), DOT, True, 9, 3, True, False),
    Generation("M6", _alpha("0.1.0a11 and 0.1.0a12"), DOT, True, 9, 3, False, False),
    Generation("M7", _alpha("0.1.0a13 to 0.1.0a15"), DOT, True, 9, 4, False, False),
    Generation("M8", _alpha("0.1.0 to 0.1.3"), DOT, True, 8, 3, False, False),
)


def described(layout: FolderLayout, signs: FormatSigns) -> str:
    """Return a text for messages: the generation of a repository, or the first and the last possible one."""
    candidates = [each for each in GENERATIONS if each.layout is layout]
    some = [each for each in candidates if each.fits(signs)] or candidates
    if len(some) == 1:
        return str(some[0])
    writers = ", or ".join(each.writers.removeprefix(_alpha("")) for each in some)
    return f"{some[0].name} to {some[-1].name}, {_alpha(writers)}"


_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TO_PYTHON: Final = str.maketrans(_CROCKFORD, "0123456789abcdefghijklmnopqrstuv")
#: Length of a name -> number of encoded bytes.
_NUMBER_NAMES: Final = {8: 5, 13: 8}
_ID_NAMES: Final = {20: OBJECT_ID_BYTES, 26: DRAFT_ID_BYTES}
_TAG_FILE: Final = "ref.json"
_DELETED: Final = ".deleted"


def name_to_id(name: str, sizes: Mapping[int, int] = _ID_NAMES) -> bytes | None:
    """Return the id, of 12 or 16 bytes, in the name of a file; None if the name is not an id."""
    size = sizes.get(len(name))
    if size is None or not set(name) <= set(_CROCKFORD):
        return None
    value, rest = divmod(int(name.translate(_TO_PYTHON), 32), 1 << -8 * size % 5)
    return None if rest else value.to_bytes(size)


def sequence_number(name: str) -> int | None:
    """Return the sequence number in a name; None if the name is not a number."""
    value = name_to_id(name, _NUMBER_NAMES)
    return None if value is None else (1 << 8 * len(value)) - 1 - int.from_bytes(value)


@dataclass(frozen=True, slots=True)
class RefFiles:
    """The ref files of a repository."""

    #: The keys of each branch, by sequence number
    branches: dict[str, dict[int, str]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)  # The key of each tag
    deleted_tags: set[str] = field(default_factory=set)  # The names of deleted tags


def ref_files(keys: Iterable[str], layout: FolderLayout, *, encoded: bool = False) -> RefFiles:
    """Return the refs among the keys below ``layout.refs``. Other keys are ignored.

    If ``encoded`` is True, some characters of names are percent-encoded in the keys.
    """
    out = RefFiles()
    for key in keys:
        folder, _, name = (unquote(key, errors="replace") if encoded else key).rpartition("/")
        if layout is DRAFT and folder == layout.refs:
            if name.endswith(".json"):
                out.tags[name.removesuffix(".json")] = key
        elif folder.startswith(layout.branch) and name.endswith(".json") and name != _TAG_FILE:
            number = sequence_number(name.removesuffix(".json"))
            if number is not None:
                out.branches.setdefault(folder.removeprefix(layout.branch), {})[number] = key
        elif folder.startswith(layout.tag) and name == _TAG_FILE:
            out.tags[folder.removeprefix(layout.tag)] = key
        elif folder.startswith(layout.tag) and name == _TAG_FILE + _DELETED:
            out.deleted_tags.add(folder.removeprefix(layout.tag))
    for name in out.deleted_tags & out.tags.keys():
        del out.tags[name]
    return out


def decode_ref(data: Any, name: str) -> OldRef:
    """Return the contents of a ref file. The id of its snapshot has 12 bytes, in the draft 16."""
    with decoding(name):
        value = json.loads(bytes(data))
        if not isinstance(value, dict):
            raise FormatError(f"a ref must be an object, got {type(value).__name__}")
        committed_at = timestamp(value["timestamp"]) if "timestamp" in value else None
        return OldRef(object_id(value["snapshot"]), committed_at, mapping(value.get("properties") or {}))
