"""The arrays of the repository, and a version as one row of numbers.

``slots`` has chunks of eight equal numbers, in files. ``left`` and ``right`` have inline chunks and are
always written together. ``journal`` grows by one number at a time. ``names`` is a group with one group, whose
name is a number. All numbers that workers write differ.

A row has the numbers of ``slots``, ``left`` and ``right``, the length and the digest of ``journal``, and the
name of the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import zarr
from numpy.typing import NDArray

import frazil

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zarr.abc.store import Store

type Row = NDArray[np.int64]

SLOTS: Final = 16
PAIRS: Final = 4
_COPIES: Final = 8
LEFT: Final = SLOTS
RIGHT: Final = SLOTS + PAIRS
LENGTH: Final = SLOTS + 2 * PAIRS
DIGEST: Final = LENGTH + 1
NAME: Final = DIGEST + 1
WIDTH: Final = NAME + 1
#: The number of a column where the model does not say which number is right.
ANY: Final = np.int64(-1)
#: The number of a column whose parts disagree. No worker writes it.
TORN: Final = np.int64(-2)
#: The names of items of the metadata of the repository begin so.
LABEL: Final = "label-"
_PRIME: Final = 2_147_483_647


@dataclass(frozen=True, slots=True)
class Changes:
    """The numbers that a commit writes: by slot, by pair, one at a position of the journal, a new name."""

    slots: Mapping[int, int]
    pairs: Mapping[int, int]
    append: tuple[int, int] | None = None
    name: int | None = None


def config(*, packs: bool) -> frazil.RepositoryConfig:
    """Return a configuration in which ``slots`` and ``journal`` have chunk files."""
    return frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=16, packing=frazil.PackingConfig(enabled=packs)
    )


def create(repo: frazil.Repository) -> str:
    """Commit the arrays, without numbers."""
    with repo.transaction("main", message="arrays") as store:
        slots = zarr.create_array(
            store, name="slots", shape=(SLOTS, _COPIES), chunks=(1, _COPIES), dtype="i8", compressors=None
        )
        slots[:] = 1
        for name in ("left", "right"):
            zarr.create_array(store, name=name, shape=(PAIRS,), chunks=(1,), dtype="i8", compressors=None)
        zarr.create_array(store, name="journal", shape=(0,), chunks=(128,), dtype="i8", compressors=None)
        zarr.create_group(store, path="names/0")
    return repo.lookup_branch("main")


def first_row() -> Row:
    """Return the row of the version that ``create`` commits."""
    row = np.zeros(WIDTH, np.int64)
    row[:SLOTS] = 1
    return row


def write(store: Store, changes: Changes) -> None:
    """Write the numbers."""
    slots = zarr.open_array(store, path="slots") if changes.slots else None
    for slot, number in changes.slots.items():
        assert slots is not None
        slots[slot] = number
    if changes.pairs:
        for name in ("left", "right"):
            array = zarr.open_array(store, path=name)
            for pair, number in changes.pairs.items():
                array[pair] = number
    if changes.append is not None:
        length, number = changes.append
        journal = zarr.open_array(store, path="journal")
        journal.resize((length + 1,))
        journal[length] = number


def rename(session: frazil.Session, changes: Changes) -> None:
    """Give the group its new name."""
    session.move(f"/names/{_names(session.store)[0]}", f"/names/{changes.name}")


def _names(store: Store) -> list[str]:
    return list(zarr.open_group(store, path="names", mode="r").group_keys())


def journal_length(store: Store) -> int:
    """Return how many numbers the journal has."""
    return int(zarr.open_array(store, path="journal", mode="r").shape[0])


def read(store: Store) -> Row:
    """Return the row of a version."""
    slots = np.asarray(zarr.open_array(store, path="slots", mode="r")[:])
    journal = np.asarray(zarr.open_array(store, path="journal", mode="r")[:])
    row = np.empty(WIDTH, np.int64)
    row[:SLOTS] = np.where((slots == slots[:, :1]).all(axis=1), slots[:, 0], TORN)
    row[LEFT:RIGHT] = zarr.open_array(store, path="left", mode="r")[:]
    row[RIGHT:LENGTH] = zarr.open_array(store, path="right", mode="r")[:]
    row[LENGTH] = len(journal)
    row[DIGEST] = _digest(journal)
    names = _names(store)
    row[NAME] = int(names[0]) if len(names) == 1 else TORN
    return row


def apply(row: Row, changes: Changes) -> Row:
    """Return the row after the changes. The position of the number in the journal is not looked at."""
    after = row.copy()
    for slot, number in changes.slots.items():
        after[slot] = number
    for pair, number in changes.pairs.items():
        after[[LEFT + pair, RIGHT + pair]] = number
    if changes.append is not None and after[LENGTH] != ANY:
        after[DIGEST] = _longer(after[DIGEST], int(after[LENGTH]), changes.append[1])
        after[LENGTH] += 1
    if changes.name is not None:
        after[NAME] = changes.name
    return after


def _terms(positions: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return (positions * 40_503 + 7_919) % _PRIME * (numbers % _PRIME) % _PRIME


def _digest(journal: NDArray[np.int64]) -> np.int64:
    """Return a sum in which each number counts by its position."""
    return np.int64(_terms(np.arange(len(journal)), journal).sum() % _PRIME)


def _longer(digest: np.int64, length: int, number: int) -> np.int64:
    term = _terms(np.array([length]), np.array([number]))[0]
    return np.int64((digest + term) % _PRIME)
