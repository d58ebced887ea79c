"""The group of the repository before it changes: its arrays, its ledger, and the checks that files fit it.

The ledger has a row for each file that was ingested. Its columns are plain Zarr arrays of a hidden group,
which an `xarray.Dataset` of the group does not show. Half a million files take a few megabytes.

    url            strings
    fingerprint    uint8, (files, 16)
    contents       uint8, (files, 16): the fingerprint without the time of a local file; 0: not known
    size           int64, bytes
    validator      uint8, (files, 16): what a listing says of the file, XOR the fingerprint; 0: not known
    quarantined    bool: a file with a problem, which was not ingested
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, repeat
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.cf import fill_value, missing_element_of
from frazil.cf_times import is_time, is_time_or_duration
from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.pipeline.ingest.arrays import (
    NAN_FILL,
    TargetArray,
    choose_chunks,
    create,
    cut_shape,
    open_target,
    read_labels,
)
from frazil.pipeline.ingest.dataset import Dataset, StoredVariables, scalar_time
from frazil.pipeline.ingest.families import FileFamily
from frazil.pipeline.ingest.inspection import (
    COMPARED,
    MISSING,
    PACKING,
    Inspection,
    KnownFiles,
    VirtualChunks,
    calendar_of,
    codecs_text,
    decoding,
    meaningful,
    native,
)
from frazil.pipeline.ingest.options import OTHER_GROUP, TABLE, IngestRequest, ledger_name
from frazil.pipeline.ingest.steps import StepAxis, positions, same
from frazil.readers.base_reader import VariableSchema
from frazil.readers.files import file_validators
from frazil.remedies import Remedy, argument
from frazil.repository.paths import HIDDEN
from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import array_at


class ExistingGroup:
    """The arrays of a group by name; no arrays if the group does not exist."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.path: Final = group.strip("/")
        self.arrays: dict[str, zarr.Array[Any]] = {}
        workspace, parts = session.workspace, self.path.split("/")
        if self.path and {"", ".", ".."} & {*parts}:
            raise InvalidInputError(f"group must be the path of a group, got {group!r}")
        for at in range(1, len(parts) + 1):
            if workspace.is_array(path := f"/{'/'.join(parts[:at])}"):
                raise misfit(f"`{path}` must be a group of the repository, got an array")
        if workspace.node(f"/{self.path}") is not None:
            for name in list(workspace.children(f"/{self.path}")):
                if workspace.is_array(self.path_of(name)):
                    self.reopen_array(name)

    def path_of(self, name: str) -> str:
        """Return the path of an array of the group."""
        return "/" + "/".join(filter(None, [self.path, name.strip("/")]))

    def reopen_array(self, name: str) -> None:
        """Open an array again after its metadata have changed."""
        self.arrays[name] = open_target(self.session.store, self.path_of(name).strip("/"))

    def arrays_along(self, dim: str) -> list[str]:
        """Return the names of the arrays that have a dimension."""
        return [name for name, array in self.arrays.items() if dim in dims_of(array)]

    def stored_variables(self) -> StoredVariables:
        """Return the arrays of the group as variables, and the values of the small ones."""
        variables = {}
        for name, array in self.arrays.items():
            attrs, text = dict(array.attrs), array.attrs.get("_FillValue")
            if array.dtype.kind == "f" and isinstance(text, str):
                attrs["_FillValue"] = fill_value(text, array.dtype).item()
            variables[name] = VariableSchema(name, dims_of(array), array.shape, array.dtype, attrs)

        def small_values(name: str) -> NDArray[Any] | None:
            array = self.arrays.get(name)
            if array is None or math.prod(array.shape) * max(array.dtype.itemsize, 1) > COMPARED:
                return None
            return np.asarray(array[...])

        return StoredVariables(variables, small_values)

    def add_dimension(self, name: str, dim: str, length: int, longest: int) -> None:
        """Repeat the values of an array along a new dimension, in chunks of at most ``longest`` steps."""
        array = self.arrays[name]
        if dim in dims_of(array):
            return
        values, shape = np.asarray(array[...]), (length, *array.shape)
        chunks = choose_chunks(shape, max(array.dtype.itemsize, 1), 0)
        chunks = (min(chunks[0], longest), *chunks[1:])
        target = TargetArray(
            self.path_of(name), name, (dim, *dims_of(array)), shape, array.dtype, chunks, 0, array.fill_value,
            dict(array.attrs),
        )  # fmt: skip
        del zarr.open_group(self.session.store, path=self.path, mode="r+")[name]
        create(self.session.store, target)
        self.reopen_array(name)
        self.arrays[name][...] = np.broadcast_to(values, shape)


