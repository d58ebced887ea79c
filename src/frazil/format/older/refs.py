"""Refs in numbered files: a commit makes the next file of its branch.

The name of a branch's file is its sequence number, counted down from the largest one, in base 32: so the
newest file is the first in a listing sorted by name. M0 counts in 64 bits (13 characters, with a zero bit
behind), all others in 40 bits (8 characters). A tag is one file; a file beside it says that it was deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from frazil.errors import FormatError
from frazil.format.ids import OBJECT_ID_BYTES, id_to_text
from frazil.format.older.elements import DRAFT_ID_BYTES, OldRef, decoding, mapping, object_id, timestamp
from frazil.format.older.generations import DRAFT, Layout

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TO_PYTHON: Final = str.maketrans(_CROCKFORD, "0123456789abcdefghijklmnopqrstuv")
#: Length of a name -> bytes that it encodes, and the zero bits behind them.
_FORMS: Final = {8: (5, 0), 13: (8, 1)}
_ID_NAMES: Final = {20: OBJECT_ID_BYTES, 26: DRAFT_ID_BYTES}
_TAG_FILE: Final = "ref.json"
_DELETED: Final = ".deleted"


def name_to_id(name: str) -> bytes | None:
    """The id, of 12 or 16 bytes, that a file is named by; None if its name is none.

    >>> name_to_id("1CECHNKREP0F1RSTCMT0").hex()
    '0b1cc8d6787580f0e33a6534'
    """
    size = _ID_NAMES.get(len(name))
    if size is None or not set(name) <= set(_CROCKFORD):
        return None
    value, rest = divmod(int(name.translate(_TO_PYTHON), 32), 1 << -8 * size % 5)
    return None if rest else value.to_bytes(size)


def sequence_name(number: int, characters: int = 8) -> str:
    """File name of the ref that a branch's commit ``number`` made, without ``.json``.

    >>> sequence_name(0), sequence_name(100), sequence_name(1, 13)
    ('ZZZZZZZZ', 'ZZZZZZWV', 'ZZZZZZZZZZZZW')
    """
    size, _ = _FORMS[characters]
    return id_to_text(((1 << 8 * size) - 1 - number).to_bytes(size))


def sequence_number(name: str) -> int | None:
    """The number behind a name; None if it is none.

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

    branches      name -> sequence number -> key
    tags          name -> key
    deleted_tags  names
    """

    branches: dict[str, dict[int, str]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    deleted_tags: set[str] = field(default_factory=set)


def ref_files(keys: Iterable[str], layout: Layout, *, encoded: bool = False) -> RefFiles:
    """What the keys below ``layout.refs`` are; keys that are no refs are passed over. ``encoded``: some
    characters of names are percent-encoded in keys.

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
    """What a ref file says. The id of its snapshot has 12 bytes, that of the draft 16.

    Raises ``FormatError`` naming the file.
    """
    with decoding(name):
        value = json.loads(bytes(data))
        if not isinstance(value, dict):
            raise FormatError(f"a ref that is a {type(value).__name__}, expected an object")
        committed_at = timestamp(value["timestamp"]) if "timestamp" in value else None
        return OldRef(object_id(value["snapshot"]), committed_at, mapping(value.get("properties") or {}))
