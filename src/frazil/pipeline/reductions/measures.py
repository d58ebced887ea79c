"""From a request to reductions: the groups of each array, its weights, and its measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import parse_bytes
from frazil.pipeline.reductions.fields import ArrayLookup, Field
from frazil.pipeline.reductions.groups import Grouping
from frazil.pipeline.reductions.kernels import WEIGHTED, kernel, result_dtype
from frazil.pipeline.reductions.options import How, ReductionOptions
from frazil.pipeline.reductions.quantiles import Exact, Sketch
from frazil.pipeline.reductions.reduction import Measure, Reduction
from frazil.pipeline.reductions.weights import weights_of

_QUANTILES: Final = ("quantile", "median")


def reductions_of(
    arrays: ArrayLookup,
    field: Field,
    path: str,
    how: How,
    dims: Sequence[str] | None,
    grouping: Grouping | None,
    options: ReductionOptions,
) -> list[Reduction]:
    """Return the reductions of one array: one for all quantiles, and one for all other statistics.

    The result of one statistic is at ``path``, the results of several are at ``<path>_<how>``. ``dims`` are
    reduced in addition to the dimensions of the labels; None is all dimensions, or with a ``grouping`` only
    those of the labels. ``options`` have all their defaults.
    """
    if grouping is not None:
        _require_labels(field, grouping)
    over = _reduced_axes(dims, field, grouping)
    weights = weights_of(arrays, field, options.get("weights"))
    plain = Reduction(field, over, (), grouping, weights, options["skipna"], _empty_groups(grouping))
    named = [(how, path)] if isinstance(how, str) else [(each, f"{path}_{each}") for each in how]
    measures = [_measure(plain, own_path, options, each) for each, own_path in named]
    quantiles = tuple(each for each in measures if each.how in _QUANTILES)
    others = tuple(each for each in measures if each.how not in _QUANTILES)
    return [replace(plain, measures=part) for part in (others, quantiles) if part]


def _require_labels(field: Field, grouping: Grouping) -> None:
    lengths = dict(zip(field.dims, field.shape, strict=True))
    expected = tuple(lengths.get(dim, -1) for dim in grouping.dims)
    if expected != grouping.codes.shape:
        raise InvalidInputError(
            f"by must have the lengths of dimensions of `{field.path}`, {lengths}, got "
            f"{dict(zip(grouping.dims, grouping.codes.shape, strict=True))}",
            ErrorKind.INVALID_ARGUMENT,
        )
    if not len(grouping):
        raise InvalidInputError(
            f"by must give a label `{grouping.name}` to at least one cell of `{field.path}`, got none",
            ErrorKind.INVALID_ARGUMENT,
        )


def _reduced_axes(given: Sequence[str] | None, field: Field, grouping: Grouping | None) -> tuple[int, ...]:
    label_dims = () if grouping is None else grouping.dims
    default = field.dims if grouping is None else label_dims
    dims = default if given is None else given
    unknown = [dim for dim in dims if dim not in field.dims]
    if unknown:
        raise InvalidInputError(
            f"dims must be among {', '.join(field.dims)} of `{field.path}`, got {', '.join(unknown)}",
            ErrorKind.UNKNOWN_CHOICE,
        )
    dims = (*dims, *label_dims)
    result_names = {*field.dims} - {*dims} | {field.name}
    if grouping is not None and grouping.name in result_names:
        raise InvalidInputError(
            f"The name of the labels in by must differ from the names in the result "
            f"({', '.join(sorted(result_names))}), got `{grouping.name}`. Rename the labels",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    return tuple(axis for axis, dim in enumerate(field.dims) if dim in dims)


def _empty_groups(grouping: Grouping | None) -> NDArray[np.bool_] | None:
    """Return for each group whether it has no cell; None if all groups have cells."""
    empty = None if grouping is None else grouping.empty()
    return None if empty is None or not empty.any() else empty


def _measure(reduction: Reduction, path: str, options: ReductionOptions, how: str) -> Measure:
    field = reduction.field
    if how in _QUANTILES:
        return _quantile_measure(reduction, path, options, how)
    is_weighted = reduction.weights is not None
    ddof, min_count = options["ddof"], options.get("min_count")
    statistic = kernel(how, field.dtype, weighted=is_weighted, ddof=ddof, min_count=min_count)
    dtype = result_dtype(how, field.dtype, weighted=is_weighted)
    if dtype.kind in "iub" and _may_be_missing(reduction, how, min_count):
        # An empty group makes float32 of integers of up to 16 bits, as in xarray.
        is_small = dtype.kind in "iu" and dtype.itemsize <= 2 and reduction.empty is not None
        dtype = np.dtype(np.float32 if is_small else np.float64)
    return Measure(path, how, statistic, dtype)


def _quantile_measure(reduction: Reduction, path: str, options: ReductionOptions, how: str) -> Measure:
    if reduction.weights is not None:
        raise InvalidInputError(
            f"how must be one of {', '.join(WEIGHTED)} with weights, got {how!r}",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    given: Any = 0.5 if how == "median" else options["q"]
    try:
        q = tuple(map(float, np.atleast_1d(np.asarray(given, np.float64))))
    except (TypeError, ValueError):
        q = ()
    if not q or not all(0 <= each <= 1 for each in q):
        raise InvalidInputError(f"q must be numbers from 0 to 1, got {given}", ErrorKind.INVALID_ARGUMENT)
    dtype = reduction.field.dtype
    return Measure(
        path,
        how,
        _quantile_kernel(reduction, q, options),
        dtype if dtype.kind == "f" else np.dtype(np.float64),
        None if np.ndim(given) == 0 else q,
    )


def _quantile_kernel(reduction: Reduction, q: tuple[float, ...], options: ReductionOptions) -> Exact | Sketch:
    """Return an exact kernel if the cells of a chunk of the result take at most ``exact_below`` bytes.

    Otherwise return a kernel of sketches.
    """
    cells = math.prod(reduction.over_shape) * math.prod(reduction.retained_grid)
    if 8 * cells <= parse_bytes(options["exact_below"]):
        return Exact(q, reduction.skipna)
    k = options["k"]
    if not isinstance(k, int) or not 8 <= k <= 65535:
        raise InvalidInputError(f"k must be a number from 8 to 65535, got {k!r}", ErrorKind.INVALID_ARGUMENT)
    return Sketch(q, k, reduction.skipna)


def _may_be_missing(reduction: Reduction, how: str, min_count: int | None) -> bool:
    """Return whether a result of integers may have no value: then it is of floats, which have NaN."""
    if reduction.empty is not None:
        return True
    if how in ("count", "any", "all"):
        return False
    if min_count:
        return True
    return how != "sum" and not all(reduction.over_shape)
