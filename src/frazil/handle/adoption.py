"""The adoption of a Zarr store of version 3: its arrays become a version, and no byte of a chunk is copied.

Every chunk object gets a virtual reference with the time of the newest object, so younger objects are
refused.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.session.session import Session
from frazil.storage.base import ObjectInfo, Storage
from frazil.threads import Purpose, map_bounded

_DOCUMENT: Final = "zarr.json"
_OLDER: Final = (".zarray", ".zgroup")
_SEPARATORS: Final = {"default": "/", "v2": "."}


@dataclass(frozen=True, slots=True)
class Adoption:
    """What was adopted: the number of groups, arrays and chunks, and the bytes of the chunks."""

    groups: int
    arrays: int
    chunks: int
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Listing:
    """The objects of a store, by key in ascending order, and the newest of their times."""

    keys: list[str]
    objects: Mapping[str, ObjectInfo]
    newest: datetime | None

    @staticmethod
    def of(storage: Storage) -> _Listing:
        """List a storage."""
        objects = {each.key: each for each in storage.list("")}
        newest = max((each.modified for each in objects.values()), default=None)
        if newest is not None and newest.microsecond:  # references have whole seconds
            newest = newest.replace(microsecond=0) + timedelta(seconds=1)
        return _Listing(sorted(objects), objects, newest)

    def below(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix."""
        return self.keys[bisect_left(self.keys, prefix) : bisect_left(self.keys, prefix + "\U0010ffff")]


@dataclass(frozen=True, slots=True, eq=False)
class ZarrStore:
    """The objects of a Zarr store, and its documents by the paths of their nodes."""

    listing: _Listing
    documents: dict[str, dict[str, Any]]


def read_zarr_store(source: Storage) -> ZarrStore:
    """List a Zarr store of version 3, and read its documents."""
    listing = _Listing.of(source)
    keys = [key for key in listing.keys if key.rpartition("/")[2] == _DOCUMENT]
    if not keys:
        older = next((key for key in listing.keys if key.rpartition("/")[2] in _OLDER), None)
        text = "no zarr.json" if older is None else f"{older} of version 2, which an ingest reads"
        raise InvalidInputError(
            f"the store to adopt must be a Zarr store of version 3, got {text} in {source.label()}"
        )
    stored = map_bounded(Purpose.CATALOG_READS, lambda key: bytes(source.get(key)), keys)
    pairs = sorted(("/" + key.rpartition("/")[0], raw) for key, raw in zip(keys, stored, strict=True))
    return ZarrStore(listing, {path: json.loads(raw) for path, raw in pairs})


def adopt(session: Session, store: ZarrStore, location: str) -> Adoption:
    """Create the nodes of a Zarr store in a session, with virtual references to its chunks."""
    chunks = size = arrays = 0
    for path, document in store.documents.items():
        is_array = document["node_type"] == "array"
        own = {name: value for name, value in document.items() if name != "consolidated_metadata"}
        if is_array:  # chunks of a repository have default keys; the keys of the store are in the references
            own["chunk_key_encoding"] = {"name": "default"}
        session.workspace.set_node(path, json.dumps(own).encode())
        if is_array:
            lengths = _set_references(session, path, document, store.listing, location)
            arrays, chunks, size = arrays + 1, chunks + len(lengths), size + int(lengths.sum())
    return Adoption(len(store.documents) - arrays, arrays, chunks, size)


def _set_references(
    session: Session, path: str, document: Mapping[str, Any], listing: _Listing, location: str
) -> NDArray[np.uint64]:
    """Set a reference for each chunk object of an array, and return their sizes."""
    grid = document["chunk_grid"]
    if grid["name"] != "regular":
        raise InvalidInputError(
            f"an adopted array must have a regular chunk grid, got {grid['name']!r} of `{path}`",
            ErrorKind.UNSUPPORTED_ARRAY,
        )
    steps = grid["configuration"]["chunk_shape"]
    shape = tuple(-(-size // step) for size, step in zip(document["shape"], steps, strict=True))
    keys, index = _chunk_objects(path, document, listing, len(shape))
    inside = (index < np.array(shape, np.int64)).all(axis=1)  # an array may have shrunk
    lengths = np.array([listing.objects[key].size for key in keys], np.uint64)
    rows = np.flatnonzero(inside & (lengths > 0))
    if not len(rows):
        return lengths[rows]
    first = index[rows].min(axis=0)
    box = tuple((index[rows].max(axis=0) - first + 1).tolist())
    at = np.ravel_multi_index(tuple((index[rows] - first).T), box) if box else np.zeros(1, np.int64)
    base = location.rstrip("/") + "/"
    urls = [base + (quote(key) if base.startswith("file:") else key) for key in map(keys.__getitem__, rows)]
    cells = np.full(math.prod(box), "", object)
    cells[at] = urls
    sizes = np.ones(len(cells), np.uint64)
    sizes[at] = lengths[rows]
    session.store.set_virtual_refs_arr(
        path,
        box,
        cells.tolist(),
        np.zeros(len(cells), np.uint64),
        sizes,
        validate_containers=False,
        arr_offset=tuple(first.tolist()),
        checksum=listing.newest,
    )
    return lengths[rows]


def _chunk_objects(
    path: str, document: Mapping[str, Any], listing: _Listing, ndim: int
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the keys of the chunks of an array, and their indices, int64 of shape (n, ndim)."""
    encoding = document.get("chunk_key_encoding", {"name": "default"})
    name = encoding["name"]
    if name not in _SEPARATORS:
        raise InvalidInputError(
            f"an adopted array must have the chunk keys `default` or `v2`, got {name!r} of `{path}`",
            ErrorKind.UNSUPPORTED_ARRAY,
        )
    separator = encoding.get("configuration", {}).get("separator", _SEPARATORS[name])
    start = f"{path.strip('/')}/".lstrip("/")
    if not ndim:
        key = start + ("c" if name == "default" else "0")
        keys = [key] if key in listing.objects else []
        return keys, np.zeros((len(keys), 0), np.int64)
    start += f"c{separator}" if name == "default" else ""
    number = "(?:0|[1-9][0-9]*)"
    pattern = re.compile(re.escape(start) + re.escape(separator).join([number] * ndim))
    keys = list(filter(pattern.fullmatch, listing.below(start)))
    texts = separator.join(key[len(start) :] for key in keys).split(separator) if keys else []
    return keys, np.array(texts, np.int64).reshape(len(keys), ndim)
