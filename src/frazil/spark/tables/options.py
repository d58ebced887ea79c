"""The names of the options of the data source, and advice for unknown ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructType

from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.tables.location import PLACE_OPTIONS, Options

#: The name of the options of a table in the metadata of its first column.
TABLE_OPTIONS: Final = "frazil"

_VERSIONS: Final = frozenset({"tag", "snapshot-id", "as-of-timestamp"})
_READING: Final = frozenset(
    {
        "group",
        "variables",
        "arrays",
        "columns",
        "where",
        "cf",
        "calendar",
        "include-missing",
        "partitions",
        "rows-per-partition",
        "batch-rows",
        "block-rows",
        "table",
        "start",
        "end",
        "array",
        "slab",
    }
)
_WRITING: Final = frozenset(
    {
        "group",
        "write",
        "dims",
        "append-dim",
        "chunks",
        "duplicates",
        "message",
        "job-id",
        "txnappid",
        "query-name",
    }
)
_STREAMING: Final = frozenset(
    {
        "table",
        "stream-from",
        "stream-from-timestamp",
        "stream-max-commits",
        "stream-max-rows",
        "stream-fail-on-data-loss",
    }
)
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})  # for a stream
_ALL: Final = PLACE_OPTIONS | _READING | _WRITING | _STREAMING | _OF_SPARK

#: Option of other data sources, letters and digits only -> advice.
_FOREIGN: Final[Mapping[str, str]] = {
    "versionasof": "use `tag` or `snapshot-id`",
    "timestampasof": "use `as-of-timestamp`",
    "asoftimestamp": "use `as-of-timestamp`",
    "asof": "use `as-of-timestamp`",
    "snapshot": "use `snapshot-id`",
    "version": "use `tag`, `branch` or `snapshot-id`",
    "ref": "use `branch` or `tag`",
    "startsnapshotid": "use `start`, with the option `table`",
    "endsnapshotid": "use `end`, with the option `table`",
    "startingversion": "use `stream-from`",
    "startingtimestamp": "use `stream-from-timestamp`",
    "streamfromtimestampms": "use `stream-from-timestamp`",
    "maxfilespertrigger": "use `stream-max-commits`",
    "maxbytespertrigger": "use `stream-max-rows`",
    "readchangefeed": "use the option `table` with the value `changes`",
    "readchangedata": "use the option `table` with the value `changes`",
    "pushdown": "use `where`, which belongs to one relation. If Spark passed on the conditions of one query, "
    "they would also apply to other queries of the same relation",
    "mergeschema": "use frazil.spark.write_table to write new columns",
    "overwriteschema": "delete the arrays first, and write them again",
    "replacewhere": 'mode("overwrite") replaces the box around the rows',
    "partitionoverwritemode": 'mode("overwrite") replaces the box around the rows',
    "partitionby": "use `chunks`",
    "userMetadata".lower(): "use `message`",
    "paths": "a relation has one path: read each repository separately, and combine them with union",
    "accesskey": "use `access-key-id`",
    "awsaccesskeyid": "use `access-key-id`",
    "fss3aaccesskey": "use `access-key-id`",
    "secretkey": "use `secret-access-key`",
    "awssecretaccesskey": "use `secret-access-key`",
    "fss3asecretkey": "use `secret-access-key`",
    "awssessiontoken": "use `session-token`",
    "endpoint": "use `endpoint-url`",
    "fss3aendpoint": "use `endpoint-url`",
}


@dataclass(frozen=True, slots=True)
class Use:
    """A use of the data source, and the options for it."""

    verb: str
    options: frozenset[str]


READ: Final = Use("reading", PLACE_OPTIONS | _READING)
WRITE: Final = Use("writing", (PLACE_OPTIONS - _VERSIONS) | _WRITING)
STREAM: Final = Use("a stream", (PLACE_OPTIONS - _VERSIONS) | _STREAMING)


def options_of(query: Options, use: Use, schema: StructType | None = None) -> dict[str, str]:
    """Return the options of a reader or writer: those of the query, or those in the schema of a table.

    Options of another ``use`` are allowed, because a table has options for reading and for writing. Raises
    ``InvalidInputError`` (``invalid-argument``) for an unknown option.
    """
    # A catalog passes each option of a table twice, and adds its own options.
    options = {name.lower().removeprefix("option."): value for name, value in query.items()}
    if "provider" in options:
        options = {name: value for name, value in options.items() if name in _ALL}
    if "path" not in options and schema is not None:
        metadata = (field.metadata or {} for field in schema.fields)
        stored = next((each[TABLE_OPTIONS] for each in metadata if TABLE_OPTIONS in each), None)
        if stored is not None:
            options = {**json.loads(stored), **options}
    unknown = sorted(options.keys() - _ALL)
    if unknown:
        raise InvalidInputError("; ".join(advice(name, use) for name in unknown), ErrorKind.INVALID_ARGUMENT)
    return options


def advice(name: str, use: Use) -> str:
    """Return a message about an unknown option.

    >>> advice("versionasof", READ), advice("brunch", WRITE), advice("snapshot_id", READ)
    ('unknown option `versionasof`: use `tag` or `snapshot-id`', \
'unknown option `brunch`. Did you mean `branch`?', 'unknown option `snapshot_id`: use `snapshot-id`')
    """
    letters = "".join(filter(str.isalnum, name))
    same = next((each for each in _ALL if each.replace("-", "") == letters), None)
    instead = _FOREIGN.get(letters) if same is None else f"use `{same}`"
    if instead is not None:
        return f"unknown option `{name}`: {instead}"
    near = suggest(name, sorted(use.options)) or suggest(name, sorted(_ALL))
    listing = f"; the options for {use.verb} are {', '.join(sorted(use.options))}"
    return f"unknown option `{name}`{near or listing}"
