"""What a job reads and what it writes: versions of arrays, in words that can be kept in a commit.

    Version    one snapshot of a repository, and the branch it was found on: what jobs take and return
    Target     where a job writes: a repository, a branch, a group in it
    Input      a version of some arrays as it is recorded in the metadata of the commit (lineage)

An ``Input`` has a digest of what was read: the ids of the nodes, their metadata and their manifests. It is
the same as long as nobody changes these arrays, whatever else is committed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

import numpy as np

from frazil.arguments import check_fields, checked, wrong_type
from frazil.display import Shown
from frazil.jobs.summary import Summary, brief
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session
from frazil.storage.base import Storage, storage_label


@dataclass(frozen=True, slots=True, repr=False)
class Version(Summary):
    """One snapshot of a repository.

    >>> import frazil
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> version = Version.of(repo)
    >>> version.branch, version.snapshot_id == repo.lookup_branch("main")
    ('main', True)
    """

    repo: Repository
    snapshot_id: str
    branch: str | None = None

    shown_as: ClassVar[str] = "pipeline.Version"

    @staticmethod
    def of(
        source: Source,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
    ) -> Version:
        """The version that somebody means: the tip of ``main`` unless told otherwise."""
        if isinstance(source, Version):
            return source
        if not isinstance(source, Repository):
            raise wrong_type("source", source, "Repository", "Version")
        if branch is None and tag is None and snapshot_id is None:
            branch = "main"
        session = source.readonly_session(branch, tag=tag, snapshot_id=snapshot_id)
        return Version(source, session.snapshot_id, branch)

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "snapshot", self.place()
        yield "repository", brief(address(self.repo.storage))

    def place(self) -> str:
        """The snapshot and the branch, in one line."""
        return self.snapshot_id if self.branch is None else brief(f"{self.snapshot_id} on {self.branch}")

    def session(self) -> Session:
        """A session that reads it."""
        return self.repo.readonly_session(snapshot_id=self.snapshot_id)

    def input(self, paths: Sequence[str] = ("/",)) -> Input:
        """These nodes, and all that is below them, for the record."""
        return Input(
            address(self.repo.storage),
            self.branch,
            self.snapshot_id,
            tuple(paths),
            digest(self.session(), paths),
        )


type Source = Repository | Version

_PLACES: Final = frozenset({"source", "to", "repo", "target", "session"})


def takes_versions[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """An operation that first checks what it reads and where it writes; ``TypeError``."""
    return checked(function, _PLACES)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a job writes: below ``group``, on ``branch``, which has to be there."""

    repo: Repository
    branch: str = "main"
    group: str = "/"

    def __post_init__(self) -> None:
        check_fields(self)

    def path(self, name: str) -> str:
        """The path of something below the group.

        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> Target(repo, group="/clean").path("air/t2m"), Target(repo).path("/air/t2m")
        ('/clean/air/t2m', '/air/t2m')
        """
        return "/" + "/".join(filter(None, [self.group.strip("/"), name.strip("/")]))


@dataclass(frozen=True, slots=True)
class Input:
    """Arrays that a job has read, in words."""

    repository: str
    branch: str | None
    snapshot: str
    paths: tuple[str, ...]
    digest: str

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "paths": list(self.paths)}


def digest(session: Session, paths: Sequence[str]) -> str:
    """A hash of nodes and all that is below them, as committed: other data or metadata, another hash."""
    nodes = session.workspace.snapshot.nodes
    hashed, numbers = hashlib.sha256(), np.arange(len(nodes))
    for path in sorted({"/" + path.strip("/") for path in paths}):
        row, below = nodes.find_node(path), nodes.below(path)
        rows = np.r_[[row] if row >= 0 else [], numbers[below]].astype(np.int64)
        some = nodes.select_nodes(rows)
        hashed.update(path.encode() + some.ids.tobytes())
        for column in (some.paths, some.user_data, some.manifests, some.extents):
            hashed.update(column.lengths.tobytes() + column.compact().values.tobytes())
    return hashed.hexdigest()[:32]


def same_storage(source: Version, target: Target) -> bool:
    """Whether both are in one place, opened once or twice."""
    one, other = source.repo.storage, target.repo.storage
    # In the memory of a process there are many places without a name.
    return one is other or (address(one) == address(other) != "in-memory")


def address(storage: Storage) -> str:
    """Where a storage is, in one line without secrets.

    >>> import frazil
    >>> address(frazil.local_filesystem_storage("/tmp/climate"))
    'local filesystem, path /tmp/climate'
    """
    return storage_label(storage)
