"""Does this storage keep the conditions of a write? Asked once, when a repository is created.

Some servers accept the conditions and ignore them. All goes well on them until two writers meet; then one
loses its commit and is told that it succeeded.
"""

from __future__ import annotations

import secrets
from typing import Final

from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import IfAbsent, IfVersion, Storage, Stored

#: Where the probe's objects are, while it runs.
PROBES: Final = "probe"


def probe_conditions(storage: Storage, prefix: str = PROBES) -> None:
    """Create an object twice, then update it with a stale version: the second of each must be refused.

    Raises ``StorageError`` of kind ``conditions-not-supported`` if one succeeds. Leaves nothing behind.
    """
    key = f"{prefix}/{secrets.token_hex(10)}"
    try:
        first = _expect_stored(storage, "first create", storage.put(key, b"first", IfAbsent()))
        if isinstance(storage.put(key, b"second", IfAbsent()), Stored):
            raise _not_supported(storage, "a second conditional create of one object succeeded")
        _expect_stored(storage, "conditional update", storage.put(key, b"third", IfVersion(first.version)))
        if isinstance(storage.put(key, b"fourth", IfVersion(first.version)), Stored):
            raise _not_supported(storage, "a conditional update with a stale version succeeded")
    finally:
        storage.delete([key])


def _expect_stored(storage: Storage, action: str, outcome: object) -> Stored:
    if not isinstance(outcome, Stored):
        raise _not_supported(storage, f"the {action} of a new object was refused")
    return outcome


def _not_supported(storage: Storage, offence: str) -> StorageError:
    return StorageError(
        "the storage does not keep the conditions of writes, so concurrent commits would be lost: "
        f"{offence}. Use another storage, not {storage.label()}",
        ErrorKind.CONDITIONS_NOT_SUPPORTED,
    )
