"""Converts a coordinate reference system to attributes of a CF grid mapping, by its PROJ parameters."""

from __future__ import annotations

from typing import Any, Final

#: Projection of PROJ -> its name in CF, and the CF name of its central longitude.
_PROJECTIONS: Final = {
    "longlat": ("latitude_longitude", ""),
    "tmerc": ("transverse_mercator", "longitude_of_central_meridian"),
    "merc": ("mercator", "longitude_of_projection_origin"),
    "lcc": ("lambert_conformal_conic", "longitude_of_central_meridian"),
    "aea": ("albers_conical_equal_area", "longitude_of_central_meridian"),
    "laea": ("lambert_azimuthal_equal_area", "longitude_of_projection_origin"),
    "stere": ("polar_stereographic", "straight_vertical_longitude_from_pole"),
    "sinu": ("sinusoidal", "longitude_of_projection_origin"),
}
_PARAMETERS: Final = {
    "lat_0": "latitude_of_projection_origin",
    "x_0": "false_easting",
    "y_0": "false_northing",
    "lat_ts": "standard_parallel",
    "a": "semi_major_axis",
    "b": "semi_minor_axis",
    "rf": "inverse_flattening",
}
_ELLIPSOIDS: Final = {
    "WGS84": (6378137.0, 298.257223563),
    "GRS80": (6378137.0, 298.257222101),
    "NAD83": (6378137.0, 298.257222101),
}


def grid_mapping_attrs(proj: dict[str, Any]) -> dict[str, Any]:
    """Return the CF attributes for common projections, none for others, which only WKT describes."""
    if proj.get("proj") == "utm":
        south = 1e7 if proj.get("south") else 0.0
        zone = {"lat_0": 0.0, "lon_0": proj["zone"] * 6.0 - 183, "k": 0.9996, "x_0": 5e5, "y_0": south}
        proj = {**proj, "proj": "tmerc", **zone}
    if proj.get("proj") not in _PROJECTIONS:
        return {}
    name, meridian = _PROJECTIONS[proj["proj"]]
    attrs: dict[str, Any] = {"grid_mapping_name": name}
    attrs |= {cf: float(proj[key]) for key, cf in _PARAMETERS.items() if key in proj}
    if "lon_0" in proj and meridian:
        attrs[meridian] = float(proj["lon_0"])
    if "lat_1" in proj:
        attrs["standard_parallel"] = [float(proj[key]) for key in ("lat_1", "lat_2") if key in proj]
    if "k" in proj or "k_0" in proj:
        where = "central_meridian" if proj["proj"] == "tmerc" else "projection_origin"
        attrs[f"scale_factor_at_{where}"] = float(proj["k"] if "k" in proj else proj["k_0"])
    ellipsoid = _ELLIPSOIDS.get(str(proj.get("datum", proj.get("ellps"))))
    if ellipsoid is not None:
        attrs["semi_major_axis"], attrs["inverse_flattening"] = ellipsoid
    return attrs
