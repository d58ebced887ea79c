"""The conventions of GeoZarr 0.1: the places of cells, their system, and the levels of pyramids.

``spatial:transform`` is ``[a, b, c, d, e, f]``, with ``x = a * column + b * row + c`` and ``y = d * column +
e * row + f``. With the registration *pixel*, whole numbers are the corners of cells, as in GDAL. With *node*,
they are the centres. The attributes leave out what a growing array would make wrong: its shape and its box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final


def _convention(name: str, uuid: str, description: str) -> dict[str, str]:
    home = f"zarr-conventions/{name}"
    return {
        "schema_url": f"https://raw.githubusercontent.com/{home}/refs/tags/v0.1/schema.json",
        "spec_url": f"https://github.com/{home}/blob/v0.1/README.md",
        "uuid": uuid,
        "name": name,
        "description": description,
    }


MULTISCALES: Final = _convention(
    "multiscales", "d35379db-88df-4056-af3a-620245f8e347", "Multiscale layout of zarr datasets"
)
_PROJ: Final = _convention(
    "proj",
    "f17cb550-5864-4468-aeb7-f3180cfb622f",
    "Coordinate reference system information for geospatial data",
)
_SPATIAL: Final = _convention(
    "spatial", "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4", "Spatial coordinate information"
)
CONVENTIONS: Final = "zarr_conventions"
DIMENSIONS: Final = "spatial:dimensions"
_TRANSFORM: Final = "spatial:transform"
_REGISTRATION: Final = "spatial:registration"


def attributes_of_raster(
    transform: Sequence[float], *, is_node: bool, code: str | None = None, wkt2: str | None = None
) -> dict[str, Any]:
    """Return the attributes of an array with the dimensions ``y`` and ``x``.

    ``transform`` maps corners, as in GDAL. ``code`` is that of the system, such as ``EPSG:4326``, or ``wkt2``
    its text.
    """
    a, b, c, d, e, f = map(float, transform)
    if is_node:
        c, f = c + (a + b) / 2, f + (d + e) / 2
    system = {"proj:code": code} if code else {"proj:wkt2": wkt2} if wkt2 else {}
    return {
        CONVENTIONS: [*([_PROJ] if system else []), _SPATIAL],
        **system,
        DIMENSIONS: ["y", "x"],
        _TRANSFORM: [a, b, c, d, e, f],
        _REGISTRATION: "node" if is_node else "pixel",
    }


def without_places(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of an array without those of the places of its cells."""
    others = {name: value for name, value in attributes.items() if not name.startswith("spatial:")}
    if isinstance(others.get(CONVENTIONS), list):
        others[CONVENTIONS] = [each for each in others[CONVENTIONS] if not _is_spatial(each)]
        if not others[CONVENTIONS]:
            del others[CONVENTIONS]
    return others


def attributes_of_windows(
    attributes: Mapping[str, Any], dims: Sequence[str | None], factors: Sequence[int]
) -> dict[str, Any]:
    """Return the attributes of an array whose cells are windows of ``factors`` cells, one for each dimension.

    A window begins at the first cell. The places are left out if they do not have the form of the convention.
    """
    by_name = {name: factor for name, factor in zip(dims, factors, strict=True) if name is not None}
    names, transform = attributes.get(DIMENSIONS), attributes.get(_TRANSFORM)
    if max(factors, default=1) == 1:
        return dict(attributes)
    if not (isinstance(names, list) and len(names) == 2 and isinstance(transform, list)):
        return without_places(attributes)
    if len(transform) != 6 or not all(isinstance(each, int | float) for each in transform):
        return without_places(attributes)
    down, across = (by_name.get(name, 1) for name in names)
    a, b, c, d, e, f = transform
    if attributes.get(_REGISTRATION) == "node":  # the centre of the first window
        c += (a * (across - 1) + b * (down - 1)) / 2
        f += (d * (across - 1) + e * (down - 1)) / 2
    scaled = [a * across, b * down, c, d * across, e * down, f]
    places = {DIMENSIONS: names, _TRANSFORM: scaled}
    if _REGISTRATION in attributes:
        places[_REGISTRATION] = attributes[_REGISTRATION]
    others = without_places(attributes)
    conventions = [each for each in attributes.get(CONVENTIONS) or () if _is_spatial(each)]
    return {**others, CONVENTIONS: [*others.get(CONVENTIONS, []), *conventions], **places}


def _is_spatial(convention: Any) -> bool:
    return isinstance(convention, Mapping) and convention.get("uuid") == _SPATIAL["uuid"]
