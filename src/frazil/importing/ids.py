"""The ids of an imported repository.

An id of 12 bytes is kept, so that users find a snapshot by the id that they know. Other ids are converted,
and always in the same way, so that a repeated import writes the same files.

    objects of the draft (16 bytes)      the first 12 bytes of the SHA-256 of the id
    snapshots and manifests, in place    the same of "snapshots/" or "manifests/" and the id, because in one
                                         folder the new files would overwrite the old ones
    nodes with a number (D, M0, M1)      4 bytes of the SHA-256 of the path, then the number, because numbers
                                         are used again, and by different branches for different nodes
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.keys import MANIFESTS, SNAPSHOTS
from frazil.format.older.elements import NodeId
from frazil.format.older.manifest import short_id


@dataclass(frozen=True, slots=True)
class NewIds:
    """Converts old ids to new ids."""

    in_place: bool

    def snapshot(self, old: bytes) -> bytes:
        """Return the new id of a snapshot, 12 bytes."""
        return self._object(SNAPSHOTS, old)

    def manifest(self, old: bytes, variant: int = 0) -> bytes:
        """Return the new id of a manifest. ``variant`` counts the new files of one old manifest."""
        id_ = self._object(MANIFESTS, old)
        return id_ if not variant else _hash(id_ + bytes([variant]))

    def _object(self, folder: str, old: bytes) -> bytes:
        if self.in_place and len(old) == OBJECT_ID_BYTES:
            return _hash(f"{folder}/".encode() + old)
        return short_id(old)


def new_node_id(old: NodeId, path: str) -> bytes:
    """Return the new id of a node."""
    if isinstance(old, bytes):
        return old
    return hashlib.sha256(path.encode()).digest()[:4] + old.to_bytes(4)


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:OBJECT_ID_BYTES]
