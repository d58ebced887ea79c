"""The part of a repository that is copied: its refs, snapshots and arrays, and the repo info of this part.

A snapshot of a part without history has another id than that of the source, a hash of it: an id is never used
for two contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import chain, compress
from typing import Any, Final

import numpy as np

from frazil.arguments import check_fields, wrong_type
from frazil.errors import InvalidInputError
from frazil.format.ids import (
    NODE_ID_BYTES,
    OBJECT_ID_BYTES,
    id_keys,
    id_matrix,
    id_to_text,
    snapshot_key,
    transaction_key,
)
from frazil.format.repo_info import OpsEntry, OpsLog, RepoInfo, SnapshotEntry, UpdateKind
from frazil.format.snapshot import NodeTable, Snapshot, SnapshotTable, encode_snapshot
from frazil.format.transaction_log import empty_log, encode_transaction_log
from frazil.maintenance.links import NewParent, collapse
from frazil.remedies import argument, call
from frazil.repository.catalog.ancestry import FRAZIL
from frazil.repository.catalog.context import Context

MAIN: Final = "main"
_ALL: Final = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryPart:
    """The part of a repository that a copy or a clone has. Patterns are those of ``fnmatch``.

    Attributes:
        branches: Patterns of the names of branches. Default: all branches.
        tags: Patterns of the names of tags. Default: all tags.
        newest_only: Whether the copy has only the newest version of each branch and the version of each tag,
            without their histories. Its snapshots have other ids. Default: False.
        arrays: Patterns of the paths of arrays. They need ``newest_only``. Default: all arrays.

    Raises:
        InvalidInputError: ``invalid-argument`` for ``arrays`` without ``newest_only``.
        TypeError: For a value of another type.

    Examples:
        >>> from frazil.pipeline import RepositoryPart
        >>> RepositoryPart(branches=("main",), tags=()).is_whole
        False
    """

    branches: tuple[str, ...] = _ALL
    tags: tuple[str, ...] = _ALL
    newest_only: bool = False
    arrays: tuple[str, ...] = _ALL

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("branches", "tags", "arrays"):
            patterns = tuple(getattr(self, name))
            if not all(isinstance(pattern, str) for pattern in patterns):
                raise wrong_type(name, patterns, "tuple[str, ...]")
            object.__setattr__(self, name, patterns)  # the hash of the patterns is part of ids
        if self.arrays != _ALL and not self.newest_only:
            raise InvalidInputError(
                f"arrays must be all arrays in a copy with history, got {self.arrays!r}"
            ).with_remedy("Pass {}", argument(newest_only=True))

    @property
    def is_whole(self) -> bool:
        """Whether the part is the repository as it is."""
        return self.branches == self.tags == _ALL and not self.newest_only


def is_match(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def refs_of(info: RepoInfo, part: RepositoryPart) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the branches and the tags of a part."""
    branches = {name: id_ for name, id_ in info.branches.items() if is_match(name, part.branches)}
    tags = {name: id_ for name, id_ in info.tags.items() if is_match(name, part.tags)}
    if not branches and not tags:
        raise InvalidInputError(
            f"the part must have a branch or a tag of the source, got the patterns {part.branches} and "
            f"{part.tags}"
        ).with_remedy(
            "`{}` and Repository.list_tags return the names",
            call("list_branches"),
            shell="`frazil refs` lists the names",
        )
    return branches, tags


def first_entry(info: RepoInfo) -> SnapshotEntry:
    """Return the entry of the first snapshot of a repository."""
    return info.table.entry(int(np.argmin(info.table.parents())))


