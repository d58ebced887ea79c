"""The options of all reductions, weights, and the allowed targets of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

import numpy as np
import xarray as xr

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import Limits, parse_bytes
from frazil.jobs.job import RunOptions, Target, Version, same_storage, with_options
from frazil.pipeline.reductions.fields import (
    ArrayLookup,
    Field,
    Grouping,
    coordinate,
    coordinates_of,
    digest_of,
    dimensions,
    open_array,
    require_same_labels,
)
from frazil.pipeline.reductions.kernels import Values
from frazil.repository.session.session import Session

#: ``"coslat"``, an array of xarray, or arrays by dimension.
type Weights = str | xr.DataArray | Mapping[str, Any]
#: A statistic, or several.
type How = str | Sequence[str]


class _ReductionOptions(TypedDict, total=False):
    """What a reduction computes, how much memory it takes, and where the results are.

    Attributes:
        skipna: Whether NaN is ignored. The default is True.
        min_count: The least number of valid cells: a result of fewer cells is NaN. The default, None, sets
            no limit.
        ddof: ``std`` and ``var`` divide by the number of cells minus ``ddof``. The default is 0.
        weights: Weights of the cells for ``mean``, ``sum``, ``count``, ``std`` and ``var``: ``"coslat"`` (the
            cosine of the latitude), a DataArray, or a mapping of dimensions to values. The weights of a cell
            along several dimensions are multiplied. The default, None, is no weights.
        decode: Whether the CF conventions are applied: fill values become NaN, packed data are unpacked. The
            default is True.
        valid_range: Whether values outside of the attributes ``valid_range``, ``valid_min`` and ``valid_max``
            are ignored too. The default is False.
        keep_attrs: Whether the results get the attributes of the arrays. The default is True.
        exact_below: Quantiles are exact where the cells of a chunk of the result take at most this many
            bytes: a number, or a text such as the default, ``"256MB"``. Otherwise they are estimated by
            sketches.
        k: The size of the sketches, from 8 to 65535. A larger sketch is more accurate: the rank error is
            1.3 % for the default, 200.
        limits: `Limits`, in bytes: how much a task reads, and when partial results go through the storage.
        to: The `Target` of the results. The default, None, is a group on the branch of the source, which is
            named after the operation.
    """

    skipna: bool
    min_count: int | None
    ddof: int
    weights: Weights | None
    decode: bool
    valid_range: bool
    keep_attrs: bool
    exact_below: int | str
    k: int
    limits: Limits
    to: Target | None


class _Quantiles(_ReductionOptions, total=False):
    """The options of a reduction with ``how="quantile"``.

    Attributes:
        q: For ``how="quantile"``: a quantile between 0 and 1, or several. The default is 0.5.
    """

    q: float | Sequence[float]


class QuantileOptions(_ReductionOptions, RunOptions, total=False):
    """The options of `quantile`: those of `ReductionOptions` without ``q``, which is an argument."""


class ReductionOptions(_Quantiles, RunOptions, total=False):
    """The options of every reduction, and those of `frazil.jobs.job.RunOptions`.

    ``help(frazil.pipeline.reduce)`` lists them.
    """


#: The defaults that are not None.
REDUCTION_DEFAULTS: Final[ReductionOptions] = {
    "skipna": True,
    "ddof": 0,
    "decode": True,
    "valid_range": False,
    "keep_attrs": True,
    "exact_below": "256MB",
    "k": 200,
    "limits": Limits(),
    "q": 0.5,
}
takes_options = with_options(ReductionOptions, REDUCTION_DEFAULTS)
takes_quantile_options = with_options(QuantileOptions, REDUCTION_DEFAULTS)


#: The options whose values are recorded unchanged, if the caller passes them.
_RECORDED: Final = ("skipna", "min_count", "ddof", "decode", "valid_range", "keep_attrs", "k")


@dataclass(frozen=True, slots=True)
class GroupingRule:
    """How the cells of an array are grouped. ``labels`` are the coordinates that `grouping_of` reads."""

    grouping_of: Callable[[Session, Field], Grouping]
    labels: tuple[str, ...] = ()


def names_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple. Raise ``InvalidInputError`` for other values.

    >>> names_of("t"), names_of(["u", "v"])
    (('t',), ('u', 'v'))
    """
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(each, str) for each in names):
        raise InvalidInputError(
            f"paths, dims and how must be text, got {given!r}", ErrorKind.INVALID_ARGUMENT
        )
    return names


