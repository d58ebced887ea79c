"""Logs and repository -> one `History`, which is all that the checker gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from tests.histories import layout
from tests.histories.layout import LABEL, Row
from tests.histories.log import Operation, operations

import frazil
from frazil.ops import UpdateType

#: How many versions are read at a time.
_READERS: Final = 8
_KINDS: Final = {
    UpdateType.NewCommit: "commit",
    UpdateType.CommitAmended: "amend",
    UpdateType.NewDetachedSnapshot: "flush",
    UpdateType.BranchCreated: "create-branch",
    UpdateType.BranchReset: "reset-branch",
    UpdateType.BranchDeleted: "delete-branch",
    UpdateType.TagCreated: "create-tag",
    UpdateType.TagDeleted: "delete-tag",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the ops log. ``previous`` is the version that it replaces or whose name it deletes."""

    kind: str
    ref: str
    snapshot: str | None = None
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """What workers say, and what the repository has afterwards.

    Attributes:
        first: The version with the arrays.
        operations: The operations of all workers.
        entries: The ops log, oldest first.
        branches: The tips at the end.
        tags: The tags at the end.
        messages: The messages of the versions that the repository has at the end.
        ancestry: The history of each branch at the end, newest first.
        labels: The metadata of the repository at the end.
        rows: The numbers of versions, read at the end.
        damages: What `Repository.upkeep.verify` finds, and versions that cannot be read.
        has_faults: Whether the storage answers with errors.
    """

    first: str
    operations: Sequence[Operation]
    entries: Sequence[Entry]
    branches: Mapping[str, str]
    tags: Mapping[str, str] = field(default_factory=dict)
    messages: Mapping[str, str] = field(default_factory=dict)
    ancestry: Mapping[str, Sequence[str]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, Row] = field(default_factory=dict)
    damages: Sequence[str] = ()
    has_faults: bool = False


def collect_evidence(
    repo: frazil.Repository, first: str, logs: Iterable[Path], *, has_faults: bool = False
) -> History:
    """Read logs and repository. No worker runs any more."""
    info = repo.inspect_repo_info()
    ancestry = {
        branch: [snapshot.id for snapshot in repo.ancestry(branch=branch)] for branch in info["branches"]
    }
    versions = dict.fromkeys([*(id_ for ids in ancestry.values() for id_ in ids), *info["tags"].values()])
    rows, damages = _read_all(repo, versions)
    report = repo.upkeep.verify("checksum")
    damages += [str(finding) for finding in report.problems]
    return History(
        first=first,
        operations=tuple(operations(logs)),
        entries=tuple(reversed(list(entries(repo)))),
        branches=info["branches"],
        tags=info["tags"],
        messages={each["id"]: each["message"] for each in info["snapshots"]},
        ancestry=ancestry,
        labels={name: text for name, text in repo.metadata.items() if name.startswith(LABEL)},
        rows=rows,
        damages=damages,
        has_faults=has_faults,
    )


def entries(repo: frazil.Repository) -> Iterator[Entry]:
    """Yield the entries of the ops log that change refs, newest first."""
    for update in repo.ops_log():
        kind = _KINDS.get(type(update.kind))
        if kind is not None:
            ref: str = getattr(update.kind, "branch", "") or getattr(update.kind, "name", "")
            new, old = (getattr(update.kind, name, None) for name in ("new_snap_id", "previous_snap_id"))
            yield Entry(kind, ref, new, old)


def _read_all(repo: frazil.Repository, versions: Iterable[str]) -> tuple[dict[str, Row], list[str]]:
    """Read each version that has the arrays."""
    with ThreadPoolExecutor(_READERS) as pool:
        pairs = list(pool.map(lambda version: (version, _read(repo, version)), versions))
    rows = {version: row for version, row in pairs if isinstance(row, np.ndarray)}
    return rows, [row for _, row in pairs if isinstance(row, str)]


def _read(repo: frazil.Repository, version: str) -> Row | str | None:
    """Return the numbers of a version, the text of an error, or None for the version without arrays."""
    try:
        if repo.lookup_snapshot(version).parent_id is None and _is_empty(repo, version):
            return None
        return layout.read(repo.readonly_session(snapshot_id=version).store)
    except Exception as error:
        return f"version {version}: {type(error).__name__}: {error}"


def _is_empty(repo: frazil.Repository, version: str) -> bool:
    return repo.lookup_snapshot(version).message == "Repository initialized"
