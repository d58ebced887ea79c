"""The source and the target of a job, and the inputs that its commit records.

    Version    one snapshot of a repository, and its branch: jobs accept and return versions
    Target     a repository, a branch, and a group: a job writes there
    Input      a version of some arrays, as the metadata of a commit record it (lineage)

An ``Input`` has a digest of the ids of the nodes, their metadata and their manifests. The digest changes only
if a commit changes these nodes, but not with other commits.
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

    Attributes:
        repo: The repository.
        snapshot_id: The id of the snapshot.
        branch: The branch on which the snapshot was found; None for a snapshot by tag or id.

    >>> import frazil
    >>> from frazil.pipeline import Version
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> version = Version.of(repo)
    >>> version.branch, version.place() == f"{repo.lookup_branch('main')} on main"
    ('main', True)
    >>> version.session().read_only, version.input(["/"]).paths
    (True, ('/',))
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
        """Return the version of a branch, a tag or a snapshot.

        Args:
            source: A `Repository`, or a `Version`, which is returned without changes.
            branch: The branch whose tip is the version. Default: ``main``.
            tag: The tag whose snapshot is the version, instead of a branch.
            snapshot_id: The id of the snapshot, instead of a branch or tag.

        Returns:
            The version.

        Raises:
            TypeError: If ``source`` is neither a repository nor a version.
            RefNotFoundError: If there is no such branch or tag.
        """
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
        """Return the snapshot and the branch as text.

        Returns:
            The id of the snapshot, and ``on BRANCH`` if the version has a branch.
        """
        return self.snapshot_id if self.branch is None else brief(f"{self.snapshot_id} on {self.branch}")

    def session(self) -> Session:
        """Return a read-only session on the snapshot.

        Returns:
            The session.
        """
        return self.repo.readonly_session(snapshot_id=self.snapshot_id)

    def input(self, paths: Sequence[str] = ("/",)) -> Input:
        """Return nodes of the version as an input of a job.

        Args:
            paths: The paths of the nodes. All nodes below them are part of the input. Default: the root.

        Returns:
            The input, with a digest of the nodes.
        """
        return Input(
            address(self.repo.storage),
            self.branch,
            self.snapshot_id,
            tuple(paths),
            digest(self.session(), paths),
        )


type Source = Repository | Version

#: The beginning of the address of a local folder.
_LOCAL: Final = "local filesystem, path "
_PLACES: Final = frozenset({"source", "to", "repo", "target", "session"})


def takes_versions[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Return an operation that first checks the types of its source and target, or raises ``TypeError``."""
    return checked(function, _PLACES)


@dataclass(frozen=True, slots=True)
class Target:
    """The place where a job writes.

    Args:
        repo: The repository.
        branch: The branch that the job commits to. It must exist. Default: ``main``.
        group: The path of the group below which the job writes. Default: the root group.

    Raises:
        TypeError: If an argument has the wrong type.
    """

    repo: Repository
    branch: str = "main"
    group: str = "/"

    def __post_init__(self) -> None:
        check_fields(self)

    def path(self, name: str) -> str:
        """Return the absolute path of a node below the group.

        Args:
            name: The path of the node, relative to the group.

        Returns:
            The absolute path.

        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> Target(repo, group="/clean").path("air/t2m"), Target(repo).path("/air/t2m")
        ('/clean/air/t2m', '/air/t2m')
        """
        return "/" + "/".join(filter(None, [self.group.strip("/"), name.strip("/")]))


@dataclass(frozen=True, slots=True)
class Input:
    """Nodes that a job has read, as the metadata of its commit record them.

    Attributes:
        repository: The address of the repository, without secrets.
        branch: The branch of the version; None for a version by tag or id.
        snapshot: The id of the snapshot.
        paths: The paths of the nodes. All nodes below them are part of the input.
        digest: A hash of the nodes. It changes if a commit changes one of them.

    >>> from frazil.pipeline import Input
    >>> Input("in-memory", "main", "1CECHNKREP0F1RSTCMT0", ("/air",), "00").as_json()["paths"]
    ['/air']
    """

    repository: str
    branch: str | None
    snapshot: str
    paths: tuple[str, ...]
    digest: str

    def as_json(self) -> dict[str, Any]:
        """Return the input as a dict of values that JSON can hold.

        Returns:
            The fields by name.
        """
        return {**asdict(self), "paths": list(self.paths)}


def digest(session: Session, paths: Sequence[str]) -> str:
    """Return a hash of nodes and all nodes below them. Other data or metadata have another hash."""
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


def without_folders(address: str) -> str:
    """Return an address for the metadata of commits: of a local folder only its name, and a hash of its path.

    Readers of a repository need not know the folders of the machine that wrote it.

    >>> without_folders("local filesystem, path /data/climate")
    'local filesystem, climate (541dd005)'
    >>> without_folders("in-memory")
    'in-memory'
    """
    path = address.removeprefix(_LOCAL)
    if path == address:
        return address
    name = path.rstrip("/").rpartition("/")[2]
    return f"local filesystem, {name} ({hashlib.sha256(path.encode()).hexdigest()[:8]})"


def same_storage(source: Version, target: Target) -> bool:
    """Return whether source and target are the same storage, even if it was opened twice."""
    one, other = source.repo.storage, target.repo.storage
    # All storages in memory have the same address.
    return one is other or (address(one) == address(other) != "in-memory")


def address(storage: Storage) -> str:
    """Return the address of a storage as one line without secrets.

    >>> import frazil
    >>> address(frazil.local_filesystem_storage("/tmp/climate"))
    'local filesystem, path /tmp/climate'
    """
    return storage_label(storage)
