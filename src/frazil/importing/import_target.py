"""Checks of the target of an import: it is empty, or holds an earlier attempt at the same import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import filterfalse

from frazil.errors import ErrorKind, InvalidInputError, ReadOnlyError, StorageError
from frazil.format.keys import CHUNKS, REPO, manifest_key, snapshot_key, transaction_key
from frazil.importing.history import History, Users
from frazil.importing.ids import NewIds
from frazil.storage.base import Storage
from frazil.storage.probe import PROBES


def read_repo_file(target: Storage) -> bytes | None:
    """The bytes of the ``repo`` file of the target."""
    try:
        return bytes(target.get(REPO))
    except StorageError as error:
        if error.kind == ErrorKind.OBJECT_NOT_FOUND:
            return None
        raise


def require_writable(target: Storage) -> None:
    if target.is_read_only:
        raise ReadOnlyError(
            f"{target.label()} is read only: give a target that can be written", ErrorKind.READ_ONLY_STORAGE
        )
    if target.is_whole_bucket:
        raise InvalidInputError(
            "a repository needs a prefix of its own in the bucket, found an empty one: give a prefix",
            ErrorKind.EMPTY_PREFIX_CREATION,
        )


def require_clean(target: Storage, history: History, users: Mapping[bytes, Users], ids: NewIds) -> None:
    """Only files of an earlier attempt at this import may be there."""
    versions = history.versions.values()
    own_keys = {key(version.id) for version in versions for key in (snapshot_key, transaction_key)}
    own_keys |= {
        manifest_key(ids.manifest(id_, variant))
        for id_, arrays in users.items()
        for variant in range(len({rank for _, rank in arrays}))
    }
    keys = filterfalse(lambda key: key.startswith((f"{CHUNKS}/", f"{PROBES}/")), _keys(target, ""))
    _refuse(target, filterfalse(own_keys.__contains__, keys))


def require_only(target: Storage, keys: Iterable[str], folder: str) -> None:
    _refuse(target, filterfalse(set(keys).__contains__, _keys(target, folder)))


def _keys(target: Storage, folder: str) -> Iterable[str]:
    return (info.key for info in target.list(folder))


def _refuse(target: Storage, strange: Iterable[str]) -> None:
    key = next(iter(strange), None)
    if key is not None:
        raise InvalidInputError(
            f"expected an empty place for the import, found `{key}` in {target.label()} "
            "(to import in place, give no target)",
            ErrorKind.PARENT_DIRECTORY_NOT_CLEAN,
        )
