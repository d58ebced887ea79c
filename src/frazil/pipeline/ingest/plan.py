"""The plan of an ingest, on the driver: what of the files is new, which arrays it needs, and the items of
work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from frazil.errors import AlreadyExistsError, ErrorKind, InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.jobs.job import Tasks
from frazil.pipeline.ingest import ledger as recorded
from frazil.pipeline.ingest.arrays import TargetArray, create, open_target, read_labels, target_array
from frazil.pipeline.ingest.axis import Axis, Mode, Pieces, place, positions, runs
from frazil.pipeline.ingest.existing import (
    Present,
    axis_of,
    dims_of,
    require_growth,
    require_same,
    targets_of,
    windows_of,
)
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.file_schemas import PACKING
from frazil.pipeline.ingest.inspection import Looked
from frazil.pipeline.ingest.items import (
    FileTable,
    Group,
    can_shift,
    fixed_items,
    items,
    most_steps,
    moved_old_items,
    require_aligned,
)
from frazil.pipeline.ingest.notes import notes
from frazil.pipeline.ingest.options import Request, files_input
from frazil.pipeline.ingest.plain_chunks import recut
from frazil.pipeline.ingest.problems import Problem, refused
from frazil.pipeline.ingest.reconcile import Combined, combine
from frazil.pipeline.ingest.references import without_container
from frazil.pipeline.ingest.report import Report
from frazil.pipeline.ingest.shared_coordinates import differing, joined_pieces, others, require_one_length
from frazil.pipeline.ingest.step_order import holes
from frazil.pipeline.ingest.task_files import Written
from frazil.pipeline.ingest.tasks import Either
from frazil.pipeline.ingest.time_conversion import is_time_or_duration
from frazil.pipeline.ingest.time_units import TimeUnits
from frazil.readers.reader import VariableSchema
from frazil.repository.session.session import Session

#: So many bad files are named in a commit's metadata; all of them are in the group's record.
_NAMED: Final = 100


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
    there = Present(session, group)
    before = recorded.load_attrs(session, group)
    same, changed = _known(looked, record)
    if not all_there(request.variables, before):
        same = np.zeros_like(same)
    left_out = changed if request.on_change != "rewrite" else np.zeros_like(changed)

    def combined_of(same: NDArray[np.bool_]) -> Combined:
        return combine(
            looked,
            request.files,
            request.dim,
            unpack=request.unpack,
            only=~same & ~left_out,
            allow=request.allow,
            stored=there.stored(),
        )

    combined = combined_of(same)
    elsewhere = _elsewhere(request, record, combined, there)
    if elsewhere.any():
        same = same | elsewhere
        combined = combined_of(same)
    request = replace(request, dim=combined.dim)
    known = {looked.urls[i] for i in np.flatnonzero(same).tolist()}
    problems = [
        *(each for each in looked.problems if each.url not in known),
        *combined.problems,
    ]
    if request.on_change != "rewrite":
        fatal = request.on_change == "fail"
        text = "was ingested with other contents"
        problems += [
            Problem("changed", text, looked.urls[i], fatal) for i in np.flatnonzero(changed).tolist()
        ]
    axis, place_problems = _placed(request, combined, there, changed) if combined.families else (None, [])
    problems += [replace(each, fatal="hole" not in request.allow) for each in place_problems]
    problems += notes(looked, combined)
    report = Report(looked, combined, tuple(problems), int(same.sum()))
    if request.on_problem == "fail" and (fatal_ones := report.fatal()):
        raise refused(fatal_ones, len(looked.urls))
    written = np.zeros(len(looked.urls), np.bool_)
    for family in combined.families:
        written[family.files] = True
    bad = ~written & ~same & ~changed
    if request.on_problem == "fail" and bad.any():  # whatever the reason: no commit lacks a file in silence
        texts = [Problem("target", "is left out", looked.urls[i]) for i in np.flatnonzero(bad).tolist()]
        raise refused(texts, len(looked.urls))
    said = _said(request, report, written, bad)
    tasks = Tasks([])
    if combined.families:
        tasks = _tasks(session, request, combined, axis, there)
        tasks = replace(tasks, reads=there.labels())
    kept = written | (bad if request.on_problem == "quarantine" else False)
    if kept.any():
        urls = [looked.urls[i] for i in np.flatnonzero(kept).tolist()]
        now = recorded.added(record, urls, looked.fingerprint[kept], looked.size[kept], bad[kept])
        unlimited = sorted({name for family in combined.families for name in family.layout.unlimited})
        dim = request.dim or before.get("concat_dim")
        attrs = {"concat_dim": dim, "unlimited": sorted({*unlimited, *before.get("unlimited", [])})}
        every = bool((record.find(urls) >= 0).sum() == len(record.url))
        taken = _taken(request.variables, before, every) if len(record.url) else request.variables
        if taken is not None:
            attrs["variables"] = sorted(taken)
        recorded.save(session, group, record, now, attrs)
    return tasks, report, said


def all_there(variables: frozenset[str] | None, attrs: Mapping[str, Any]) -> bool:
    """Whether these variables (None: all) are among those that were taken from the files of a record."""
    taken = attrs.get("variables")
    return taken is None or (variables is not None and variables.issubset(taken))


def _taken(variables: frozenset[str] | None, attrs: Mapping[str, Any], every: bool) -> frozenset[str] | None:
    """The variables (None: all) that each file of a record has given, now that these were taken from
    ``every`` one of them, or else from some and from new ones.
    """
    before = frozenset(attrs["variables"]) if "variables" in attrs else None
    if variables is None or before is None:
        return None if every else (before if variables is None else variables)
    return variables | before if every else variables & before


def _known(looked: Looked, record: recorded.Record) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which files are known as they are, and which were written with other contents."""
    rows = record.find(looked.urls)
    known = rows >= 0
    if not known.any():
        return known, known.copy()
    same = known & (record.fingerprint[rows] == looked.fingerprint).all(axis=1)
    return same, known & ~same & ~record.quarantined[rows] & (looked.layout >= 0)


