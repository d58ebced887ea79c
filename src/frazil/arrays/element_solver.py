"""The solver that merges chunks element by element.

A chunk that both sides changed is decoded on both sides and in the base. Each element comes from the side
that changed it, compared by its bits. A missing chunk, and the cells beyond the shape of a side, have the
fill value. The merged chunk is encoded, decoded and compared: a conflict stays if the codecs are lossy. Only
the bytes of the first chunks stay in memory until they are stored; others are merged again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, batched
from math import prod
from typing import Any, Final, override

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.core.array_spec import ArrayConfig
from zarr.storage import MemoryStore, StorePath

from frazil.arguments import checks_arguments
from frazil.changes.conflicts import ChangeKind, ConflictType
from frazil.changes.diff import differing, rows_of
from frazil.changes.zarr_metadata import chunk_lengths, encoding_difference, same_encoding
from frazil.display import counted
from frazil.format.columns import U32
from frazil.repository.session.conflicts import Conflict, ConflictSolver, Side, VersionSelection
from frazil.repository.session.session import Session
from frazil.threads import SIZES, Purpose, map_bounded
from frazil.zarr_store.arrays import array_at

#: The memory for the elements of chunks that are merged at the same time, in bytes.
_MEMORY: Final = 256 << 20
#: The number of arrays of the size of a chunk that a merge needs.
_COPIES: Final = 8
#: The size of the merged chunks that are not encoded again, in bytes.
_ENCODED: Final = 64 << 20
#: The number of cells that the reason of a conflict names.
_CELLS_NAMED: Final = 3

#: Errors of arrays that zarr cannot open, such as those with a codec that is not installed.
_UNREADABLE: Final = (ImportError, TypeError, ValueError)
#: The assumed size of an element of variable length, in bytes.
_STRING: Final = 32

_OURS, _THEIRS, _FAIL = VersionSelection.UseOurs, VersionSelection.UseTheirs, VersionSelection.Fail
#: Side -> the side whose values are discarded if this side is kept.
_OTHER: Final = {_OURS: _THEIRS, _THEIRS: _OURS}

type Coords = tuple[int, ...]
type Box = tuple[slice, ...]
#: For each dimension, the length of the chunks, or the first cell of each chunk and the end.
type Edges = tuple[int | list[int], ...]


@dataclass(frozen=True, slots=True)
class DiscardedValues:
    """The values of one side in an array that the result of a rebase or merge does not have.

    Attributes:
        path: The path of the array.
        side: ``UseOurs`` if the values of ours are discarded, ``UseTheirs`` for those of theirs.
        values: The number of elements that the side changed. None if its chunks cannot be decoded.
        chunks: The number of chunks with these elements.
    """

    path: str
    side: VersionSelection
    values: int | None
    chunks: int


@checks_arguments
class ElementSolver(ConflictSolver):
    """A solver that keeps the changes of both sides in a chunk that both sides changed.

    Each element comes from the side that changed it. Elements that both sides changed to the same bits are no
    conflict. The solver leaves a chunk undecided if both sides changed an element to different values, or if
    the codecs cannot store the merged elements exactly. ``Conflict.reason`` then has the number of elements.

    In a rebase, the solver also accepts that others made an array longer whose chunks the session wrote.

    Args:
        otherwise: The side that decides what elements cannot decide. By default, these conflicts stay
            undecided. ``UseOurs`` and ``UseTheirs`` take the value of one side for elements that both sides
            changed, and the chunk of one side if the merged elements cannot be stored exactly. ``UseOurs``
            also accepts deletions of arrays and groups that others changed, and a smaller shape of the
            session that drops chunks which others wrote. ``UseTheirs`` drops such deletions.

    Attributes:
        discarded: What the last call of ``solve`` discards: a list of ``frazil.conflicts.DiscardedValues``.

    Examples:
        >>> import frazil, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array") as store:
        ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(4,), dtype="i4")
        >>> one, two = repo.writable_session("main"), repo.writable_session("main")
        >>> zarr.open_array(one.store, path="t")[0] = 1
        >>> zarr.open_array(two.store, path="t")[3] = 2
        >>> first, second = one.commit("one"), two.commit("two", rebase_with=ElementSolver())
        >>> zarr.open_array(repo.readonly_session("main").store, path="t")[:].tolist()
        [1, 0, 0, 2]
    """

    def __init__(self, *, otherwise: VersionSelection = VersionSelection.Fail) -> None:
        if not isinstance(otherwise, VersionSelection):
            raise TypeError(f"otherwise must be VersionSelection, got {type(otherwise).__name__}")
        self._otherwise = otherwise
        self.discarded: list[DiscardedValues] = []

    @override
    def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
        self.discarded = []
        answers = [self._answer(conflict) for conflict in conflicts]
        most: dict[tuple[str, VersionSelection], DiscardedValues] = {}
        for each in sorted(self.discarded, key=lambda each: each.chunks):
            most[each.path, each.side] = each  # two conflicts may have the same chunks of an array
        self.discarded = sorted(most.values(), key=lambda each: each.path)
        return answers

    def _answer(self, conflict: Conflict) -> Any:
        if conflict.did is None:
            return _FAIL
        kind, (ours, _) = conflict.conflict_type, conflict.did
        if kind is ConflictType.ChunkDoubleUpdate and conflict.chunks is not None:
            return self._chunks(conflict, conflict.chunks)
        if (kind, ours) == (ConflictType.ChunksUpdatedInUpdatedArray, ChangeKind.WROTE):
            return _OURS if _is_longer(conflict) else _FAIL
        drops_chunks = kind is ConflictType.ChunksUpdatedInUpdatedArray
        deletes = kind in (ConflictType.DeleteOfUpdatedArray, ConflictType.DeleteOfUpdatedGroup)
        if self._otherwise is _OURS and (drops_chunks or deletes):
            self.discarded += _changes_of_theirs(conflict)
            return _OURS
        return self._otherwise if deletes else _FAIL

    def _chunks(self, conflict: Conflict, chunks: U32) -> Any:
        """Return the answers for the chunks that both sides changed."""
        arrays = _Arrays.of(conflict)
        if isinstance(arrays, str):
            conflict.reason = arrays
            if self._otherwise is not _FAIL:
                side = _OTHER[self._otherwise]
                after = conflict.ours if side is _OURS else conflict.theirs
                before = _session(conflict.base), conflict.base.path
                self.discarded += _changes(before, (_session(after), after.path or ""), side, chunks)
            return self._otherwise
        merge = partial(_merge, arrays, otherwise=self._otherwise)
        merged: list[_Merged] = []
        encoded = 0
        for at, each in _for_chunks(merge, chunks, arrays.edges, arrays.result.dtype):
            encoded += len(each.data)
            # The bytes of later chunks are computed again when they are stored.
            merged.append(each if encoded <= _ENCODED else replace(each, data=b"", again=partial(merge, at)))
        if self._otherwise is _FAIL and (reason := _reason(merged)):
            conflict.reason = reason
            return _FAIL
        for side in _OTHER:
            lost = [each.lost.get(side, 0) for each in merged]
            if any(lost):
                self.discarded.append(
                    DiscardedValues(conflict.path, side, sum(lost), int(np.count_nonzero(lost)))
                )
        # Bytes are functions, as ``ConflictSolver.solve`` describes.
        return [each.side if each.side is not _FAIL else each.bytes for each in merged]


@dataclass(frozen=True, slots=True)
class _Merged:
    """The result of the merge of a chunk: the chunk of a side, other bytes, or a problem.

    ``lost`` counts the changed elements of each side that the result does not have, ``clashes`` those that
    both sides changed differently. ``again`` repeats the merge, if the bytes were dropped.
    """

    side: VersionSelection = _FAIL
    data: bytes = b""
    lost: dict[VersionSelection, int] = field(default_factory=dict)
    clashes: int = 0
    cells: tuple[Coords, ...] = ()
    problem: str = ""
    again: partial[_Merged] | None = None

    def bytes(self) -> bytes:
        """Return the bytes of the chunk."""
        return self.data if self.again is None else self.again().data


def _reason(merged: Sequence[_Merged]) -> str | None:
    """Return why chunks stay undecided, or None if all are decided."""
    total = counted(len(merged), "chunk")
    reasons = []
    if clashes := sum(each.clashes for each in merged):
        cells = [list(cell) for each in merged for cell in each.cells]
        named = ", ".join(map(str, cells[:_CELLS_NAMED])) + (", ..." if clashes > _CELLS_NAMED else "")
        where = f"{sum(bool(each.clashes) for each in merged)} of {total}"
        reasons.append(f"both sides changed {counted(clashes, 'element')} in {where} differently: {named}")
    if problems := [each.problem for each in merged if each.problem]:
        reasons.append(f"{len(problems)} of {total} cannot be merged by element: {problems[0]}")
    return "; ".join(reasons) or None


@dataclass(frozen=True, slots=True, eq=False)
class _Arrays:
    """The array of a conflict on all sides, with the same encoding and fill value."""

    base: zarr.Array[Any]
    ours: zarr.Array[Any]
    theirs: zarr.Array[Any]
    result: zarr.Array[Any]
    edges: Edges

    @classmethod
    def of(cls, conflict: Conflict) -> _Arrays | str:
        """Return the arrays of a conflict, or why its chunks cannot be merged by element."""
        sides = (conflict.base, conflict.ours, conflict.theirs)
        documents = [side.metadata or b"{}" for side in sides]
        if difference := encoding_difference(documents):
            return f"the sides have different values of {difference}"
        try:
            base, ours, theirs = (array_at(_session(each), each.path or "") for each in sides)
        except _UNREADABLE as error:
            return f"the array cannot be opened: {error}".rstrip(" .")
        result = theirs if ours.shape == base.shape else ours
        return cls(base, ours, theirs, result, _edges(documents))


def _edges(documents: Sequence[bytes]) -> Edges:
    """Return the borders of the chunks. A grid with a list of chunks is longest where the array has grown."""
    lengths = zip(*map(chunk_lengths, documents), strict=True)
    return tuple(
        [0, *max((list(accumulate(each)) for each in axis if isinstance(each, list)), key=len)]
        if any(isinstance(each, list) for each in axis)
        else int(axis[0])
        for axis in lengths
    )


def _session(side: Side) -> Session:
    session = side.session
    assert isinstance(session, Session)
    return session


def _for_chunks[R](
    function: Callable[[Coords], R], chunks: U32, edges: Edges, dtype: np.dtype[Any]
) -> Iterator[tuple[Coords, R]]:
    """Call a function for chunks, a few at the same time. Yield their coordinates with the results."""
    sizes = [max(map(int, np.diff(edge))) if isinstance(edge, list) else edge for edge in edges]
    memory = prod(sizes) * _COPIES * (dtype.itemsize or _STRING)
    at_once = max(1, min(_MEMORY // max(memory, 1), SIZES[Purpose.CHUNK_COPIES]))
    for some in batched(map(tuple, chunks.tolist()), at_once):
        yield from zip(some, map_bounded(Purpose.CHUNK_COPIES, function, some), strict=True)


def _box(edges: Edges, at: Coords) -> Box:
    """Return the cells of a chunk, also those beyond the shape of the array."""
    return tuple(
        slice(edge[i], edge[i + 1]) if isinstance(edge, list) else slice(i * edge, (i + 1) * edge)
        for i, edge in zip(at, edges, strict=True)
    )


def _inside(array: zarr.Array[Any], box: Box) -> Box:
    """Return the cells of a box that an array has, relative to the box."""
    pairs = zip(box, array.shape, strict=True)
    return tuple(slice(0, max(0, min(part.stop, size) - part.start)) for part, size in pairs)


def _in_array(inside: Box, box: Box) -> Box:
    """Return cells relative to a box as cells of the array."""
    return tuple(slice(part.start, part.start + each.stop) for part, each in zip(box, inside, strict=True))


def _elements(array: zarr.Array[Any], box: Box) -> NDArray[Any]:
    """Return the elements of a box. Cells that the array does not have are the fill value."""
    elements = np.full([part.stop - part.start for part in box], array.fill_value, array.dtype)
    inside = _inside(array, box)
    if all(each.stop for each in inside):
        elements[inside] = array[_in_array(inside, box)]
    return elements


def _removed(base: zarr.Array[Any], array: zarr.Array[Any], box: Box) -> NDArray[np.bool_]:
    """Return which cells of a box are in the base and not in the array."""
    removed = np.zeros([part.stop - part.start for part in box], np.bool_)
    removed[_inside(base, box)] = True
    removed[_inside(array, box)] = False
    return removed


def _differ(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which elements have different bits; for elements of variable length, which differ."""
    size = one.dtype.itemsize
    if one.dtype.hasobject or one.dtype.kind == "T":
        return np.asarray(one != other, np.bool_)
    if not size:
        return np.zeros(one.shape, np.bool_)
    flat = [np.ascontiguousarray(each).reshape(-1) for each in (one, other)]
    if size in (1, 2, 4, 8):
        bits = [each.view(f"u{size}") for each in flat]
        return np.asarray(bits[0] != bits[1]).reshape(one.shape)
    rows = [each.view(np.uint8).reshape(-1, size) for each in flat]
    return np.asarray((rows[0] != rows[1]).any(axis=1)).reshape(one.shape)


