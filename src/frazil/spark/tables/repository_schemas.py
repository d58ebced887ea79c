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


_TYPES: Final = {
    "text": pa.string(),
    "texts": pa.list_(pa.string()),
    "number": pa.int64(),
    "numbers": NUMBERS,
    "ratio": pa.float64(),
    "flag": pa.bool_(),
    "time": TIME,
}


def columns(text: str) -> pa.Schema:
    """Return the schema of ``name type, ...``. A column without a type has texts."""
    pairs = [each.split() for each in text.split(",")]
    return pa.schema([(name, _TYPES[kind[0] if kind else "text"]) for name, *kind in pairs])


_SNAPSHOT: Final = "snapshot_id, parent_id, written_at time, message, metadata"
#: Columns of each table. Ids are text as in ``Session.snapshot_id``; metadata is JSON.
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "snapshots": columns(_SNAPSHOT),
    "history": columns(f"position number, {_SNAPSHOT}"),
    "refs": columns("name, type, snapshot_id"),
    "ops": columns(
        "position number, update, updated_at time, name, previous_snapshot_id, new_snapshot_id, details, "
        "backup"
    ),
    "nodes": columns("path, type, node_id, document"),
    "arrays": columns(
        "path, node_id, shape numbers, chunk_shape numbers, num_chunks numbers, dimensions texts, data_type, "
        "fill_value, codecs, attributes, manifests number"
    ),
    "manifests": columns(
        "manifest_id, location, bytes number, references number, path, first_chunk numbers, end_chunk numbers"
    ),
    "chunks": columns(
        "path, chunk numbers, kind, location, offset number, length number, etag, modified_at time"
    ),
    "regions": columns(
        "path, dimension, start number, stop number, chunks number, stored number, fill_ratio ratio, "
        "bytes number, native number, virtual number, inline number"
    ),
    "storage": columns("kind, files number, bytes number"),
    "changes": columns("change, path, from_path, chunk numbers"),
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
