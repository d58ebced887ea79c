"""`frazil.Collection`: groups of unlike shapes, and the table that describes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frazil.answers.conditions import Predicate, ValueComparison, parse
from frazil.arguments import checks_arguments, wrong_type
from frazil.display import counted, suggest
from frazil.errors import (
    AlreadyExistsError,
    ErrorKind,
    InvalidInputError,
    NodeNotFoundError,
    ValidationFailedError,
)
from frazil.extras import needs
from frazil.handle.repository import Repository
from frazil.members.schema import checked_schema, misfits, require_columns
from frazil.members.table import (
    KEY,
    TABLE,
    Column,
    RowChanges,
    Rows,
    RowSolver,
    attributes_of,
    columns_of,
    create_columns,
    read_table,
    size_of,
    type_of,
)
from frazil.repository.paths import HIDDEN, absolute
from frazil.repository.session.conflicts import ConflictSolver
from frazil.repository.session.session import Session, state_of
from frazil.repository.target import MAIN

with needs("frazil.Collection", extra="xarray"):
    import xarray as xr
    import zarr

    from frazil.members import stac
    from frazil.members.extent import BOX, TIME, box_of, crs_of, normal_box, overlaps, time_of
    from frazil.xarray import to_icechunk

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it ships no types
    import pystac

#: The attribute of the group of a collection, and the version of the layout.
CONVENTION: Final = "frazil:collection"
_VERSION: Final = 1
#: The columns of all collections.
_COLUMNS: Final = {
    KEY: "string",
    **dict.fromkeys(BOX, "float64"),
    **dict.fromkeys(TIME, "time"),
    **dict.fromkeys(("crs", "shape", "variables"), "string"),
}


@dataclass(frozen=True, slots=True)
class _Member:
    """A new member: its dataset, its name, and the values of columns. None: those of the dataset."""

    dataset: Any
    name: str
    bbox: Sequence[float] | None = None
    time: Any = None
    crs: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(arguments: Mapping[str, Any]) -> _Member:
        """Return the member of the arguments of `Collection.add`."""
        own = {each.name for each in fields(_Member)} - {"columns"}
        columns = {name: value for name, value in arguments.items() if name not in own}
        return _Member(**{name: arguments[name] for name in own & arguments.keys()}, columns=columns)


@dataclass(frozen=True, slots=True, repr=False)
class Members:
    """Members of a collection, with their rows of its table: the result of `Collection.where`.

    Attributes:
        names: The names, as texts.
        columns: The other columns by name, in the order of the names. Missing numbers are NaN, missing times
            NaT, missing texts empty. Columns without a condition are read at the first use of one of them.
        session: The session that reads the version.
        path: The path of the collection.

    Examples:
        >>> import frazil, numpy as np, xarray as xr
        >>> scenes = frazil.Collection.create(frazil.Repository.create(frazil.in_memory_storage()), "scenes")
        >>> snapshot = scenes.add(xr.Dataset({"b": ("y", np.ones(2))}), name="a", cloud=3)
        >>> members = scenes.where("cloud < 10")
        >>> list(members), members.columns["cloud"].tolist(), members.open("a").sizes["y"]
        (['a'], [3.0], 2)
        >>> members.to_pandas().loc["a", "shape"]
        'y=2'
    """

    names: NDArray[Any]
    columns: Mapping[str, NDArray[Any]]
    session: Session
    path: str

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names.tolist())

    def __repr__(self) -> str:
        return f"<frazil.Members: {counted(len(self), 'member')} of {self.path}>"

    def open(self, name: str, **options: Any) -> xr.Dataset:
        """Return the dataset of a member.

        Args:
            name: The name of the member.
            **options: Options of ``xarray.open_zarr``, such as ``chunks``. Default: lazy arrays without Dask.

        Returns:
            The dataset.

        Raises:
            NodeNotFoundError: There is no such member.
        """
        path = _path_of(self.path, name)
        if self.session.workspace.node(path) is None:
            raise NodeNotFoundError(f"`{self.path}` has no member `{name}`{suggest(name, self)}")
        options = {"chunks": None, **options}
        dataset: xr.Dataset = xr.open_zarr(
            self.session.store, group=path, consolidated=False, zarr_format=3, **options
        )
        return dataset

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a data frame.

        Returns:
            The rows, with the names as index.
        """
        columns = {name: ("member", each) for name, each in self.columns.items()}
        return xr.Dataset(columns, {KEY: self.names.astype(object)}).to_dataframe()


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """The table of one version. Each column is read once."""

    session: Session
    path: str
    columns: Mapping[str, Column]
    rows: Rows = field(default_factory=dict)

    def read(self, names: Iterable[str]) -> Rows:
        """Return some columns."""
        chosen = list(names)
        if missing := set(chosen) - self.rows.keys():
            self.rows.update(read_table(self.session, self.path, missing))
        return {name: self.rows[name] for name in chosen}


