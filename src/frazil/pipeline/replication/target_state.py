"""The state of the target of a copy: whether it may be written, and the origin of a clone."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from frazil.errors import ConflictError, ErrorKind
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.keys import REPO
from frazil.format.repo_info import RepoInfo
from frazil.pipeline.replication.flat_snapshots import SOURCE, flat_id
from frazil.pipeline.replication.part import RepositoryPart, first_entry, refs_of
from frazil.repository.catalog.creation import not_empty, require_prefix
from frazil.repository.catalog.lineage import origin_of
from frazil.repository.catalog.repo_info_file import read_repo_info
from frazil.repository.clock import now_us, to_datetime
from frazil.storage.base import IfAbsent, IfVersion, Storage

#: The key in the metadata of a repository that is a clone.
ORIGIN: Final = "frazil.origin"


def repo_info_condition(info: RepoInfo, target: Storage, part: RepositoryPart) -> IfAbsent | IfVersion:
    """Return the condition for writing the repo info to the target."""
    if target.head(REPO) is None:
        require_prefix(target)
        return IfAbsent()
    earlier, version, _ = read_repo_info(target)
    if first_entry(earlier).flushed_at != first_entry(info).flushed_at:
        raise _foreign(target, "another repository, which was created at another time")
    own = [
        f"commits on its branch {name!r}, which the source does not have"
        for name, tip in earlier.branches.items()
        if not _is_copied(info, earlier, tip, part)
    ]
    tags = info.tags.keys() | info.deleted_tags
    own += [f"its tag {name!r}, which the source does not have" for name in earlier.tags if name not in tags]
    if own:
        raise _foreign(target, own[0])
    if ORIGIN in earlier.metadata and ORIGIN not in info.metadata:
        raise _foreign(target, "a clone, which has its own history")
    return IfVersion(version)


def _is_copied(info: RepoInfo, earlier: RepoInfo, tip: bytes, part: RepositoryPart) -> bool:
    """Return whether the tip of a branch of the target is a snapshot of the source, or was made of one."""
    if info.snapshots.find_snapshot(tip) >= 0:
        return True
    text = origin_of(earlier.snapshots.entry(earlier.snapshots.find_snapshot(tip))).get(SOURCE)
    return isinstance(text, str) and flat_id(id_from_text(text), part) == tip


def _foreign(target: Storage, has: str) -> ConflictError:
    return ConflictError(
        message=f"target must be empty or hold an earlier copy of the repository, got {target.label()} "
        f"with {has}. Copy to another storage",
        kind=ErrorKind.REPO_INFO_UPDATED,
    )


def require_empty(target: Storage) -> None:
    """Raise an error if a storage contains a repository, or is a bucket without a prefix."""
    require_prefix(target)
    if target.head(REPO) is not None:
        raise not_empty(target, REPO, is_repository=True)


def with_origin(info: RepoInfo, source: RepoInfo, label: str, part: RepositoryPart) -> RepoInfo:
    """Return the repo info of a clone with the origin in its metadata."""
    branches, tags = refs_of(source, part)
    refs = {
        "branches": {name: id_to_text(id_) for name, id_ in branches.items()},
        "tags": {name: id_to_text(id_) for name, id_ in tags.items()},
    }
    origin = {"storage": label, "at": to_datetime(now_us()).isoformat(), "refs": refs}
    return replace(info, metadata={**info.metadata, ORIGIN: origin})
