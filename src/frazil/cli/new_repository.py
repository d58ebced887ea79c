"""A repository that a command creates, and takes back if the command then refuses its work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from frazil.errors import IcechunkError
from frazil.format.keys import REPO
from frazil.repository.repository import Repository
from frazil.storage import Storage
from frazil.storage.local import LocalStorage


@contextmanager
def opened_or_created(storage: Storage, branch: str = "main") -> Iterator[Repository]:
    """The repository in ``storage`` with ``branch``; both are created if they are not there.

    If the block ends with an error of Frazil, a repository that this call created is deleted, as long as
    nothing was written to it since: no commit, no chunk, no staged result of a task that a second run
    could use.
    """
    created = not Repository.exists(storage)
    missing = _missing_folder(storage)
    repo = Repository.open_or_create(storage)
    if branch not in repo.list_branches():
        repo.create_branch(branch, repo.lookup_branch("main"))
    before: frozenset[tuple[str, int, datetime]] = _contents(storage) if created else frozenset()
    try:
        yield repo
    except IcechunkError:
        if created and _contents(storage) == before:
            # First the object without which nothing else is read.
            storage.delete([REPO])
            storage.delete([key for key, *_ in before if key != REPO])
            _delete_folder(storage, missing)
        raise


def _contents(storage: Storage) -> frozenset[tuple[str, int, datetime]]:
    return frozenset((info.key, info.size, info.modified) for info in storage.list(""))


def _missing_folder(storage: Storage) -> str | None:
    """The folder of a local storage, if it is not there yet."""
    folder = str(storage.root) if isinstance(storage, LocalStorage) else None
    return None if folder is None or os.path.exists(folder) else folder


def _delete_folder(storage: Storage, missing: str | None) -> None:
    """What a local storage has beside objects: the file of its lock, and folders that were missing before."""
    if isinstance(storage, LocalStorage):
        with suppress(OSError):
            os.unlink(storage.root / f"{REPO}#0")
    if missing is not None:
        for each, _, _ in os.walk(missing, topdown=False):
            with suppress(OSError):  # it is not empty
                os.rmdir(each)
