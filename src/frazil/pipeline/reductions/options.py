"""The options of all reductions, and their values with defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

import xarray as xr

from frazil.jobs.memory import Limits
from frazil.jobs.run_options import RunOptions, with_options
from frazil.jobs.versions import Target

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
    """The options of every reduction, and those of `frazil.jobs.run_options.RunOptions`.

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
