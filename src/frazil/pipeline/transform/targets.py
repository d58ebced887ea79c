"""Where results are written: targets, nodes, coordinates, and chunks that are copied as bytes.

Within one repository both arrays refer to the same chunks. Tasks fetch chunks of another repository, and
virtual chunks that become native: each task stores the bytes of a range of rows of the array's chunk table.

Results of several operations may be in one group, and share its coordinates. An operation may not give a
coordinate other values while an array that the operation does not replace has its dimension: that array would
get other labels, or another length than its labels.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.changes.change_set import table_of
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.jobs.blocks import groups
from frazil.jobs.job import Target, Version, digest, same_storage
from frazil.jobs.task_results import Outcome
from frazil.pipeline.transform.arrays import ArrayInfo, Json, Shape, array_info, open_array
from frazil.repository.session.chunk_refs import chunk_error
from frazil.repository.session.session import ForkSession, Session
from frazil.threads import Purpose, thread_pool


def target_or_source(source: Version, to: Target | None) -> Target:
    """Return the target ``to``; without one, the branch and the paths of the source."""
    return to or Target(source.repo, source.branch or "main")


def same_repository(source: Version, target: Target) -> bool:
    """Return whether a reference to a chunk of the source is valid in the target too."""
    return target.repo is source.repo or target.repo.storage is source.repo.storage


def is_in_place(source: Version, target: Target) -> bool:
    """Return whether a job writes to the branch that it reads, at the same paths."""
    same_branch = source.branch in (None, target.branch)
    return same_repository(source, target) and same_branch and target.group.strip("/") == ""


def require_newest(source: Session, target: Session, arrays: Sequence[ArrayInfo]) -> None:
    """Raise ``InvalidInputError`` if a job in place would replace an array by one of an older version."""
    for array in arrays:
        if digest(source, [array.path]) != digest(target, [array.path]):
            raise InvalidInputError(
                f"source must have the newest version of `{array.path}` to replace it, got "
                f"{source.snapshot_id}, and the array changed since. Read the tip of the branch, or pass "
                "another target as `to`",
                ErrorKind.NOT_ALLOWED,
            )


def refuse_overwriting(
    source: Version, target: Target, old: Sequence[ArrayInfo], new: Sequence[ArrayInfo]
) -> None:
    """Raise ``InvalidInputError`` if a result replaces an array that the job reads, or two have one path.

    ``old`` are the arrays that the job reads, ``new`` the results.
    """
    if not new:
        raise InvalidInputError("paths must name at least one array, got none", ErrorKind.INVALID_ARGUMENT)
    require_distinct_paths(new)
    if not same_storage(source, target) or target.branch != (source.branch or target.branch):
        return
    both = sorted({each.path for each in old} & {each.path for each in new})
    if both:
        raise InvalidInputError(
            f"to must not contain arrays that the job reads, got `{both[0]}` in both. "
            "Pass another group, `to=Target(repo, group=...)`, or another branch",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )


def require_distinct_paths(new: Sequence[ArrayInfo]) -> None:
    """Raise ``InvalidInputError`` if two results have one path."""
    repeated = [path for path, count in Counter(each.path for each in new).items() if count > 1]
    if repeated:
        raise InvalidInputError(
            f"Each result must have its own path, got `{repeated[0]}` twice", ErrorKind.CONFLICTING_ARGUMENTS
        )


def create_array(session: Session, source: Session, old: ArrayInfo, new: ArrayInfo) -> None:
    """Create the node of ``new``, in place of an existing array, and the groups above it.

    Groups that do not exist get the attributes of the source's groups. Raises ``InvalidInputError``:
    ``not-an-array`` where the target has a group, ``invalid-array-metadata`` for metadata that zarr refuses.
    """
    if new.document != old.document:
        try:
            new.array  # noqa: B018  # zarr refuses wrong metadata
        except (TypeError, ValueError, zarr.errors.BaseZarrError) as error:
            raise InvalidInputError(
                f"zarr cannot read the new metadata of `{new.path}`: {error}",
                ErrorKind.INVALID_ARRAY_METADATA,
            ) from error
    workspace = session.workspace
    create_groups(session, source, old.group, new.group)
    if workspace.node(new.path) is not None:
        workspace.require_array(new.path)
        workspace.delete_node(new.path)
    workspace.set_node(new.path, new.encoded())


def create_groups(session: Session, source: Session, old: str, new: str) -> None:
    """Create the group ``new`` and those above it, with the attributes of ``old`` and those above it.

    Raises ``InvalidInputError`` (``not-a-group``) where the target has an array.
    """
    workspace, names = session.workspace, [name for name in new.split("/") if name]
    for depth in range(len(names) + 1):
        path = "/" + "/".join(names[:depth])
        existing = workspace.node(path)
        if existing is not None and existing.array is not None:
            raise InvalidInputError(
                f"`{path}` must be a group to hold the results, got an array", ErrorKind.NOT_A_GROUP
            )
        if existing is not None:
            continue
        attributes = _attributes_above(source, old, len(names) - depth)
        document: Json = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
        workspace.set_node(path, json.dumps(document).encode())


def _attributes_above(source: Session, group: str, levels: int) -> Json:
    """Return the attributes of the group that is ``levels`` above a group of the source."""
    parts = [name for name in group.split("/") if name]
    if levels > len(parts):
        return {}
    node = source.workspace.node("/" + "/".join(parts[: len(parts) - levels]))
    if node is None or node.array is not None:
        return {}
    return json.loads(node.user_data).get("attributes") or {}


def add_group_attributes(session: Session, source: Session, path: str, attributes: Json) -> None:
    """Add attributes to a group, which is created if it does not exist."""
    workspace = session.workspace
    create_groups(session, source, "/", path)
    document = json.loads(workspace.require_node(path).user_data)
    document["attributes"] = {**(document.get("attributes") or {}), **attributes}
    workspace.set_node(path, json.dumps(document).encode())


#: Bytes that one task fetches, and that it holds at any time.
PER_TASK: Final = 256_000_000
_AT_ONCE: Final = 32_000_000


@dataclass(frozen=True, slots=True)
class ChunkTransfer:
    """Chunks of the array ``source`` for the array ``path``: those with ``low <= coordinates < high``.

    The new coordinates are the old ones minus ``low``. ``virtual`` True selects only virtual chunks, False
    only others, None all. ``start`` and ``stop`` are rows of the selected part of the chunk table.
    """

    source: str
    path: str
    low: Shape
    high: Shape
    virtual: bool | None = None
    start: int = 0
    stop: int | None = None

    def region(self, grid: Shape) -> tuple[slice, ...]:
        """Return the elements of the source, for chunks of the shape ``grid``."""
        ends = zip(self.low, self.high, grid, strict=True)
        return tuple(slice(low * step, high * step) for low, high, step in ends)


def whole_transfer(old: ArrayInfo, new: ArrayInfo) -> ChunkTransfer:
    """Return the transfer of all chunks of an array."""
    return ChunkTransfer(old.path, new.path, (0,) * old.ndim, (1 << 32,) * old.ndim)


def transfer_table(session: Session, transfer: ChunkTransfer) -> ChunkTable:
    """Return the references of a transfer, with their new coordinates."""
    table = session.chunk_table(transfer.source)
    low, high = np.array(transfer.low, np.int64), np.array(transfer.high, np.int64)
    selected = ((table.index >= low) & (table.index < high)).all(axis=1)
    if transfer.virtual is not None:
        selected &= (table.kind == ChunkKind.VIRTUAL) == transfer.virtual
    table = table.select_chunks(np.flatnonzero(selected)[transfer.start : transfer.stop])
    return replace(table, index=(table.index - low).astype(np.uint32))


def share_chunks(session: Session, source: Session, transfers: Sequence[ChunkTransfer]) -> None:
    """Set references to the same chunks, in one repository."""
    for transfer in transfers:
        session.workspace.set_refs(transfer.path, transfer_table(source, transfer))


def fetch_items(source: Session, transfers: Sequence[ChunkTransfer]) -> list[ChunkTransfer]:
    """Return the transfers, cut into items of about ``PER_TASK`` bytes."""
    items: list[ChunkTransfer] = []
    for transfer in transfers:
        offsets = groups(transfer_table(source, transfer).length.astype(np.int64), PER_TASK).tolist()
        items += [replace(transfer, start=start, stop=stop) for start, stop in pairwise(offsets)]
    return items


def fetch_chunks(fork: ForkSession, source: Session, transfer: ChunkTransfer) -> Outcome:
    """Read the bytes of chunks from any place, and store them in this repository: the task.

    Raises the error of the first chunk that cannot be read, with the array and the chunk's coordinates.
    """
    table = transfer_table(source, transfer)
    coords = list(map(tuple, table.index.tolist()))
    workspace = fork.workspace
    size = int(table.length.sum())
    with thread_pool(Purpose.CHUNK_COPIES) as threads:
        for start, stop in pairwise(groups(table.length.astype(np.int64), _AT_ONCE).tolist()):
            requests = [(table.ref(row), 0, None) for row in range(start, stop)]
            try:
                data = source.workspace.reader.read_many(requests)  # type: ignore[arg-type]  # none is absent
            except IcechunkError:
                _raise_with_chunk(source, transfer, requests, coords[start:stop])
                raise
            stored = list(threads.map(workspace.store_bytes, data))
            refs: dict[Any, Any] = dict(zip(coords[start:stop], stored, strict=True))
            workspace.set_refs(transfer.path, table_of(refs, table.ndim))
    return Outcome(chunks=len(table), bytes_read=size, bytes_written=size)


def _raise_with_chunk(
    source: Session, transfer: ChunkTransfer, requests: Sequence[Any], coords: Sequence[Shape]
) -> None:
    """Raise the error of the first of these chunks that cannot be read, with its coordinates."""
    low = np.array(transfer.low, np.int64)
    for (ref, *_), at in zip(requests, coords, strict=True):
        try:
            source.workspace.reader.read(ref)
        except IcechunkError as error:
            chunk = tuple((low + at).tolist())
            raise chunk_error(
                source.workspace.snapshot_id, transfer.source, chunk, ref, error
            ) from error.__cause__


@dataclass(frozen=True, slots=True)
class Labels:
    """A coordinate variable among the results: ``values(source)``, or a region of the old variable."""

    old: ArrayInfo
    new: ArrayInfo
    values: Callable[[Session], NDArray[Any]] | None = None
    region: tuple[slice, ...] = ()

    def read(self, session: Session) -> NDArray[Any]:
        """Return the values that the result will have."""
        if self.values is not None:
            return self.values(session)
        return np.asarray(open_array(session, self.old.path)[self.region or ...])


def is_label(array: ArrayInfo) -> bool:
    """Return whether an array is the coordinate variable of a dimension."""
    return array.dims == (array.name,)


def refuse_relabelling(
    session: Session, source: Session, labels: Sequence[Labels], results: Sequence[ArrayInfo]
) -> None:
    """Raise ``InvalidInputError`` if a coordinate would change that other arrays of its group have.

    ``session`` writes to the target, ``source`` reads the inputs.
    """
    paths = {each.path for each in results}
    workspace = session.workspace
    neighbours: dict[str, list[ArrayInfo]] = {}  # each group is listed once
    for each in labels:
        new = each.new
        node = workspace.node(new.path)
        if node is None or node.array is None:
            continue
        if new.group not in neighbours:
            arrays = _arrays_of_group(session, new.group)
            neighbours[new.group] = [other for other in arrays if other.path not in paths]
        labelled = next((other.path for other in neighbours[new.group] if new.name in other.dims), None)
        if labelled is None or _is_same(session, array_info(session, new.path), new, each.read(source)):
            continue
        raise InvalidInputError(
            f"to must be a group whose `{new.name}` is equal to that of the result, got a group where "
            f"`{labelled}` is labelled with another `{new.name}`. Pass another group",
            ErrorKind.NOT_ALLOWED,
        )


def _arrays_of_group(session: Session, group: str) -> list[ArrayInfo]:
    nodes = session.workspace.node_table()
    below, paths = nodes.below(group), nodes.paths_list()
    rows = np.arange(len(nodes))[below][nodes.is_array[below]].tolist()
    array_paths = map(paths.__getitem__, rows)
    return [array_info(session, path) for path in array_paths if (path.rpartition("/")[0] or "/") == group]


def _is_same(session: Session, existing: ArrayInfo, new: ArrayInfo, values: NDArray[Any]) -> bool:
    if (existing.shape, existing.dims, existing.dtype) != (new.shape, new.dims, new.dtype):
        return False
    if existing.attributes != new.attributes:
        return False
    stored = np.asarray(open_array(session, existing.path)[...])
    return bool(np.array_equal(stored, values, equal_nan=values.dtype.kind in "fcmM"))
