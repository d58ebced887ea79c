"""The rules for branches, tags and snapshots in the file ``repo``.

Specification: *References*, *Ref* and *SnapshotInfo*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from frazil.format.flatbuffer import Tables
from frazil.format.ids import INITIAL_SNAPSHOT_ID, OBJECT_ID_BYTES, id_keys, id_to_text
from frazil.format.rules.violation import Violation, unsorted_ids, unsorted_text

_TAGS, _BRANCHES, _DELETED, _SNAPSHOTS = 1, 2, 3, 4
_MAIN: Final = b"main"


def order_of_refs(root: Tables) -> Iterator[Violation]:
    """Tags, branches and deleted tags are sorted."""
    yield from unsorted_text("tags-sorted", "tags", root.children(_TAGS)[0].vectors(0))
    yield from unsorted_text("branches-sorted", "branches", root.children(_BRANCHES)[0].vectors(0))
    yield from unsorted_text("deleted-tags-sorted", "deleted tags", root.string_vectors(_DELETED)[0])


def targets_of_refs(root: Tables) -> Iterator[Violation]:
    """Refs are on listed snapshots."""
    count = len(root.children(_SNAPSHOTS)[0])
    for slot, what in ((_TAGS, "tag"), (_BRANCHES, "branch")):
        refs = root.children(slot)[0]
        outside = np.flatnonzero(refs.scalars(1, "<u4") >= count)
        for row in outside[:1].tolist():
            index = int(refs.scalars(1, "<u4")[row])
            name = refs.vectors(0).bytes(row)
            yield Violation("ref-target", f"the {what} {name!r} is on snapshot {index} of {count}")


def main_branch(root: Tables) -> Iterator[Violation]:
    """There is a branch ``main``."""
    if _MAIN not in root.children(_BRANCHES)[0].vectors(0).blobs():
        yield Violation("main-branch", "a repository must have the branch `main`")


def deleted_names(root: Tables) -> Iterator[Violation]:
    """No tag has the name of a deleted tag."""
    tags = set(root.children(_TAGS)[0].vectors(0).blobs())
    for name in sorted(tags.intersection(root.string_vectors(_DELETED)[0].blobs())):
        yield Violation("tag-reuse", f"the tag {name!r} has the name of a deleted tag")


def order_of_snapshots(root: Tables) -> Iterator[Violation]:
    """Snapshots are sorted by their ids."""
    ids = root.children(_SNAPSHOTS)[0].structs(0, OBJECT_ID_BYTES)
    yield from unsorted_ids("snapshots-sorted", "snapshots", id_keys(ids))


def parents_of_snapshots(root: Tables) -> Iterator[Violation]:
    """Parents are listed snapshots, and lead to a snapshot without a parent."""
    infos = root.children(_SNAPSHOTS)[0]
    parents = infos.scalars(1, "<i4").astype(np.int64)
    count = len(parents)
    outside = (parents < -1) | (parents >= count)
    if outside.any():
        parent = int(parents[outside][0])
        yield Violation("parent-offset", f"a parent must be -1 to {count - 1}, got {parent}")
        return
    ancestors = np.append(np.where(parents < 0, count, parents), count)
    for _ in range(max(count, 1).bit_length()):
        ancestors = ancestors[ancestors]
    if (ancestors != count).any():
        id_ = infos.structs(0, OBJECT_ID_BYTES)[int(np.argmax(ancestors != count))]
        yield Violation("parent-cycle", f"the ancestors of snapshot {id_to_text(id_.tobytes())} form a cycle")


def initial_snapshots(root: Tables) -> Iterator[Violation]:
    """Only the initial snapshot has no parent."""
    infos = root.children(_SNAPSHOTS)[0]
    orphans = infos.structs(0, OBJECT_ID_BYTES)[infos.scalars(1, "<i4") == -1]
    ids = sorted(map(bytes, orphans))
    if len(ids) > 1 and INITIAL_SNAPSHOT_ID in ids:
        other = next(id_ for id_ in ids if id_ != INITIAL_SNAPSHOT_ID)
        yield Violation("initial-snapshot", f"snapshot {id_to_text(other)} has no parent")


RULES: Final = (
    order_of_refs,
    targets_of_refs,
    main_branch,
    deleted_names,
    order_of_snapshots,
    parents_of_snapshots,
    initial_snapshots,
)
