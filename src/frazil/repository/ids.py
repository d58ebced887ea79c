"""New ids of files, chunks and nodes. The random numbers come from ``frazil.host``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frazil import host
from frazil.format.chunk_trailer import MARK_BYTES, is_marked, marked_id
from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES

#: The bytes of an id that count the files of one writer.
_COUNTER_BYTES: Final = 3


def new_object_id() -> bytes:
    """Return a random id for a file, as bytes."""
    return host.random_bytes(OBJECT_ID_BYTES)


def new_chunk_id() -> bytes:
    """Return a random id for a chunk file with a trailer (``frazil.format.chunk_trailer``), as bytes."""
    return marked_id(host.random_bytes(OBJECT_ID_BYTES - MARK_BYTES))


def new_bare_chunk_id() -> bytes:
    """Return a random id for a chunk file without a trailer, as bytes."""
    while is_marked(id_ := new_object_id()):
        pass
    return id_


def object_id_series() -> Iterator[bytes]:
    """Yield ids for the many files of one writer. They share nine random bytes, and three bytes count.

    A list of such ids is compressed to a third of the size of random ids.
    """
    while True:
        lead = host.random_bytes(OBJECT_ID_BYTES - _COUNTER_BYTES)
        for number in range(1 << 8 * _COUNTER_BYTES):
            yield lead + number.to_bytes(_COUNTER_BYTES, "big")


def new_node_id() -> bytes:
    """Return a random id for a node, as bytes."""
    return host.random_bytes(NODE_ID_BYTES)
