"""The generations of the format before spec version 1, as tables of their differences.

The names of the refs determine the *layout* of a repository. Each file shows the other differences itself, so
the generation is determined for messages only. The name of a branch file is its sequence number, counted down
from the largest number, in base 32: in 64 bits in M0 (13 characters, with a zero bit at the end), in 40 bits
in all other formats. A tag is one file. A second file in the same folder marks the tag as deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from frazil.errors import FormatError
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.older.elements import DRAFT_ID_BYTES, OldRef, decoding, mapping, object_id, timestamp


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """Where a repository has its files."""

    probe: str  # The folder of the branch ``main``, where every repository has files
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


DRAFT: Final = FolderLayout(
    "r/main", "r/", "r/", "s", "m", None, "c", (".json", "", ".msgpack")
)  # a tag is a file next to the folders of branches
COLON: Final = FolderLayout("refs/branch:main", "refs/branch:", "refs/tag:")
DOT: Final = FolderLayout("refs/branch.main", "refs/branch.", "refs/tag.")

#: The layouts, in the order in which a reader looks for them.
LAYOUTS: Final = (DOT, COLON, DRAFT)


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


def generations_of(layout: FolderLayout, signs: FormatSigns | None = None) -> tuple[Generation, ...]:
    """Return the possible generations of a repository, oldest first; several if they do not differ."""
    return tuple(
        each for each in GENERATIONS if each.layout is layout and (signs is None or each.fits(signs))
    )


def described(candidates: Iterable[Generation]) -> str:
    """Return a text for messages: one generation, or the first and the last one."""
    some = list(candidates)
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
