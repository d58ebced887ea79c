"""The names of the options of the data source, their aliases, and advice for unknown names.

The name of an option may be in upper or lower case, with ``_`` instead of ``-``, or without both:
``snapshotId`` is ``snapshot-id``. ``_ALIASES`` has the names that Iceberg and Delta use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructType

from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.tables.location import PLACE_OPTIONS, VERSION_OPTIONS, Options

#: The name of the options of a table in the metadata of its first column.
TABLE_OPTIONS: Final = "frazil"

_VERSIONS: Final = frozenset(VERSION_OPTIONS)
_PLACE: Final = PLACE_OPTIONS - _VERSIONS
_ROWS: Final = _VERSIONS | {
    *("group", "variables", "arrays", "columns", "where", "cf", "calendar"),
    *("partitions", "rows-per-partition", "block-rows"),
}
_FEED: Final = frozenset(
    {
        "branch",
        "stream-from",
        "stream-from-timestamp",
        "stream-max-commits",
        "stream-max-rows",
        "stream-fail-on-data-loss",
    }
)
#: The options of each value of the option `table`, besides those of the place.
TABLES: Final[Mapping[str, frozenset[str]]] = {
    "snapshots": frozenset(),
    "history": _VERSIONS,
    "refs": frozenset(),
    "ops": frozenset(),
    "nodes": _VERSIONS,
    "arrays": _VERSIONS,
    "manifests": _VERSIONS,
    "chunks": _VERSIONS | {"array"},
    "regions": _VERSIONS | {"array", "slab"},
    "storage": frozenset(),
    "changes": _VERSIONS | {"start", "end"},
    "row_changes": _ROWS | {"start", "end", "net-changes"},
    "feed": _FEED,
}
_WRITING: Final = frozenset({"branch", "group", "write", "dims", "append-dim", "chunks", "message"})
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})  # for a stream


@dataclass(frozen=True, slots=True)
class Use:
    """A use of the data source, and the options for it."""

    verb: str
    options: frozenset[str]


#: Rows of arrays.
ROWS: Final = Use("reading rows", _PLACE | _ROWS | {"include-missing", "batch-rows"})
READ: Final = Use("reading", ROWS.options.union({"table"}, *TABLES.values()) - (_FEED - {"branch"}))
WRITE: Final = Use("writing", _PLACE | _WRITING | {"merge-schema", "job-id"})
STREAM: Final = Use("a stream of commits", _PLACE | _FEED | _OF_SPARK | {"table"})
SINK: Final = Use(
    "writing a stream", _PLACE | _WRITING | _OF_SPARK | {"duplicates", "txnappid", "merge-schema"}
)
_ALL: Final = READ.options | WRITE.options | STREAM.options | SINK.options


def use_of_table(table: str) -> Use:
    """Return the use of a table about a repository, which the option `table` names."""
    return Use(f"the table {table}", _PLACE | TABLES[table] | {"table"})


#: Names of other data sources, letters and digits only -> option.
_ALIASES: Final[Mapping[str, str]] = {
    "versionasof": "version",
    "timestampasof": "as-of-timestamp",
}

#: Option of other data sources, letters and digits only -> advice.
_FOREIGN: Final[Mapping[str, str]] = {
    "asof": "use `as-of-timestamp`",
    "snapshot": "use `snapshot-id`",
    "ref": "use `version`, `branch` or `tag`",
    "startsnapshotid": "use `start`, with the option `table` and the value `row_changes` or `changes`",
    "endsnapshotid": "use `end`, with the option `table` and the value `row_changes` or `changes`",
    "startingversion": "for a query, set `start` to the version before the first change, with the value "
    "`row_changes` of the option `table`; for a stream, use `stream-from` with the value `feed`",
    "endingversion": "use `end`, with the option `table` and the value `row_changes`",
    "startingtimestamp": "for a query, set `start` to a version, with the value `row_changes` of the option "
    "`table`; for a stream, use `stream-from-timestamp` with the value `feed`",
    "streamfromtimestampms": "use `stream-from-timestamp`",
    "maxfilespertrigger": "use `stream-max-commits`",
    "maxbytespertrigger": "use `stream-max-rows`",
    "readchangefeed": "use the option `table` with the value `row_changes`",
    "readchangedata": "use the option `table` with the value `row_changes`",
    "pushdown": "use `where`, which belongs to one relation. If Spark passed on the conditions of one query, "
    "they would also apply to other queries of the same relation",
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


def canonical(query: Options) -> dict[str, str]:
    """Return options under their own names; unknown names stay.

    Raises ``InvalidInputError`` (``conflicting-arguments``) for two names of one option.
    """
    names: dict[str, str] = {}
    for each in query:
        name = _canonical_name(each.lower())
        if name in names:
            raise InvalidInputError(
                f"An option must be set once, got `{names[name]}` and `{each}`, which are names of `{name}`",
                ErrorKind.CONFLICTING_ARGUMENTS,
            )
        names[name] = each
    return {name: query[each] for name, each in names.items()}


def _canonical_name(name: str) -> str:
    letters = _letters(name)
    return name if name in _ALL else _ALIASES.get(letters) or _BY_LETTERS.get(letters, name)


def is_option(name: str) -> bool:
    """Return whether the data source has an option of this name."""
    return name in _ALL


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name))


_BY_LETTERS: Final = {_letters(name): name for name in sorted(_ALL)}


def options_of(query: Options, use: Use, schema: StructType | None = None) -> dict[str, str]:
    """Return the options of a reader or writer: those of the query, or those in the schema of a table.

    A table of the catalog may also have options of another ``use``, because it is read and written. Raises
    ``InvalidInputError`` for an unknown option, for an option that the use ignores (``invalid-argument``),
    and for an option under two names (``conflicting-arguments``).
    """
    # A catalog passes each option of a table twice, and adds its own options.
    options = canonical({name.lower().removeprefix("option."): value for name, value in query.items()})
    of_query = set() if "provider" in options else options.keys() - {"path"}
    if "provider" in options:
        # A table with a profile has no path. Its catalog adds the path of a folder that it manages.
        unused = {"path"} if "profile" in options else set()
        options = {name: value for name, value in options.items() if name in _ALL - unused}
    if options.keys().isdisjoint({"path", "profile"}) and schema is not None:
        metadata = (field.metadata or {} for field in schema.fields)
        stored = next((each[TABLE_OPTIONS] for each in metadata if TABLE_OPTIONS in each), None)
        if stored is not None:
            options = with_defaults(options, json.loads(stored))
    unknown = sorted(options.keys() - _ALL)
    if unknown:
        raise InvalidInputError("; ".join(advice(name, use) for name in unknown), ErrorKind.INVALID_ARGUMENT)
    _require_used(of_query, options, use)
    return options


def _require_used(of_query: Iterable[str], options: Options, use: Use) -> None:
    """Raise ``InvalidInputError`` (``invalid-argument``) for an option of the query that the use ignores."""
    if use is READ:
        table = options.get("table")
        if table is not None and table not in TABLES:
            return  # the table raises its own error
        use = ROWS if table is None else use_of_table(table)
        if "end" in options:
            use = Use(f"{use.verb} with `end`", use.options - _VERSIONS)
    ignored = sorted(set(of_query) - use.options)
    if not ignored:
        return
    other = [name for name, each in TABLES.items() if ignored[0] in each and not use.options >= each]
    of_table = f". The option belongs to `table` = {' or '.join(other)}" if other and use is ROWS else ""
    raise InvalidInputError(
        f"{', '.join(f'`{name}`' for name in ignored)} {'has' if len(ignored) == 1 else 'have'} no effect in "
        f"{use.verb}{of_table}. Its options are those of the place, "
        f"and {', '.join(sorted(use.options - _PLACE))}",
        ErrorKind.INVALID_ARGUMENT,
    )


def with_defaults(options: Options, defaults: Options) -> dict[str, str]:
    """Return options with defaults. Options that name a version replace all defaults that name one."""
    replaced = VERSION_OPTIONS if not options.keys().isdisjoint(VERSION_OPTIONS) else ()
    return {**{name: value for name, value in defaults.items() if name not in replaced}, **options}


def advice(name: str, use: Use) -> str:
    """Return a message about an unknown option."""
    instead = _FOREIGN.get(_letters(name.lower()))
    if instead is not None:
        return f"unknown option `{name}`: {instead}"
    near = suggest(name, sorted(use.options)) or suggest(name, sorted(_ALL))
    listing = f"; the options for {use.verb} are {', '.join(sorted(use.options))}"
    return f"unknown option `{name}`{near or listing}"
