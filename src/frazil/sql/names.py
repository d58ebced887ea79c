"""Which table a name means: a group or an array of a repository at one version, or a table about it.

    repository [. group [. group ...]] [. array] [. branch_NAME | . tag_NAME] [. snapshots | . history | ...]

A part in quotes may be a path with slashes. A node comes before the other meanings of a part: a group that is
named ``history`` hides the table. With a namespace (``USE``), a name without its repository is looked up in
the namespace, if no repository has the name of its first part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.arguments import misfit
from frazil.arrow.grid import Grid, Selection, grid_of
from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError, NodeNotFoundError
from frazil.format.ids import id_to_text
from frazil.handle.repository import Repository, context_of
from frazil.jobs.job import Input, Target, Version
from frazil.repository.catalog.ancestry import version_id
from frazil.repository.paths import HIDDEN
from frazil.repository.session.session import Session
from frazil.spark.tables.repository_tables import SCHEMAS
from frazil.spark.tables.repository_tables import table as repository_table

_REFS: Final = {"branch_": "branch", "tag_": "tag"}
#: The attribute of a group with the order of the columns of its table.
COLUMN_ORDER: Final = "column_order"
_BLOCK_ROWS: Final = Selection().block_rows
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The table that a name means. ``metadata`` is the name of a table about the repository.

    ``variables`` is the array that the name ends with, if any.
    """

    name: str
    version: Version
    group: str
    variables: tuple[str, ...] = ()
    metadata: str | None = None

    @property
    def selection(self) -> Selection:
        """The arrays whose rows the table has."""
        return Selection(self.group, self.variables)

    @property
    def session(self) -> Session:
        """A session that reads the version."""
        return self.version.session()

    def grid(self, block_rows: int = _BLOCK_ROWS) -> Grid:
        """Return the columns and dimensions of the table. CREATE TABLE stores the order of its columns."""
        session = self.session
        grid = grid_of(session, replace(self.selection, block_rows=block_rows))
        node = session.workspace.require_node(self.group)
        order = json.loads(node.user_data).get("attributes", {}).get(COLUMN_ORDER, [])
        places = {name: place for place, name in enumerate(order)}
        columns = sorted(grid.columns, key=lambda each: places.get(each.name, len(places)))
        return replace(grid, columns=tuple(columns))

    def target(self) -> Target:
        """Return the place that a statement writes. Raise ``InvalidInputError`` if nothing can be written."""
        if self.version.branch is None or self.metadata is not None:
            what = (
                "an old version" if self.metadata is None else f"the table {self.metadata} about a repository"
            )
            raise InvalidInputError(
                f"A statement must write a table of a branch, got `{self.name}`, which is {what}",
                ErrorKind.NOT_ALLOWED,
            )
        return Target(self.version.repo, self.version.branch, self.group)

    def arrays(self) -> list[str]:
        """Return the names of the arrays directly in the group."""
        workspace = self.session.workspace
        if workspace.node(self.group) is None:
            return []
        paths = (
            (name, workspace.node(f"{self.group.rstrip('/')}/{name}"))
            for name in workspace.children(self.group)
        )
        return [name for name, node in paths if node is not None and node.array is not None]

    def input(self) -> Input:
        """Return the arrays of the group as an input of a job: a commit checks that they have not changed."""
        return self.version.input([f"{self.group.rstrip('/')}/{name}" for name in self.arrays()])


@dataclass(slots=True)
class Namespace:
    """The repositories of a catalog by name, and what ``USE`` has set: a repository and a path in it.

    ``version`` is the version of names without one: the keyword and the value of `Version.of`. ``aliases``
    are names of paths in the namespace.
    """

    repositories: Mapping[str, Repository]
    current: str | None = None
    path: str = "/"
    version: Mapping[str, str] = field(default_factory=lambda: {"branch": "main"})
    aliases: Mapping[str, str] = field(default_factory=dict)

    def repository(self, name: str) -> str | None:
        """Return the name of a repository, which may be in upper or lower case."""
        return _chosen(name, list(self.repositories))


def _chosen(name: str, names: Sequence[str]) -> str | None:
    """Return the name itself, or the only one that differs in upper and lower case."""
    loose = [each for each in names if each.lower() == name.lower()]
    return name if name in names else loose[0] if len(loose) == 1 else None


