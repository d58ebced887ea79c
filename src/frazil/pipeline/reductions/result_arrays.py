"""The arrays that the driver creates for a reduction: results with their attributes, and scratch arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import zarr

from frazil import cf
from frazil.pipeline.reductions.coordinates import CoordinateWriter
from frazil.pipeline.reductions.fields import ENCODING, has_node
from frazil.pipeline.reductions.plan import ReductionPlan
from frazil.pipeline.reductions.quantiles import Exact, Sketch, rank_error
from frazil.pipeline.reductions.reduction import Measure, Reduction
from frazil.pipeline.reductions.tasks import scratch_path
from frazil.repository.session.session import Session


def create_result(
    coordinates: CoordinateWriter,
    reduction: Reduction,
    plan: ReductionPlan,
    measure: Measure,
    *,
    keep_attrs: bool,
) -> None:
    """Create the array of a measure, and its coordinates of quantiles and groups."""
    session, path = coordinates.session, measure.path
    lead = () if measure.q is None else (len(measure.q),)
    zarr.create_array(
        session.store,
        name=path.strip("/"),
        shape=(*lead, *reduction.shape),
        chunks=tuple(max(1, n) for n in (*lead, *plan.chunks)),
        dtype=measure.dtype,
        fill_value=np.nan if measure.dtype.kind == "f" else None,
        attributes=_result_attributes(reduction, measure, keep_attrs=keep_attrs),
        dimension_names=(*(("quantile",) if lead else ()), *reduction.dims),
        overwrite=has_node(session, path),
    )
    parent = path.strip("/").rpartition("/")[0]
    if measure.q is not None:
        coordinates.put_coordinate(f"{parent}/quantile", np.array(measure.q), {})
    if reduction.grouping is not None:
        grouping = reduction.grouping
        attributes = dict(grouping.attributes)
        if grouping.bounds is not None:
            attributes["bounds"] = bounds = f"{grouping.name}_bnds"
            dims = (grouping.name, "bnds")
            coordinates.put_coordinate(f"{parent}/{bounds}", grouping.bounds, {}, dims=dims)
        coordinates.put_coordinate(f"{parent}/{grouping.name}", grouping.labels, attributes)


def _result_attributes(reduction: Reduction, measure: Measure, *, keep_attrs: bool) -> dict[str, Any]:
    field = reduction.field
    out = dict(field.attributes) if keep_attrs else {}
    if field.decode:
        out = {
            name: value for name, value in out.items() if name not in ENCODING and (name, value) != cf.BOOLEAN
        }
    coordinates = str(field.attributes.get("coordinates", "")).split() if keep_attrs else []
    if coordinates:
        out["coordinates"] = " ".join(coordinates)
    if measure.how in ("count", "any", "all"):
        out["units"] = "1"
    elif measure.how == "var" and "units" in out:
        out["units"] = f"({out['units']})2"
    dims = [field.dims[axis] for axis in reduction.over]
    method = f"{': '.join(dims)}: {cf.cell_method(measure.how)}"
    earlier_methods = str(field.attributes.get("cell_methods", "")).strip()
    out["cell_methods"] = f"{earlier_methods} {method}".strip()
    if isinstance(measure.kernel, Sketch):
        out["quantile_rank_error"] = round(rank_error(measure.kernel.k), 6)
    if measure.q is None and measure.how == "quantile":
        assert isinstance(measure.kernel, Exact | Sketch)
        out["quantile"] = measure.kernel.q[0]
    return out


def copy_coordinates(coordinates: CoordinateWriter, reductions: Sequence[Reduction]) -> None:
    """Copy the stored coordinates of the retained dimensions, once for each group of results."""
    paths = {
        (measure.path.rpartition("/")[0], number): measure.path
        for number, reduction in enumerate(reductions)
        for measure in reduction.measures
    }
    for (_, number), path in paths.items():
        reduction = reductions[number]
        dims = [reduction.field.dims[axis] for axis in reduction.retained]
        group_dim = "" if reduction.grouping is None else reduction.grouping.name
        coordinates.copy_coordinates(reduction.field, dims, path, without=group_dim)


def create_scratch(
    session: Session, scratch: str, number: int, reduction: Reduction, plan: ReductionPlan
) -> None:
    """Create the scratch arrays of a reduction, with a row for each slot."""
    box = tuple(max(1, n) for n in plan.retained_box)
    for measure_number, measure in enumerate(reduction.measures):
        assert not isinstance(measure.kernel, Exact)
        for field, (dtype, identity) in enumerate(measure.kernel.identities):
            path = scratch_path(scratch, number, measure_number, field)
            zarr.create_array(
                session.store,
                name=path,
                shape=(plan.slots, reduction.groups, *reduction.retained_shape),
                chunks=(1, plan.group_chunk, *box),
                dtype=dtype,
                fill_value=identity,
                overwrite=has_node(session, path),
            )
