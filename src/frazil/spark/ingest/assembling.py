"""The plan of an ingest, on the driver: what of the files is new, which arrays it needs, and the items of
work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from frazil.errors import AlreadyExistsError, ErrorKind, InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.repository.session import Session
from frazil.spark.ingest import record as recorded
from frazil.spark.ingest.arrays import NAN_FILL, TargetArray, create, open_target, read_labels, target_array
from frazil.spark.ingest.axis import Axis, Mode, Pieces, place, positions
from frazil.spark.ingest.combining import Combined, Family, combine, holes
from frazil.spark.ingest.inspection import Looked, Options, Problem
from frazil.spark.ingest.layout import PACKING, Chunked, values_digest
from frazil.spark.ingest.pattern import Expanded
from frazil.spark.ingest.planning import (
    FileTable,
    Group,
    can_shift,
    file_pieces,
    fixed_items,
    items,
    most_steps,
    moved_old_items,
    require_aligned,
    small_chunk,
)
from frazil.spark.ingest.report import Report, refused
from frazil.spark.ingest.sources import VariableSchema
from frazil.spark.ingest.units import is_time
from frazil.spark.ingest.working import Either, Written, without_container
from frazil.spark.job import Tasks
from frazil.spark.versions import Input, Target

type OnProblem = Literal["fail", "skip", "quarantine"]
type OnChange = Literal["fail", "ignore", "rewrite"]

#: So many bad files are named in a commit's metadata; all of them are in the group's record.
_NAMED: Final = 100


def files_input(looked: Looked) -> Input:
    """All files, as an input of the job: their number and a digest of names and fingerprints."""
    hashed = hashlib.sha256("\0".join(looked.urls).encode())
    hashed.update(looked.fingerprint.tobytes())
    return Input("files", None, "", (f"{len(looked.urls)} files", looked.urls[0]), hashed.hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted: the arguments of `ingest`, and what is known of the files."""

    target: Target
    files: Expanded
    looked: Looked
    dim: str | None
    mode: Mode
    chunks: Mapping[str, int]
    encoding: Mapping[str, Mapping[str, Any]]
    virtual: bool
    on_problem: OnProblem
    on_change: OnChange
    allow: frozenset[str]
    unpack: bool
    options: Options

    def parameters(self, variables: Collection[str] | None) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "concat_dim": self.dim,
            "variables": None if variables is None else sorted(variables),
            "chunks": dict(self.chunks),
            "encoding": {name: sorted(map(repr, each.items())) for name, each in self.encoding.items()},
            "virtual": self.virtual,
            "on_problem": self.on_problem,
            "on_change": self.on_change,
            "unpack": self.unpack,
            "format": self.options.format,
            "source_group": self.options.group,
        }  # fmt: skip


@dataclass(slots=True)
class _Arrays:
    """The arrays of a plan, by number."""

    targets: list[TargetArray] = field(default_factory=list)
    existed: list[bool] = field(default_factory=list)
    shifted: list[bool] = field(default_factory=list)
    adds_axis: list[bool] = field(default_factory=list)

    def add(self, target: TargetArray, existed: bool, adds_axis: bool) -> int:
        self.targets.append(target)
        self.existed.append(existed)
        self.shifted.append(False)
        self.adds_axis.append(adds_axis)
        return len(self.targets) - 1


