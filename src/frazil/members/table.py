"""The table of a collection: a group with one array of one dimension for each column.

All elements are in memory as they are stored. Each type has an element that means a missing value, so a row
can lack any column. Each change of the table gives its group another ``revision``, so two changes always
conflict. `RowSolver` then makes the changes of one side again on the table of the other side.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, cast, override

import numpy as np
import zarr
import zstandard
from numcodecs.vlen import VLenUTF8  # type: ignore[import-untyped]  # zarr requires it
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.arrays.array import Array, read
from frazil.arrays.encoding import encoding_of
from frazil.cf import Coding, coding_of
from frazil.cf_times import Mask, refused
from frazil.errors import InvalidInputError
from frazil.format.ids import id_to_text
from frazil.format.nodes import Node
from frazil.repository.catalog.version_info import SessionMode
from frazil.repository.ids import new_object_id
from frazil.repository.session.commit import SessionState
from frazil.repository.session.conflicts import (
    Conflict,
    ConflictDetector,
    ConflictSolver,
    RepeatingSolver,
    VersionSelection,
)
from frazil.repository.session.session import Session
from frazil.repository.session.workspace import Workspace
from frazil.zarr_store.array_metadata import array_metadata

#: The name of the group of the table, and the column with the names of members, which is its dimension.
TABLE: Final = "members"
KEY: Final = "member"
#: The attribute of the group of the table that every change replaces.
REVISION: Final = "frazil:revision"
#: The attribute of a column of JSON texts.
JSON: Final = "frazil:json"
#: The rows of a chunk. An appended row stores one chunk of each column anew.
_CHUNK_ROWS: Final = 4096
_LEAST: Final = -(2**63)
_TEXTS: Final = VLenUTF8()
#: The level of compression of texts, that of new arrays of zarr.
_LEVEL: Final = 3
_NAN: Final = "AAAAAAAA+H8="  # as xarray writes it
_TEXT: Final = {"missing_value": ""}
_TIME: Final = {"units": "microseconds since 1970-01-01", "calendar": "proleptic_gregorian"}
#: Type of a column -> the dtype of its array, its missing element, its attributes.
TYPES: Final[Mapping[str, tuple[str, Any, Mapping[str, Any]]]] = {
    "float64": ("float64", np.nan, {"_FillValue": _NAN}),
    "int64": ("int64", _LEAST, {"_FillValue": _LEAST}),
    "string": ("string", "", _TEXT),
    "time": ("int64", _LEAST, _TIME),
    "json": ("string", "", {**_TEXT, JSON: True}),
    "bool": ("bool", False, {}),
}
#: Elements by column.
type Rows = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the coding of its elements, and its array, which a new column does not have yet."""

    name: str
    coding: Coding
    is_json: bool = False
    node: Node | None = None

    @staticmethod
    def of_type(name: str, kind: str) -> Column:
        """Return a new column of one of ``TYPES``."""
        dtype, _, attributes = TYPES[kind]
        native = np.dtypes.StringDType() if dtype == "string" else np.dtype(dtype)
        return Column(name, coding_of(attributes, native), JSON in attributes)

    @staticmethod
    def of_node(node: Node) -> Column:
        """Return the column of an array."""
        document, encoding = json.loads(node.user_data), encoding_of(node.user_data)
        attributes = document.get("attributes", {})
        if document["data_type"] == "string":
            dtype: Any = np.dtypes.StringDType()
        else:
            dtype = (
                array_metadata(node.user_data, "").dtype.to_native_dtype()
                if encoding is None
                else encoding.dtype
            )
        name = node.path.rpartition("/")[2]
        return Column(name, coding_of(attributes, dtype), JSON in attributes, node)

    @property
    def is_text(self) -> bool:
        """Whether the elements are texts."""
        return self.coding.dtype.kind in "OTU"

    @property
    def kind(self) -> str:
        """The type of the column, one of ``TYPES``."""
        if self.is_text:
            return "json" if self.is_json else "string"
        kinds = {"f": "float64", "b": "bool"}
        return "time" if self.coding.is_time else kinds.get(self.coding.dtype.kind, "int64")

    @property
    def missing(self) -> Any:
        """The element that means a missing value; None if there is none."""
        return "" if self.is_text else self.coding.missing_element()

    def is_missing(self, elements: NDArray[Any]) -> Mask:
        """Return which elements mean missing values."""
        missing = np.asarray(elements == "") if self.is_text else self.coding.missing(elements)
        return np.zeros(elements.shape, np.bool_) if missing is None else missing

    def fill(self, count: int) -> NDArray[Any]:
        """Return missing elements."""
        if self.missing is None and count:
            raise InvalidInputError(
                f"the column `{self.name}` must have a value for each member, because a value of the type "
                f"{self.coding.dtype} cannot be missing, got none"
            )
        return np.full(count, 0 if self.missing is None else self.missing, self.coding.dtype)

    def elements(self, values: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
        """Return the elements for values; None, NaN and NaT are missing."""
        what = f"the column `{self.name}`"
        if self.is_json:
            values = ["" if each is None else json.dumps(each) for each in values]
        if self.is_text:
            texts = ["" if each is None or each != each else each for each in values]
            if other := [each for each in texts if not isinstance(each, str)]:
                raise refused(what, "texts", other[0])
            return np.array(texts, self.coding.dtype)
        if not isinstance(values, np.ndarray) or values.dtype.kind == "O":
            given = np.empty(len(values), object)
            given[:] = [_naive(each) for each in values]
            values = given
        if values.dtype.kind == "O" and all(each is None for each in values):
            return self.fill(len(values))
        return self.coding.encode(values, name=what)

    def values(self, elements: NDArray[Any]) -> NDArray[Any]:
        """Return decoded elements: missing numbers are NaN, missing times NaT, missing texts empty."""
        if self.is_text:
            return elements
        values, missing = self.coding.decode(elements)
        if missing is not None and values.dtype.kind in "iu":
            values = values.astype(np.float64)
            values[missing] = np.nan
        return values


def _naive(value: Any) -> Any:
    """Return a time without its zone, in UTC."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def attributes_of(node: Node) -> dict[str, Any]:
    """Return the attributes of a node."""
    attributes: dict[str, Any] = json.loads(node.user_data).get("attributes", {})
    return attributes


def columns_of(session: Session, table: str) -> dict[str, Column]:
    """Return the columns by name: the arrays with the dimension of the table."""
    nodes = (session.workspace.node(f"{table}/{name}") for name in session.workspace.children(table))
    return {
        node.path.rpartition("/")[2]: Column.of_node(node)
        for node in nodes
        if node is not None and node.array is not None and node.array.dimension_names == (KEY,)
    }


def size_of(session: Session, table: str) -> int:
    """Return the number of rows."""
    return int(session.workspace.require_array(f"{table}/{KEY}").array_data.shape[0])


def type_of(values: Sequence[Any] | NDArray[Any]) -> str | None:
    """Return the type of a new column for values; None if all are missing. Numbers are ``float64``."""
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return {"M": "time", "U": "string", "T": "string", "b": "bool"}.get(values.dtype.kind, "float64")
    first = next((each for each in values if each is not None), None)
    if isinstance(first, datetime | np.datetime64) or hasattr(first, "calendar"):
        return "time"
    kinds = {"json": list | tuple | dict, "string": str, "bool": bool | np.bool_, "float64": object}
    return None if first is None else next(kind for kind, of in kinds.items() if isinstance(first, of))


# ---- reads


def read_table(session: Session, table: str, names: Collection[str] | None = None) -> Rows:
    """Return all rows, of all columns or of some. Neighbouring chunks of columns are read together."""
    workspace, size = session.workspace, size_of(session, table)
    nodes = {name: each.node for name, each in columns_of(session, table).items() if each.node is not None}
    for node in nodes.values():
        if (length := node.array_data.shape[0]) != size:
            raise misfit(
                f"the column `{node.path}` must have {size} rows, as `{KEY}` has, got {length}. Write a "
                "value for each member"
            )
    nodes = {name: node for name, node in nodes.items() if names is None or name in names}
    entries = [entry for node in nodes.values() if (entry := workspace.array_entry(node.path)) is not None]
    workspace.manifests(list({id_ for entry in entries for id_ in entry.ids}))
    refs = {name: workspace.ref_table(node.path) for name, node in nodes.items()}
    wanted = [ref for each in refs.values() for row in range(len(each)) if (ref := each.ref(row)) is not None]
    chunks = iter(workspace.reader.read_many([(ref, 0, None) for ref in wanted]))
    rows: Rows = {}
    for name, node in nodes.items():
        parts = [next(chunks) for _ in range(len(refs[name]))]
        elements = _joined(node, refs[name].index[:, 0].tolist(), parts)
        rows[name] = read(session, node.path) if elements is None else elements
    return rows


def _joined(node: Node, index: Sequence[int], chunks: Sequence[Any]) -> NDArray[Any] | None:
    """Return the elements of the chunks of a column; None if only zarr can decode them."""
    size, encoding, length = node.array_data.shape[0], encoding_of(node.user_data), _text_rows(node)
    if encoding is not None and encoding.shards is None and isinstance(encoding.lengths[0], int):
        length, out = encoding.lengths[0], np.full(size, encoding.fill, encoding.dtype)
    elif length:
        out = np.full(size, "", np.dtypes.StringDType())
    else:
        return None
    for at, chunk in zip(index, chunks, strict=True):
        if encoding is None:
            part = _TEXTS.decode(zstandard.ZstdDecompressor().decompress(chunk))
        else:
            data = np.frombuffer(chunk, np.uint8)
            place = np.zeros(1, np.int64), np.full(1, len(data)), encoding.chunk_bytes((length,))
            part = encoding.decoded(encoding.decoder(data, *place), (length,))[0]
        out[at * length : (at + 1) * length] = part[: size - at * length]
    return out


def _text_rows(node: Node) -> int:
    """Return the rows of a chunk of texts that `_joined` decodes; 0 for other chunks."""
    document = json.loads(node.user_data)
    is_plain = [each["name"] for each in document["codecs"]] == ["vlen-utf8", "zstd"]
    grid = document["chunk_grid"]
    return int(grid["configuration"]["chunk_shape"][0]) if is_plain and grid["name"] == "regular" else 0


# ---- changes


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes of a table: rows of new members, new values of rows, and names of rows that go away.

    ``types`` has the types of the columns, for columns that the table does not have.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    added: Rows = field(default_factory=dict)
    replaced: Rows = field(default_factory=dict)
    removed: Sequence[str] = ()

    @staticmethod
    def between(before: Rows, after: Rows, types: Mapping[str, str]) -> RowChanges:
        """Return the changes from one table to another."""
        places = {name: row for row, name in enumerate(before[KEY].tolist())} if before else {}
        names = after[KEY].tolist()
        at = np.array([places.get(name, -1) for name in names], np.int64)
        both = np.flatnonzero(at >= 0)
        is_changed = np.zeros(len(names), np.bool_)
        for name, elements in after.items():
            new = elements[both]
            if name in before:
                old = before[name][at[both]]
            else:
                old = Column.of_type(name, types[name]).fill(len(both))
            is_changed[both] |= (new != old) & ~((new != new) & (old != old))
        removed = sorted(places.keys() - set(names))
        return RowChanges(types, _taken(after, at < 0), _taken(after, is_changed), removed)

    def apply(self, session: Session, table: str) -> None:
        """Make the changes in a session."""
        create_columns(session, table, self.types)
        columns, size = columns_of(session, table), size_of(session, table)
        first, count, rows = size, len(self.added.get(KEY, ())), dict[str, NDArray[Any]]()
        if self.removed or self.replaced:
            rows = read_table(session, table)
            places = {name: row for row, name in enumerate(rows[KEY].tolist())}
            at = [places[name] for name in self.replaced[KEY].tolist()] if self.replaced else []
            gone = [places[name] for name in self.removed if name in places]
            first, size = min([*at, *gone], default=size), size - len(gone)
            for name, column in columns.items() if at else ():
                rows[name][at] = self.replaced[name] if name in self.replaced else column.fill(len(at))
            rows = {name: np.delete(elements, gone)[first:] for name, elements in rows.items()}
        for name, column in columns.items():
            new = self.added[name] if name in self.added else column.fill(count)
            _write(session, column, first, np.concatenate([rows[name], new]) if rows else new, size + count)
        document = json.loads(session.workspace.require_node(table).user_data)
        document["attributes"] = {**document.get("attributes", {}), REVISION: id_to_text(new_object_id())}
        session.workspace.set_node(table, json.dumps(document).encode())


def _write(session: Session, column: Column, first: int, elements: NDArray[Any], size: int) -> None:
    """Write the rows from ``first`` to the end of a column, which then has ``size`` rows."""
    assert column.node is not None
    path, workspace, length = column.node.path, session.workspace, _text_rows(column.node)
    document = json.loads(column.node.user_data)
    (size_before,), document["shape"] = document["shape"], [size]
    grid = document["chunk_grid"]["configuration"].get("chunk_shape")
    if grid and size < size_before:
        stored = workspace.ref_table(path).index
        workspace.delete_refs(path, stored[stored[:, 0] >= -(-size // grid[0])])
    workspace.set_node(path, json.dumps(document).encode())
    if not column.is_text or not length:
        if len(elements):
            Array(session, path)[first:size] = elements
        return
    begin = first // length
    if first % length and (chunk := workspace.read_chunk(path, (begin,))) is not None:
        before = _TEXTS.decode(zstandard.ZstdDecompressor().decompress(memoryview(chunk)))[: first % length]
    else:
        before = np.full(first % length, "", object)
    texts = np.concatenate([before, elements.astype(object)])
    for at in range(0, len(texts), length):
        part = np.full(length, "", object)
        part[: len(texts) - at] = texts[at : at + length]
        data = zstandard.ZstdCompressor(level=_LEVEL).compress(_TEXTS.encode(part))
        workspace.write_chunk(path, (begin + at // length,), data)


def _taken(rows: Rows, mask: Mask) -> Rows:
    return {name: elements[mask] for name, elements in rows.items()} if mask.any() else {}


def create_columns(session: Session, table: str, types: Mapping[str, str]) -> None:
    """Create the columns that a table does not have, with missing values in all rows."""
    workspace = session.workspace
    size = 0 if workspace.node(f"{table}/{KEY}") is None else size_of(session, table)
    for name, kind in types.items():
        if workspace.node(f"{table}/{name}") is not None:
            continue
        Column.of_type(name, kind).fill(size)  # or refuse it
        dtype, fill, attributes = TYPES[kind]
        zarr.create_array(
            session.store,
            name=f"{table}/{name}",
            shape=(size,),
            chunks=(_CHUNK_ROWS,),
            dtype=dtype,
            fill_value=fill,
            attributes={} if name == KEY else dict(attributes),
            dimension_names=(KEY,),
        )


class RowSolver(RepeatingSolver):
    """The solver of a collection: it makes the changes of ours in the table again on that of theirs.

    Args:
        table: The path of the table.
        changes: The changes of ours. Default: the differences between the tables of ours and of base.
        others: Decides all other conflicts. Default: they stay undecided.
    """

    def __init__(
        self, table: str, changes: RowChanges | None = None, others: ConflictSolver | None = None
    ) -> None:
        self._table, self._given, self._others = table, changes, others or ConflictDetector()
        self._changes: RowChanges | None = None

    @override
    def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
        mine = [f"{each.path}/".startswith(f"{self._table}/") for each in conflicts]
        if any(mine):
            self._changes = self._given or self._difference(conflicts[mine.index(True)])
        rest = [each for each, is_row in zip(conflicts, mine, strict=True) if not is_row]
        answers = iter(self._others.solve(rest))
        return [VersionSelection.UseTheirs if is_row else next(answers) for is_row in mine]

    def _difference(self, conflict: Conflict) -> RowChanges:
        before, after = (cast("Session", each.session) for each in (conflict.base, conflict.ours))
        if after.workspace.node(self._table) is None:
            return RowChanges()
        types = {name: each.kind for name, each in columns_of(after, self._table).items()}
        is_new = before.workspace.node(self._table) is None
        rows = {} if is_new else read_table(before, self._table)
        return RowChanges.between(rows, read_table(after, self._table), types)

    @override
    def repeat(self, workspace: Workspace) -> None:
        changes, self._changes = self._changes, None
        if changes is not None:
            own = workspace.own_changes().without_below(workspace.start, {self._table})
            # zarr writes in a thread of its own, which must not wait for the lock of the commit.
            scratch = Workspace(workspace.context, workspace.snapshot_id, changes=own)
            changes.apply(Session(SessionState(scratch, "", SessionMode.writable, sys.maxsize)), self._table)
            workspace.rebase_onto(workspace.snapshot_id, scratch.durable_changes())
