"""Anomalies: arrays minus their climatology."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from frazil.arrays.array import Array
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import Limits, block_shape
from frazil.jobs.engine import task_bytes
from frazil.jobs.job import BoundedRunOptions, JobResult, RunOptions, Source, Target, Version, with_options
from frazil.pipeline.derivation.operation import ArrayOperation, BlockPlan, SourceView
from frazil.pipeline.derivation.relations import ElementTable, Read, Window
from frazil.pipeline.reductions.fields import (
    ArrayLookup,
    Field,
    coordinate,
    coordinates_of,
    labels_of,
    open_field,
)
from frazil.pipeline.reductions.reduction_job import (
    ReductionOptions,
    coordinates_to_write,
    retained_coordinates,
    target_or_group,
)
from frazil.pipeline.transform.arrays import Shape, Values, array_info, clipped_chunks, names_of
from frazil.pipeline.transform.block_job import ComputedArrays, DriverArray, OutputArrays
from frazil.repository.session.session import Session


@with_options(RunOptions)
def anomaly(
    source: Source,
    paths: str | Sequence[str],
    climatology: Source | JobResult,
    *,
    group: str = "/climatology",
    spread: str | None = None,
    time: str = "time",
    to: Target | None = None,
    decode: bool = True,
    limits: Limits | None = None,
    **options: Unpack[RunOptions],
) -> JobResult:
    """Subtract the climatology of arrays from them, in one commit.

    The results have the shape and the chunks of the arrays. Values are computed in float64 and stored in the
    float type of the array. Times that the climatology does not have (day 366) are NaN.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` of the arrays.
        paths: The path of an array of numbers, or several paths.
        climatology: The result of `climatology`, or the `Repository` or `Version` that holds the climatology.
            The period (month, season, dayofyear or hour) is the dimension that it has instead of ``time``.
        group: The group of the climatology.
        spread: The group of the standard deviations of the same period. The anomalies are divided by them.
            The default, None, does not divide.
        time: The name of the time dimension.
        to: The `Target` of the results. The default, None, is the group ``/anomaly`` on the branch of the
            source.
        decode: Whether the CF conventions are applied: fill values become NaN, packed data are unpacked. The
            default is True.
        limits: `Limits`, in bytes: how much a task reads. The default, None, is ``Limits()``.

    Returns:
        The `JobResult`, whose ``version`` has the anomalies.

    Raises:
        NodeNotFoundError: An array, or its climatology, does not exist.
        InvalidInputError: The dimensions of the climatology do not fit those of the array
            (``invalid-array-metadata``), a result would replace an array that the job reads
            (``conflicting-arguments``), or the source is not on a branch and ``to`` is missing
            (``not-on-branch``).

    Examples:
        >>> import frazil, pandas as pd, xarray as xr, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> times = pd.to_datetime(["2001-01-01", "2001-02-01", "2002-01-01", "2002-02-01"])
        >>> series = xr.Dataset({"t": ("time", [1.0, 4.0, 3.0, 8.0])}, {"time": times})
        >>> session = repo.writable_session("main")
        >>> _ = series.to_zarr(session.store, group="data", zarr_format=3, consolidated=False)
        >>> snapshot_id = session.commit("two years")
        >>> months = frazil.pipeline.climatology(repo, "data/t", "month", engine="inline")
        >>> result = frazil.pipeline.anomaly(repo, "data/t", months, engine="inline")
        >>> zarr.open_array(result.version.session().store, path="anomaly/data/t", mode="r")[:].tolist()
        [-1.0, -2.0, 1.0, 2.0]
    """
    version = Version.of(source)
    baseline = climatology.version if isinstance(climatology, JobResult) else Version.of(climatology)
    same = baseline.repo is version.repo and baseline.snapshot_id == version.snapshot_id
    operation = Anomaly(names_of(paths), group, spread, time, decode, None if same else baseline)
    target = target_or_group(version, to, "anomaly")
    return operation.run(version, target, cast("BoundedRunOptions", {**options, "limits": limits}))


@dataclass(frozen=True, slots=True)
class Anomaly(ArrayOperation):
    """The operation of `anomaly`. ``baseline`` is the version of the climatology; None: that of the arrays.

    With another version the results have no definition.
    """

    name = "anomaly"
    group: str
    spread: str | None = None
    time: str = "time"
    decode: bool = True
    baseline: Version | None = None

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the anomalies and their coordinates."""
        limits = cast("ReductionOptions", options).get("limits") or Limits()
        session, arrays = view.session, ArrayLookup(view.session)
        of_baseline = session if self.baseline is None else self.baseline.session()
        computed: list[ComputedArrays] = []
        coordinates: dict[str, DriverArray] = {}
        own, usual, periods = set[str](), list[str](), set[str]()
        for path in self.paths:
            blocks = self._blocks(view, of_baseline, path)
            if self.baseline is None:
                blocks = replace(blocks, session=None)
            field = blocks.field
            source = array_info(session, field.path)
            new = source.with_dtype(
                to.path(field.path),
                blocks.dtype,
                shape=field.shape,
                dims=field.dims,
                chunks=clipped_chunks(field.grid, field.shape),
                attributes=field.decoded_attributes(),
            )
            size = math.prod(field.shape) * field.raw.itemsize
            most = task_bytes(size, limits.task, options.get("engine"))
            block = block_shape(field.shape, new.grid, field.raw.itemsize, min(most, limits.block))
            reads = blocks.reads() if self.baseline is None else ()
            tasks = max(1, -(-size // most))
            computed.append(ComputedArrays(source, (new,), block, blocks, tasks=tasks, reads=reads))
            for one in retained_coordinates(arrays, field, field.dims, new.group):
                coordinates.setdefault(one.new.path, one)
            names = (*coordinates_of(field, arrays, field.dims), self.time)
            own |= {field.path, *(f"{source.group.rstrip('/')}/{name}" for name in names)}
            usual += [each.path for each in (blocks.means, blocks.spread) if each is not None]
            periods.add(f"/{blocks.means.parent}/{blocks.period}".replace("//", "/"))
        usual += sorted(periods)
        tracked = own.union(usual if self.baseline is None else ())
        parameters = {
            "paths": list(self.paths),
            "group": self.group,
            "spread": self.spread,
            "time": self.time,
            "decode": self.decode,
        }
        inputs = [array_info(session, path) for path in sorted(tracked)]
        drivers = coordinates_to_write(coordinates, view, to)
        baseline = self.baseline or view.version
        others = () if view.is_refresh else (baseline.input(usual),)
        return BlockPlan(inputs, OutputArrays(computed, (), drivers), parameters, others=others)

    def _blocks(self, view: SourceView, of_baseline: Session, path: str) -> AnomalyBlocks:
        """Return the function of the blocks of an array."""
        field = open_field(view.session, path, decode=self.decode)
        means = open_field(of_baseline, view.related(field.path, self.group), decode=self.decode)
        periods = [dim for dim in means.dims if dim not in field.dims]
        expected = {dim: n for dim, n in zip(field.dims, field.shape, strict=True) if dim != self.time}
        actual = {dim: n for dim, n in zip(means.dims, means.shape, strict=True) if dim in field.dims}
        if self.time not in field.dims or len(periods) != 1 or expected != actual:
            raise InvalidInputError(
                f"The climatology `{means.path}` must have the dimensions of `{field.path}` with a period "
                f"instead of `{self.time}`, {expected}, got "
                f"{dict(zip(means.dims, means.shape, strict=True))}",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        spread = None
        if self.spread is not None:
            spread = open_field(of_baseline, view.related(field.path, self.spread), decode=self.decode)
        rows = np.asarray(coordinate(of_baseline, means.parent, periods[0]).values)
        labels = np.asarray(labels_of(view.session, field.parent, f"{self.time}.{periods[0]}").values)
        if rows.dtype.kind not in "biuf":
            rows, labels = rows.astype(str), labels.astype(str)
        order = np.argsort(rows)
        at = np.minimum(np.searchsorted(rows, labels, sorter=order), max(len(rows) - 1, 0))
        codes = np.where(rows[order[at]] == labels, order[at], -1).astype(np.int64)
        return AnomalyBlocks(field, means, spread, codes, self.time, periods[0], of_baseline)


@dataclass(frozen=True, eq=False)
class AnomalyBlocks:
    """Blocks of anomalies: see `frazil.pipeline.transform.block_job.Compute`.

    ``codes`` are the rows of the climatology for each position along ``time``; -1 where it has none.
    ``session`` has the climatology; None is the session of the array.
    """

    field: Field
    means: Field
    spread: Field | None
    codes: NDArray[np.int64]
    time: str
    period: str
    session: Session | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type of the result."""
        return self.field.dtype if self.field.dtype.kind == "f" else np.dtype(np.float64)

    def reads(self) -> tuple[Read, ...]:
        """Return what the results read."""
        counts = np.concatenate([[0], np.cumsum(self.codes >= 0)])
        table = ElementTable(counts, self.codes[self.codes >= 0])
        axes = {dim: axis for axis, dim in enumerate(self.field.dims)}
        axes[self.period] = axes[self.time]
        return (
            Read.same(self.field.path, len(self.field.shape)),
            *(
                Read(
                    each.path,
                    tuple((axes[dim], table if dim == self.period else Window()) for dim in each.dims),
                )
                for each in (self.means, self.spread)
                if each is not None
            ),
        )

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
        """Return the anomalies of a block."""
        region = tuple(map(slice, start, stop))
        values = self.field.decoded(np.asarray(Array(session, self.field.path)[region]))
        values = values.astype(np.float64)
        of_baseline = self.session or session
        values -= self._expected(of_baseline, self.means, region)
        if self.spread is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                values /= self._expected(of_baseline, self.spread, region)
        return [values.astype(self.dtype)]

    def _expected(self, session: Session, baseline: Field, region: tuple[slice, ...]) -> NDArray[np.float64]:
        """Return the climatology or the deviations for a block, in its shape."""
        axis = self.field.dims.index(self.time)
        codes = self.codes[region[axis]]
        rows = codes[codes >= 0]
        if not len(rows):
            return np.full([part.stop - part.start for part in region], np.nan)
        first, last = int(rows.min()), int(rows.max()) + 1
        spans = dict(zip(self.field.dims, region, strict=True)) | {self.period: slice(first, last)}
        raw = np.asarray(Array(session, baseline.path)[tuple(spans[dim] for dim in baseline.dims)])
        values = baseline.decoded(raw).astype(np.float64)
        order = [self.period if dim == self.time else dim for dim in self.field.dims]
        turned = values.transpose([baseline.dims.index(dim) for dim in order])
        out = np.take(turned, np.clip(codes - first, 0, None), axis=axis)
        out[(slice(None),) * axis + (codes < 0,)] = np.nan
        return np.asarray(out)