def info_of_part(info: RepoInfo, part: RepositoryPart, flat: Iterable[FlatSnapshot], now: int) -> RepoInfo:
    """Return the repo info of a part with its history, or of its newest states ``flat``."""
    branches, tags = refs_of(info, part)
    root, table = first_entry(info), info.table
    if part.newest_only:
        entries = {each.source: each.entry for each in flat}
        new_ids = {old: entry.id for old, entry in entries.items()}
        branches, tags = (
            {name: new_ids.get(id_, id_) for name, id_ in refs.items()} for refs in (branches, tags)
        )
        table = SnapshotTable.of([root, *entries.values()])
    else:
        tips = id_matrix([*branches.values(), *tags.values()])
        keep = table.reachable(table.find_snapshots(tips)) | (table.parents() < 0)
        table = collapse(table, keep, NewParent.NEXT)
    branches = {MAIN: root.id, **branches}
    # The log ends with these refs, with one entry for each microsecond.
    log = [OpsEntry(UpdateKind.REPO_INITIALIZED, 0)]
    if branches[MAIN] != root.id:
        log.append(OpsEntry(UpdateKind.BRANCH_RESET, 0, name=MAIN, previous_snapshot=root.id))
    log += [OpsEntry(UpdateKind.BRANCH_CREATED, 0, name=name) for name in sorted(branches.keys() - {MAIN})]
    log += [OpsEntry(UpdateKind.TAG_CREATED, 0, name=name) for name in sorted(tags)]
    timed = [replace(entry, updated_at=now + number) for number, entry in enumerate(log)]
    return replace(
        info,
        branches=branches,
        tags=tags,
        deleted_tags=info.deleted_tags - tags.keys(),
        snapshots=table,
        status=replace(info.status, set_at=now),
        ops=OpsLog.of(timed[::-1]),
        repo_before_updates=None,
    )


def nodes_of_arrays(nodes: NodeTable, patterns: Sequence[str]) -> NodeTable:
    """Return the arrays that match patterns, and the groups above them."""
    if tuple(patterns) == _ALL:
        return nodes
    paths = nodes.paths_list()
    matches = np.fromiter((is_match(path, patterns) for path in paths), bool, len(paths))
    arrays = matches & nodes.is_array
    above = {"/"}
    for path in compress(paths, arrays.tolist()):
        parts = path.split("/")
        above.update("/".join(parts[:end]) for end in range(2, len(parts)))
    groups = np.fromiter((path in above for path in paths), bool, len(paths)) & ~nodes.is_array
    return nodes.select_nodes(arrays | groups)


#: The value in the metadata of a flat snapshot: the id of its snapshot in the source.
SOURCE: Final = "source_snapshot"


@dataclass(frozen=True, slots=True, eq=False)
class FlatSnapshot:
    """A snapshot of a copy without history, with its entry and the id of its snapshot in the source."""

    source: bytes
    snapshot: Snapshot
    entry: SnapshotEntry

    def files(self, level: int) -> Iterator[tuple[str, bytes]]:
        """Yield the keys and bytes of the snapshot and its transaction log."""
        yield snapshot_key(self.entry.id), encode_snapshot(self.snapshot, level=level)
        # In the log of a first commit all nodes are new. Chunks of new arrays need no entry.
        nodes = self.snapshot.nodes
        groups, arrays = (
            id_matrix(sorted(nodes.identities(np.flatnonzero(rows))[0]), NODE_ID_BYTES)
            for rows in (~nodes.is_array, nodes.is_array)
        )
        log = replace(empty_log(self.snapshot.id), new_groups=groups, new_arrays=arrays)
        yield transaction_key(self.entry.id), encode_transaction_log(log, level=level)


def flat_id(source: bytes, part: RepositoryPart) -> bytes:
    """Return the id of the flat snapshot of a version."""
    text = repr(("frazil flat snapshot", source.hex(), part.arrays))
    return sha256(text.encode()).digest()[:OBJECT_ID_BYTES]


def flat_snapshots(context: Context, info: RepoInfo, part: RepositoryPart) -> Iterator[FlatSnapshot]:
    """Yield the newest states of the refs of a part."""
    root = first_entry(info).id
    refs = chain.from_iterable(each.values() for each in refs_of(info, part))
    for id_ in dict.fromkeys(refs):
        if id_ == root:
            continue
        before, entry = context.assets.snapshot(id_), info.table.entry(info.table.find_snapshot(id_))
        nodes = nodes_of_arrays(before.nodes.exact(), part.arrays)
        rows = np.isin(id_keys(before.manifests.ids), id_keys(nodes.manifest_ids()))
        metadata: dict[str, Any] = {**entry.metadata, FRAZIL: {SOURCE: id_to_text(id_)}}
        new_id = flat_id(id_, part)
        snapshot = replace(
            before,
            id=new_id,
            metadata=metadata,
            nodes=nodes,
            manifests=before.manifests.select_manifests(rows),
            parent_id=root,
        )
        new_entry = SnapshotEntry(new_id, root, entry.flushed_at, entry.message, metadata)
        yield FlatSnapshot(id_, snapshot, new_entry)
