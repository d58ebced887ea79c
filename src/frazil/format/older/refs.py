"""Refs in numbered files: each commit writes the next file of its branch.

The name of a branch file is its sequence number, counted down from the largest number, in base 32. So the
newest file is the first in a listing sorted by name. M0 counts in 64 bits (13 characters, with a zero bit at
the end), all other formats in 40 bits (8 characters). A tag is one file. A second file beside it marks the
tag as deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from frazil.errors import FormatError
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.older.elements import DRAFT_ID_BYTES, OldRef, decoding, mapping, object_id, timestamp
from frazil.format.older.generations import DRAFT, Layout

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TO_PYTHON: Final = str.maketrans(_CROCKFORD, "0123456789abcdefghijklmnopqrstuv")
#: Length of a name -> number of encoded bytes, and of zero bits after them.
_FORMS: Final = {8: (5, 0), 13: (8, 1)}
_ID_NAMES: Final = {20: OBJECT_ID_BYTES, 26: DRAFT_ID_BYTES}
_TAG_FILE: Final = "ref.json"
_DELETED: Final = ".deleted"


def name_to_id(name: str) -> bytes | None:
    """Return the id, of 12 or 16 bytes, in the name of a file; None if the name is not an id.

    >>> name_to_id("1CECHNKREP0F1RSTCMT0").hex()
    '0b1cc8d6787580f0e33a6534'
    """
    size = _ID_NAMES.get(len(name))
    if size is None or not set(name) <= set(_CROCKFORD):
        return None
    value, rest = divmod(int(name.translate(_TO_PYTHON), 32), 1 << -8 * size % 5)
    return None if rest else value.to_bytes(size)


def sequence_number(name: str) -> int | None:
    """Return the sequence number in a name; None if the name is not a number.

    >>> sequence_number("ZZZZZZWV"), sequence_number("ref")
    (100, None)
    """
    form = _FORMS.get(len(name))
    if form is None or not set(name) <= set(_CROCKFORD):
        return None
    size, spare = form
    value, rest = divmod(int(name.translate(_TO_PYTHON), 32), 1 << spare)
    number = (1 << 8 * size) - 1 - value
    return number if rest == 0 and number >= 0 else None


@dataclass(frozen=True, slots=True)
class RefFiles:
    """The ref files of a repository.

    Attributes:
        branches: The keys of each branch, by sequence number.
        tags: The key of each tag.
        deleted_tags: The names of deleted tags.
    """

    branches: dict[str, dict[int, str]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    deleted_tags: set[str] = field(default_factory=set)


def ref_files(keys: Iterable[str], layout: Layout, *, encoded: bool = False) -> RefFiles:
    """Return the refs among the keys below ``layout.refs``. Other keys are ignored.

    If ``encoded`` is True, some characters of names are percent-encoded in the keys.

    >>> from frazil.format.older.generations import DOT
    >>> found = ref_files(["refs/branch.main/ZZZZZZZY.json", "refs/tag.v1/ref.json"], DOT)
    >>> found.branches, found.tags
    ({'main': {1: 'refs/branch.main/ZZZZZZZY.json'}}, {'v1': 'refs/tag.v1/ref.json'})
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
