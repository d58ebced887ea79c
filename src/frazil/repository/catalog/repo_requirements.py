"""The requirements of changes and commits on a repo info.

Each function returns a value that the change needs, or raises the error why the change is not possible.

    20 characters      its id
    4 to 19            the first characters of its id, if no other id begins with them
    a name             the name of a branch or tag, if the method accepts it

A text that can mean several snapshots is an error, which names them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from frazil.display import some_of, suggest
from frazil.errors import (
    ConflictError,
    ErrorKind,
    IcechunkError,
    InvalidInputError,
    NodeNotFoundError,
    ReadOnlyError,
    RefNotFoundError,
    SessionStateError,
    SnapshotNotFoundError,
)
from frazil.format.ids import (
    ID_TEXT_LENGTH,
    SHORTEST_ID_START,
    id_from_text,
    id_list,
    id_to_text,
    is_id_text,
    prefix_bounds,
)
from frazil.format.nodes import NodeTable
from frazil.format.repo_info import Availability, RepoInfo
from frazil.remedies import argument, call
from frazil.repository.settings.resolved import Flag, is_enabled

#: A message for a missing path compares at most this number of nodes.
_MOST_NODES: Final = 10_000


def no_branch(info: RepoInfo, name: str, kind: ErrorKind = ErrorKind.REF_NOT_FOUND) -> RefNotFoundError:
    """Return the error for an unknown branch."""
    if name in info.tags:
        error = RefNotFoundError(f"no branch `{name}`, but a tag `{name}` exists", kind)
        return error.with_remedy("Use {}", argument(tag=name), shell="")
    return RefNotFoundError(_unknown("branch", "branches", name, info.branches), kind)


def no_tag(info: RepoInfo, name: str) -> RefNotFoundError:
    """Return the error for an unknown tag."""
    kind = ErrorKind.REF_NOT_FOUND
    if name in info.branches:
        error = RefNotFoundError(f"no tag `{name}`, but a branch `{name}` exists", kind)
        return error.with_remedy("Use {}", argument(branch=name), shell="")
    if name in info.deleted_tags:
        return RefNotFoundError(f"no tag `{name}`: it was deleted, and its name cannot be used again", kind)
    return RefNotFoundError(_unknown("tag", "tags", name, info.tags), kind)


def no_version(info: RepoInfo, name: str) -> RefNotFoundError:
    """Return the error for a text that is not a branch, a tag or the id of a snapshot."""
    near = suggest(name, [*_names(info.branches), *_names(info.tags)])
    text = (
        f"the version must be a branch, a tag, or the id of a snapshot (or its first {SHORTEST_ID_START} or "
        f"more characters), got `{name}`{near}"
    )
    return RefNotFoundError(text, ErrorKind.REF_NOT_FOUND)


def no_node(path: str, nodes: NodeTable, changed: Collection[str]) -> NodeNotFoundError:
    """Return the error for a path without a node. ``nodes`` and ``changed`` have the existing paths."""
    few = len(nodes) + len(changed) <= _MOST_NODES
    near = suggest(path, [*changed, *nodes.paths_list()]) if few else ""
    return NodeNotFoundError(f"no group or array at `{path}`{near}")


def _unknown(one: str, many: str, name: str, refs: Mapping[str, bytes]) -> str:
    names = _names(refs)
    return f"no {one} `{name}`{suggest(name, names) or f'; {many}: {some_of(sorted(names))}'}"


def _names(refs: Mapping[str, bytes]) -> list[str]:
    """Return the names of refs. Empty if the storage cannot list them."""
    try:
        return list(refs)
    except IcechunkError:
        return []


#: Advice in the errors of a refused commit or rebase.
CHANGES_STAY: Final = (
    "The session keeps its changes. `session.rebase(solver)` moves them onto the tip of the branch, and "
    "`session.flush(message)` saves them as a snapshot without a branch"
)


def require_online(info: RepoInfo) -> None:
    """Raise ``ReadOnlyError`` (``read-only-repository``) unless the status of the repository is online."""
    status = info.status
    if status.availability is not Availability.ONLINE:
        reason = f": {status.reason}" if status.reason else ""
        raise ReadOnlyError(
            f"the repository is {status.availability.name.lower().replace('_', '-')}{reason}",
            ErrorKind.READ_ONLY_REPOSITORY,
        ).with_remedy("`{}` makes it writable again", call("set_status"))


def branch_tip(info: RepoInfo, branch: str) -> bytes:
    """Return the tip of a branch. Raises ``RefNotFoundError`` if there is no such branch."""
    if branch not in info.branches:
        raise no_branch(info, branch)
    return info.branches[branch]


def tag_target(info: RepoInfo, tag: str) -> bytes:
    """Return the snapshot of a tag. Raises ``RefNotFoundError`` if there is no such tag."""
    if tag not in info.tags:
        raise no_tag(info, tag)
    return info.tags[tag]


def require_snapshot(info: RepoInfo, id_: bytes) -> int:
    """Return the row of a snapshot. Raises ``SnapshotNotFoundError`` if the repository does not list it."""
    row = info.snapshots.find_snapshot(id_)
    if row < 0:
        raise snapshot_not_found(id_to_text(id_))
    return row


def snapshot_not_found(text: str) -> SnapshotNotFoundError:
    """Return the error for an id, or the first characters of an id, that no snapshot has."""
    return SnapshotNotFoundError(
        f"no snapshot `{text}` in this repository: it was expired or dropped, or belongs to another "
        "repository"
    ).with_remedy("`{}` lists the snapshots of a branch or tag", call("ancestry"))


def require_base(info: RepoInfo, id_: bytes) -> int:
    """Return the row of the snapshot that a session started from.

    Raises ``SnapshotNotFoundError`` if the snapshot was expired or dropped since.
    """
    row = info.snapshots.find_snapshot(id_)
    if row < 0:
        raise base_not_found(id_)
    return row


def base_not_found(id_: bytes) -> SnapshotNotFoundError:
    """Return the error for a session whose own snapshot was expired or dropped."""
    return SnapshotNotFoundError(
        f"snapshot `{id_to_text(id_)}`, from which the session started, was expired or dropped"
    ).with_remedy(
        "Move the changes onto the tip of the branch with `session.rebase(solver)`, then commit or flush",
        shell="Run the command again",
    )


def require_flag(info: RepoInfo, flag: Flag) -> None:
    """Raise ``SessionStateError`` (``feature-flag-disabled``) if the feature is disabled."""
    if not is_enabled(info, flag):
        raise SessionStateError(
            f"the feature `{flag.name}` is disabled in this repository",
            ErrorKind.FEATURE_FLAG_DISABLED,
        ).with_remedy(
            "Its owner can enable it with Repository.set_feature_flag",
            shell="Its owner can enable it in Python",
        )


def require_tip(info: RepoInfo, branch: str, parent: bytes) -> None:
    """Raise ``ConflictError`` unless ``parent`` is the tip of the branch."""
    tip = info.branches.get(branch)
    if tip is None and info.spec_version == 1:
        raise ConflictError(id_to_text(parent))
    if tip is None:
        raise no_branch(info, branch, ErrorKind.BRANCH_NOT_FOUND)
    if tip != parent:
        expects, finds = id_to_text(parent), id_to_text(tip)
        raise ConflictError(
            expects,
            finds,
            f"another writer updated the branch `{branch}`: expected parent {expects}, found {finds}",
        ).with_remedy(CHANGES_STAY, shell="Run the command again")


def existing_tip(info: RepoInfo, branch: str) -> bytes:
    """Return the tip of a branch that existed before. The kind of the error is ``branch-not-found``."""
    tip = info.branches.get(branch)
    if tip is None:
        raise no_branch(info, branch, ErrorKind.BRANCH_NOT_FOUND)
    return tip


def require_name(name: str) -> None:
    """Raise ``InvalidInputError`` (``invalid-ref-name``) for a name that a branch or tag cannot have."""
    if not name:
        raise InvalidInputError(
            "the name of a branch or tag must not be empty, got ''", ErrorKind.INVALID_REF_NAME
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"the name of a branch or tag must be text that UTF-8 can encode, got {name!r:.80}",
            ErrorKind.INVALID_REF_NAME,
        ) from None


#: An error names this number of candidates.
_SHOWN: Final = 5


def snapshot_id(text: str, info: Callable[[], RepoInfo]) -> bytes:
    """Return the snapshot id for a text, which is the id or its first characters.

    Only for the first characters of an id, the function calls ``info``. It does not check that a whole id
    exists. Raises ``InvalidInputError`` (``invalid-snapshot-id``) for a text that cannot be an id, or with
    which several ids begin, and ``SnapshotNotFoundError`` if no id begins with it.
    """
    if len(text) == ID_TEXT_LENGTH:
        return id_from_text(text)
    if not _may_begin_an_id(text):
        raise InvalidInputError(
            f"the snapshot id must be {ID_TEXT_LENGTH} characters of Crockford base32, or the first "
            f"{SHORTEST_ID_START} or more of them, got {text!r}",
            ErrorKind.INVALID_SNAPSHOT_ID,
        )
    candidates = _beginning(text, info())
    if not candidates:
        raise snapshot_not_found(text)
    return _only(text, {id_to_text(id_): id_ for id_ in candidates})


def find_snapshot(text: str, info: Callable[[], RepoInfo]) -> bytes | None:
    """Return the snapshot for an id, the first characters of an id, or the name of a branch or tag.

    None means that there is no such snapshot. 20 characters that can be an id are always an id. Raises
    ``InvalidInputError`` (``invalid-snapshot-id``) for a text that can mean several snapshots.
    """
    if len(text) == ID_TEXT_LENGTH and is_id_text(text.upper()):
        return id_from_text(text)
    now = info()
    candidates: dict[str, bytes] = {}
    for kind, refs in (("branch", now.branches), ("tag", now.tags)):
        if text in refs:
            candidates[f"the {kind} `{text}`"] = refs[text]
    if _may_begin_an_id(text):
        candidates |= {id_to_text(id_): id_ for id_ in _beginning(text, now)}
    return _only(text, candidates) if candidates else None


def _may_begin_an_id(text: str) -> bool:
    return SHORTEST_ID_START <= len(text) < ID_TEXT_LENGTH and prefix_bounds(text) is not None


def _beginning(text: str, info: RepoInfo) -> list[bytes]:
    bounds = prefix_bounds(text)
    assert bounds is not None
    return id_list(info.snapshots.between(*bounds))


def _only(text: str, candidates: dict[str, bytes]) -> bytes:
    if len(set(candidates.values())) > 1:
        names = list(candidates)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise InvalidInputError(
            f"`{text}` can mean {', '.join(names[:_SHOWN])}{more}. Pass the whole snapshot id, or more of it",
            ErrorKind.INVALID_SNAPSHOT_ID,
        )
    return next(iter(candidates.values()))