@dataclass(slots=True)
class GroupChange:
    """The change of a group by one ingest. ``axis`` is None until it is planned, and without a dimension."""

    request: IngestRequest
    dataset: Dataset
    existing: ExistingGroup
    axis: StepAxis | None = None

    def require_names(self) -> None:
        """Check that options name dimensions and variables of files or of the group.

        With rules of groups, they may be names of another group.
        """
        request, arrays = self.request, self.existing.arrays
        if request.groups:
            return
        schemas = [each for family in self.dataset.families for each in family.layout.variables.values()]
        dims = {dim for each in schemas for dim in each.dims}
        dims.update(dim for array in arrays.values() for dim in dims_of(array))
        known = {each.name for each in schemas} | arrays.keys()
        for option, names, choices in (
            ("chunks must name dimensions", request.chunks, dims),
            ("grow must name dimensions", request.grow, dims),
            ("encoding must name variables", request.encoding, known),
            # Variables that come and go may be in no file yet.
            (
                "convert must name variables",
                request.convert if "variables" not in request.allow else (),
                known,
            ),
        ):
            if unknown := sorted({*(names or ())} - choices):
                raise InvalidInputError(
                    f"{option} of the files ({', '.join(sorted(choices))}), got {unknown[0]!r}"
                )

    def require_dimension(self) -> None:
        """Check that no array of data would need a new dimension, or has that of the files twice."""
        request, dim, existing = self.request, self.dataset.dim, self.existing
        for family in self.dataset.families:
            for name, variable in family.layout.variables.items():
                array = existing.arrays.get(name)
                if variable.dims.count(dim or "") > 1 and (array is not None or len(family.files) > 1):
                    raise misfit(
                        f"`{existing.path_of(name)}` must have the dimension {dim} once, because files "
                        f"follow each other in it, got ({', '.join(variable.dims)})"
                    ).with_remedy(
                        "Ingest one file into a group of its own, or other variables with {}",
                        argument(variables=...),
                    )
                if array is None or (variable.coordinate and name != dim):
                    continue
                if dim is None:
                    is_needed = request.mode == "append" and name not in family.values
                else:
                    is_new = dim in variable.dims and dim not in dims_of(array)
                    is_needed = is_new and (family.layout.adds_axis or not existing.arrays_along(dim))
                if is_needed:
                    best = dim or scalar_time(family.variables()) or "time"
                    raise misfit(
                        f"mode {request.mode!r} needs the dimension {best} of `{existing.path_of(name)}`, in "
                        f"which files follow each other, but the array has ({', '.join(dims_of(array))}): it "
                        "was ingested from a single file"
                    ).with_remedy(
                        "Ingest that file again into a new group with {}, then other files can follow",
                        argument(concat_dim=best),
                    )

    def windows_of(self, family: FileFamily) -> dict[str, tuple[int, int]]:
        """Return the parts of dimensions that the files have: consecutive labels of the group."""
        request, dataset, existing = self.request, self.dataset, self.existing
        grown = dataset.grown.labels
        dims = [
            dim for dim in family.layout.dims if dim in existing.arrays and dim not in (dataset.dim, *grown)
        ]
        if request.mode in ("create", "append") or not dims:
            return {}
        with request.access.open(dataset.inspection.urls[int(family.files[0])]) as reader:
            coords = reader.schema().coords
        windows = {}
        for dim in dims:
            if dim not in coords:
                continue
            labels = read_labels(existing.arrays[dim])
            if np.array_equal(labels, coords[dim]):
                continue
            if "values" in request.allow and len(labels) == len(coords[dim]):
                continue
            rows = positions(labels, coords[dim])
            if not len(rows) or rows[0] < 0 or (np.diff(rows) != 1).any():
                raise misfit(
                    f"labels of {dim} in the files must be consecutive labels of `/{existing.path}`, but "
                    "they are not. Ingest the files into another group"
                )
            windows[dim] = (int(rows[0]), int(rows[-1]) + 1)
        return windows

    def retained_scalars(self) -> frozenset[str]:
        """Return the scalars along the dimension whose stored values stay because of ``allow={"values"}``.

        Files with new variables must not change the scalars of variables that the group has, and that no file
        of this call has. Steps that are written again must have the level, member, ... of the group. Times
        may differ: a later forecast for a step replaces an earlier forecast.
        """
        dataset, existing, allow = self.dataset, self.existing, argument(allow={"values"})
        is_allowed, retained = "values" in self.request.allow, set()
        if dataset.dim is None or self.axis is None or len(dataset.steps.start) <= 1:
            return frozenset()
        in_files = {name for family in dataset.families for name in family.layout.variables}
        has_others = bool(set(existing.arrays_along(dataset.dim)) - in_files - {dataset.dim})
        for family in dataset.families:
            is_new = not family.layout.data & existing.arrays.keys()
            names = family.layout.individual & existing.arrays.keys() - {dataset.dim}
            for name in sorted(names & family.along if is_new else names):
                variable = family.variable(name)
                is_level = variable.coordinate and not is_time_or_duration(variable.attrs.get("units"))
                is_compared = has_others if is_new else is_level and not is_allowed
                if not is_compared or not self._differs(family, name, self.axis):
                    continue
                if not is_new:
                    raise misfit(
                        f"mode {self.request.mode!r} writes steps again that have another {name} in the "
                        "repository"
                    ).with_remedy(
                        "To store both, ingest with {} from the first file on, or into another group. {} "
                        "replaces the values",
                        argument(concat_dim=name),
                        allow,
                    )
                if not is_allowed:
                    raise misfit(
                        f"values of `{existing.path_of(name)}` must be those of the repository, but files "
                        "with new variables have other values"
                    ).with_remedy(
                        "Ingest these files into another group, or keep the values of the repository with {}",
                        allow,
                    )
                retained.add(name)
        return frozenset(retained)

    def _differs(self, family: FileFamily, name: str, axis: StepAxis) -> bool:
        """Return whether a scalar of a family differs from the values of the group at the same steps."""
        dataset, steps = self.dataset, self.dataset.steps
        stored = np.asarray(self.existing.arrays[name][...])
        column = dataset.values_by_file(family.files, name)
        if column is None or stored.ndim > 1 or name not in self.dataset.inspection.scalars:
            return False
        rows = steps.rows(family.files)
        values = np.repeat(column, steps.counts[family.files])
        placed = steps.at[rows] >= 0
        places, values = axis.new[steps.at[rows[placed]]], values[placed]
        row_of_place = np.full(axis.length, -1, np.int64)
        row_of_place[axis.old] = np.arange(len(axis.old))
        is_stored = row_of_place[places] >= 0
        expected = np.broadcast_to(stored, len(axis.old)) if not stored.ndim else stored
        return not same(expected[row_of_place[places[is_stored]]], values[is_stored]).all()


