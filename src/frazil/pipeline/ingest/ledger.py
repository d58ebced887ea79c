"""Which files are in a group already: columns in hidden arrays, `.frazil` in the group.

    url            strings
    fingerprint    uint8, (files, 16)
    size           int64, bytes
    quarantined    bool: known to be bad, not written

Plain Zarr arrays: every reader of Zarr can read them, a Dataset of the group does not show them, and half a
million files are a few megabytes. The attributes of the group say which dimension goes on, and which are
unlimited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import array_at

HIDDEN: Final = ".frazil"
#: Files in a chunk: what is rewritten with each file that is appended.
_CHUNK: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Record:
    """The files that were ingested into a group."""

    url: NDArray[Any]
    fingerprint: NDArray[np.uint8]
    size: NDArray[np.int64]
    quarantined: NDArray[np.bool_]

    def find(self, urls: Sequence[str]) -> NDArray[np.int64]:
        """The row of each URL, -1 for those that are not there."""
        rows = dict(zip(self.url.tolist(), range(len(self.url)), strict=True))
        return np.fromiter(map(rows.get, urls, repeat(-1)), np.int64, len(urls))

    def has(self, fingerprints: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which fingerprints are those of files that were written, whatever their names."""
        here = np.ascontiguousarray(fingerprints).view("V16").ravel()
        written = np.ascontiguousarray(self.fingerprint[~self.quarantined]).view("V16").ravel()
        return np.isin(here, written)


EMPTY: Final = Record(
    np.empty(0, np.dtypes.StringDType()),
    np.empty((0, 16), np.uint8),
    np.empty(0, np.int64),
    np.empty(0, np.bool_),
)


def _path(group: str) -> str:
    return "/".join(filter(None, [group.strip("/"), HIDDEN]))


def load(session: Session, group: str) -> Record:
    """What is known of a group; nothing if nobody ingested into it."""
    if session.workspace.nodes.node(f"/{_path(group)}") is None:
        return EMPTY
    columns = [np.asarray(array_at(session, f"{_path(group)}/{name}")[:]) for name in Record.__slots__]
    return Record(*columns)


def load_attrs(session: Session, group: str) -> dict[str, Any]:
    """What is known of all files of a group."""
    if session.workspace.nodes.node(f"/{_path(group)}") is None:
        return {}
    return dict(zarr.open_group(session.store, path=_path(group), mode="r").attrs)


def save(session: Session, group: str, before: Record, now: Record, attrs: dict[str, Any]) -> None:
    """Keep what is known now; ``before`` is what `load` gave. Only what is new or changed is written."""
    columns = {name: getattr(now, name) for name in Record.__slots__}
    there = zarr.open_group(session.store, path=_path(group), mode="a", zarr_format=3)
    if dict(there.attrs) != attrs:
        there.attrs.put(attrs)
    for name, values in columns.items():
        old = getattr(before, name)
        if name not in there:
            dtype = "string" if name == "url" else values.dtype
            chunks = (_CHUNK, *values.shape[1:])
            # xarray opens no group where a dimension has no name. The dataset above hands down its own.
            dims = ("frazil_file", "frazil_byte")[: values.ndim]
            there.create_array(name, shape=values.shape, dtype=dtype, chunks=chunks, dimension_names=dims)
            old = old[:0]
        array = there[name]
        assert isinstance(array, zarr.Array)
        if array.shape != values.shape:
            array.resize(values.shape)
        same = bool((values[: len(old)] == old).all())
        array[0 if not same else len(old) :] = values[0 if not same else len(old) :]


def added(
    before: Record,
    urls: Sequence[str],
    fingerprint: NDArray[np.uint8],
    size: NDArray[np.int64],
    quarantined: NDArray[np.bool_],
) -> Record:
    """With these files: those that are known get what is known of them now."""
    rows = before.find(urls)
    new = rows < 0
    count = len(before.url)
    rows[new] = np.arange(count, count + int(new.sum()))
    total = count + int(new.sum())
    url = np.empty(total, np.dtypes.StringDType())
    url[:count] = before.url
    url[rows] = np.array(urls, np.dtypes.StringDType())
    columns = []
    for old, values in (
        (before.fingerprint, fingerprint),
        (before.size, size),
        (before.quarantined, quarantined),
    ):
        column = np.zeros((total, *old.shape[1:]), old.dtype)
        column[:count] = old
        column[rows] = values
        columns.append(column)
    return Record(url, *columns)
