"""Checks of the target of an import: it must be empty, or contain an earlier attempt at the same import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import filterfalse

from frazil.errors import ErrorKind, InvalidInputError, ReadOnlyError, StorageError
from frazil.format.keys import CHUNKS, REPO, manifest_key, snapshot_key, transaction_key
from frazil.importing.history import ImportedHistory, Users
from frazil.importing.ids import NewIds
from frazil.repository.catalog.creation import require_prefix
from frazil.storage.base import Storage
from frazil.storage.probe import PROBES


def read_repo_file(target: Storage) -> bytes | None:
    """Return the bytes of the ``repo`` file of the target, or None."""
    try:
        return bytes(target.get(REPO))
    except StorageError as error:
        if error.kind == ErrorKind.OBJECT_NOT_FOUND:
            return None
        raise


def require_writable(target: Storage) -> None:
    """Raise an error for a read-only target or a target without a prefix."""
    if target.is_read_only:
        raise ReadOnlyError(
            f"{target.label()} is read only. Pass a target that can be written", ErrorKind.READ_ONLY_STORAGE
        )
    require_prefix(target)


def require_clean(
    target: Storage, history: ImportedHistory, users: Mapping[bytes, Users], ids: NewIds
) -> None:
    """Raise ``InvalidInputError`` if the target contains files of another origin than this import."""
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
    """Raise ``InvalidInputError`` if a folder of the target contains other keys."""
    _refuse(target, filterfalse(set(keys).__contains__, _keys(target, folder)))


def _keys(target: Storage, folder: str) -> Iterable[str]:
    return (info.key for info in target.list(folder))


def _refuse(target: Storage, strange: Iterable[str]) -> None:
    key = next(iter(strange), None)
    if key is not None:
        raise InvalidInputError(
            f"the target of an import must be empty, got `{key}` in {target.label()}. "
            "To import in place, pass no target",
            ErrorKind.PARENT_DIRECTORY_NOT_CLEAN,
        )