def dims_of(array: zarr.Array[Any]) -> tuple[str, ...]:
    """Return the names of the dimensions of an array; an empty tuple if they have no names."""
    return tuple(map(str, array.metadata.dimension_names or ()))  # type: ignore[union-attr]


#: Dimension -> ``(start, stop)``, the part of an existing dimension that files have.
type Windows = Mapping[str, tuple[int, int]]


def matched_array(
    array: zarr.Array[Any],
    target: TargetArray,
    virtual: VirtualChunks | None,
    windows: Windows,
    *,
    widens: bool = False,
) -> TargetArray:
    """Return the target with the dtype, chunks and attributes of the existing array, which it must fit.

    ``widens``: the target may have a wider dtype, which it keeps.
    """
    dims, attrs = dims_of(array), dict(array.attrs)
    is_wider = False
    if widens and target.axis is not None and {array.dtype.kind, target.dtype.kind} <= {*"iuf"}:
        both = np.result_type(array.dtype, target.dtype)
        is_wider, target = both != native(array.dtype), replace(target, dtype=both)
    compared: list[tuple[str, Any, Any]] = [("dimensions", dims, target.dims)]
    if dims == target.dims:
        fixed = [i for i, dim in enumerate(dims) if i != target.axis and dim not in windows]
        mine, other = (
            ", ".join(f"{dims[i]} {each[i]}" for i in fixed) for each in (array.shape, target.shape)
        )
        compared.append(("shape", mine, other))
    if not (is_time(attrs.get("units")) and is_time(target.attrs.get("units"))):
        compared += [("dtype", native(array.dtype), native(target.dtype))] * (not is_wider)
        compared += [("units", attrs.get("units"), target.attrs.get("units"))]
    names = (
        {*PACKING, *meaningful(attrs), *meaningful(target.attrs)}
        - {"units", "_FillValue"}
        - {*(MISSING if is_wider else ())}
    )
    if calendar_of(attrs) == calendar_of(target.attrs) or not is_time(attrs.get("units")):
        names.discard("calendar")  # without units it is that of another variable
    compared += [(name, attrs.get(name), target.attrs.get(name)) for name in sorted(names)]
    fills = [each.get("_FillValue") for each in (attrs, target.attrs)]
    if target.dtype.kind in "iuf" and not is_wider:
        none = NAN_FILL if target.dtype.kind == "f" else None
        own = (_fill(none if fill is None else fill, target.dtype) for fill in fills)
        compared.append(("_FillValue", *own))
    storage = _storage_comparisons(array, target) if virtual is not None else []
    for comparison in (*compared, *storage):
        name, stored, new = comparison
        if stored != new if isinstance(stored, np.dtype) else repr(stored) != repr(new):
            old, new = ("no value" if each is None else each for each in (stored, new))
            error = misfit(
                f"{name} of `{target.path}` must be {old}, as in the repository, got {new} in the files"
            )
            error.remedy = TABLE["chunks"].remedy if comparison in storage else _remedy(name, array, target)
            raise error
    window = None
    if windows.keys() & set(dims):
        if virtual is not None:
            raise InvalidInputError(
                f"a virtual ingest needs files with whole steps of `{target.path}`, but they have parts of "
                "steps. Copy these files",
                ErrorKind.UNIMPLEMENTED,
            )
        window = tuple(windows.get(dim, (0, size)) for dim, size in zip(dims, array.shape, strict=True))
    return replace(
        target,
        shape=tuple(target.shape[i] if i == target.axis else size for i, size in enumerate(array.shape)),
        window=window,
        dtype=target.dtype if is_wider else array.dtype,
        chunks=array.chunks if virtual is None else target.chunks,
        shards=array.shards,
        fill_value=target.fill_value if is_wider else array.fill_value,
        attrs=attrs
        if not is_wider
        else {name: each for name, each in attrs.items() if name not in MISSING}
        | {name: target.attrs[name] for name in MISSING if name in target.attrs},
    )