def _elsewhere(
    request: Request, record: recorded.Record, combined: Combined, there: Present
) -> NDArray[np.bool_]:
    """Files that were written under another name, and whose labels are there: moved, or reached by another
    path. References have to follow them, copies do not.
    """
    looked, dim = request.looked, request.dim
    found = (record.find(looked.urls) < 0) & (looked.layout >= 0)
    if request.virtual or not found.any() or not len(record.url):
        return np.zeros_like(found)
    found &= record.has(looked.fingerprint)
    if combined.labels is None or combined.axis is None or dim is None:
        return found
    if dim not in there.arrays:
        return np.zeros_like(found)
    start, counts = combined.steps.start, combined.steps.counts
    known = positions(read_labels(there.arrays[dim]), combined.labels) >= 0
    before = np.concatenate(([0], np.cumsum(known)))
    members = np.zeros_like(found)
    for family in combined.families:
        members[family.files] = True
    found &= (before[start[1:]] - before[start[:-1]] == counts) & ((counts > 0) | members)
    return found


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


def _placed(
    request: Request, combined: Combined, there: Present, changed: NDArray[np.bool_]
) -> tuple[Axis | None, list[Problem]]:
    """The axis of the dataset with the labels of the files on it."""
    dim, mode, steps = request.dim, request.mode, combined.steps
    names = {name for family in combined.families for name in family.layout.variables}
    clash = sorted(names & there.arrays.keys())
    if mode == "create" and clash:
        raise AlreadyExistsError(
            f"mode 'create': expected no array `{clash[0]}` in `/{there.path}`, found one; "
            "modes 'append', 'insert', 'upsert' and 'backfill' write into what is there"
        )
    require_growth(request, combined.families, there)
    if dim is None:
        return None, []
    along = there.with_dim(dim)
    length = max((there.arrays[name].shape[axis_of(there.arrays[name], dim)] for name in along), default=0)
    if combined.labels is None or combined.axis is None:
        if combined.length and length and (mode not in ("create", "append") or dim in there.arrays):
            raise InvalidInputError(
                f"mode {mode!r}: expected labels of {dim}, as `/{there.path}` has them, found none in the "
                "files",
                ErrorKind.INVALID_KEY,
            )
        return Axis.after(length, combined.length), []
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
            how,
            old,
            labels,
            descending=steps.descending,
            in_order=steps.in_order,
            units=steps.units,
            calendar=steps.calendar,
        )

    if changed.any() and request.on_change == "rewrite":
        places = steps.at[np.repeat(changed, steps.counts)]
        fresh = np.ones(steps.length, np.bool_)
        fresh[places[places >= 0]] = False
        if fresh.any():
            placed(mode, combined.axis[fresh])
        axis = placed("backfill" if mode == "backfill" else "upsert", combined.axis)
    else:
        axis = placed(mode, combined.axis)
    one_file = all(len(family.files) == 1 for family in combined.families)
    return axis, holes(axis.labels, steps.units, steps.calendar, old, one_file=one_file)