def _merge(arrays: _Arrays, at: Coords, otherwise: VersionSelection) -> _Merged:
    """Merge one chunk."""
    box = _box(arrays.edges, at)
    base, ours, theirs = (_elements(each, box) for each in (arrays.base, arrays.ours, arrays.theirs))
    without = [_removed(arrays.base, each, box) for each in (arrays.ours, arrays.theirs)]
    changed = [_differ(base, ours) | without[0], _differ(base, theirs) | without[1]]
    clash = changed[0] & changed[1] & (_differ(ours, theirs) | (without[0] != without[1]))
    clashes = int(np.count_nonzero(clash))
    cells = tuple(
        tuple(int(part.start + i) for part, i in zip(box, cell, strict=True))
        for cell in np.argwhere(clash)[:_CELLS_NAMED]
    )
    if clashes and otherwise is _FAIL:
        return _Merged(clashes=clashes, cells=cells)
    from_theirs = changed[1] & ~changed[0] if otherwise is not _THEIRS else changed[1]
    elements = ours.copy()
    elements[from_theirs] = theirs[from_theirs]
    values = {_OURS: ours, _THEIRS: theirs}
    inside = _inside(arrays.result, box)
    chosen, problem, data = _FAIL, "", b""
    for side, array in ((_THEIRS, arrays.theirs), (_OURS, arrays.ours)):
        # Stored chunks may have other cells beyond.
        covers = all(mine.stop >= each.stop for mine, each in zip(_inside(array, box), inside, strict=True))
        if covers and not _differ(values[side][inside], elements[inside]).any():
            chosen = side
            break
    else:
        data, problem = _encoded(arrays.result, at, box, elements)
    if problem and otherwise is not _FAIL:
        chosen, elements = otherwise, values[otherwise]
    lost = {
        side: int(np.count_nonzero(change & _differ(values[side], elements)))
        for side, change in zip((_OURS, _THEIRS), changed, strict=True)
    }
    return _Merged(chosen, data, lost, clashes, cells, problem)


