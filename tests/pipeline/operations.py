"""The operations from arrays to arrays, with arguments for every grid of `time`, `lat` and `lon`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import zarr

import frazil
import frazil.pipeline as ops

type Call = tuple[Callable[..., ops.JobResult], list[Any], dict[str, Any]]

GRID: Final = {"lat": np.arange(-60.0, 61, 30), "lon": np.arange(0.0, 360, 30)}
#: Operations, their arguments after the paths of arrays, and their keywords.
CALLS: Final[dict[str, Call]] = {
    "mean": (ops.mean, ["time"], {}),
    "mean of a plane": (ops.mean, [["lat", "lon"]], {}),
    "reduce": (ops.reduce, [["lat"], ["mean", "std"]], {}),
    "climatology": (ops.climatology, ["month"], {}),
    "groupby": (ops.groupby, ["time.dayofyear"], {}),
    "resample": (ops.resample, ["D"], {}),
    "quantile": (ops.quantile, [0.9, "time"], {}),
    "zonal_stats": (ops.zonal_stats, [[-90, -30, 30, 90], "mean"], {"dims": "lon"}),
    "coarsen": (ops.coarsen, [{"lat": 2}], {}),
    "pyramid": (ops.pyramid, [], {"factors": {"lat": 2, "lon": 2}, "levels": 2}),
    "rechunk": (ops.rechunk, [{"time": -1, "lat": 4}], {}),
    "recompress": (ops.recompress, [[zarr.codecs.ZstdCodec(level=9)]], {}),
    "regrid": (ops.regrid, [GRID], {}),
    "select": (ops.select, [], {"isel": {"time": slice(-4, None)}}),
    "crop": (ops.crop, [], {"latitude": (-50, 50)}),
    "map_blocks": (partial(ops.map_blocks, np.negative), [], {}),
    "materialize": (ops.materialize, [], {}),
}


def operate(call: Call, repo: frazil.Repository, paths: Sequence[str], **options: Any) -> ops.JobResult:
    function, arguments, keywords = call
    return function(repo, list(paths), *arguments, **{"engine": ops.Inline(), **keywords, **options})


def anomaly(repo: frazil.Repository, paths: Sequence[str], **options: Any) -> ops.JobResult:
    usual = ops.climatology(repo, paths, "month", to=ops.Target(repo, group="usual"), engine=ops.Inline())
    return ops.anomaly(repo, paths, usual, group="usual", **options)