def _remedy(name: str, array: zarr.Array[Any], target: TargetArray) -> Remedy:
    """Return what to do about files with another dtype, or with other attributes ``name``, than the group."""
    units, is_packed = array.attrs.get("units"), not {*PACKING}.isdisjoint(array.attrs)
    is_number = {array.dtype.kind, target.dtype.kind} <= {*"iuf"} and target.axis is not None
    if name == "units" and units is not None and "units" in target.attrs:
        call, effect = argument(convert={target.name: units}), "converts the values"
    elif name in PACKING and not is_packed and array.dtype.kind == "f":
        call, effect = argument(unpack=True), "stores the unpacked values"
    elif name in ("dtype", *MISSING) and is_number and not is_packed and not target.codecs:
        call, effect = argument(allow={"dtype"}), f"{TABLE['dtype'].allowed}, and converts missing values"
    else:
        call, effect = argument(preprocess=...), "makes files alike"
    return Remedy(f"{{}} {effect}. Or {OTHER_GROUP[0].lower()}{OTHER_GROUP[1:]}", (call,))


def _fill(stored: Any, dtype: np.dtype[Any]) -> Any:
    """Return the number of an attribute ``_FillValue``, which floats have as text."""
    element = missing_element_of({"_FillValue": stored}, dtype)
    return stored if element is None else element.item()


def _storage_comparisons(array: zarr.Array[Any], target: TargetArray) -> list[tuple[str, Any, Any]]:
    """Compare codecs, chunks and fill value: references need an array that is stored like the files."""
    codecs = list(map(json.loads, target.codecs))
    stored = list(map(json.dumps, array.metadata.to_dict()["codecs"]))  # type: ignore[arg-type]
    mine, other = (codecs_text(decoding(each)) for each in (stored, target.codecs))
    compared: list[tuple[str, Any, Any]] = [("codecs", mine, other)]
    at = target.axis
    # Chunks of plain bytes can be cut.
    can_recut = (
        at is not None
        and [each["name"] for each in codecs] == ["bytes"]
        and array.shards is None
        and len(array.chunks) == len(target.chunks)
        and cut_shape(array.chunks, at, target.chunks[at]) == target.chunks
        and array.chunks[at] % target.chunks[at] == 0
    )
    if not can_recut:
        compared.append(("chunks", array.chunks, target.chunks))
    fills = [
        np.asarray(each.fill_value).astype(each.dtype.newbyteorder("=")).tobytes()
        for each in (array, target)
        if each.dtype.kind != "T"
    ]
    if len(set(fills)) > 1:  # missing chunks have this value
        compared.append(("fill value", array.fill_value, target.fill_value))
    return compared


