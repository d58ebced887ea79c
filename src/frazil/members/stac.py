"""Members of a collection as items of STAC, and items as the arguments of a new member."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.extras import needs
from frazil.lazy_names import ModuleOnDemand
from frazil.members.extent import BOX, TIME
from frazil.members.table import Column
from frazil.repository.session.session import Session
from frazil.repository.target import Target
from frazil.storage.base import storage_label

if TYPE_CHECKING:
    import pystac
else:
    pystac = ModuleOnDemand("pystac")

_TIMES: Final = ("datetime", "start_datetime", "end_datetime")
_CRS: Final = "proj:code"


def items_of(
    session: Session,
    path: str,
    names: list[str],
    rows: Mapping[str, NDArray[Any]],
    columns: Mapping[str, Column],
) -> pystac.ItemCollection:
    """Return an item for each row of a version. ``rows`` has elements."""
    place = storage_label(session.workspace.context.storage).rpartition(", path ")[2]
    missing = {name: columns[name].is_missing(each) for name, each in rows.items()}
    values = {name: columns[name].values(each) for name, each in rows.items()}
    items = []
    with needs("Collection.to_stac"):
        for at, name in enumerate(names):
            row = {key: each[at] for key, each in values.items() if not missing[key][at]}
            if not row.keys() >= set(TIME):
                raise misfit(f"the member `{name}` must have a time for an item of STAC, got none")
            first, last = (row.pop(each).astype("M8[us]").item().replace(tzinfo=UTC) for each in TIME)
            box = [float(row.pop(each)) for each in BOX] if row.keys() >= set(BOX) else None
            properties = {
                {"crs": _CRS}.get(key, key): json.loads(str(each)) if columns[key].is_json else _plain(each)
                for key, each in row.items()
            }
            interval = {} if first == last else {"start_datetime": first, "end_datetime": last}
            own = properties.pop(_TIMES[0], None)  # of an item that has an interval, too
            moment = pystac.utils.str_to_datetime(own) if isinstance(own, str) else None
            item = pystac.Item(
                name, _polygon(box), box, moment if interval else first, properties, **interval
            )
            address = str(Target(place, session.snapshot_id, f"{path.rstrip('/')}/{name}"))
            item.add_asset("data", pystac.Asset(address, media_type="application/vnd.zarr", roles=["data"]))
            items.append(item)
        return pystac.ItemCollection(items)


def _plain(value: Any) -> Any:
    """Return a value of a column as JSON has it. JSON has no infinite numbers."""
    if isinstance(value, np.datetime64):
        return f"{value.astype('M8[us]').item().isoformat()}Z"
    if isinstance(value, np.floating) and not np.isfinite(value):
        return None
    return value.item() if isinstance(value, np.generic) else value


def _polygon(box: list[float] | None) -> dict[str, Any] | None:
    """Return a box as a geometry of GeoJSON: two polygons if it crosses the antimeridian."""
    if box is None:
        return None
    west, south, east, north = box
    spans = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    rings = [[[[w, south], [e, south], [e, north], [w, north], [w, south]]] for w, e in spans]
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings[0]}
    return {"type": "MultiPolygon", "coordinates": rings}


def arguments_of(item: Any, time: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a new member for an item of STAC, and the other properties of the item.

    ``time`` comes before the times of the item. Raises ``InvalidInputError`` for an item without times.
    """
    document = item if isinstance(item, Mapping) else item.to_dict()
    found = {key: each for key, each in document["properties"].items() if each is not None}
    moment, first, last = (found.pop(each, None) for each in _TIMES)
    code = found.pop(_CRS, None) or (f"EPSG:{epsg}" if (epsg := found.pop("proj:epsg", None)) else None)
    times = (first or moment, last or moment) if time is None else time
    if moment and first and last:
        found[_TIMES[0]] = moment
    if time is None and None in times:
        raise misfit(
            f"the item `{document['id']}` must have `datetime`, or `start_datetime` and `end_datetime`, got "
            f"{dict(zip(_TIMES, (moment, first, last), strict=True))}. Pass time=(first, last)"
        )
    return {"name": document["id"], "bbox": document.get("bbox"), "time": times, "crs": code}, found
