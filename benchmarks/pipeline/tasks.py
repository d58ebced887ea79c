"""The functions of measured tasks. They are in a module, because workers import them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from frazil import ForkSession
from frazil.spark import Outcome

#: Chunks of the array of references along its second axis.
WIDE = 1000


def nothing(shared: bytes, message: bytes) -> bytes:
    return b""


def occupy(shared: bytes, message: bytes) -> bytes:
    """Compute for as many seconds as the message says."""
    end = time.perf_counter() + float(message)
    while time.perf_counter() < end:
        pass
    return b""


def no_item(fork: ForkSession, shared: Any, item: Any) -> Outcome:
    return Outcome()


def refer(fork: ForkSession, shared: Any, rows: tuple[int, int]) -> Outcome:
    """Set rows of an array of virtual chunks, with one location for each row."""
    low, high = rows
    count = high - low
    names = np.repeat([f"s3://bucket/model/run-{row:06d}/file.nc" for row in range(low, high)], WIDE).tolist()
    offsets = np.tile(np.arange(WIDE, dtype="u8") * 4096 + 512, count)
    fork.store.set_virtual_refs_arr(
        "v",
        (count, WIDE),
        names,
        offsets,
        np.full(count * WIDE, 4096, "u8"),
        arr_offset=(low, 0),
        validate_containers=False,
    )
    return Outcome(chunks=count * WIDE)
