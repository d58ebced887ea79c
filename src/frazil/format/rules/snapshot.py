"""The rules for snapshots.

Specification: *Snapshot Files*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from frazil.errors import FormatError
from frazil.format.envelope import FileType
from frazil.format.flatbuffer import Tables
from frazil.format.ids import INITIAL_SNAPSHOT_ID, OBJECT_ID_BYTES, id_to_text
from frazil.format.metadata_items import read_metadata
from frazil.format.rules import extents, nodes
from frazil.format.rules.headers import violations_of
from frazil.format.rules.violation import Violation, absent_fields, broken, unsorted_text

_PARENT, _MESSAGE, _METADATA = 1, 4, 5
_FIELDS: Final = {0: "id", 2: "nodes", 4: "message", 5: "metadata", 6: "manifest_files"}


def snapshot_violations(data: Any, id_: bytes, spec_version: int, *, is_root: bool = True) -> list[Violation]:
    """Return the rules that the file of the snapshot ``id_`` breaks.

    ``spec_version`` is that of the repository. ``is_root`` says that the snapshot has no parent.

    >>> from frazil.format.snapshot import encode_snapshot, initial_snapshot
    >>> file = encode_snapshot(initial_snapshot(1_700_000_000_000_000))
    >>> snapshot_violations(file, INITIAL_SNAPSHOT_ID, 2)
    []
    """
    rules = (*_RULES, *nodes.RULES, *extents.RULES)

    def every(root: Tables, version: int) -> Iterator[Violation]:
        yield from broken((_identity,), root, id_)
        yield from broken((_parent,), root, version, id_, is_root=is_root)
        yield from broken(rules, root, version)

    return violations_of(data, FileType.SNAPSHOT, spec_version, every)


def _identity(root: Tables, id_: bytes) -> Iterator[Violation]:
    stored = root.structs(0, OBJECT_ID_BYTES).tobytes()
    if stored != id_:
        yield Violation("snapshot-id", f"the id must be {id_to_text(id_)}, got {id_to_text(stored)}")


def _parent(root: Tables, version: int, id_: bytes, *, is_root: bool) -> Iterator[Violation]:
    has_parent = bool(root.present(_PARENT)[0])
    if version > 1 and has_parent:
        yield Violation("snapshot-parent-v2", "parent_id must be absent in spec version 2")
    if version == 1 and not has_parent and id_ != INITIAL_SNAPSHOT_ID and not is_root:
        yield Violation("snapshot-parent-v1", "parent_id must be present in spec version 1")


def _required(root: Tables, version: int) -> Iterator[Violation]:
    names = absent_fields(root, _FIELDS)
    if names:
        yield Violation("snapshot-required", f"these required fields are absent: {', '.join(names)}")


def _values(root: Tables, version: int) -> Iterator[Violation]:
    column = read_metadata(root, _METADATA, "snapshot", version)
    yield from unsorted_text("snapshot-metadata-sorted", "items of the metadata", column.names)
    try:
        column.load(0)
    except FormatError as error:
        yield Violation("metadata-values", f"the metadata cannot be decoded: {error.message}")
    try:
        root.vectors(_MESSAGE).texts()
    except FormatError as error:
        yield Violation("text-utf8", f"the message: {error.message}")


_RULES: Final = (_required, _values)

__all__ = ["snapshot_violations"]