class Lookup:
    """Finds the tables of one statement. All names see one snapshot of each version."""

    def __init__(self, names: Namespace) -> None:
        self.names = names
        self._versions: dict[tuple[Any, ...], Version] = {}

    def version(self, repository: str, **version: Any) -> Version:
        """Return a version of a repository: see `Version.of`. ``at`` is a branch, a tag, an id or a time."""
        key = (repository, *version.items())
        if key not in self._versions:
            repo = self.names.repositories[repository]
            if "at" in version:
                info = context_of(repo).catalog.repo_info()
                version = {"snapshot_id": id_to_text(version_id(info, version["at"]))}
            if "as_of" in version:
                when = _EPOCH + timedelta(microseconds=version.pop("as_of"))
                session = repo.readonly_session(version.get("branch", "main"), as_of=when)
                version = {"snapshot_id": session.snapshot_id}
            self._versions[key] = Version.of(repo, **version)
        return self._versions[key]

    def knows(self, parts: Sequence[str]) -> bool:
        """Return whether a name is one of the catalog."""
        return self.names.current is not None or self.names.repository(parts[0]) is not None

    def require(self, parts: Sequence[str]) -> TablePlace:
        """Return the table of a name of the catalog."""
        place = self.find(parts, writes=True)
        if place is None:
            raise NodeNotFoundError(f"`{'.'.join(parts)}` must be a table of the catalog, got another name")
        return place

    def namespace(self, parts: Sequence[str]) -> tuple[str, str]:
        """Return the repository and the path of a namespace."""
        repository = self.names.repository(parts[0])
        rest = list(parts) if repository is None else list(parts[1:])
        name = self.only(repository)
        path = self._node(self.version(name, **self.names.version), "/", rest)
        if path is None:
            raise NodeNotFoundError(f"`{'.'.join(parts)}` must be a group of `{name}`, got none of this name")
        return name, path

    def only(self, repository: str | None, place: TablePlace | None = None) -> str:
        """Return the repository that is given, that has a table, that is in use, or that is the only one."""
        every = self.names.repositories
        if place is not None:
            repository = next(name for name, each in every.items() if each is place.version.repo)
        repository = repository or self.names.current or (next(iter(every)) if len(every) == 1 else None)
        if repository is None:
            raise InvalidInputError(f"A statement must name one of {', '.join(every)}, got no repository")
        return repository

    def find(
        self, parts: Sequence[str], *, new: bool = False, writes: bool = False, **version: Any
    ) -> TablePlace | None:
        """Return the table of a name; None if the name is not one of the catalog.

        A ``new`` table need not exist. In a namespace, a statement that ``writes`` a name of one part goes
        nowhere else. ``version`` is that of the statement (`version`).

        Raises ``NodeNotFoundError`` for a name of the catalog without a table.
        """
        alias = _chosen(parts[0], list(self.names.aliases)) if len(parts) == 1 else None
        if alias is not None and self.names.current is not None:
            return self._found(self.names.current, self.names.aliases[alias], [], parts, new, version)
        repository = self.names.repository(parts[0])
        inner = [each for part in parts for each in part.split("/") if each]
        if repository is not None:
            return self._found(repository, "/", inner[1:], parts, new, version)
        if self.names.current is None:
            return None
        required = new or (writes and len(parts) == 1)
        return self._found(self.names.current, self.names.path, inner, parts, new, version, required)

    def _found(
        self,
        repository: str,
        path: str,
        inner: Sequence[str],
        parts: Sequence[str],
        new: bool,
        version: Mapping[str, Any],
        required: bool = True,
    ) -> TablePlace | None:
        name, rest, metadata = ".".join(parts), list(inner), None
        at = self.version(repository, **(version or self.names.version))
        node = self._node(at, path, rest)
        if node is None and rest and rest[-1].lower() in SCHEMAS:
            metadata = rest.pop().lower()
            node = self._node(at, path, rest)
        if node is None and rest:
            prefix = next((each for each in _REFS if rest[-1].startswith(each)), None)
            if prefix is not None:
                ref = rest.pop().removeprefix(prefix)
                if version:
                    raise misfit(
                        f"A name must have one version, got `{name}` with VERSION or TIMESTAMP AS OF"
                    )
                at = self.version(repository, **{_REFS[prefix]: ref})
                node = self._node(at, path, rest)
        if node is None and new and metadata is None:
            return TablePlace(name, at, "/" + "/".join(filter(None, [path.strip("/"), *rest])))
        if node is None:
            if not required:
                return None
            tables = self.tables(repository, at)
            raise NodeNotFoundError(
                f"`{name}` must be a table of `{repository}`, got no group or array of this name"
                f"{suggest(name, tables) or '.'} The tables are {', '.join(tables[:20]) or 'none yet'}"
            )
        if at.session().workspace.require_node(node).array is None:
            return TablePlace(name, at, node, metadata=metadata)
        group, _, array = node.rpartition("/")
        return TablePlace(name, at, group or "/", (array,), metadata)

    @staticmethod
    def _node(version: Version, path: str, inner: Sequence[str]) -> str | None:
        """Return the path of a node below another one; in upper or lower case."""
        workspace = version.session().workspace
        for each in inner:
            above = path.rstrip("/")
            if workspace.node(f"{above}/{each}") is not None:
                path = f"{above}/{each}"
                continue
            name = _chosen(each, list(workspace.children(path)))
            if name is None:
                return None
            path = f"{above}/{name}"
        node = workspace.node(path)
        # A coordinate is a column of the table of its group.
        is_coordinate = (
            node is not None
            and node.array is not None
            and node.array.dimension_names == (path.rpartition("/")[2],)
        )
        return path if node is not None and not is_coordinate else None

    def tables(self, repository: str, version: Version | None = None, path: str = "/") -> list[str]:
        """Return the names of the groups with arrays at and below a path, as a statement writes them."""
        version = self.version(repository, **self.names.version) if version is None else version
        nodes = version.session().workspace.snapshot.nodes
        arrays = [
            each for each in nodes.select_nodes(nodes.is_array).paths_list() if f"/{HIDDEN}" not in each
        ]
        groups = dict.fromkeys(each.rpartition("/")[0] or "/" for each in sorted(arrays))
        inside = path.rstrip("/") + "/"
        return [
            ".".join([repository, *filter(None, each.split("/"))])
            for each in groups
            if each == path or each.startswith(inside)
        ]


def metadata_rows(place: TablePlace, table: str) -> pa.Table:
    """Return a table about the repository of a table."""
    return repository_table(place.version.repo, {"table": table, "snapshot-id": place.version.snapshot_id})
