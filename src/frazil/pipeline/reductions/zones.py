"""Labels of the cells of a grid, from polygons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs

with needs("rasterized"):
    from rasterio.features import rasterize  # type: ignore[import-untyped,unused-ignore]
    from rasterio.transform import from_origin  # type: ignore[import-untyped,unused-ignore]


def rasterized(
    polygons: Sequence[Mapping[str, Any]],
    latitude: xr.DataArray,
    longitude: xr.DataArray,
    *,
    labels: Sequence[float] | None = None,
    all_touched: bool = False,
    name: str = "zone",
) -> xr.DataArray:
    """Return labels of the cells of a regular grid from polygons, for `frazil.pipeline.zonal_stats`.

    A cell gets the label of the last polygon that contains its middle, or NaN.
    """
    y, x = (_regular(each) for each in (latitude, longitude))
    numbers = list(range(1, len(polygons) + 1)) if labels is None else list(labels)
    if len(numbers) != len(polygons):
        raise InvalidInputError(
            f"labels must have one label for each of the {len(polygons)} polygons, got {len(numbers)}"
        )
    step_y, step_x = y[1] - y[0], x[1] - x[0]
    # `from_origin` takes steps to the right and down.
    transform = from_origin(x[0] - step_x / 2, y[0] - step_y / 2, step_x, -step_y)
    rows = rasterize(
        list(zip(polygons, range(1, len(polygons) + 1), strict=True)),
        out_shape=(len(y), len(x)),
        transform=transform,
        fill=0,
        all_touched=all_touched,
        dtype="int32",
    )
    values = np.array([np.nan, *numbers], np.float64)[rows]
    return xr.DataArray(
        values,
        dims=(*latitude.dims, *longitude.dims),
        coords={str(latitude.name): latitude, str(longitude.name): longitude},
        name=name,
    )


def _regular(values: xr.DataArray) -> np.ndarray[Any, np.dtype[np.float64]]:
    numbers = np.asarray(values.values, np.float64)
    steps = np.diff(numbers)
    if numbers.ndim != 1 or len(numbers) < 2 or not np.allclose(steps, steps[0], rtol=1e-3):
        raise InvalidInputError(
            f"The coordinate `{values.name}` must have at least two values in equal steps, got "
            f"{numbers.ravel()[:5].tolist()}",
            ErrorKind.UNSUPPORTED_ARRAY,
        )
    return numbers
