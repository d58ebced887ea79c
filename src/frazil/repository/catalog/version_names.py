"""The texts with which users name a snapshot. All of them are read here.

    20 characters      its id
    4 to 19            the first characters of its id, if no other id begins with them
    a name             the name of a branch or tag, if the method accepts it

A text that can mean several snapshots is an error, which names them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import (
    ID_TEXT_LENGTH,
    SHORTEST_ID_START,
    id_from_text,
    id_list,
    id_to_text,
    is_id_text,
    prefix_bounds,
)
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.repo_requirements import snapshot_not_found

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