def _tasks(
    session: Session, request: Request, combined: Combined, axis: Axis | None, there: Present
) -> Tasks:
    looked, dim = request.looked, request.dim
    store = session.store
    _require_names(request, combined, there)
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
    taken: set[str] = set()
    unpacked: set[str] = set()
    old_scalars = _old_scalars(request, combined, there, axis)
    _require_same_scalars(request, combined, there, axis)
    _with_axes(request, combined, there, axis)
    for family in combined.families:
        pieces = None if axis is None else _pieces(combined, family, axis)
        chosen = _variables(request, combined, family, taken)
        unpacked |= {
            each.name for each in chosen if request.unpack and _is_packed(family.variable(each.name))
        }
        numbers: list[tuple[int, bool]] = []
        windows = windows_of(request, family, there)
        for target, virtual in targets_of(request, family, chosen, there, axis, pieces, windows):
            existing = there.arrays.get(target.name)
            if existing is None:
                create(store, target)
            elif target.axis is None and not _is_replaced(request, family, target):
                if "values" not in request.allow:
                    require_same(existing, family, target, windows)
                continue
            elif target.axis is not None and existing.chunks != target.chunks:
                recut(session, target.path, target.chunks, target.axis, target.dtype.itemsize)
                there.reopen(target.name)
            adds = target.name in family.along
            numbers.append((arrays.add(target, existing is not None, adds), virtual))
        if axis is not None and pieces is not None:
            several = _joined(combined, family, axis, arrays, numbers, old_scalars)
            groups += [(Group((number,), joined), False) for number, joined in several.items()]
            numbers = [each for each in numbers if each[0] not in several]
        for virtual in (False, True):
            mine = [number for number, kind in numbers if kind == virtual]
            along = tuple(number for number in mine if arrays.targets[number].axis is not None)
            rest = [number for number in mine if arrays.targets[number].axis is None]
            if along and pieces is not None:
                groups.append((Group(along, pieces), virtual))
            if rest:
                fixed.append((int(family.files[0]), rest, virtual))
    _require_lengths(there, arrays, dim)
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


def _require_names(request: Request, combined: Combined, there: Present) -> None:
    """What is said of dimensions and variables is of those that the files have, or the repository."""
    variables = {
        name for family in combined.families for name in family.layout.variables
    } | there.arrays.keys()
    dims = {
        dim for family in combined.families for each in family.layout.variables.values() for dim in each.dims
    }
    for array in there.arrays.values():
        dims.update(filter(None, array.metadata.dimension_names or ()))  # type: ignore[union-attr]
    for what, given, known in (
        ("chunks: expected dimensions", request.chunks.keys(), dims),
        ("encoding: expected variables", request.encoding.keys(), variables),
    ):
        if unknown := sorted(given - known):
            raise InvalidInputError(
                f"{what} of the files ({', '.join(sorted(known))}), found {unknown[0]!r}",
                ErrorKind.INVALID_KEY,
            )


def _table(looked: Looked, combined: Combined) -> FileTable:
    checks = [etag or _whole(time) for etag, time in zip(looked.etag, looked.modified, strict=True)]
    return FileTable(looked.urls, looked.own, combined.moves, checks, looked.fingerprint)


def _whole(time: datetime | None) -> datetime | None:
    """References remember whole seconds, and the file is not newer than they say."""
    return None if time is None else time.replace(microsecond=0) + timedelta(seconds=bool(time.microsecond))


def _joined(
    combined: Combined,
    family: Family,
    axis: Axis,
    arrays: _Arrays,
    numbers: Sequence[tuple[int, bool]],
    old_scalars: frozenset[str],
) -> dict[int, Pieces]:
    """The arrays of a family that other families have too, with the steps of all of them; those that are
    ``old_scalars`` with the new steps alone.
    """
    pieces_of = {}
    for number, _ in numbers:
        target = arrays.targets[number]
        if target.axis is None:
            continue
        sharing = list(others(combined.families, family, target.name))
        if target.name in old_scalars or len(sharing) > 1:
            pieces_of[number] = joined_pieces(
                combined.steps, sharing, axis, fresh_only=target.name in old_scalars
            )
    return pieces_of


def _require_lengths(there: Present, arrays: _Arrays, dim: str | None) -> None:
    """A dimension has one length in a group, whichever files its variables come from."""
    new = {each.path.strip("/"): (each.path, each.dims, each.shape) for each in arrays.targets}
    old = {
        array.path.strip("/"): (f"/{array.path.strip('/')}", dims_of(array), array.shape)
        for array in there.arrays.values()
    }
    require_one_length([*(each for path, each in old.items() if path not in new), *new.values()], dim)


