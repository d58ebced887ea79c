/**
 * Coordinate reference systems: from the x and y of a raster to longitude and latitude, and back. Parameters have the
 * names of the CF conventions. The formulas are those of proj4, without its parsers and tables.
 */

import { geoRotation } from "d3-geo";
import etmerc from "proj4/lib/projections/etmerc";
import geos from "proj4/lib/projections/geos";
import laea from "proj4/lib/projections/laea";
import lcc from "proj4/lib/projections/lcc";
import merc from "proj4/lib/projections/merc";
import stere from "proj4/lib/projections/stere";
import tmerc from "proj4/lib/projections/tmerc";
import { entryOf, type Properties, RADIANS } from "../base/lists";

export type Place = readonly [number, number];
/** Longitude and latitude in degrees; x and y in metres, degrees or radians. NaN where the system has no place. */
export interface Crs {
  readonly name: string;
  forward(longitude: number, latitude: number): Place;
  inverse(x: number, y: number): Place;
}

const NOWHERE = { x: NaN, y: NaN };

/** Formulas by `grid_mapping_name`. */
const FORMULAS: Readonly<Record<string, typeof merc>> = {
  mercator: merc,
  polar_stereographic: stere,
  lambert_conformal_conic: lcc,
  transverse_mercator: etmerc,
  lambert_azimuthal_equal_area: laea,
  geostationary: geos,
};
const MERIDIANS =
  "longitude_of_central_meridian straight_vertical_longitude_from_pole longitude_of_projection_origin";
const SCALES = "scale_factor_at_projection_origin scale_factor_at_central_meridian";

const turn = (degrees: number): number => degrees - 360 * Math.floor((degrees + 180) / 360);

/** The system of a grid mapping; undefined for one that is not in the table. */
export function crsOf(attributes: Properties): Crs | undefined {
  const name = String(attributes["grid_mapping_name"] ?? "").toLowerCase();
  const of = (names: string, other = 0): number => {
    const value = names
      .split(" ")
      .map((each) => attributes[each])
      .find((each) => each !== undefined);
    return value === undefined ? other : Number(Array.isArray(value) ? value[0] : value);
  };
  if (name === "latitude_longitude")
    return { name, forward: (east, north) => [east, north], inverse: (x, y) => [x, y] };
  if (name === "rotated_latitude_longitude") {
    const rotation = geoRotation([
      180 - of("grid_north_pole_longitude"),
      of("grid_north_pole_latitude", 90) - 90,
    ]);
    const zero = of("north_pole_grid_longitude");
    return {
      name,
      forward: (east, north) => {
        const [x, y] = rotation([east, north]);
        return [turn(x - zero), y];
      },
      inverse: (x, y) => rotation.invert([x + zero, y]),
    };
  }
  const formula = entryOf(FORMULAS, name);
  if (!formula) return undefined;
  const a = of("semi_major_axis earth_radius", 6_378_137);
  const rf = of(
    "inverse_flattening",
    (attributes.semi_major_axis ?? attributes.earth_radius) ? 0 : 298.257223563,
  );
  const b = of("semi_minor_axis", rf ? a * (1 - 1 / rf) : a);
  const es = Math.max(0, 1 - (b / a) ** 2);
  const parallels = [attributes["standard_parallel"] ?? []].flat().map((each) => Number(each) * RADIANS);
  const isPolar = name === "polar_stereographic";
  const origin = of(
    "latitude_of_projection_origin",
    isPolar ? (parallels[0] ?? 90) / RADIANS : name.endsWith("area") ? 90 : 0,
  );
  const h = of("perspective_point_height");
  const { sweep_angle_axis: sweep, fixed_angle_axis: fixed } = attributes;
  const lat0 = (isPolar ? Math.sign(origin) * 90 : origin) * RADIANS;
  const [lat1 = lat0, lat2 = lat1] = parallels;
  const ellipsoid = { a, b, rf, es, e: Math.sqrt(es), ep2: es / (1 - es), sphere: es === 0 };
  const latitudes = { lat0, lat1, lat2, lat_ts: parallels[0] };
  const projection = {
    ...(formula === etmerc && es === 0 ? tmerc : formula),
    ...ellipsoid,
    ...latitudes,
    h,
    long0: of(MERIDIANS) * RADIANS,
    k0: of(SCALES, 1),
    x0: of("false_easting"),
    y0: of("false_northing"),
    sweep: sweep === "x" || fixed === "y" ? "x" : "y",
  };
  projection.init();
  const unit = h || 1; // a geostationary system has angles
  return {
    name,
    forward: (longitude, latitude) => {
      const { x, y } = projection.forward({ x: longitude * RADIANS, y: latitude * RADIANS }) ?? NOWHERE;
      return [x / unit, y / unit];
    },
    inverse: (x, y) => {
      const { x: east, y: north } = projection.inverse({ x: x * unit, y: y * unit }) ?? NOWHERE;
      return [turn(east / RADIANS), north / RADIANS];
    },
  };
}

const system = (name: string, latitude: number, longitude: number, more: Properties = {}): Properties => ({
  grid_mapping_name: name,
  latitude_of_projection_origin: latitude,
  longitude_of_projection_origin: longitude,
  ...more,
});
const polar = (latitude: number, longitude: number, parallel: number, more: Properties = {}): Properties =>
  system("polar_stereographic", latitude, longitude, { standard_parallel: parallel, ...more });
const HUGHES = { semi_major_axis: 6_378_273, semi_minor_axis: 6_356_889.449 };
const EQUAL = "lambert_azimuthal_equal_area";
const WEB: Properties = { grid_mapping_name: "mercator", earth_radius: 6_378_137 };
const DEGREES: Properties = { grid_mapping_name: "latitude_longitude" };

const CODES: Record<number, Properties> = {
  3857: WEB,
  900913: WEB,
  ...Object.fromEntries([4326, 4979, 4258, 4269, 4267].map((code) => [code, DEGREES])),
  3031: polar(-90, 0, -71),
  3413: polar(90, -45, 70),
  3976: polar(-90, 0, -70),
  3995: polar(90, 0, 71),
  3411: polar(90, -45, 70, HUGHES),
  3412: polar(-90, 0, -70, HUGHES),
  3035: system(EQUAL, 52, 10, { false_easting: 4_321_000, false_northing: 3_210_000 }),
  6931: system(EQUAL, 90, 0),
  6932: system(EQUAL, -90, 0),
};

/** The grid mapping of a code such as `EPSG:32633`; undefined if this page does not know it. */
export function mappingOfCode(code: string): Properties | undefined {
  if (/CRS84$/i.test(code)) return DEGREES;
  const number = Number(/^(?:EPSG:+)?(\d+)$/i.exec(code.trim())?.[1]);
  if (CODES[number]) return CODES[number];
  const [, family = "", zone = ""] = /^(326|327|258|269)(\d\d)$/.exec(String(number)) ?? [];
  if (!family || Number(zone) < 1 || Number(zone) > 60) return undefined;
  const origin = { false_easting: 500_000, false_northing: family === "327" ? 10_000_000 : 0 };
  const scale = { scale_factor_at_central_meridian: 0.9996 };
  return system("transverse_mercator", 0, Number(zone) * 6 - 183, { ...scale, ...origin });
}
