"""Tests whether a storage supports conditional writes. One of them runs when a repository is created.

Some servers accept the conditions and ignore them. This stays hidden until two writers commit at the same
time. Then one commit is lost although its writer gets a success.

``probe_conditions`` writes an object of its own. ``create_and_probe`` uses the new files of a repository
instead, and sends two requests more than the files need. It does not test that the storage accepts an update
with the right version: a storage that refuses it loses no commits.

Specification: *Storage Operations*.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from frazil import host
from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import Condition, IfAbsent, IfVersion, Refused, Storage, Stored, Version
from frazil.threads import Purpose, map_bounded

#: Prefix of the probe's objects.
PROBES: Final = "probe"


def probe_conditions(storage: Storage, prefix: str = PROBES) -> None:
    """Test whether a storage supports conditional writes.

    The function creates an object twice and then updates it twice with the same version. The storage must
    refuse the second create and the second update. The object is deleted at the end.

    Args:
        storage: Storage to test.
        prefix: Prefix of the key of the object. Default: ``probe``.

    Raises:
        StorageError: ``conditions-not-supported`` if the storage accepts a write that it must refuse, or
            refuses one that it must accept; another kind if a request fails.

    Examples:
        >>> from frazil.storage import in_memory_storage
        >>> probe_conditions(in_memory_storage())
    """
    key = f"{prefix}/{host.random_bytes(10).hex()}"
    try:
        first = _expect_stored(storage, "first create", storage.put(key, b"first", IfAbsent()))
        if isinstance(storage.put(key, b"second", IfAbsent()), Stored):
            raise _not_supported(storage, "a second conditional create of the same object succeeded")
        _expect_stored(storage, "conditional update", storage.put(key, b"third", IfVersion(first.version)))
        if isinstance(storage.put(key, b"fourth", IfVersion(first.version)), Stored):
            raise _not_supported(storage, "a conditional update with a stale version succeeded")
    finally:
        storage.delete([key])


def create_and_probe(storage: Storage, first: tuple[str, bytes], second: tuple[str, bytes]) -> bool:
    """Create two files, and test by the first one whether a storage supports conditional writes.

    The function creates both files at the same time. Then it sends the first file twice again, at the same
    time: as a new object, and with the version of the second file. The storage must refuse both writes. A
    storage that accepts one of them stores the same bytes again.
    """

    def put(write: tuple[str, bytes, Condition]) -> Stored | Refused:
        return storage.put(*write)

    send = partial(map_bounded, Purpose.CATALOG_WRITES, put)
    match send([(*first, IfAbsent()), (*second, IfAbsent())]):
        case [Stored(version), Stored(other)] if other not in (version, Version()):
            stale = IfVersion(other)
        case _:
            return False
    again, replaced = send([(*first, IfAbsent()), (*first, stale)])
    if isinstance(again, Stored):
        raise _not_supported(storage, "a second conditional create of the same object succeeded")
    if isinstance(replaced, Stored):
        raise _not_supported(storage, "a conditional update with a stale version succeeded")
    return True


def _expect_stored(storage: Storage, action: str, outcome: object) -> Stored:
    if not isinstance(outcome, Stored):
        raise _not_supported(storage, f"the {action} of a new object was refused")
    return outcome


def _not_supported(storage: Storage, offence: str) -> StorageError:
    return StorageError(
        "the storage does not support conditional writes, so concurrent commits would be lost: "
        f"{offence}. Use another storage instead of {storage.label()}",
        ErrorKind.CONDITIONS_NOT_SUPPORTED,
    )
