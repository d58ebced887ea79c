"""The repository and the version that the options of a data source name, as text.

    path                  a folder or a URL, see ``frazil.storage.url_parts``, or the name of a profile
    profile               instead of a path, the name of a profile: see `frazil.spark.tables.profiles`
    region, endpoint-url, allow-http, force-path-style, anonymous
    access-key-id, secret-access-key, session-token
    service-account-file, service-account-key, application-credentials, bearer-token
    account, account-key, sas-token
                          of an object store, see ``frazil.storage.url_options``; without a key, the
                          credentials in the environment of each process
    authorize-virtual     prefixes of virtual chunks that may be read, separated by commas
    virtual-credentials   for these prefixes: ``anonymous`` (the default), or ``environment`` for the
                          credentials in the environment of each process
    branch, tag, snapshot-id, as-of-timestamp, version
                          the version; the default is ``main``. A timestamp is text in ISO 8601 (UTC without
                          a zone) or a number of milliseconds since 1970, and belongs to a branch. The option
                          ``version`` is the name of a branch or tag, or (the start of) a snapshot id.

Options are part of a query's plan, and Spark keeps the options of a table in its catalog. So keys should be
in the environment of the processes instead. ``CREATE TABLE`` never keeps the options in ``SECRET``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.missing_names import no_version
from frazil.repository.catalog.repo_requirements import require_snapshot
from frazil.repository.catalog.version_names import find_snapshot
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.opening import HandleOptions, Opened, open_current
from frazil.repository.handle.repository import Repository
from frazil.repository.handle.sessions import readonly_session_of
from frazil.repository.session.session import Session
from frazil.storage import Storage
from frazil.storage.access import anonymous_access, environment_access
from frazil.storage.url_options import OPTION_NAMES, SECRET_OPTION_NAMES
from frazil.storage.urls import parse_url

type Options = Mapping[str, str]

#: Options with secrets, which are never saved.
SECRET: Final = frozenset(name.replace("_", "-") for name in SECRET_OPTION_NAMES)
_STORAGE: Final = frozenset(name.replace("_", "-") for name in OPTION_NAMES)
#: The options that name a version.
VERSION_OPTIONS: Final = ("branch", "tag", "snapshot-id", "as-of-timestamp", "version")
#: The options of `repository_at` and `session_at`.
PLACE_OPTIONS: Final = _STORAGE | frozenset(
    {"path", "profile", "authorize-virtual", "virtual-credentials", *VERSION_OPTIONS}
)


def storage_at(options: Options) -> Storage:
    """Return the storage that ``path`` and its options name.

    Raises ``InvalidInputError`` (``cannot-parse-url``) without a path, or for a path that is not valid.
    """
    named = {name: value for name, value in options.items() if name in _STORAGE}
    try:
        return parse_url(options.get("path", "")).storage(named)
    except InvalidInputError as error:
        if error.kind != ErrorKind.CANNOT_PARSE_URL:
            raise
        raise InvalidInputError(f"Option `path`: {error}", error.kind) from error


def repository_at(options: Options) -> Repository:
    """Return the repository that the options name. Raise ``RepositoryNotFoundError`` if it does not exist."""
    return Repository(_opened(options).context)


def _opened(options: Options) -> Opened:
    prefixes = listed(options, "authorize-virtual")
    access = _ACCESS[choice(options, "virtual-credentials", tuple(_ACCESS))]
    authorized = {prefix: access(prefix) for prefix in prefixes}
    return open_current(storage_at(options), HandleOptions(authorized=authorized or None))


#: Values of the option `virtual-credentials`.
_ACCESS: Final = {"anonymous": anonymous_access, "environment": environment_access}


def open_session_at(options: Options) -> Session:
    """Return a session that reads the repository and the version that the options name.

    It reads the file ``repo`` once. Raises the errors of `repository_at` and `session_at`.
    """
    opened = _opened(options)
    return _session_of(opened.context, opened.info, options)


def session_at(repo: Repository, options: Options) -> Session:
    """Return a session that reads the version that the options name.

    Raises ``InvalidInputError`` (``conflicting-arguments``) if they name two, ``RefNotFoundError`` and
    ``SnapshotNotFoundError`` if the version does not exist.
    """
    context = context_of(repo)
    return _session_of(context, context.catalog.repo_info(), options)


def _session_of(context: Context, info: RepoInfo, options: Options) -> Session:
    given = {name: options[name] for name in VERSION_OPTIONS if name in options}
    at = given.pop("as-of-timestamp", None)
    if len(given) > 1 or (at is not None and given.keys() - {"branch"}):
        raise InvalidInputError(
            "The version must be one of the options branch, tag, snapshot-id and version, or as-of-timestamp "
            f"with a branch, got {', '.join(sorted(name for name in VERSION_OPTIONS if name in options))}",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    session = partial(readonly_session_of, context, info)
    if "version" in given:
        return session(snapshot_id=_snapshot_in(info, given["version"]))
    if "tag" in given:
        return session(tag=given["tag"])
    if "snapshot-id" in given:
        return session(snapshot_id=given["snapshot-id"])
    as_of = None if at is None else timestamp(at, "as-of-timestamp")
    return session(given.get("branch", "main"), as_of=as_of)


def snapshot_named(repo: Repository, name: str) -> str:
    """Return the snapshot id for a branch, a tag, a snapshot id, or the first characters of an id.

    Raises ``RefNotFoundError`` for another text, ``SnapshotNotFoundError`` for an id that does not exist.
    """
    return _snapshot_in(context_of(repo).catalog.repo_info(), name)


def _snapshot_in(info: RepoInfo, name: str) -> str:
    id_ = find_snapshot(name, lambda: info)
    if id_ is None:
        raise no_version(info, name)
    require_snapshot(info, id_)
    return id_to_text(id_)


def require_branch(options: Options) -> str:
    """Return the branch of a stream or a writer.

    Raises ``InvalidInputError`` (``invalid-argument``) if options name a version that cannot change.
    """
    given = [name for name in VERSION_OPTIONS if name in options and name != "branch"]
    if given:
        raise InvalidInputError(
            f"The version must be a branch for writers and streams, got the option {', '.join(given)}. Set "
            "the option `branch`",
            ErrorKind.INVALID_ARGUMENT,
        )
    return options.get("branch", "main")


def timestamp(text: str, name: str) -> datetime:
    """Return the time of an option."""
    try:
        if text.strip().isdigit():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        when = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInputError(
            f"Option `{name}` must be a time in ISO 8601 or milliseconds since 1970, got {text!r}",
            ErrorKind.INVALID_ARGUMENT,
        ) from error
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when


def flag(options: Options, name: str, default: bool) -> bool:
    """Return an option that is true or false."""
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InvalidInputError(
            f"Option `{name}` must be true or false, got {text!r}", ErrorKind.INVALID_ARGUMENT
        )
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
        raise InvalidInputError(
            f"Option `{name}` must be a whole number of at least 1, got {text!r}", ErrorKind.INVALID_ARGUMENT
        )
    return int(text)


def choice(options: Options, name: str, choices: tuple[str, ...]) -> str:
    """Return an option that is one of a few words; the default is the first word."""
    text = options.get(name, choices[0]).lower()
    if text not in choices:
        raise InvalidInputError(
            f"Option `{name}` must be one of {', '.join(choices)}, got {text!r}", ErrorKind.UNKNOWN_CHOICE
        )
    return text
