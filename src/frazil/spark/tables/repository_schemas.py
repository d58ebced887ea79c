"""The columns of the tables about a repository."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError

TIME: Final = pa.timestamp("us", "UTC")
NUMBERS: Final = pa.list_(pa.int64())


#: The table of rows of arrays, whose columns are those of the arrays.
ROW_CHANGES: Final = "row_changes"


def _schema(**fields: pa.DataType) -> pa.Schema:
    return pa.schema(list(fields.items()))


#: Columns of each table. Ids are text as in ``Session.snapshot_id``; metadata is JSON.
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "snapshots": _schema(
        snapshot_id=pa.string(),
        parent_id=pa.string(),
        written_at=TIME,
        message=pa.string(),
        metadata=pa.string(),
    ),
    "history": _schema(
        position=pa.int64(),
        snapshot_id=pa.string(),
        parent_id=pa.string(),
        written_at=TIME,
        message=pa.string(),
        metadata=pa.string(),
    ),
    "refs": _schema(name=pa.string(), type=pa.string(), snapshot_id=pa.string()),
    "ops": _schema(
        position=pa.int64(),
        operation=pa.string(),
        updated_at=TIME,
        name=pa.string(),
        previous_snapshot_id=pa.string(),
        new_snapshot_id=pa.string(),
        details=pa.string(),
        backup=pa.string(),
    ),
    "nodes": _schema(path=pa.string(), type=pa.string(), node_id=pa.string(), document=pa.string()),
    "arrays": _schema(
        path=pa.string(),
        node_id=pa.string(),
        shape=NUMBERS,
        chunk_shape=NUMBERS,
        num_chunks=NUMBERS,
        dimensions=pa.list_(pa.string()),
        data_type=pa.string(),
        fill_value=pa.string(),
        codecs=pa.string(),
        attributes=pa.string(),
        manifests=pa.int64(),
    ),
    "manifests": _schema(
        manifest_id=pa.string(),
        location=pa.string(),
        bytes=pa.int64(),
        references=pa.int64(),
        path=pa.string(),
        first_chunk=NUMBERS,
        end_chunk=NUMBERS,
    ),
    "chunks": _schema(
        path=pa.string(),
        chunk=NUMBERS,
        kind=pa.string(),
        location=pa.string(),
        offset=pa.int64(),
        length=pa.int64(),
        etag=pa.string(),
        modified_at=TIME,
    ),
    "regions": _schema(
        path=pa.string(),
        dimension=pa.string(),
        start=pa.int64(),
        stop=pa.int64(),
        chunks=pa.int64(),
        stored=pa.int64(),
        fill_ratio=pa.float64(),
        bytes=pa.int64(),
        native=pa.int64(),
        virtual=pa.int64(),
        inline=pa.int64(),
    ),
    "storage": _schema(kind=pa.string(), files=pa.int64(), bytes=pa.int64()),
    "changes": _schema(change=pa.string(), path=pa.string(), from_path=pa.string(), chunk=NUMBERS),
}


def schema_of(name: str) -> pa.Schema:
    """Return the columns of a table. Raise ``InvalidInputError`` for an unknown name."""
    if name not in SCHEMAS:
        names = [*SCHEMAS, ROW_CHANGES]
        raise InvalidInputError(
            f"Option `table` must be one of {', '.join(names)}, got {name!r}{suggest(name, names)}",
            ErrorKind.UNKNOWN_CHOICE,
        )
    return SCHEMAS[name]