def recorded_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the caller passes, for the parameters of the job."""
    """Return the options of the caller that change the result, as JSON."""
    out: dict[str, Any] = {name: value for name, value in options.items() if name in _RECORDED}
    if "q" in options:
        out["q"] = np.asarray(options["q"]).tolist()
    if "exact_below" in options:
        out["exact_below"] = parse_bytes(options["exact_below"])
    if (weights := options.get("weights")) is not None:
        out["weights"] = _recorded_weights(weights)
    return out


def _recorded_weights(weights: Any) -> Any:
    if isinstance(weights, xr.DataArray):
        return {",".join(map(str, weights.dims)): digest_of(weights.values)}
    if isinstance(weights, Mapping):
        return {dim: digest_of(np.asarray(values)) for dim, values in weights.items()}
    return weights


def target_or_group(version: Version, to: Target | None, name: str) -> Target:
    """Return the target ``to``; without it, the group ``name`` on the branch that the job reads.

    Raises ``InvalidInputError`` (``not-on-branch``) for a version that is not on a branch.
    """
    if to is not None:
        if not isinstance(to, Target):
            raise wrong_type("to", to, "Target", "None")
        return to
    if version.branch is None:
        raise InvalidInputError(
            "to must be a target if the source is not on a branch, got None. Pass "
            "`to=Target(repo, branch, group)`",
            ErrorKind.NOT_ON_BRANCH,
        )
    return Target(version.repo, version.branch, f"/{name}")


def require_free_targets(
    version: Version, target: Target, writes: Sequence[str], fields: Sequence[Field]
) -> None:
    """Raise ``InvalidInputError`` if a result would replace an array that it is computed from."""
    if len(set(writes)) < len(writes):
        raise InvalidInputError(
            f"Each result must have its own path, got {', '.join(writes)}", ErrorKind.CONFLICTING_ARGUMENTS
        )
    same = sorted({field.path for field in fields} & set(writes)) if same_storage(version, target) else []
    if same:
        raise InvalidInputError(
            f"to must not contain arrays that the job reads, got `{same[0]}` in both. Pass another group, "
            f"`to=Target(repo, group='/{target.group.strip('/') or 'results'}')`",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )


def weights_of(lookup: ArrayLookup, field: Field, weights: Weights | None) -> Values | None:
    """Return weights with as many axes as the array, of length 1 along axes where they do not vary.

    Raises ``InvalidInputError`` for weights that are not numbers or do not have dimensions of the array.
    """
    if weights is None:
        return None
    out: Values = np.ones((1,) * len(field.dims))
    lengths = dict(zip(field.dims, field.shape, strict=True))
    for dims, values in _arrays_by_dims(lookup, field, weights).items():
        _require_weights(field, dims, values)
        order = sorted(range(len(dims)), key=lambda axis: field.dims.index(dims[axis]))
        shape = [lengths[dim] if dim in dims else 1 for dim in field.dims]
        out = out * values.astype(np.float64).transpose(order).reshape(shape)
    return out


def _arrays_by_dims(lookup: ArrayLookup, field: Field, weights: Any) -> dict[tuple[str, ...], Values]:
    session = lookup.session
    if isinstance(weights, str):
        if weights != "coslat":
            raise InvalidInputError(
                f"weights must be 'coslat' or arrays, got {weights!r}", ErrorKind.UNKNOWN_CHOICE
            )
        name = latitude_of(lookup, field)
        latitude = coordinate(session, field.parent, name)
        dims = dimensions(open_array(session, f"{field.parent}/{name}"))
        return {dims: np.cos(np.deg2rad(latitude.values))}
    if isinstance(weights, xr.DataArray):
        require_same_labels(session, field, weights, "weights")
        return {tuple(map(str, weights.dims)): weights.values}
    if isinstance(weights, Mapping):
        return {(dim,): np.asarray(values) for dim, values in weights.items()}
    raise InvalidInputError(
        f"weights must be 'coslat', a DataArray, or arrays by dimension, got {weights!r}",
        ErrorKind.INVALID_ARGUMENT,
    )


def _require_weights(field: Field, dims: tuple[str, ...], values: Values) -> None:
    lengths = dict(zip(field.dims, field.shape, strict=True))
    if not set(dims) <= set(field.dims) or tuple(map(lengths.__getitem__, dims)) != values.shape:
        raise InvalidInputError(
            f"weights must have the lengths of dimensions of `{field.path}`, {lengths}, got "
            f"{dict(zip(dims, values.shape, strict=False))}",
            ErrorKind.INVALID_ARGUMENT,
        )
    if values.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"weights must be numbers, got the type {values.dtype}", ErrorKind.INVALID_ARGUMENT
        )
    if np.isnan(values).any():
        raise InvalidInputError("weights must be numbers, got NaN", ErrorKind.INVALID_ARGUMENT)


def latitude_of(arrays: ArrayLookup, field: Field) -> str:
    """Return the name of the latitude among the coordinates of an array, or raise ``InvalidInputError``."""
    coordinates = coordinates_of(field, arrays, field.dims)
    for name, array in coordinates.items():
        if array.attrs.get("standard_name") == "latitude" or name in ("lat", "latitude"):
            return name
    raise InvalidInputError(
        f"`{field.path}` must have a coordinate with the standard_name `latitude`, got "
        f"{', '.join(coordinates) or 'none'}",
        ErrorKind.UNSUPPORTED_ARRAY,
    )
