/** Projections and coastlines. Loaded when somebody chooses a projection. */

import {
  geoAzimuthalEqualArea,
  geoEqualEarth,
  geoEquirectangular,
  geoGraticule10,
  geoNaturalEarth1,
  geoOrthographic,
  type GeoPermissibleObjects,
  type GeoProjection,
} from "d3-geo";
import land from "world-atlas/land-110m.json";

export { geoPath } from "d3-geo";
export const PROJECTIONS: Record<string, () => GeoProjection> = {
  natural: geoNaturalEarth1,
  equal: geoEqualEarth,
  plate: geoEquirectangular,
  globe: geoOrthographic,
  local: geoAzimuthalEqualArea,
};
export const GRATICULE = geoGraticule10();

/** Coastlines by Natural Earth: each arc holds steps in units of a grid. */
function coastlines(): GeoPermissibleObjects {
  const { scale, translate } = land.transform as { scale: [number, number]; translate: [number, number] };
  const coordinates = (land.arcs as number[][][]).map((arc) => {
    let [east, north] = [0, 0];
    return arc.map(([right, up]) => {
      east += right!;
      north += up!;
      return [east * scale[0] + translate[0], north * scale[1] + translate[1]];
    });
  });
  return { type: "MultiLineString", coordinates };
}

export const COAST = coastlines();