def _encoded(array: zarr.Array[Any], at: Coords, box: Box, elements: NDArray[Any]) -> tuple[bytes, str]:
    """Return the bytes of a chunk, or why it cannot be stored exactly."""
    chunks: dict[str, Any] = {}
    place = StorePath(MemoryStore(chunks), "")
    config = ArrayConfig(order="C", write_empty_chunks=True)
    scratch: zarr.Array[Any] = zarr.Array(zarr.AsyncArray(array.metadata, place, config))
    inside = _inside(array, box)
    cells = _in_array(inside, box)
    try:
        scratch[cells] = elements[inside]
        (data,) = chunks.values()
        stored = np.asarray(scratch[cells], elements.dtype)
    except Exception as error:  # codecs raise errors of any class
        return b"", f"the chunk {list(at)} cannot be encoded: {type(error).__name__}: {error}".rstrip(" .:")
    if _differ(np.asarray(stored).reshape(elements[inside].shape), elements[inside]).any():
        return b"", f"the codecs do not store the elements of the chunk {list(at)} exactly"
    return data.to_bytes(), ""


def _is_longer(conflict: Conflict) -> bool:
    """Return whether theirs only made an array longer, so that the chunks of ours still fit."""
    before, after = (json.loads(side.metadata or b"{}") for side in (conflict.base, conflict.theirs))
    old, new = before.pop("shape", []), after.pop("shape", [])
    if len(old) != len(new) or not same_encoding(
        conflict.base.metadata or b"{}", conflict.theirs.metadata or b"{}"
    ):
        return False
    is_same = {**before, "chunk_grid": None} == {**after, "chunk_grid": None}
    return is_same and all(mine <= yours for mine, yours in zip(old, new, strict=True))


