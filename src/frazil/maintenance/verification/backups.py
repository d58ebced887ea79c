"""The backups of ``repo`` that hold the older parts of the ops log.

A file of the ops log names a backup for each of its updates but the newest: that backup was written right
after the update, so the update is the newest one in it. Most of these backups may be gone: a collection of
garbage leaves only the chain, in which each file names the one with the next older part of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from frazil.errors import ErrorKind, FormatError, IcechunkError
from frazil.format.keys import OVERWRITTEN, backup_key
from frazil.format.repo_info import RepoInfo, decode_repo_info
from frazil.maintenance.verification.requests import REQUESTS
from frazil.repository.files import before
from frazil.repository.findings import Finding
from frazil.storage.base import Storage

#: So many of the newest backups are tried for one that can be read.
_TRIED: Final = 20

#: Name of a backup, and the time of its newest update.
type Named = tuple[str, int]


def check_chain(storage: Storage, info: RepoInfo) -> tuple[list[Finding], list[Named]]:
    """What is wrong with the chain of the ops log; all other backups that it names."""
    named: list[Named] = []
    part: RepoInfo | None = info
    while part is not None:
        times = part.ops.updated_at.tolist()
        named += [pair for pair in zip(part.ops.backups.texts(), times, strict=True) if pair[0]]
        name = part.repo_before_updates
        try:
            part = before(storage, part)
        except IcechunkError as error:
            assert name is not None
            return [Finding("unreadable", backup_key(name), detail=error.message)], named
        if part is not None and name is not None and len(part.ops):
            named.append((name, int(part.ops.updated_at[0])))
    return [], named


def check_named(storage: Storage, named: Sequence[Named]) -> Iterator[Finding]:
    """The piece of work for some backups: those that are there can be read, and are the right ones."""

    def check(pair: Named) -> list[Finding]:
        name, time = pair
        key = backup_key(name)
        try:
            newest = decode_repo_info(storage.get(key), key)
            return list(_exchanged(key, time, newest))
        except IcechunkError as error:
            gone = error.kind == ErrorKind.OBJECT_NOT_FOUND
            return [] if gone else [Finding("unreadable", key, detail=error.message)]

    with ThreadPoolExecutor(REQUESTS, "frazil-verify") as pool:
        for findings in pool.map(check, named):
            yield from findings


def _exchanged(key: str, time: int, info: RepoInfo) -> Iterator[Finding]:
    newest = int(info.ops.updated_at[0]) if len(info.ops) else 0
    if newest != time:
        detail = f"expected the newest update at {time} us, found one at {newest} us"
        yield Finding("exchanged", key, detail=detail)


def newest_readable(storage: Storage) -> str | None:
    """The newest backup of ``repo`` that can be read."""
    keys = (each.key for each in storage.list(OVERWRITTEN))
    for key in islice(sorted(keys), _TRIED):  # names count down
        try:
            decode_repo_info(storage.get(key), key)
        except FormatError:
            continue
        return key
    return None
