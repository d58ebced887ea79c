"""Attributes that describe the levels of a pyramid, by the multiscales convention and by OME-NGFF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from frazil.pipeline.transform.array_info import ArrayInfo, Json
from frazil.pipeline.transform.window_statistics import window_lengths

#: The name of a statistic in the multiscales convention.
_RESAMPLING: Final = {"mean": "average", "first": "nearest", "min": "min", "max": "max", "median": "med"}
_MULTISCALES: Final = {
    "schema_url": "https://raw.githubusercontent.com/zarr-conventions/multiscales/refs/tags/v1/schema.json",
    "spec_url": "https://github.com/zarr-conventions/multiscales/blob/v1/README.md",
    "uuid": "d35379db-88df-4056-af3a-620245f8e347",
    "name": "multiscales",
    "description": "Multiscale layout of zarr datasets",
}
_OME_TYPES: Final = {"x": "space", "y": "space", "z": "space", "t": "time", "c": "channel"}
_OME_UNITS: Final = {
    "um": "micrometer",
    "µm": "micrometer",
    "nm": "nanometer",
    "mm": "millimeter",
    "s": "second",
}


def multiscales_attributes(
    arrays: Sequence[ArrayInfo], factors: Mapping[str, int], levels: int, how: str
) -> Json:
    """Return attributes of the multiscales convention for a group.

    Scales are along the axes of the first array.
    """
    layout: list[Json] = []
    for level in range(levels):
        scale, translation = _scales(arrays[0], factors, level)
        entry: Json = {"asset": str(level), "transform": {"scale": scale, "translation": translation}}
        if level:
            entry["derived_from"] = str(level - 1)
        layout.append(entry)
    method = _RESAMPLING.get(how, how)
    return {
        "zarr_conventions": [_MULTISCALES],
        "multiscales": {"layout": layout, "resampling_method": method},
    }


def ome_attributes(array: ArrayInfo, factors: Mapping[str, int], levels: int, how: str) -> Json:
    """Return attributes of OME-NGFF 0.5 for a group. The size of a pixel is unknown: the attributes say 1."""
    datasets = []
    for level in range(levels):
        scale, translation = _scales(array, factors, level)
        transforms = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": translation}]
        datasets.append({"path": str(level), "coordinateTransformations": transforms})
    axes = [_ome_axis(array, str(dim)) for dim in array.dims]
    multiscale = {"name": array.name, "axes": axes, "datasets": datasets, "type": how}
    return {"ome": {"version": "0.5", "multiscales": [multiscale]}}


def _ome_axis(array: ArrayInfo, dim: str) -> Json:
    axis: Json = {"name": dim}
    if dim.lower() in _OME_TYPES:
        axis["type"] = _OME_TYPES[dim.lower()]
    unit = array.attributes.get(f"{dim}_unit")
    if isinstance(unit, str):
        axis["unit"] = _OME_UNITS.get(unit, unit)
    return axis


def _scales(array: ArrayInfo, factors: Mapping[str, int], level: int) -> tuple[list[float], list[float]]:
    """Return, for each axis, the size of a cell of a level and the centre of its first cell.

    Both are in cells of level 0.
    """
    scale = [float(length**level) for length in window_lengths(array, factors)]
    return scale, [(each - 1) / 2 for each in scale]