def _changes_of_theirs(conflict: Conflict) -> Iterator[DiscardedValues]:
    """Yield the values of theirs that are lost if the session drops chunks or nodes."""
    base, theirs = _session(conflict.base), _session(conflict.theirs)
    before, after = base.workspace.node_table(), theirs.workspace.node_table()
    path = conflict.theirs.path or conflict.path
    at, below = after.find_node(path), after.below(path)
    rows = np.array([*([at] if at >= 0 else []), *range(below.start, below.stop)], np.int64)
    rows = rows[after.is_array[rows]]
    for row, same in zip(rows.tolist(), rows_of(before, after.ids[rows]).tolist(), strict=True):
        new = after.paths.text(row)
        old = before.paths.text(same) if same >= 0 else None
        chunks = conflict.chunks
        if chunks is None:
            table = theirs.workspace.ref_table(new)
            earlier = None if old is None else base.workspace.ref_table(old)
            chunks = table.index if earlier is None else differing(earlier, table)
        yield from _changes((base, old), (theirs, new), _THEIRS, chunks)


def _changes(
    before: tuple[Session, str | None], after: tuple[Session, str], side: VersionSelection, chunks: U32
) -> Iterator[DiscardedValues]:
    """Yield the number of values that a side changed in some chunks of an array, or of a new array."""
    places = [after] if before[1] is None else [after, (before[0], before[1])]
    documents = [session.workspace.require_array(path).user_data for session, path in places]
    try:
        arrays = [array_at(session, path) for session, path in places]
    except _UNREADABLE:
        arrays = []
    if not arrays or encoding_difference(documents, ()):
        yield DiscardedValues(after[1], side, None, len(chunks))
        return
    array, old = arrays[0], None if before[1] is None else arrays[1]
    edges = _edges(documents)

    def count(at: Coords) -> int:
        box = _box(edges, at)
        new = _elements(array, box)
        if old is None:
            return int(np.count_nonzero(_differ(np.full_like(new, array.fill_value), new)))
        return int(np.count_nonzero(_differ(_elements(old, box), new) | _removed(old, array, box)))

    counts = [each for _, each in _for_chunks(count, chunks, edges, array.dtype)]
    if any(counts):
        yield DiscardedValues(after[1], side, sum(counts), int(np.count_nonzero(counts)))
