"""What users may write for a snapshot.

    20 characters      its id
    4 to 19            the first characters of its id, if no other snapshot's id begins with them
    a name             of a branch or a tag, where the method says so

A text that can mean several snapshots is an error, which names them. Whatever is written, one place reads it:
this one.
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

#: So many candidates an error names.
_SHOWN: Final = 5


def snapshot_id(text: str, info: Callable[[], RepoInfo]) -> bytes:
    """The id that a text is, or begins. ``info`` is asked for the first characters of an id only: whether a
    whole one is there is not looked at.

    Raises ``InvalidInputError`` (``invalid-snapshot-id``) for a text that is no id, or begins several;
    ``SnapshotNotFoundError`` if no id begins so.
    """
    if len(text) == ID_TEXT_LENGTH:
        return id_from_text(text)
    if not _may_begin_an_id(text):
        raise InvalidInputError(
            f"invalid snapshot id {text!r}: expected {ID_TEXT_LENGTH} characters of Crockford base32, or the "
            f"first {SHORTEST_ID_START} or more of them",
            ErrorKind.INVALID_SNAPSHOT_ID,
        )
    candidates = _beginning(text, info())
    if not candidates:
        raise snapshot_not_found(text)
    return _only(text, {id_to_text(id_): id_ for id_ in candidates})


def find_snapshot(text: str, info: Callable[[], RepoInfo]) -> bytes | None:
    """``snapshot_id``, or the snapshot of a branch or tag of that name; None for what is neither. 20
    characters that can be an id are one.

    Raises ``InvalidInputError`` (``invalid-snapshot-id``) for what can mean several snapshots.
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
            f"`{text}` can mean {', '.join(names[:_SHOWN])}{more}: give a whole snapshot id, or more of it",
            ErrorKind.INVALID_SNAPSHOT_ID,
        )
    return next(iter(candidates.values()))
