"""The options of all reductions, and their values with defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import xarray as xr

from frazil.jobs.memory import Limits
from frazil.jobs.run_options import Run, RunOptions
from frazil.jobs.versions import Target

#: ``"coslat"``, an array of xarray, or arrays by dimension.
type Weights = str | xr.DataArray | Mapping[str, Any]
#: A statistic, or several.
type How = str | Sequence[str]


class _ReductionOptions(TypedDict, total=False):
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
    q: float | Sequence[float]


class QuantileOptions(_ReductionOptions, RunOptions, total=False):
    """The options of `quantile`: those of `ReductionOptions`, with ``q`` as an argument of its own."""


class ReductionOptions(_Quantiles, RunOptions, total=False):
    """The options of every reduction.

    skipna         leave NaN out
    min_count      NaN where fewer valid cells than that are reduced
    ddof           of ``std`` and ``var``: divide by the count less this
    weights        "coslat" (cosine of the latitude), a DataArray, or {dimension: values}; weights of a
                   cell multiply
    decode         apply CF conventions: fill values, packed data
    valid_range    also leave out values outside of ``valid_range``, ``valid_min``, ``valid_max``
    keep_attrs     results have the attributes of the arrays
    exact_below    quantiles are exact as long as the cells of a task take fewer bytes
    k              size of the sketches beyond that: see `frazil.pipeline.reductions.quantiles`
    limits         `Limits`: how much a task reads, and when partial results go through the storage
    to             `Target` of the results; None is a group that is named after the operation
    q              of ``quantile``: a number or several, between 0 and 1

    And those of `frazil.jobs.run_options.RunOptions`: engine, job_id, message, progress.
    """


@dataclass(frozen=True, slots=True)
class ReductionSettings(Run):
    """The values of `ReductionOptions`, with their defaults."""

    skipna: bool = True
    min_count: int | None = None
    ddof: int = 0
    weights: Weights | None = None
    decode: bool = True
    valid_range: bool = False
    keep_attrs: bool = True
    exact_below: int | str = "256MB"
    k: int = 200
    limits: Limits = Limits()  # noqa: RUF009  # it is frozen
    to: Target | None = None
    q: float | Sequence[float] = 0.5