def plan_ingest(session: Session, request: Request) -> tuple[Tasks, Report, dict[str, Any]]:
    """Check the files against each other and the repository, make and resize arrays, write labels, and cut
    the rest into items.
    """
    looked, group = request.looked, request.target.group
    record = recorded.load(session, group)
    there = _Group(session, group)
    same, changed = _known(looked, record)
    left_out = changed if request.on_change != "rewrite" else np.zeros_like(changed)
    combined = combine(
        looked,
        request.files,
        request.dim,
        unpack=request.unpack,
        only=~same & ~left_out,
        units=there.time_units(),
    )
    problems = [
        *(
            each
            for each, known in zip(looked.problems, _rows(looked, looked.problems), strict=True)
            if not same[known]
        ),
        *combined.problems,
    ]
    if request.on_change != "rewrite":
        fatal = request.on_change == "fail"
        text = "was ingested with other contents; on_change='rewrite' replaces them, 'ignore' leaves them"
        problems += [
            Problem("changed", text, looked.urls[i], fatal) for i in np.flatnonzero(changed).tolist()
        ]
    axis, place_problems = _placed(request, combined, there, changed) if combined.families else (None, [])
    problems += place_problems
    report = Report(looked, combined, tuple(problems), int(same.sum()))
    fatal_ones = report.fatal(request.allow)
    if fatal_ones and request.on_problem == "fail":
        raise refused(fatal_ones, len(looked.urls))
    written = np.zeros(len(looked.urls), np.bool_)
    for family in combined.families:
        written[family.files] = True
    bad = ~written & ~same & ~changed
    said = _said(request, report, written, bad)
    tasks = Tasks([])
    if combined.families:
        tasks = _tasks(session, request, combined, axis, there)
    kept = written | (bad if request.on_problem == "quarantine" else False)
    if kept.any():
        urls = [looked.urls[i] for i in np.flatnonzero(kept).tolist()]
        now = recorded.added(record, urls, looked.fingerprint[kept], looked.size[kept], bad[kept])
        unlimited = sorted({name for family in combined.families for name in family.layout.unlimited})
        before = there.record_attrs()
        attrs = {"concat_dim": request.dim, "unlimited": sorted({*unlimited, *before.get("unlimited", [])})}
        recorded.save(session, group, record, now, attrs)
    return tasks, report, said


def _rows(looked: Looked, problems: Sequence[Problem]) -> list[int]:
    rows = dict(zip(looked.urls, range(len(looked.urls)), strict=True))
    return [rows[each.url or ""] for each in problems]


def _known(looked: Looked, record: recorded.Record) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which files are known as they are, and which were written with other contents."""
    rows = record.find(looked.urls)
    known = rows >= 0
    if not known.any():
        return known, known.copy()
    same = known & (record.fingerprint[rows] == looked.fingerprint).all(axis=1)
    return same, known & ~same & ~record.quarantined[rows] & (looked.layout >= 0)


def _said(
    request: Request, report: Report, written: NDArray[np.bool_], bad: NDArray[np.bool_]
) -> dict[str, Any]:
    names = [request.looked.urls[i] for i in np.flatnonzero(bad).tolist()[:_NAMED]]
    left = "quarantined" if request.on_problem == "quarantine" else "skipped"
    return {
        "mode": request.mode,
        "files": int(written.sum()),
        "unchanged": report.unchanged,
        "bytes": int(request.looked.size[written].sum()),
        "digest": files_input(request.looked).digest,
        left: {"files": int(bad.sum()), "names": names},
    }


class _Group:
    """What is in the group already."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.path = group.strip("/")
        node = session.workspace.node(f"/{self.path}")
        self.arrays: dict[str, zarr.Array[Any]] = {}
        if node is not None:
            self.arrays = {name: open_target(session.store, f"{self.path}/{name}") for name in self._names()}

    def _names(self) -> list[str]:
        workspace = self.session.workspace
        at = f"/{self.path}".rstrip("/")
        return [name for name in workspace.children(at or "/") if workspace.is_array(f"{at}/{name}")]

    def with_dim(self, dim: str) -> list[str]:
        return [name for name, each in self.arrays.items() if dim in (each.metadata.dimension_names or ())]  # type: ignore[union-attr]

    def time_units(self) -> dict[str, str]:
        units = {name: each.attrs.get("units") for name, each in self.arrays.items()}
        return {name: str(each) for name, each in units.items() if is_time(each)}

    def record_attrs(self) -> dict[str, Any]:
        path = "/".join(filter(None, [self.path, recorded.HIDDEN]))
        if self.session.workspace.node(f"/{path}") is None:
            return {}
        return dict(zarr.open_group(self.session.store, path=path, mode="r").attrs)