@dataclass(frozen=True, slots=True, eq=False)
class _ChosenColumns(Mapping[str, NDArray[Any]]):
    """The columns of the rows in a mask. The first use of one reads all that are missing."""

    table: _Table
    names: tuple[str, ...]
    mask: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.names:
            raise KeyError(name)
        if name not in self.table.rows:
            self.table.read(self.names)
        return self.table.columns[name].values(self.table.rows[name][self.mask])


@checks_arguments
class Collection:
    """A group whose members are groups of their own shapes, and one table that describes the members.

    The table is the group ``members`` of the collection, with one array for each column. xarray, SQL and the
    reference read it as any group. `Collection.create` makes a collection.

    A method that changes a collection makes one commit of groups and rows if the source is a repository. In
    a session it makes no commit: ``session.commit("...", rebase_with=collection.solver)``. Two writers that
    add different members at the same time both succeed.

    Args:
        source: A `Repository`, or a `Session` on any version.
        path: The path of the collection. Default: the root.
        branch: The branch of a repository. Default: ``main``.

    Raises:
        NodeNotFoundError: There is no group at the path.
        InvalidInputError: ``invalid-array-metadata`` if the group is no collection, or of a newer layout.

    Examples:
        >>> import frazil, numpy as np, xarray as xr, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> scenes = frazil.Collection.create(repo, "/scenes")
        >>> scene = xr.Dataset({"red": (("lat", "lon"), np.ones((2, 2)))},
        ...                    {"lat": [50.0, 51.0], "lon": [8.0, 9.0], "time": np.datetime64("2024-05-01")})
        >>> snapshot = scenes.add(scene, name="S2A_1", cloud=4.5)
        >>> list(scenes.where("cloud < 10 AND time >= '2024-01-01'", bbox=(8, 50, 10, 52)))
        ['S2A_1']
        >>> snapshot = scenes.add_many({"dataset": scene, "name": name} for name in ("S2A_2", "S2A_3"))
        >>> snapshot = scenes.replace(scene, name="S2A_2", cloud=50)
        >>> snapshot = scenes.remove("S2A_3")
        >>> scenes.open("S2A_2").sizes["lat"], len(scenes), scenes.check()
        (2, 2, {})
        >>> item = {"id": "S2B_1", "properties": {"datetime": "2024-06-01T10:00:00Z", "platform": "S2B"}}
        >>> snapshot = scenes.add_stac(item, scene.drop_vars("time"))
        >>> [each.id for each in scenes.to_stac(scenes.where("platform = 'S2B'"))]
        ['S2B_1']
        >>> with repo.transaction("main", message="by zarr") as store:
        ...     group = zarr.create_group(store, path="scenes/raw")
        >>> snapshot = scenes.add_rows({"member": ["raw"]})
    """

    def __init__(self, source: Repository | Session, path: str = "/", *, branch: str = MAIN) -> None:
        self._source, self._branch = source, branch
        self._path = absolute(path)
        self._table = _path_of(self._path, TABLE)
        self._cache: _Table | None = None
        self._document(self._reading())

    @classmethod
    def create(
        cls,
        source: Repository | Session,
        path: str = "/",
        *,
        schema: Mapping[str, Any] | None = None,
        branch: str = MAIN,
    ) -> Collection:
        """Create a collection without members. The group may exist, with other arrays and groups.

        Args:
            source: As for the class.
            path: As for the class.
            schema: What the members and their rows must have: a mapping with ``columns`` (types by name:
                ``float64``, ``int64``, ``string``, ``time``, ``bool``, ``json``), ``required`` (names of
                columns without missing values), ``variables`` (by name: ``dims``, ``dtype``,
                ``attributes``), ``attributes`` (of the group of a member) and ``rules`` (of
                `frazil.pipeline.validate`, with paths in the member). Default: everything is allowed.
            branch: As for the class.

        Returns:
            The collection.

        Raises:
            AlreadyExistsError: There is a collection, or a node with the path of the table.
            InvalidInputError: The schema has an unknown part.
        """
        path, checked = absolute(path), checked_schema(schema)
        table = _path_of(path, TABLE)

        def work(session: Session) -> None:
            if session.workspace.node(table) is not None:
                raise AlreadyExistsError(f"the path `{table}` must be free for the table, got a node there")
            document = {CONVENTION: {"version": _VERSION, "table": TABLE, "schema": checked}}
            zarr.open_group(session.store, path=path.strip("/"), mode="a").update_attributes(document)
            zarr.create_group(session.store, path=table.strip("/"))
            create_columns(session, table, {**_COLUMNS, **checked.get("columns", {})})

        _change(source, branch, work, f"Create the collection {path}")
        return cls(source, path, branch=branch)

    def __repr__(self) -> str:
        return f"<frazil.Collection {self._path}, {counted(len(self), 'member')}>"

    def __len__(self) -> int:
        return size_of(self._reading(), self._table)

    @property
    def path(self) -> str:
        """The path of the collection."""
        return self._path

    @property
    def schema(self) -> dict[str, Any]:
        """The schema, as a copy; empty without one."""
        schema: dict[str, Any] = self._document(self._reading()).get("schema", {})
        return schema

    @property
    def solver(self) -> ConflictSolver:
        """The solver for a commit of a session, and for ``Repository.merge``: rows of both sides stay.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> scenes = frazil.Collection.create(repo)
            >>> repo.create_branch("dev", "main")
            >>> tip = repo.merge("dev", solver=scenes.solver)
        """
        return RowSolver(self._table)

    # ---- changes

    def add(
        self,
        dataset: xr.Dataset | xr.DataArray | xr.DataTree,
        *,
        name: str,
        bbox: Sequence[float] | None = None,
        time: Any = None,
        crs: str | None = None,
        message: str | None = None,
        **columns: Any,
    ) -> str | None:
        """Add a member: its group and its row, in one commit.

        Args:
            dataset: The dataset of the member.
            name: The name of the member, which is the path of its group in the collection.
            bbox: (west, south, east, north) in degrees. Default: of the coordinates, by the CF conventions.
            time: A time, or the first and the last. Default: of the coordinate of time.
            crs: The coordinate system. Default: of the dataset, such as ``EPSG:32633``.
            message: The message of the commit. Default: ``Add NAME to PATH``.
            **columns: Values of other columns: numbers, texts, times, booleans; lists and mappings become
                JSON. A new column is missing in the rows of other members. Booleans cannot be missing, so the
                first member decides whether there is a column of booleans.

        Returns:
            The id of the new snapshot; None in a session.

        Raises:
            AlreadyExistsError: There is a member, or another node, of this name.
            ValidationFailedError: The member does not fit the schema.
            InvalidInputError: A column does not fit, or the box or the times of the dataset are not clear.
        """
        member = _Member(dataset, name, bbox, time, crs, columns)
        return self._change([member], False, message or f"Add {name} to {self._path}")

    def add_many(self, members: Iterable[Mapping[str, Any]], *, message: str | None = None) -> str | None:
        """Add members in one commit.

        Args:
            members: For each member a mapping with the arguments of `add`, which may be computed on demand.
            message: The message of the commit. Default: ``Add members to PATH``.

        Returns:
            The id of the new snapshot; None in a session.
        """
        return self._change(map(_Member.of, members), False, message or f"Add members to {self._path}")

    def replace(
        self,
        dataset: xr.Dataset | xr.DataArray | xr.DataTree,
        *,
        name: str,
        message: str | None = None,
        **columns: Any,
    ) -> str | None:
        """Replace the group and the row of a member, in one commit.

        Args:
            dataset: As for `add`.
            name: The name of the member, which must exist.
            message: As for `add`.
            **columns: As for `add`, with ``bbox``, ``time`` and ``crs``. No value of the old row stays.

        Returns:
            The id of the new snapshot; None in a session.

        Raises:
            NodeNotFoundError: There is no such member.
        """
        member = _Member.of({"dataset": dataset, "name": name, **columns})
        return self._change([member], True, message or f"Replace {name} in {self._path}")

    def add_rows(self, columns: Mapping[str, ArrayLike], *, message: str | None = None) -> str | None:
        """Add rows of members whose groups exist, such as those of an ingest, in one commit.

        Args:
            columns: The values of columns by name, with the names of the groups as ``member``.
            message: The message of the commit. Default: ``Describe members of PATH``.

        Returns:
            The id of the new snapshot; None in a session.

        Raises:
            NodeNotFoundError: There is no group of this name.
            AlreadyExistsError: A member has a row already.
        """

        def work(session: Session) -> RowChanges:
            values = {name: np.asarray(each) for name, each in columns.items()}
            names = [str(each) for each in values.get(KEY, ())]
            nodes = set(session.workspace.node_table().paths_list())
            if lost := next((each for each in names if _path_of(self._path, each) not in nodes), None):
                raise NodeNotFoundError(f"`{self._path}` must have a group `{lost}`, got none")
            known = set(read_table(session, self._table, [KEY])[KEY].tolist())
            if again := next((each for each in names if each in known), None) or len(names) - len({*names}):
                raise AlreadyExistsError(f"a member must have one row, got another one for `{again}`")
            self._require_fit(session, names)
            return self._encoded(session, values)

        text = message or f"Describe members of {self._path}"
        return _change(self._source, self._branch, work, text, self._table)

    def remove(self, *names: str, message: str | None = None) -> str | None:
        """Remove the groups and the rows of members, in one commit.

        Args:
            *names: The names. A group without a row, or a row without a group, is removed too.
            message: The message of the commit. Default: ``Remove NAMES from PATH``.

        Returns:
            The id of the new snapshot; None in a session.

        Raises:
            NodeNotFoundError: There is no such member.
        """

        def work(session: Session) -> RowChanges:
            known = set(read_table(session, self._table, [KEY])[KEY].tolist())
            for name in names:
                path = _path_of(self._path, name)
                if session.workspace.node(path) is None and name not in known:
                    raise NodeNotFoundError(f"`{self._path}` has no member `{name}`{suggest(name, known)}")
                session.workspace.delete_node(path)
            return RowChanges(removed=names)

        text = message or f"Remove {', '.join(names)} from {self._path}"
        return _change(self._source, self._branch, work, text, self._table)

    def _change(self, members: Iterable[_Member], replaces: bool, message: str) -> str | None:
        def work(session: Session) -> RowChanges:
            rows = [self._write(session, replaces, each) for each in members]
            names = dict.fromkeys(chain.from_iterable(rows))
            changes = self._encoded(session, {name: [each.get(name) for each in rows] for name in names})
            return RowChanges(changes.types, replaced=changes.added) if replaces else changes

        return _change(self._source, self._branch, work, message, self._table)

    def _write(self, session: Session, replaces: bool, member: _Member) -> dict[str, Any]:
        """Write the group of a member. Return its row."""
        dataset, name = member.dataset, member.name
        if names := sorted(member.columns.keys() & _COLUMNS.keys()):
            raise InvalidInputError(
                f"values of other columns must not be named {', '.join(_COLUMNS)}, got `{names[0]}`. The "
                "dataset and the arguments `name`, `bbox`, `time` and `crs` decide these columns. Rename "
                "such a property of an item"
            )
        path, above = _path_of(self._path, name), name.split("/")[:-1]
        parents = {"/".join(above[: end + 1]) for end in range(len(above))}
        if parents and (known := parents & set(read_table(session, self._table, [KEY])[KEY].tolist())):
            raise AlreadyExistsError(
                f"a member must not be in another member, got {name!r} in {known.pop()!r}"
            )
        if name.partition("/")[0] == TABLE:
            raise AlreadyExistsError(
                f"a name must not begin with `{TABLE}`, which is the table, got {name!r}"
            )
        if replaces != (session.workspace.node(path) is not None):
            if replaces:
                raise NodeNotFoundError(f"`{self._path}` must have the member `{name}` to replace, got none")
            raise AlreadyExistsError(f"a member must have a new name, got {name!r}. Replace or remove it")
        to_icechunk(dataset, session, group=path, mode="w" if replaces else "w-")
        self._require_fit(session, [name])
        if isinstance(dataset, xr.DataTree):
            dataset = dataset.to_dataset()
        elif isinstance(dataset, xr.DataArray):
            dataset = dataset.to_dataset(name=dataset.name or "data")
        crs = crs_of(dataset) if member.crs is None else member.crs
        box = box_of(dataset, crs) if member.bbox is None else normal_box(member.bbox)
        moments = time_of(dataset) if member.time is None else member.time
        first, last = moments if isinstance(moments, tuple | list) else (moments, moments)
        row = {KEY: name, **dict(zip(BOX, box or [None] * 4, strict=True)), "time": first, "time_end": last}
        shape = " ".join(f"{dim}={size}" for dim, size in dataset.sizes.items())
        variables = " ".join(map(str, dataset.data_vars))
        return {**row, "crs": crs, "shape": shape, "variables": variables, **member.columns}

    def _encoded(self, session: Session, values: Mapping[str, Any]) -> RowChanges:
        """Return new rows as elements. Values of new columns decide their types."""
        present, schema = columns_of(session, self._table), self._document(session).get("schema", {})
        require_columns(schema, values, present)
        rows, types = {}, {}
        for name, each in values.items():
            kind = type_of(each)
            if name not in present and kind is not None:
                types[name] = kind
            column = present.get(name) or (None if kind is None else Column.of_type(name, kind))
            if column is not None:
                _path_of(self._table, name)
                rows[name] = column.elements(each)
                if name in schema.get("required", ()) and column.is_missing(rows[name]).any():
                    raise InvalidInputError(
                        f"the column `{name}` must have a value for each member, got none"
                    )
        if lost := set(schema.get("required", ())) - rows.keys():
            raise InvalidInputError(f"a member must have a value of the column `{lost.pop()}`, got none")
        return RowChanges(types, rows)

    def _require_fit(self, session: Session, names: Iterable[str]) -> None:
        schema = self._document(session).get("schema", {})
        for name in names if schema else ():
            if found := list(misfits(schema, session, _path_of(self._path, name))):
                raise ValidationFailedError(
                    f"the member `{name}` must fit the schema of `{self._path}`: {'; '.join(found)}", found
                )

    # ---- reads

    def where(
        self, condition: str | None = None, *, bbox: Sequence[float] | None = None, time: Any = None
    ) -> Members:
        """Return the members whose rows meet all conditions.

        Args:
            condition: A condition on columns, such as ``"cloud < 10 AND time >= '2024-01-01'"``. Names with
                other characters than letters, digits, ``_`` and ``.`` are in backticks. A missing value
                meets only ``IS NULL``.
            bbox: (west, south, east, north) in degrees, which the box of a member must touch. Longitudes are
                -180 to 180 or 0 to 360. The west may be larger than the east.
            time: A time, or a first and a last time, which the interval of a member must touch. None is an
                open end.

        Returns:
            The members, in the order of the table.

        Raises:
            InvalidInputError: ``invalid-argument`` for a condition that cannot be parsed, or for an unknown
                column.
        """
        session = self._reading()
        self._document(session)
        table = self._table_of(session)
        columns, names = table.columns, {KEY, *(BOX if bbox is not None else ())}
        conditions: list[Predicate] = [] if condition is None else [parse(condition, has_columns=True)]
        if time is not None:
            first, last = time if isinstance(time, tuple | list) else (time, time)
            tests = [("<=", last, TIME[0]), (">=", first, TIME[1])]
            conditions += [ValueComparison(op, each, name) for op, each, name in tests if each is not None]

        def typed(test: ValueComparison) -> Predicate:
            if test.column not in columns:
                raise InvalidInputError(
                    f"a condition must have columns of {', '.join(columns)}, got {test.column!r}"
                    f"{suggest(test.column, columns)}"
                )
            names.add(test.column)
            coding = columns[test.column].coding
            dtype = np.dtype("M8[us]") if coding.is_time else coding.number_dtype
            return test.typed(dtype, name=f"the column `{test.column}`")

        def met(test: ValueComparison) -> Any:
            elements, column = rows[test.column], columns[test.column]
            return test.is_met(column.values(elements), column.is_missing(elements))

        conditions = [each.each(typed) for each in conditions]
        # A session that can write may have other rows at the first use of a column.
        rows = table.read(names if session.read_only else columns)
        mask = np.ones(len(rows[KEY]), np.bool_)
        for each in conditions:
            mask &= each.fold(met)
        if bbox is not None:
            mask &= overlaps([rows[side] for side in BOX], normal_box(bbox))
        others = tuple(name for name in columns if name != KEY)
        chosen = _ChosenColumns(table, others, mask)
        return Members(columns[KEY].values(rows[KEY][mask]), chosen, session, self._path)

    def open(self, name: str, **options: Any) -> xr.Dataset:
        """Return the dataset of a member.

        Args:
            name: The name of the member.
            **options: See `Members.open`.

        Returns:
            The dataset.
        """
        return Members(np.zeros(0, "U"), {}, self._reading(), self._path).open(name, **options)

    def check(self) -> dict[str, list[str]]:
        """Return the members that are not as the collection says, with what is wrong.

        Others, such as programs that use only zarr, can write groups without rows, rows without groups, and
        members that do not fit the schema. `add_rows` and `remove` correct them.

        Returns:
            What is wrong, by the name of the member. Empty if all is well.
        """
        session, found = self._reading(), dict[str, list[str]]()
        schema = self._document(session).get("schema", {})
        names, counts = np.unique(
            read_table(session, self._table, [KEY])[KEY].astype(object), return_counts=True
        )
        rows = set(names.tolist())
        nodes, inside = session.workspace.node_table(), f"{self._path.rstrip('/')}/"
        arrays = nodes.select_nodes(nodes.is_array).paths_list()
        parents = {each.rpartition("/")[0] for each in arrays if each.startswith(inside)}
        groups = {each[len(inside) :] for each in parents if each.startswith(inside)}
        for name in sorted(groups - rows):
            parts = name.split("/")
            parents = {"/".join(parts[:end]) for end in range(1, len(parts))}
            if name and parts[0] not in (TABLE, HIDDEN) and not parents & (rows | groups):
                found[name] = ["expected a row of the table, found only the group"]
        known = set(nodes.paths_list())
        for name, count in zip(names.tolist(), counts.tolist(), strict=True):
            path = f"{self._path.rstrip('/')}/{name}"
            problems = [] if count == 1 else [f"expected one row of the table, found {count}"]
            problems += (
                list(misfits(schema, session, path))
                if path in known
                else ["expected a group, found only the row"]
            )
            if problems:
                found[name] = problems
        return found

    # ---- STAC

    def to_stac(self, members: Members | None = None) -> pystac.ItemCollection:
        """Return members as items of STAC.

        The asset ``data`` of an item has the address of its group, with the version. Columns are properties.

        Args:
            members: The members. Default: all.

        Returns:
            An ``ItemCollection`` of pystac.

        Raises:
            InvalidInputError: A member has no time, which STAC requires.
            MissingExtraError: pystac is not installed.
        """
        chosen = self.where() if members is None else members
        table = self._table_of(chosen.session)
        columns, rows = table.columns, table.read(table.columns)
        is_chosen = np.isin(rows[KEY], chosen.names)
        chosen_rows = {name: each[is_chosen] for name, each in rows.items() if name != KEY}
        names = rows[KEY][is_chosen].tolist()
        return stac.items_of(chosen.session, self._path, names, chosen_rows, columns)

    def add_stac(
        self, item: pystac.Item | Mapping[str, Any], dataset: xr.Dataset, **columns: Any
    ) -> str | None:
        """Add a member with the name, the box, the times and the properties of an item of STAC.

        Args:
            item: The item, as an object of pystac or as JSON.
            dataset: The dataset of the member.
            **columns: Further arguments of `add`, which come before those of the item.

        Returns:
            The id of the new snapshot; None in a session.

        Raises:
            InvalidInputError: A property has the name of a column that each collection has, or the item has
                neither ``datetime`` nor ``start_datetime`` and ``end_datetime``, and ``time`` is not set.
        """
        own, properties = stac.arguments_of(item, columns.get("time"))
        message = columns.pop("message", None)
        member = _Member.of({"dataset": dataset, **own, **columns})
        member = replace(member, columns={**properties, **member.columns})
        return self._change([member], False, message or f"Add {member.name} to {self._path}")

    # ---- internal

    def _reading(self) -> Session:
        source = self._source
        return source if isinstance(source, Session) else source.readonly_session(self._branch)

    def _document(self, session: Session) -> dict[str, Any]:
        node = session.workspace.require_node(self._path)
        document = attributes_of(node).get(CONVENTION)
        if not isinstance(document, dict) or document.get("version") != _VERSION:
            raise InvalidInputError(
                f"`{self._path}` must be a collection of the layout {_VERSION}, got "
                f"{json.dumps(document)[:100] if document else 'another group'}. Collection.create makes one",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        return document

    def _table_of(self, session: Session) -> _Table:
        """Return the table, whose columns are cached for one version."""
        table = self._cache
        has_changes, id_ = session.has_uncommitted_changes, session.snapshot_id
        if has_changes or table is None or table.session.snapshot_id != id_:
            table = _Table(session, self._table, columns_of(session, self._table))
        if not has_changes:
            self._cache = table
        return table


def _path_of(collection: str, name: str) -> str:
    """Return the path of a member. Raises ``InvalidInputError`` for a name that is no path."""
    path = f"{collection.rstrip('/')}/{name}"
    if absolute(path) != path or not name:
        raise InvalidInputError(
            f"a name must be a path without slashes at its ends, got {name!r}", ErrorKind.INVALID_PATH
        )
    return path


def _change(
    source: Repository | Session,
    branch: str,
    work: Callable[[Session], RowChanges | None],
    message: str,
    table: str = "",
) -> str | None:
    """Do work, and make the changes of rows that it returns: in a fork of a session, or as one commit."""
    if not isinstance(source, Repository | Session):
        raise wrong_type("source", source, "Repository", "Session")
    if isinstance(source, Session):
        source.require_writable()
        fork = source.fork()
        if (changes := work(fork)) is not None:
            changes.apply(fork, table)
        source.merge(fork)
        return None
    session = source.writable_session(branch)
    state_of(session).has_tried = True  # an error says that there is no commit
    if (changes := work(session)) is None:
        return session.commit(message)
    changes.apply(session, table)
    return session.commit(message, rebase_with=RowSolver(table, changes))
