"""The options of the data source as text: the repository, the version, and profiles of options.

docs/sql-reference.md lists the options. The name of an option may be in upper or lower case, with ``_``
instead of ``-``, or without both: ``snapshotId`` is ``snapshot-id``. Options are part of a query's plan, and
Spark keeps the options of a table in its catalog, except those in ``SECRET``.

A profile is a name of a location, with defaults of options: ``spark.frazil.profile.climate.location`` is the
location of the path ``climate``. Spark makes a folder of the path of a table in its catalog, so a table needs
the option ``profile``. Profiles of Spark's configuration come before those of the profile file. A process of
an executor has neither: so `register` reads both, and the data source and the functions carry the profiles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from frazil.arguments import conflicting, require_choice
from frazil.display import suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.handle.opening import HandleOptions, open_current
from frazil.handle.repository import Repository, context_of
from frazil.handle.sessions import readonly_session_of
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_changes import find_snapshot, no_version, require_snapshot
from frazil.repository.session.session import Session
from frazil.storage import Storage
from frazil.storage.access import anonymous_access, environment_access
from frazil.storage.profiles import is_name, profile_in, profile_of, tables
from frazil.storage.urls import OPTION_NAMES, SECRET_OPTION_NAMES, parse_url

if TYPE_CHECKING:  # tables about a repository need no pyspark
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

type Options = Mapping[str, str]

#: Options with secrets, which are never saved.
SECRET: Final = frozenset(name.replace("_", "-") for name in SECRET_OPTION_NAMES)
_STORAGE: Final = frozenset(name.replace("_", "-") for name in OPTION_NAMES)
#: The options that name a version.
VERSION_OPTIONS: Final = ("branch", "tag", "snapshot-id", "as-of-timestamp", "version")
#: The options that name a repository.
LOCATION: Final = frozenset({"path", "profile"})
#: The options of `repository_at` and `session_at`.
PLACE_OPTIONS: Final = _STORAGE | frozenset(
    {*LOCATION, "authorize-virtual", "virtual-credentials", *VERSION_OPTIONS}
)


def storage_at(options: Options) -> Storage:
    """Return the storage that ``path`` and its options name."""
    named = {name: value for name, value in options.items() if name in _STORAGE}
    try:
        return parse_url(options.get("path", "")).storage(named)
    except InvalidInputError as error:
        if error.kind != ErrorKind.CANNOT_PARSE_URL:
            raise
        raise InvalidInputError(f"Option `path`: {error}", error.kind) from error


def repository_at(options: Options) -> Repository:
    """Return the repository that the options name. Raise ``RepositoryNotFoundError`` if it does not exist."""
    return Repository(_opened(options)[0])


def _opened(options: Options) -> tuple[Context, RepoInfo]:
    access = _ACCESS[choice(options, "virtual-credentials", tuple(_ACCESS))]
    authorized = {prefix: access(prefix) for prefix in listed(options, "authorize-virtual")}
    return open_current(storage_at(options), HandleOptions(authorized=authorized or None))


#: Values of the option `virtual-credentials`.
_ACCESS: Final = {"anonymous": anonymous_access, "environment": environment_access}


def open_session_at(options: Options) -> Session:
    """Return a session of `session_at` for the repository of the options. It reads the file ``repo`` once."""
    return _session_of(*_opened(options), options)


def session_at(repo: Repository, options: Options) -> Session:
    """Return a session that reads the version that the options name."""
    context = context_of(repo)
    return _session_of(context, context.catalog.repo_info(), options)


def _session_of(context: Context, info: RepoInfo, options: Options) -> Session:
    entries = {name: options[name] for name in VERSION_OPTIONS if name in options}
    at = entries.pop("as-of-timestamp", None)
    if len(entries) > 1 or (at is not None and entries.keys() - {"branch"}):
        raise conflicting(
            "The version must be one of the options branch, tag, snapshot-id and version, or as-of-timestamp "
            f"with a branch, got {', '.join(sorted(name for name in VERSION_OPTIONS if name in options))}"
        )
    if "version" in entries:
        entries = {"snapshot-id": _snapshot_in(info, entries["version"])}
    as_of = None if at is None else timestamp(at, "as-of-timestamp")
    version = {name.replace("-", "_"): value for name, value in (entries or {"branch": "main"}).items()}
    return readonly_session_of(context, info, **version, as_of=as_of)


def snapshot_named(repo: Repository, name: str) -> str:
    """Return the snapshot id for a branch, a tag, a snapshot id, or the first characters of an id."""
    return _snapshot_in(context_of(repo).catalog.repo_info(), name)


def _snapshot_in(info: RepoInfo, name: str) -> str:
    id_ = find_snapshot(name, lambda: info)
    if id_ is None:
        raise no_version(info, name)
    require_snapshot(info, id_)
    return id_to_text(id_)


def require_branch(options: Options) -> str:
    """Return the branch of a stream or a writer."""
    keys = [name for name in VERSION_OPTIONS if name in options and name != "branch"]
    if keys:
        raise InvalidInputError(f"Writers and streams need the option `branch`, got {', '.join(keys)}")
    return options.get("branch", "main")


def timestamp(text: str, name: str) -> datetime:
    """Return the time of an option."""
    try:
        if text.strip().isdigit():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        when = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInputError(
            f"Option `{name}` must be a time in ISO 8601 or milliseconds since 1970, got {text!r}"
        ) from error
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when


def flag(options: Options, name: str, default: bool) -> bool:
    """Return an option that is true or false."""
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InvalidInputError(f"Option `{name}` must be true or false, got {text!r}")
    return text.lower() == "true"


def listed(options: Options, name: str) -> list[str]:
    """Return the names in an option, which commas separate."""
    return [each.strip() for each in options.get(name, "").split(",") if each.strip()]


def count(options: Options, name: str) -> int | None:
    """Return an option that is a number of at least 1, or None if it is not set."""
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise InvalidInputError(f"Option `{name}` must be a whole number of at least 1, got {text!r}")
    return int(text)


def choice(options: Options, name: str, choices: tuple[str, ...]) -> str:
    """Return an option that is one of a few words; the default is the first word."""
    text = options.get(name, choices[0]).lower()
    require_choice(f"Option `{name}`", text, choices)
    return text


#: The name of the options of a table in the metadata of its columns.
TABLE_OPTIONS: Final = "frazil"

_VERSIONS: Final = frozenset(VERSION_OPTIONS)
_PLACE: Final = PLACE_OPTIONS - _VERSIONS
_ROWS: Final = _VERSIONS | {
    *("group", "variables", "arrays", "columns", "where", "cf", "calendar"),
    *("partitions", "rows-per-partition", "block-rows"),
}
_FEED: Final = frozenset(
    {
        *("branch", "stream-from", "stream-from-timestamp"),
        *("stream-max-commits", "stream-max-rows", "stream-fail-on-data-loss"),
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
    "derived": _VERSIONS,
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
_ALIASES: Final[Mapping[str, str]] = {"versionasof": "version", "timestampasof": "as-of-timestamp"}

_CHANGES: Final = "with the option `table` and the value `row_changes` or `changes`"
#: Advice -> options of other data sources, letters and digits only.
_ADVICE: Final[Mapping[str, str]] = {
    "use `as-of-timestamp`": "asof",
    "use `snapshot-id`": "snapshot",
    "use `version`, `branch` or `tag`": "ref",
    f"use `start`, {_CHANGES}": "startsnapshotid",
    f"use `end`, {_CHANGES}": "endsnapshotid endingversion",
    "for a query, set `start` to the version before the first change, with the value `row_changes` of the "
    "option `table`; for a stream, use `stream-from` with the value `feed`": "startingversion",
    "for a query, set `start` to a version, with the value `row_changes` of the option `table`; for a "
    "stream, use `stream-from-timestamp` with the value `feed`": "startingtimestamp",
    "use `stream-from-timestamp`": "streamfromtimestampms",
    "use `stream-max-commits`": "maxfilespertrigger",
    "use `stream-max-rows`": "maxbytespertrigger",
    "use the option `table` with the value `row_changes`": "readchangefeed readchangedata",
    "use `where`, which belongs to one relation. If Spark passed on the conditions of one query, they would "
    "also apply to other queries of the same relation": "pushdown",
    "delete the arrays first, and write them again": "overwriteschema",
    'mode("overwrite") replaces the box around the rows': "replacewhere partitionoverwritemode",
    "use `chunks`": "partitionby",
    "use `message`": "usermetadata",
    "a relation has one path: read each repository separately, and combine them with union": "paths",
    "use `access-key-id`": "accesskey awsaccesskeyid fss3aaccesskey",
    "use `secret-access-key`": "secretkey awssecretaccesskey fss3asecretkey",
    "use `session-token`": "awssessiontoken",
    "use `endpoint-url`": "endpoint fss3aendpoint",
}
_FOREIGN: Final = {name: advice for advice, names in _ADVICE.items() for name in names.split()}


def canonical(query: Options) -> dict[str, str]:
    """Return options under their own names; unknown names stay."""
    names: dict[str, str] = {}
    for each in query:
        name, letters = each.lower(), _letters(each.lower())
        if name not in _ALL:
            name = _ALIASES.get(letters) or _BY_LETTERS.get(letters, name)
        if name in names:
            raise conflicting(f"An option must be set once, got `{names[name]}` and `{each}` for `{name}`")
        names[name] = each
    return {name: query[each] for name, each in names.items()}


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name))


_BY_LETTERS: Final = {_letters(name): name for name in sorted(_ALL)}


def options_of(query: Options, use: Use, schema: StructType | None = None) -> dict[str, str]:
    """Return the options of a query. A reader without a location has those in the ``schema`` of a table.

    A table of the catalog may also have options of another ``use``, because it is read and written.
    """
    # A catalog passes each option of a table twice, and adds its own options.
    options = canonical({name.lower().removeprefix("option."): value for name, value in query.items()})
    of_query = set() if "provider" in options else options.keys() - {"path"}
    if "provider" in options:
        # A table with a profile has no path. Its catalog adds the path of a folder that it manages.
        unused = {"path"} if "profile" in options else set()
        options = {name: value for name, value in options.items() if name in _ALL - unused}
    if options.keys().isdisjoint(LOCATION) and schema is not None:
        stored = {(field.metadata or {}).get(TABLE_OPTIONS) for field in schema.fields}
        # A table that was created AS SELECT has the metadata of other tables in some of its columns.
        if len(stored) == 1 and (text := stored.pop()) is not None:
            options = with_defaults(options, json.loads(text))
    unknown = sorted(options.keys() - _ALL)
    if unknown:
        raise InvalidInputError("; ".join(advice(name, use) for name in unknown))
    _require_used(of_query, options, use)
    return options


def create_table_statement(spark: SparkSession, table: str) -> str:
    """Return the statement of SQL that creates a table of Spark's catalog again.

    ``SHOW CREATE TABLE`` prints the columns only, because Spark does not know the options of a source in
    Python. The statement has no secret options, which Spark's catalog does not keep.

    Args:
        spark: The session.
        table: The name of a table that was created with ``CREATE TABLE ... USING frazil OPTIONS (...)``.

    Returns:
        The statement.

    Raises:
        InvalidInputError: The table has no options of Frazil (``invalid-argument``).

    Examples:
        >>> import frazil.spark
        >>> spark = frazil.spark.get_spark()
        >>> sql = "CREATE TABLE climate USING frazil OPTIONS ('path' = 's3://b/ice', 'columns' = 'x DOUBLE')"
        >>> table = spark.sql(sql)
        >>> frazil.spark.create_table_statement(spark, "climate")
        "CREATE TABLE climate USING frazil OPTIONS ('path' = 's3://b/ice')"
        >>> table = spark.sql("DROP TABLE climate")
    """
    options = options_of({}, READ, spark.table(table).schema)
    if not options:
        raise InvalidInputError(f"table must be created with USING frazil OPTIONS (...), got {table}")
    escaped = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in options.items()}
    texts = ", ".join(f"'{name}' = '{value}'" for name, value in escaped.items())
    return f"CREATE TABLE {table} USING frazil OPTIONS ({texts})"


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
        f"and {', '.join(sorted(use.options - _PLACE))}"
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


_PREFIX: Final = "spark.frazil.profile."


@dataclass(frozen=True, slots=True)
class Profiles:
    """Profiles of Spark's configuration (``settings``) and of a ``file``, None for that of this machine."""

    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    file: Mapping[str, Any] | None = None

    @classmethod
    def of_configuration(cls, configuration: Mapping[str, str]) -> Profiles:
        """Return the profiles of Spark's configuration and of the profile file of this machine."""
        settings: dict[str, dict[str, str]] = {}
        for key, value in configuration.items():
            name, dot, option = key.removeprefix(_PREFIX).partition(".")
            if key.startswith(_PREFIX) and dot:
                settings.setdefault(name, {})[option] = value
        return cls(settings, tables())

    def resolve(self, options: Options) -> dict[str, str]:
        """Return options whose path is a location, with the defaults of the profile that the path names."""
        name = options.get("profile") or options.get("path", "")
        if "profile" in options and "path" in options:
            raise conflicting(f"Only path or profile may be set, got {options['path']!r} and {name!r}")
        if "profile" not in options and not (name and is_name(name)):
            return dict(options)
        if name in self.settings:
            defaults = _checked(name, self.settings[name])
        else:
            profile = profile_of(name) if self.file is None else profile_in(self.file, name)
            texts = {
                key: str(value).lower() if isinstance(value, bool) else str(value)
                for key, value in profile.options.items()
            }
            defaults = {**canonical(texts), "path": profile.location}
        if "profile" in options and defaults == {"path": name}:
            raise InvalidInputError(
                f"Option `profile` must be the name of a profile, got {name!r}. Set {_PREFIX}{name}.location "
                "before `frazil.spark.register`, or write the profile into the profile file"
            )
        resolved = {**with_defaults(options, defaults), "path": defaults["path"]}
        resolved.pop("profile", None)
        return resolved


def _checked(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    defaults = canonical(settings)
    location = defaults.pop("location", "")
    if not location:
        raise InvalidInputError(f"The profile `{name}` must have a location. Set {_PREFIX}{name}.location")
    unknown = [each for each in defaults if each == "path" or each not in _ALL]
    if unknown:
        texts = "; ".join(advice(each, READ) for each in unknown)
        raise InvalidInputError(f"The profile `{name}` has an {texts}")
    return {**defaults, "path": location}
