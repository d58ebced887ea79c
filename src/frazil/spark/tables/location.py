"""Where a repository is and which version is meant, as options of a data source say it: text.

    path                  a folder or a URL, see ``frazil.storage.url_parts``
    region, endpoint-url, allow-http, force-path-style, anonymous
    access-key-id, secret-access-key, session-token
    service-account-file, service-account-key, application-credentials, bearer-token
    account, account-key, sas-token
                          of an object store, see ``frazil.storage.url_options``; without a key, what the
                          environment of each process offers
    authorize-virtual     prefixes of virtual chunks that may be read, separated by commas
    virtual-credentials   for these prefixes: ``anonymous`` (the default), or ``environment`` for the
                          credentials that the environment of each process has

    branch, tag, snapshot-id, as-of-timestamp
                          which version: ``main`` unless told otherwise. A timestamp is text in ISO 8601 (UTC
                          where it says no zone) or a number of milliseconds since 1970, and is of a branch.

Options are part of a query's plan, and Spark keeps those of a table in its catalog. So keys are better given
to the processes than written there: those in ``SECRET`` are never kept by ``CREATE TABLE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session
from frazil.storage import Storage
from frazil.storage.access import anonymous_access, environment_access
from frazil.storage.url_options import OPTION_NAMES, SECRET_OPTION_NAMES
from frazil.storage.urls import parse_url

type Options = Mapping[str, str]

#: Options with secrets, which nobody may save.
SECRET: Final = frozenset(name.replace("_", "-") for name in SECRET_OPTION_NAMES)
_STORAGE: Final = frozenset(name.replace("_", "-") for name in OPTION_NAMES)
_VERSION: Final = ("branch", "tag", "snapshot-id", "as-of-timestamp")
#: What `repository_at` and `session_at` understand.
PLACE_OPTIONS: Final = _STORAGE | frozenset({"path", "authorize-virtual", "virtual-credentials", *_VERSION})


def storage_at(options: Options) -> Storage:
    """The storage that ``path`` and its options name.

    Raises ``InvalidInputError`` (``cannot-parse-url``) without a path, or for one that means nothing.

    >>> storage_at({"path": "file:/data/ice"})
    <frazil.Storage>
    type: local filesystem
    path: /data/ice
    <BLANKLINE>
    """
    named = {name: value for name, value in options.items() if name in _STORAGE}
    try:
        return parse_url(options.get("path", "")).storage(named)
    except InvalidInputError as error:
        if error.kind != ErrorKind.CANNOT_PARSE_URL:
            raise
        raise InvalidInputError(f"Option `path`: {error}", error.kind) from error


def repository_at(options: Options) -> Repository:
    """The repository that the options name; ``RepositoryNotFoundError`` if there is none."""
    prefixes = listed(options, "authorize-virtual")
    access = _ACCESS[choice(options, "virtual-credentials", tuple(_ACCESS))]
    authorized = {prefix: access(prefix) for prefix in prefixes}
    return Repository.open(storage_at(options), authorize_virtual_chunk_access=authorized or None)


#: Values of the option `virtual-credentials`.
_ACCESS: Final = {"anonymous": anonymous_access, "environment": environment_access}


def session_at(repo: Repository, options: Options) -> Session:
    """A session that reads the version that the options name.

    Raises ``InvalidInputError`` (``conflicting-arguments``) where they name two, ``RefNotFoundError`` and
    ``SnapshotNotFoundError`` where there is none.
    """
    given = {name: options[name] for name in _VERSION if name in options}
    at = given.pop("as-of-timestamp", None)
    if len(given) > 1 or (at is not None and given.keys() - {"branch"}):
        raise InvalidInputError(
            "The version must be one of the options branch, tag and snapshot-id, or as-of-timestamp with a "
            f"branch, got {', '.join(sorted(name for name in _VERSION if name in options))}",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    if "tag" in given:
        return repo.readonly_session(tag=given["tag"])
    if "snapshot-id" in given:
        return repo.readonly_session(snapshot_id=given["snapshot-id"])
    as_of = None if at is None else timestamp(at, "as-of-timestamp")
    return repo.readonly_session(given.get("branch", "main"), as_of=as_of)


def require_branch(options: Options) -> str:
    """The branch that a stream or a writer is for.

    Raises ``InvalidInputError`` (``invalid-argument``) where options name a version that stays as it is.
    """
    given = [name for name in ("tag", "snapshot-id", "as-of-timestamp") if name in options]
    if given:
        raise InvalidInputError(
            f"The version must be a branch for writers and streams, got the option {', '.join(given)}. Set "
            "the option `branch`",
            ErrorKind.INVALID_ARGUMENT,
        )
    return options.get("branch", "main")


def timestamp(text: str, name: str) -> datetime:
    """A time as an option says it.

    >>> timestamp("2024-05-01 12:00", "as-of-timestamp").isoformat()
    '2024-05-01T12:00:00+00:00'
    >>> timestamp("1714564800000", "as-of-timestamp").isoformat()
    '2024-05-01T12:00:00+00:00'
    """
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
    """An option that is true or false."""
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InvalidInputError(
            f"Option `{name}` must be true or false, got {text!r}", ErrorKind.INVALID_ARGUMENT
        )
    return text.lower() == "true"


def listed(options: Options, name: str) -> list[str]:
    """An option that is names separated by commas."""
    return [each.strip() for each in options.get(name, "").split(",") if each.strip()]


def count(options: Options, name: str) -> int | None:
    """An option that is a number from 1 on, None if it is not given."""
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise InvalidInputError(
            f"Option `{name}` must be a whole number of at least 1, got {text!r}", ErrorKind.INVALID_ARGUMENT
        )
    return int(text)


def choice(options: Options, name: str, choices: tuple[str, ...]) -> str:
    """An option that is one of a few words, the first of them unless given."""
    text = options.get(name, choices[0]).lower()
    if text not in choices:
        raise InvalidInputError(
            f"Option `{name}` must be one of {', '.join(choices)}, got {text!r}", ErrorKind.UNKNOWN_CHOICE
        )
    return text
