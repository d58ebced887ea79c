/** Projections and coastlines. Loaded when somebody chooses a projection. */

import type { GeoPermissibleObjects, GeoProjection } from "d3-geo";
import {
  geoAzimuthalEqualArea,
  geoEqualEarth,
  geoEquirectangular,
  geoGraticule10,
  geoNaturalEarth1,
  geoOrthographic,
} from "d3-geo";
import land from "world-atlas/land-110m.json";

export { geoPath } from "d3-geo";
export const PROJECTIONS = {
  natural: geoNaturalEarth1,
  equal: geoEqualEarth,
  plate: geoEquirectangular,
  globe: geoOrthographic,
  local: geoAzimuthalEqualArea,
} satisfies Record<string, () => GeoProjection>;
export const GRATICULE = geoGraticule10();

/** Coastlines by Natural Earth: each arc holds steps in units of a grid. */
function coastlines(): GeoPermissibleObjects {
  const [[width = 1, height = 1], [left = 0, bottom = 0]] = [land.transform.scale, land.transform.translate];
  const coordinates = land.arcs.map((arc) => {
    let [east, north] = [0, 0];
    return arc.map(([right = 0, up = 0]) => {
      east += right;
      north += up;
      return [east * width + left, north * height + bottom];
    });
  });
  return { type: "MultiLineString", coordinates };
}

export const COAST = coastlines();