def _placed(
    request: Request, combined: Combined, there: _Group, changed: NDArray[np.bool_]
) -> tuple[Axis | None, list[Problem]]:
    """The axis of the dataset with the labels of the files on it."""
    dim, mode = request.dim, request.mode
    names = {name for family in combined.families for name in family.layout.variables}
    clash = sorted(names & there.arrays.keys())
    if mode == "create" and clash:
        raise AlreadyExistsError(
            f"mode 'create': expected no array `{clash[0]}` in `/{there.path}`, found one; "
            "modes 'append', 'insert', 'upsert' and 'backfill' write into what is there"
        )
    if dim is None:
        return None, []
    along = there.with_dim(dim)
    length = max((there.arrays[name].shape[_axis(there.arrays[name], dim)] for name in along), default=0)
    if combined.labels is None or combined.axis is None:
        if mode not in ("create", "append") and length:
            raise InvalidInputError(
                f"mode {mode!r}: expected labels of {dim}, found none in the files", ErrorKind.INVALID_KEY
            )
        return Axis(length + combined.length, None, np.arange(length)), []
    if dim in there.arrays:
        old = read_labels(there.arrays[dim])
    elif length:
        raise InvalidInputError(
            f"expected labels of {dim} in `/{there.path}`, as the files have them, found none",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    else:
        old = combined.axis[:0]
        mode = "create" if mode != "insert" else mode

    def placed(how: Mode, labels: NDArray[Any]) -> Axis:
        return place(
            how, old, labels, descending=combined.descending, units=combined.units, calendar=combined.calendar
        )

    if changed.any() and request.on_change == "rewrite":
        counts = np.diff(request.looked.label_start)
        again = combined.labels[np.repeat(changed, counts)]
        fresh = combined.axis[~np.isin(combined.axis, again)]
        if len(fresh):
            placed(mode, fresh)
        axis = placed("backfill" if mode == "backfill" else "upsert", combined.axis)
    else:
        axis = placed(mode, combined.axis)
    return axis, holes(axis.labels, combined.units, combined.calendar, old)


def _axis(array: zarr.Array[Any], dim: str) -> int:
    return list(array.metadata.dimension_names or ()).index(dim)  # type: ignore[union-attr]


def _tasks(session: Session, request: Request, combined: Combined, axis: Axis | None, there: _Group) -> Tasks:
    looked, dim = request.looked, request.dim
    store = session.store
    if not there.arrays:
        root = zarr.open_group(store, path=there.path, mode="a", zarr_format=3)
        with request.options.open(
            looked.urls[min(int(each.files[0]) for each in combined.families)]
        ) as first:
            attrs = first.schema().attrs
        root.attrs.update({name: value for name, value in attrs.items() if name not in root.attrs})
    arrays = _Arrays()
    groups: list[tuple[Group, bool]] = []
    fixed: list[tuple[int, list[int], bool]] = []
    length = 0 if axis is None else axis.length
    taken: set[str] = set()
    unpacked: set[str] = set()
    for family in combined.families:
        pieces = None if axis is None else _pieces(looked, combined, family, axis)
        chosen = _variables(request, combined, family, taken)
        unpacked |= {
            each.name for each in chosen if request.unpack and _is_packed(family.variable(each.name))
        }
        numbers: list[tuple[int, bool]] = []
        windows = _windows(request, family, there)
        for target, virtual in _targets(request, family, chosen, there, length, windows):
            existing = there.arrays.get(target.name)
            if existing is None:
                create(store, target)
            elif target.axis is None:
                _require_same(existing, family, target, windows)
                continue
            adds = family.layout.adds_axis and target.axis is not None
            numbers.append((arrays.add(target, existing is not None, adds), virtual))
        for virtual in (False, True):
            mine = [number for number, kind in numbers if kind == virtual]
            along = tuple(number for number in mine if arrays.targets[number].axis is not None)
            rest = [number for number in mine if arrays.targets[number].axis is None]
            if along and pieces is not None:
                groups.append((Group(along, pieces), virtual))
            if rest:
                fixed.append((int(family.files[0]), rest, virtual))
    _require_containers(session, looked, groups, fixed)
    work_items: list[Either] = []
    table = _table(looked, combined)
    if axis is not None and dim is not None:
        bystanders = _grown(session, there, arrays, axis, dim)
        _write_labels(store, there, combined, axis, dim)
        for group, virtual in groups:
            if virtual:
                for number in group.arrays:
                    require_aligned(arrays.targets[number], group.pieces, axis, looked.urls)
            made = items(arrays.targets, arrays.existed, arrays.shifted, group, axis, table)
            work_items += [Either(item, virtual) for item in made]
        work_items += map(Either, moved_old_items(arrays.targets, bystanders, axis, table))
    for file, rest, virtual in fixed:
        work_items += [Either(item, virtual) for item in fixed_items(arrays.targets, rest, file, table)]
    shared = Written(
        tuple(arrays.targets),
        tuple(arrays.shifted),
        tuple(arrays.adds_axis),
        request.options,
        frozenset(unpacked),
    )
    return Tasks(work_items, shared)


def _table(looked: Looked, combined: Combined) -> FileTable:
    checks = [etag or _whole(time) for etag, time in zip(looked.etag, looked.modified, strict=True)]
    return FileTable(looked.urls, looked.own, combined.moves, checks)


def _whole(time: datetime | None) -> datetime | None:
    """References remember whole seconds, and the file is not newer than they say."""
    return None if time is None else time.replace(microsecond=0) + timedelta(seconds=bool(time.microsecond))


def _pieces(looked: Looked, combined: Combined, family: Family, axis: Axis) -> Pieces:
    lengths = looked.length[family.files]
    ends = np.cumsum(lengths)
    inside = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
    if combined.labels is not None:
        at = axis.find(combined.labels[np.repeat(looked.label_start[family.files], lengths) + inside])
    else:
        assert combined.position is not None
        at = np.repeat(combined.position[family.files] + len(axis.old), lengths) + inside
    return file_pieces(family.files, lengths, at)


def _variables(request: Request, combined: Combined, family: Family, taken: set[str]) -> list[VariableSchema]:
    """The variables of a family that tasks write; what two families share is taken from the first."""
    chosen = []
    for name in family.layout.variables:
        if name == request.dim and combined.labels is not None:
            continue
        if name in taken:
            continue
        taken.add(name)
        variable = family.variable(name)
        if name in combined.targets:
            attrs = {**variable.attrs, "units": combined.targets[name].attrs.get("units")}
            attrs = attrs if attrs["units"] is not None else variable.attrs
            variable = replace(variable, attrs=attrs, dtype=combined.targets[name].dtype)
        if request.unpack and _is_packed(variable):
            variable = _unpacked(variable)
        chosen.append(variable)
    return chosen


def _is_packed(variable: VariableSchema) -> bool:
    return not variable.coordinate and any(name in variable.attrs for name in PACKING)


def _unpacked(variable: VariableSchema) -> VariableSchema:
    empty = xr.Variable(
        variable.dims, np.empty([0] * len(variable.dims), variable.dtype), dict(variable.attrs)
    )
    found = xr.conventions.decode_cf_variable(variable.name, empty, decode_times=False)
    attrs = {**found.attrs, "_FillValue": float("nan")}
    return replace(variable, attrs=attrs, dtype=found.dtype, fill_value=None)


def _windows(request: Request, family: Family, there: _Group) -> dict[str, tuple[int, int]]:
    """Where files have a part of a dimension that is there: their labels, which have to be a run of those."""
    dims = [dim for dim in family.layout.dims if dim in there.arrays and dim != request.dim]
    if request.mode in ("create", "append") or not dims:
        return {}
    with request.options.open(request.looked.urls[int(family.files[0])]) as reader:
        coords = reader.schema().coords
    windows = {}
    for dim in dims:
        if dim not in coords or np.array_equal(labels := read_labels(there.arrays[dim]), coords[dim]):
            continue
        found = positions(labels, coords[dim])
        if not len(found) or found[0] < 0 or (np.diff(found) != 1).any():
            raise InvalidInputError(
                f"expected labels of {dim} in the files that are a run of those of `/{there.path}`, "
                "found others",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        windows[dim] = (int(found[0]), int(found[-1]) + 1)
    return windows


def _targets(
    request: Request,
    family: Family,
    chosen: Sequence[VariableSchema],
    there: _Group,
    length: int,
    windows: Mapping[str, tuple[int, int]],
) -> list[tuple[TargetArray, bool]]:
    """The arrays of a family; those of data first, so that small ones can follow their chunks."""
    made: list[tuple[TargetArray, bool]] = []
    most = most_steps(request.looked.length[family.files])
    for variable in sorted(chosen, key=lambda each: each.coordinate):
        path = request.target.path(variable.name)
        spec = (family.layout.virtual or {}).get(variable.name)
        virtual = spec if isinstance(spec, Chunked) else None
        target = target_array(
            variable, path, request.dim, length, request.chunks, request.encoding.get(variable.name), virtual
        )
        existing = there.arrays.get(variable.name)
        if existing is not None:
            target = _like(existing, target, virtual, windows)
        elif windows.keys() & set(target.dims):
            raise InvalidInputError(
                f"expected `{target.path}` in the repository, since files have a part of it only, found none",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        elif (
            virtual is None
            and target.axis is not None
            and "chunks" not in request.encoding.get(variable.name, {})
            and request.dim not in request.chunks
        ):
            target = _with_steps(target, min(target.chunks[target.axis], most))
            data = [each for each, _ in made if each.axis is not None]
            if data and variable.coordinate:
                widest = max(data, key=lambda each: each.row)
                step = widest.grid[widest.axis or 0]
                chunk = small_chunk(target.row, sum(each.row for each in data), step, length, most)
                target = _with_steps(target, chunk)
        made.append((target, virtual is not None))
    return made


def _with_steps(target: TargetArray, steps: int) -> TargetArray:
    at = target.axis or 0
    return replace(target, chunks=(*target.chunks[:at], steps, *target.chunks[at + 1 :]))


def _like(
    array: zarr.Array[Any],
    target: TargetArray,
    virtual: Chunked | None,
    windows: Mapping[str, tuple[int, int]],
) -> TargetArray:
    """An array that is there, if the variable fits to it; else ``InvalidInputError``."""
    dims = tuple(array.metadata.dimension_names or ())  # type: ignore[union-attr]
    fixed = [i for i, dim in enumerate(target.dims) if i != target.axis and dim not in windows]
    said: list[tuple[str, Any, Any]] = [("dimensions", dims, target.dims)]
    if dims == target.dims:
        said.append(("shape", [array.shape[i] for i in fixed], [target.shape[i] for i in fixed]))
    attrs = dict(array.attrs)
    times = is_time(attrs.get("units")) and is_time(target.attrs.get("units"))
    if not times:
        said += [
            ("dtype", array.dtype, target.dtype),
            ("units", attrs.get("units"), target.attrs.get("units")),
        ]
    said += [(name, attrs.get(name), target.attrs.get(name)) for name in (*PACKING, "calendar")]
    here, new = (_none_if_nan(each.get("_FillValue")) for each in (attrs, target.attrs))
    said.append(("_FillValue", here, new))
    if virtual is not None:
        codecs = tuple(map(_plain, array.metadata.to_dict()["codecs"]))  # type: ignore[arg-type]
        said += [
            ("chunks", array.chunks, target.chunks),
            ("codecs", codecs, tuple(map(_decoded, target.codecs))),
        ]
    for what, here, new in said:
        if here != new if isinstance(here, np.dtype) else repr(here) != repr(new):
            raise InvalidInputError(
                f"expected {what} {here} of `{target.path}` in the repository, found {new} in the files",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
    window = None
    if windows.keys() & set(dims):
        if virtual is not None:
            raise InvalidInputError(
                f"virtual: expected whole steps of `{target.path}`, found files with a part of them: "
                "copy them",
                ErrorKind.UNIMPLEMENTED,
            )
        window = tuple(windows.get(dim, (0, size)) for dim, size in zip(dims, array.shape, strict=True))
    shape = tuple(target.shape[i] if i == target.axis else size for i, size in enumerate(array.shape))
    return replace(
        target,
        shape=shape,
        window=window,
        dtype=array.dtype,
        chunks=array.chunks,
        shards=array.shards,
        fill_value=array.fill_value,
        attrs=attrs,
    )


def _none_if_nan(fill: Any) -> Any:
    return None if fill == NAN_FILL else fill


def _require_same(
    array: zarr.Array[Any], family: Family, target: TargetArray, windows: Mapping[str, tuple[int, int]]
) -> None:
    """What does not go on must be what is there, as far as it is compared."""
    expected = family.layout.values.get(target.name)
    if expected is None:
        return
    part = tuple(slice(*windows[dim]) if dim in windows else slice(None) for dim in target.dims)
    if values_digest(np.asarray(array[part])) != expected:
        raise InvalidInputError(
            f"expected the values of `{target.path}` that are in the repository, found others in the files",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def _require_containers(
    session: Session,
    looked: Looked,
    groups: Sequence[tuple[Group, bool]],
    fixed: Sequence[tuple[int, list[int], bool]],
) -> None:
    numbers = [group.pieces.source for group, virtual in groups if virtual]
    numbers += [np.array([file]) for file, _, virtual in fixed if virtual]
    if not numbers:
        return
    urls = [looked.urls[i] for i in np.unique(np.concatenate(numbers)).tolist()]
    locations = [url if "://" in url else Path(url).absolute().as_uri() for url in urls]
    found = session.workspace.context.virtual.matching(locations)
    if not found.all():
        raise without_container(locations[int(np.argmin(found))])


def _grown(session: Session, there: _Group, arrays: _Arrays, axis: Axis, dim: str) -> list[int]:
    """Resize what is there, and move the chunks that can be moved as a whole. Gives the numbers of arrays
    whose steps move and of which no file has anything.
    """
    moves = axis.first_moved < len(axis.old)
    named = {target.path.rpartition("/")[2]: number for number, target in enumerate(arrays.targets)}
    bystanders = []
    for name in there.with_dim(dim):
        array = there.arrays[name]
        at = _axis(array, dim)
        shape = (*array.shape[:at], axis.length, *array.shape[at + 1 :])
        if shape != array.shape:
            array.resize(shape)
        if name == dim or not moves:
            continue
        number = named.get(name)
        if number is None:
            number = arrays.add(_found(there, name, at, shape), True, False)
            bystanders.append(number)
        target = arrays.targets[number]
        if can_shift(target, axis):
            _shift(session, target, axis)
            arrays.shifted[number] = True
        elif target.codecs:
            raise InvalidInputError(
                f"virtual, mode 'backfill': expected to move whole chunks of `{target.path}` "
                f"({target.grid[at]} steps), found labels within chunks: copy this variable",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
    return [number for number in bystanders if not arrays.shifted[number]]


def _found(there: _Group, name: str, axis: int, shape: tuple[int, ...]) -> TargetArray:
    array = there.arrays[name]
    dims = tuple(str(each) for each in array.metadata.dimension_names or ())  # type: ignore[union-attr]
    path = f"/{there.path}/{name}".replace("//", "/")
    return TargetArray(
        path, name, dims, shape, array.dtype, array.chunks, axis, array.fill_value, {}, array.shards
    )


def _shift(session: Session, target: TargetArray, axis: Axis) -> None:
    """Move references: chunk ``i`` along the axis goes where its first step goes."""
    at, step = target.axis or 0, target.grid[target.axis or 0]
    workspace = session.workspace
    table = workspace.table(target.path)
    if not len(table):
        return
    index = table.index.copy()
    index[:, at] = (axis.old[::step] // step)[index[:, at]]
    moved = replace(table, index=index).sorted()
    workspace.set_refs(
        target.path, ChunkTable.merge([ChunkTable.from_absent(table.index), moved]), borrowed=True
    )


def _write_labels(store: Any, there: _Group, combined: Combined, axis: Axis, dim: str) -> None:
    if axis.labels is None or dim not in combined.targets:
        return
    path = "/".join(filter(None, [there.path, dim]))
    if dim not in there.arrays:
        variable = combined.targets[dim]
        target = target_array(replace(variable, dims=(dim,), shape=(-1,)), path, dim, axis.length)
        create(store, target)
        start = 0
    else:
        start = min(axis.first_moved, len(axis.old))
    array = open_target(store, path)
    if array.shape[0] != axis.length:
        array.resize((axis.length,))
    if start < axis.length:
        array[start:] = axis.labels[start:].astype(array.dtype)


def _plain(codec: Any) -> str:
    return repr(sorted(dict(codec).items()))


def _decoded(codec: str) -> str:
    return _plain(json.loads(codec))