def require_lengths(existing: ExistingGroup, targets: Sequence[TargetArray], grows: str | None) -> None:
    """Check that each dimension, except ``grows``, has one length in all arrays of the group."""
    arrays = {existing.path_of(name): (dims_of(each), each.shape) for name, each in existing.arrays.items()}
    arrays |= {each.path: (each.dims, each.shape) for each in targets}
    lengths: dict[str, tuple[str, int]] = {}
    for path, (dims, shape) in arrays.items():
        for dim, size in zip(dims, shape, strict=True):
            other, expected = lengths.setdefault(dim, (path, size))
            if dim != grows and size != expected:
                raise misfit(
                    f"{dim} in `{path}` must have {expected} steps, as in `{other}`, got {size}. Ingest the "
                    "files into another group"
                )
    for path, (dims, _) in arrays.items():
        name = path.rpartition("/")[2]
        if not dims and name in lengths:
            raise misfit(
                f"`{lengths[name][0]}` must not have the dimension {name}, because `{path}` is a scalar"
            ).with_remedy("Ingest one of the two, with {}", argument(variables=...))


#: Files in a chunk. Each append rewrites the last chunk.
_CHUNK: Final = 1 << 12
#: Kinds of dtypes and further dimensions of each column.
_FORMS: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "url": ("TO", ()),
    "fingerprint": ("u", (16,)),
    "contents": ("u", (16,)),
    "size": ("i", ()),
    "validator": ("u", (16,)),
    "quarantined": ("b", ()),
    "steps": ("i", ()),
}
#: The columns that earlier releases do not write.
_LATER: Final = ("contents", "validator", "steps")
#: The memory of a ledger is 81 bytes for each file, and its URL.
_MOST_FILES: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class Ledger:
    """The files that were ingested into a group.

    ``url`` are the names of files by `ledger_name`. In ledgers of earlier releases, local files have paths.
    ``concat_dim`` is the dimension in which they follow each other, ``unlimited`` are the unlimited
    dimensions of the files, ``variables`` the data variables that were ingested from each file, None for all.
    ``steps`` are the steps that each file has in this dimension, 0 if they are not known.
    ``function`` is the name and the hash of the function that has changed the files, None without one.
    """

    url: NDArray[Any]
    fingerprint: NDArray[np.uint8]
    contents: NDArray[np.uint8]
    size: NDArray[np.int64]
    validator: NDArray[np.uint8]
    quarantined: NDArray[np.bool_]
    steps: NDArray[np.int64]
    concat_dim: str | None = None
    unlimited: tuple[str, ...] = ()
    variables: frozenset[str] | None = None
    function: Mapping[str, str] | None = None

    def rows_of(self, urls: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each URL, -1 for URLs that the ledger does not have."""
        rows = dict(zip(map(ledger_name, self.url.tolist()), range(len(self.url)), strict=True))
        return np.fromiter(map(rows.get, map(ledger_name, urls), repeat(-1)), np.int64, len(urls))

    def covers(self, request: IngestRequest) -> bool:
        """Return whether the variables of a request were ingested from each file, with its function."""
        names = request.variables
        has_names = self.variables is None or (names is not None and self.variables.issuperset(names))
        return has_names and not self.has_other_function(request)

    def has_other_function(self, request: IngestRequest) -> bool:
        """Return whether another function, or none, has changed the files."""
        return len(self.url) > 0 and self.function != request.function

    def without(self, urls: Sequence[str]) -> Ledger:
        """Return the ledger as if these files were left out before, and are other files now."""
        rows = self.rows_of(urls)
        names = ("fingerprint", "contents", "validator", "quarantined")
        columns = {name: getattr(self, name).copy() for name in names}
        for name, values in columns.items():
            values[rows[rows >= 0]] = name == "quarantined"
        return replace(self, **columns)

    def labels_left(self, inspection: Inspection, files: NDArray[np.bool_], growth: int) -> int:
        """Return how many labels of changed files stay that they have no more: at least this many.

        ``files`` is a mask, and ``growth`` is by how much they lengthen the dimension. 0 if the ledger does
        not know the steps of a changed file.
        """
        rows = self.rows_of(inspection.chosen_urls(files))
        before, is_known = np.append(self.steps, 0)[rows], np.append(self.steps > 0, True)[rows]
        before = np.where(np.append(self.quarantined, False)[rows], 0, before)
        more = int(inspection.length[files].sum() - before.sum())
        return max(0, growth - more) if is_known.all() else 0

    def after(
        self,
        request: IngestRequest,
        dataset: Dataset,
        recorded: NDArray[np.bool_],
        rejected: NDArray[np.bool_],
        unchanged: NDArray[np.bool_],
    ) -> Ledger:
        """Return the ledger after an ingest of the files in the mask ``recorded``, with their new state.

        The ``unchanged`` files get their present validators: they may have new times, or none in the ledger.
        """
        inspection, count = dataset.inspection, len(self.url)
        rows = self.rows_of(urls := inspection.chosen_urls(recorded))
        new = rows < 0
        rows[new] = np.arange(count, count + int(new.sum()))
        every = int((~new).sum()) == count
        columns = {}
        for name, values in (
            ("url", np.array(urls, np.dtypes.StringDType())),
            ("fingerprint", inspection.fingerprint[recorded]),
            ("contents", inspection.contents[recorded]),
            ("size", inspection.size[recorded]),
            ("validator", _with_fingerprint(inspection.validator, inspection.fingerprint)[recorded]),
            ("quarantined", rejected[recorded]),
            ("steps", inspection.length[recorded]),
        ):
            old: NDArray[Any] = getattr(self, name)
            dtype = values.dtype if name == "url" else old.dtype
            columns[name] = np.zeros((count + int(new.sum()), *old.shape[1:]), dtype)
            columns[name][:count], columns[name][rows] = old, values
        same = self.rows_of(inspection.chosen_urls(unchanged))
        fresh = _with_fingerprint(inspection.validator, inspection.fingerprint)[unchanged]
        columns["validator"][same[same >= 0]] = fresh[same >= 0]
        columns["url"] = np.array(list(map(ledger_name, columns["url"].tolist())), np.dtypes.StringDType())
        mine = None if request.variables is None else frozenset(request.variables)
        if not count:
            variables = mine
        elif mine is None or self.variables is None:
            variables = None if every else self.variables if mine is None else mine
        else:
            variables = mine | self.variables if every else mine & self.variables
        unlimited = {name for family in dataset.families for name in family.layout.unlimited}
        return Ledger(
            **columns,
            concat_dim=dataset.dim or self.concat_dim,
            unlimited=tuple(sorted(unlimited | {*self.unlimited})),
            variables=variables,
            function=request.function,
        )


def _with_fingerprint(validator: NDArray[np.uint8], fingerprint: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the column ``validator`` for validators, or validators for the column; 0 for 0.

    A release that does not know the column may write a new fingerprint into a row. Then the validator in this
    row belongs to no file.
    """
    return np.where(validator.any(axis=1, keepdims=True), validator ^ fingerprint, validator)


def known_files(request: IngestRequest, ledgers: Iterable[Ledger]) -> KnownFiles | None:
    """Return the files of a call that ledgers have, None if they have none."""
    parts = [_known_files(request, each) for each in ledgers if len(each.url) and each.covers(request)]
    if len(parts) < 2:
        return parts[0] if parts else None
    at, first = np.unique(
        np.concatenate([np.flatnonzero(each.unchanged) for each in parts]), return_index=True
    )
    names = ("size", "fingerprint", "contents", "validator")
    columns = {name: np.concatenate([getattr(each, name) for each in parts])[first] for name in names}
    unchanged = np.zeros_like(parts[0].unchanged)
    unchanged[at] = True
    return KnownFiles(
        unchanged, **columns, fingerprints={k: v for each in parts for k, v in each.fingerprints.items()}
    )


def _known_files(request: IngestRequest, ledger: Ledger) -> KnownFiles:
    """Return the files of a call that a ledger has. The storage tells the validators of these files."""
    urls = request.files.urls
    rows = ledger.rows_of(urls)
    at = np.flatnonzero(rows >= 0)
    rows = rows[at]
    some = [urls[i] for i in at.tolist()]
    validators = file_validators(some, request.files.validators, request.storage_options)
    present = np.frombuffer(
        bytes.fromhex("".join(each or "0" * 32 for each in validators)), np.uint8
    ).reshape(-1, 16)
    remembered = _with_fingerprint(ledger.validator[rows], ledger.fingerprint[rows])
    same = (present == remembered).all(axis=1) & present.any(axis=1)
    unchanged = np.zeros(len(urls), np.bool_)
    unchanged[at[same]] = True
    columns = {name: getattr(ledger, name)[rows[same]] for name in ("size", "fingerprint", "contents")}
    others = zip(compress(some, (~same).tolist()), ledger.fingerprint[rows[~same]], strict=True)
    fingerprints = {url: each.tobytes().hex() for url, each in others}
    return KnownFiles(unchanged, **columns, validator=present[same], fingerprints=fingerprints)


EMPTY: Final = Ledger(
    np.empty(0, np.dtypes.StringDType()),
    np.empty((0, 16), np.uint8),
    np.empty((0, 16), np.uint8),
    np.empty(0, np.int64),
    np.empty((0, 16), np.uint8),
    np.empty(0, np.bool_),
    np.empty(0, np.int64),
)


def _path(group: str) -> str:
    return "/".join(filter(None, [group.strip("/"), HIDDEN]))


def load_ledger(session: Session, group: str) -> Ledger:
    """Return the ledger of a group; `EMPTY` if the group has none."""
    path = _path(group)
    if session.workspace.node(f"/{path}") is None:
        return EMPTY
    arrays = {name: array_at(session, f"{path}/{name}") for name in _FORMS if name not in _LATER}
    shape = arrays["url"].shape
    count = shape[0] if shape else 0
    for name in _LATER:
        if session.workspace.node(f"/{path}/{name}") is not None:
            column = array_at(session, f"{path}/{name}")
            if column.shape[:1] == shape:  # an earlier release may have written more rows
                arrays[name] = column
    # Any session can write these arrays, so shapes and types are checked before the values are read.
    if count > _MOST_FILES:
        raise _damaged(path, f"a ledger must have at most {_MOST_FILES} files, got {count}")
    for name, array in arrays.items():
        kinds, more = _FORMS[name]
        if array.shape != (count, *more) or np.dtype(array.dtype).kind not in kinds:
            raise _damaged(
                path,
                f"the array {name} must have shape {(count, *more)} and a dtype of kind {kinds}, got "
                f"{array.shape} and {array.dtype}",
            )
    attrs: Mapping[str, Any] = dict(zarr.open_group(session.store, path=path, mode="r").attrs)
    return ledger_of({name: np.asarray(array[:]) for name, array in arrays.items()}, attrs, path)


def ledger_of(columns: Mapping[str, NDArray[Any]], attrs: Mapping[str, Any], path: str) -> Ledger:
    """Return the ledger with these columns and the attributes of its group ``path``."""
    concat_dim, unlimited, variables = map(attrs.get, ("concat_dim", "unlimited", "variables"))
    function = attrs.get("preprocess")
    if function is not None and not isinstance(function, dict):
        raise _damaged(path, f"the attribute preprocess must be an object, got {str(function)[:80]}")
    for name, value in (("concat_dim", concat_dim), ("unlimited", unlimited), ("variables", variables)):
        texts = [value] if name == "concat_dim" else value
        if value is not None and not (
            isinstance(texts, list) and all(isinstance(each, str) for each in texts)
        ):
            raise _damaged(path, f"the attribute {name} must be as Frazil writes it, got {str(value)[:80]}")
    count, later = len(columns["url"]), {}
    for name in _LATER:
        kind, more = _FORMS[name]
        later[name] = np.zeros((count, *more), np.int64 if kind == "i" else np.uint8)
    return Ledger(
        **{**later, **columns},
        concat_dim=concat_dim,
        unlimited=tuple(unlimited or ()),
        variables=None if variables is None else frozenset(variables),
        function=function,
    )


def _damaged(path: str, text: str) -> FormatError:
    return FormatError(
        f"/{path}: {text}. Another program changed the ledger. Restore it from an earlier snapshot"
    )


def save_ledger(session: Session, group: str, before: Ledger, after: Ledger) -> None:
    """Replace the ledger ``before`` with ``after``, and write only the rows from the first change on."""
    hidden = zarr.open_group(session.store, path=_path(group), mode="a", zarr_format=3)
    attrs: dict[str, Any] = {"concat_dim": after.concat_dim, "unlimited": sorted(after.unlimited)}
    if after.variables is not None:
        attrs["variables"] = sorted(after.variables)
    if after.function is not None:
        attrs["preprocess"] = dict(after.function)
    if dict(hidden.attrs) != attrs:
        hidden.attrs.put(attrs)
    for name in _FORMS:
        old, values = getattr(before, name), getattr(after, name)
        if name not in hidden:
            dtype = "string" if name == "url" else values.dtype
            chunks = (_CHUNK, *values.shape[1:])
            # xarray needs names of dimensions, and other names than in the dataset above, which it inherits.
            dims = ("frazil_file", "frazil_byte")[: values.ndim]
            hidden.create_array(name, shape=values.shape, dtype=dtype, chunks=chunks, dimension_names=dims)
        array = hidden[name]
        assert isinstance(array, zarr.Array)
        if array.shape != old.shape:  # it is new, or an earlier release has not written all of its rows
            old = old[:0]
        if array.shape != values.shape:
            array.resize(values.shape)
        differs = (values[: len(old)] != old).any(axis=tuple(range(1, values.ndim)))
        start = int(np.argmax(np.append(differs, True)))
        array[start:] = values[start:]


def match_ledger(
    request: IngestRequest,
    inspection: Inspection,
    ledger: Ledger,
    existing: ExistingGroup,
    among: NDArray[np.bool_],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks of the unchanged, the changed and the touched files ``among`` those of a call (a mask).

    Unchanged files were ingested with their present contents, changed files with other contents. Touched
    files are those changed files that differ only in their modification time, as far as their size and both
    ends show: they were copied, or changed in the middle. If another function has changed the files, all are
    changed.
    """
    rows = ledger.rows_of(inspection.urls)
    recorded, opened = (rows >= 0) & among, (inspection.layout >= 0) & among
    unchanged, changed, touched = (np.zeros_like(recorded) for _ in range(3))
    if recorded.any():
        same = recorded & (ledger.fingerprint[rows] == inspection.fingerprint).all(axis=1)
        same &= not ledger.has_other_function(request)
        changed = recorded & ~same & ~ledger.quarantined[rows] & opened
        touched = changed & (ledger.contents[rows] == inspection.contents).all(axis=1)
        touched &= not ledger.has_other_function(request)
        unchanged = same if ledger.covers(request) else unchanged
    candidates = ~recorded & opened
    # References have to follow a moved file, but copies do not.
    if len(ledger.url) and not request.virtual and not ledger.has_other_function(request):
        ingested = ~ledger.quarantined
        moved, copied = (
            np.isin(_digests(mine), _digests(theirs[ingested]))
            for mine, theirs in (
                (inspection.fingerprint, ledger.fingerprint),
                (inspection.contents, ledger.contents),
            )
        )
        moved = _with_stored_labels(inspection, candidates & moved, existing)
        # Other modes write stored labels again.
        copied = candidates & ~moved & (request.mode == "append") & copied
        copied = _with_stored_labels(inspection, copied, existing)
        unchanged, changed, touched = unchanged | moved, changed | copied, touched | copied
    return unchanged, changed, touched


def _digests(rows: NDArray[np.uint8]) -> NDArray[Any]:
    return np.ascontiguousarray(rows).view("V16").ravel()


def _with_stored_labels(
    inspection: Inspection, files: NDArray[np.bool_], existing: ExistingGroup
) -> NDArray[np.bool_]:
    """Return a mask of those of ``files`` (a mask) whose labels the group has; of all without labels."""
    if not files.any() or inspection.dim is None:
        return files
    dataset = Dataset.labelled(inspection, files, existing.stored_variables())
    steps = dataset.steps
    if steps.labels is None:
        return files & dataset.good & (inspection.length > 0)
    if inspection.dim not in existing.arrays:
        return np.zeros_like(files)
    stored = positions(read_labels(existing.arrays[inspection.dim]), steps.labels) >= 0
    before = np.concatenate(([0], np.cumsum(stored)))
    complete = before[steps.start[1:]] - before[steps.start[:-1]] == steps.counts
    # A file without steps is no copy of another one.
    matches: NDArray[np.bool_] = files & complete & dataset.good & (steps.counts > 0)
    return matches
