"""The arrays of the repository, and a version as one row of numbers.

``slots`` has chunks of eight equal numbers, in files. ``left`` and ``right`` have inline chunks and are
always written together. ``journal`` grows by one number at a time. ``names`` is a group with one group, whose
name is a number. All numbers that workers write differ.

The functions use the keys of the store and no `zarr.Array`, which takes a third of the time. The chunks have
no codec.

A row has the numbers of ``slots``, ``left`` and ``right``, the length and the digest of ``journal``, and the
name of the group.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import frazil

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zarr.abc.store import Store
    from zarr.core.buffer import Buffer

type Row = NDArray[np.int64]

SLOTS: Final = 16
PAIRS: Final = 4
_COPIES: Final = 8
#: The numbers of a chunk of ``journal``.
_ROWS: Final = 128
LEFT: Final = SLOTS
RIGHT: Final = SLOTS + PAIRS
LENGTH: Final = SLOTS + 2 * PAIRS
DIGEST: Final = LENGTH + 1
NAME: Final = DIGEST + 1
WIDTH: Final = NAME + 1
_JOURNAL: Final = "journal/zarr.json"
#: The keys of the chunks, in the order of the columns.
_KEYS: Final = (
    *(f"slots/c/{slot}/0" for slot in range(SLOTS)),
    *(f"{name}/c/{pair}" for name in ("left", "right") for pair in range(PAIRS)),
)
_EMPTY: Final = np.zeros(0, np.int64)
_PROTOTYPE: Final = default_buffer_prototype()
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
        zarr.create_array(store, name="journal", shape=(0,), chunks=(_ROWS,), dtype="i8", compressors=None)
        zarr.create_group(store, path="names/0")
    return repo.lookup_branch("main")


def first_row() -> Row:
    """Return the row of the version that ``create`` commits."""
    row = np.zeros(WIDTH, np.int64)
    row[:SLOTS] = 1
    return row


def write(store: Store, changes: Changes) -> None:
    """Write the numbers."""
    sync(_write(store, changes))


async def _write(store: Store, changes: Changes) -> None:
    values = {f"slots/c/{slot}/0": np.full(_COPIES, number) for slot, number in changes.slots.items()}
    for pair, number in changes.pairs.items():
        values |= {f"{name}/c/{pair}": np.array([number]) for name in ("left", "right")}
    if changes.append is not None:
        length, number = changes.append
        metadata = await _journal(store)
        await _set(store, _JOURNAL, json.dumps({**metadata, "shape": [length + 1]}).encode())
        key = f"journal/c/{length // _ROWS}"
        values[key] = _numbers(await store.get(key, _PROTOTYPE), _ROWS)
        values[key][length % _ROWS] = number
    await asyncio.gather(*(_set(store, key, value.tobytes()) for key, value in values.items()))


def rename(session: frazil.Session, changes: Changes) -> None:
    """Give the group its new name."""
    name = sync(_names(session.store))[0]
    session.move(f"/names/{name}", f"/names/{changes.name}")


def journal_length(store: Store) -> int:
    """Return how many numbers the journal has."""
    return int(sync(_journal(store))["shape"][0])


def read(store: Store) -> Row:
    """Return the row of a version."""
    return sync(_read(store))


async def _read(store: Store) -> Row:
    names, metadata = await asyncio.gather(_names(store), _journal(store))
    length = int(metadata["shape"][0])
    keys = [*_KEYS, *(f"journal/c/{number}" for number in range(-(-length // _ROWS)))]
    chunks = await asyncio.gather(*(store.get(key, _PROTOTYPE) for key in keys))
    slots = np.array([_numbers(chunk, _COPIES) for chunk in chunks[:SLOTS]])
    journal = np.concatenate([_EMPTY, *(_numbers(chunk, _ROWS) for chunk in chunks[LENGTH:])])[:length]
    row = np.empty(WIDTH, np.int64)
    row[:SLOTS] = np.where((slots == slots[:, :1]).all(axis=1), slots[:, 0], TORN)
    row[LEFT:LENGTH] = [_numbers(chunk, 1)[0] for chunk in chunks[LEFT:LENGTH]]
    row[LENGTH] = length
    row[DIGEST] = _digest(journal)
    row[NAME] = int(names[0]) if len(names) == 1 else TORN
    return row


async def _names(store: Store) -> list[str]:
    return [name async for name in store.list_dir("names") if name != "zarr.json"]


async def _journal(store: Store) -> dict[str, Any]:
    """Return the metadata of the journal."""
    value = await store.get(_JOURNAL, _PROTOTYPE)
    assert value is not None
    metadata: dict[str, Any] = json.loads(value.to_bytes())
    return metadata


async def _set(store: Store, key: str, value: bytes) -> None:
    await store.set(key, _PROTOTYPE.buffer.from_bytes(value))


def _numbers(chunk: Buffer | None, count: int) -> Row:
    """Return the numbers of a chunk. A missing chunk has zeros."""
    return np.zeros(count, np.int64) if chunk is None else np.frombuffer(chunk.to_bytes(), np.int64).copy()


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