def _old_scalars(request: Request, combined: Combined, there: Present, axis: Axis | None) -> frozenset[str]:
    """The scalars along the dimension of which the group keeps what it has, as ``allow`` says.

    New variables do not change the scalars of those that are in the group, which no file of this call has.
    """
    dim, old_scalars = request.dim, set()
    if dim is None or axis is None or len(combined.steps.start) <= 1:
        return frozenset()
    written = {name for family in combined.families for name in family.layout.variables}
    if not set(there.with_dim(dim)) - written - {dim}:
        return frozenset()
    units = TimeUnits(combined.targets, combined.moves)
    for family in combined.families:
        if family.layout.data & there.arrays.keys():
            continue
        for name in sorted(family.along & family.layout.individual & there.arrays.keys() - {dim}):
            stored = np.asarray(there.arrays[name][...])
            if not differing(request.looked, family, name, units, combined.steps, axis, stored):
                continue
            if "values" not in request.allow:
                raise InvalidInputError(
                    f"expected the values of `{request.target.path(name)}` that are in the repository, found "
                    "others in files with new variables: a group of its own (--group) can have them, "
                    "allow={'values'} (--allow values) keeps those of the repository",
                    ErrorKind.INVALID_ARRAY_METADATA,
                )
            old_scalars.add(name)
    return frozenset(old_scalars)


def _require_same_scalars(request: Request, combined: Combined, there: Present, axis: Axis | None) -> None:
    """Steps that are written again are of the level, member, ... that the group has for them.

    Times and durations may differ: a later forecast for a step replaces an earlier one. Raises
    ``InvalidInputError`` (``invalid-array-metadata``).
    """
    if axis is None or len(combined.steps.start) <= 1 or "values" in request.allow:
        return
    units = TimeUnits(combined.targets, combined.moves)
    for family in combined.families:
        if not family.layout.data & there.arrays.keys():
            continue
        for name in sorted(family.layout.individual & there.arrays.keys() - {request.dim}):
            variable = family.variable(name)
            if not variable.coordinate or is_time_or_duration(variable.attrs):
                continue
            stored = np.asarray(there.arrays[name][...])
            if differing(request.looked, family, name, units, combined.steps, axis, stored):
                raise InvalidInputError(
                    f"mode {request.mode!r}: expected the {name} that the repository has for the steps that "
                    f"are written again, found another: concat_dim={name!r} (--concat-dim {name}) from the "
                    "first file on has both, a group of its own (--group) too, allow={'values'} "
                    "(--allow values) replaces the values",
                    ErrorKind.INVALID_ARRAY_METADATA,
                )


def _with_axes(request: Request, combined: Combined, there: Present, axis: Axis | None) -> None:
    """Give what was the same in all files so far, and differs now, the dimension in the group too."""
    dim = request.dim
    if dim is None or axis is None or not there.with_dim(dim):
        return
    for family in combined.families:
        most = most_steps(request.looked.length[family.files])
        for name in family.along & family.layout.individual & there.arrays.keys():
            there.with_axis(name, dim, len(axis.old), most)


def _is_replaced(request: Request, family: Family, target: TargetArray) -> bool:
    """Whether values that are there are written anew: data of one file, without a dimension that goes on."""
    if request.dim is not None or request.mode in ("create", "append"):
        return False
    if family.layout.variables[target.name].coordinate:
        return False
    if target.window is not None:
        raise InvalidInputError(
            f"mode {request.mode!r}: expected all of `{target.path}` in the file, found a part of it: "
            "concat_dim= (--concat-dim) names a dimension in which files follow each other",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return True


def _pieces(combined: Combined, family: Family, axis: Axis) -> Pieces | None:
    """The runs of steps of a family's files; None if it has none."""
    steps = combined.steps
    if len(steps.start) <= 1:
        return None
    rows = steps.rows(family.files)
    inside = rows - np.repeat(steps.start[family.files], steps.counts[family.files])
    source = np.repeat(family.files, steps.counts[family.files])
    taken = steps.at[rows] >= 0
    return runs(source[taken], inside[taken], axis.new[steps.at[rows[taken]]])


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


def _grown(session: Session, there: Present, arrays: _Arrays, axis: Axis, dim: str) -> list[int]:
    """Resize what is there, and move the chunks that can be moved as a whole. Gives the numbers of arrays
    whose steps move and of which no file has anything.
    """
    moves = axis.first_moved < len(axis.old)
    named = {target.path.rpartition("/")[2]: number for number, target in enumerate(arrays.targets)}
    bystanders = []
    for name in there.with_dim(dim):
        array = there.arrays[name]
        at = axis_of(array, dim)
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


def _found(there: Present, name: str, axis: int, shape: tuple[int, ...]) -> TargetArray:
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
    table = workspace.chunks.ref_table(target.path)
    if not len(table):
        return
    index = table.index.copy()
    index[:, at] = (axis.old[::step] // step)[index[:, at]]
    moved = replace(table, index=index).sorted()
    workspace.chunks.set_refs(
        target.path, ChunkTable.merge_tables([ChunkTable.from_absent(table.index), moved])
    )


def _write_labels(store: Any, there: Present, combined: Combined, axis: Axis, dim: str) -> None:
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
