"""Tables about the stored data: chunks by array and slab, files by kind."""

from __future__ import annotations

from itertools import batched
from operator import attrgetter, methodcaller
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray

from frazil.changes.zarr_metadata import chunk_lengths
from frazil.format.columns import intern
from frazil.format.manifest import ChunkKind
from frazil.format.nodes import Node
from frazil.maintenance.statistics import ArraySizes, array_sizes
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.spark.tables.repository_schemas import SCHEMAS
from frazil.spark.tables.table_sessions import array_paths, session_of

#: The number of objects that one step counts.
_BATCH: Final = 50_000
_partition = methodcaller("partition", "/")


def regions(
    repo: Repository,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    array: str | None = None,
    slab: str | None = None,
) -> pa.Table:
    """Return how many chunks of each array are stored, and their bytes.

    With ``slab``, the name or number of a dimension: for each row of chunks along it, with the elements
    ``start`` up to but not including ``stop``. Arrays without that dimension have no row.
    """
    session = session_of(repo, branch, tag, snapshot_id)
    view = session.workspace
    nodes = [(node, _axis(node, slab)) for node in map(view.require_array, array_paths(session, array))]
    chosen = [(node, axis) for node, axis in nodes if slab is None or axis is not None]
    sizes = array_sizes(context_of(repo), chosen)
    parts = [_regions(each, axis) for each, (_, axis) in zip(sizes, chosen, strict=True)]
    return pa.concat_tables([SCHEMAS["regions"].empty_table(), *parts])


def _axis(node: Node, slab: str | None) -> int | None:
    """Return the axis with the name or number ``slab``. None if there is no such axis."""
    assert node.array is not None
    names, rank = node.array.dimension_names or (), len(node.array.shape)
    axis = names.index(slab) if slab in names else int(slab) if slab and slab.isdigit() else -1
    return axis if 0 <= axis < rank else None


def _regions(sizes: ArraySizes, axis: int | None) -> pa.Table:
    node = sizes.node
    assert node.array is not None
    counts, shape, names = node.array.num_chunks, node.array.shape, node.array.dimension_names
    slabs = sizes.counts.shape[1]
    chunks_each = int(np.prod(counts, dtype=np.int64)) // max(slabs, 1)
    dimension = None if axis is None else (names[axis] if names else None) or str(axis)
    start = stop = np.zeros(1, np.int64)
    if axis is not None:
        start, stop = _slab_bounds(node.user_data, axis, slabs, shape[axis])
    stored = sizes.counts.sum(axis=0)
    kinds = (ChunkKind.NATIVE, ChunkKind.VIRTUAL, ChunkKind.INLINE)
    whole = axis is None
    return pa.table(
        {
            "path": [node.path] * slabs,
            "dimension": [dimension] * slabs,
            "start": pa.array(start, mask=np.full(slabs, whole)),
            "stop": pa.array(stop, mask=np.full(slabs, whole)),
            "chunks": np.full(slabs, chunks_each),
            "stored": stored,
            "fill_ratio": stored / chunks_each if chunks_each else np.ones(slabs),
            "bytes": sizes.bytes.sum(axis=0),
            **{kind.name.lower(): sizes.counts[kind] for kind in kinds},
        },
        SCHEMAS["regions"],
    )


def _slab_bounds(
    document: bytes, axis: int, count: int, size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first element of each row of chunks along an axis, and the one after its last."""
    length = chunk_lengths(document)[axis]
    steps = np.full(count, length) if isinstance(length, int) else np.array(length[:count], np.int64)
    stop = np.cumsum(steps, dtype=np.int64)
    return stop - steps, np.minimum(stop, size)


def storage(repo: Repository) -> pa.Table:
    """Return the number of files of each kind and their bytes: all objects of the storage with garbage."""
    folders: list[str] = []
    count = bytes_ = np.zeros(0, np.int64)
    for objects in batched(repo.storage.list(""), _BATCH):
        keys = map(attrgetter("key"), objects)
        # An object that is in no folder is the repo info.
        kinds = [folder if slash else "repo" for folder, slash, _ in map(_partition, keys)]
        distinct, codes = intern([*folders, *kinds])
        sizes = np.fromiter(map(attrgetter("size"), objects), np.float64, len(objects))
        codes = codes[len(folders) :]
        count = np.bincount(codes, minlength=len(distinct)) + np.pad(count, (0, len(distinct) - len(count)))
        added = np.bincount(codes, sizes, len(distinct)).astype(np.int64)
        bytes_ = added + np.pad(bytes_, (0, len(distinct) - len(bytes_)))
        folders = distinct
    order = sorted(range(len(folders)), key=folders.__getitem__)
    return pa.table(
        {"kind": [folders[at] for at in order], "files": count[order], "bytes": bytes_[order]},
        SCHEMAS["storage"],
    )
