/**
 * Coordinate reference systems: from the x and y of a raster to longitude and latitude, and back. Parameters have the
 * names of the CF conventions. Mercator, polar stereographic, Lambert's conic and transverse Mercator are functions of the
 * isometric latitude, the equal-area one of the authalic latitude. Formulas: Snyder 1987, Karney 2011 (transverse Mercator),
 * CGMS LRIT (geostationary).
 */

import { geoRotation } from "d3-geo";
import type { Properties } from "../base/lists";

export type Place = readonly [number, number];
/** Longitude and latitude in degrees; x and y in metres, degrees or radians, as the system has them. NaN where it has no place. */
export interface Crs {
  readonly name: string;
  forward(longitude: number, latitude: number): Place;
  inverse(x: number, y: number): Place;
}

/** The same in radians, from the central meridian and without false origin. */
type Formula = { forward(east: number, north: number): Place; inverse(x: number, y: number): Place };
const DEGREE = Math.PI / 180;
const { sin, cos, tan, asin, atan, atan2, sqrt, exp, log, sinh, cosh, asinh, atanh, hypot, abs, sign } = Math;

/** An ellipsoid: its latitudes, and the radius of a parallel `m`. */
class Body {
  readonly q90: number;

  constructor(
    readonly a: number,
    readonly e: number,
  ) {
    this.q90 = this.q(Math.PI / 2);
  }

  m(north: number): number {
    return cos(north) / sqrt(1 - (this.e * sin(north)) ** 2);
  }

  isometric(north: number): number {
    return asinh(tan(north)) - this.e * atanh(this.e * sin(north));
  }

  fromIsometric(psi: number): number {
    let north = atan(sinh(psi));
    for (let turn = 0; turn < 6; turn++) north = atan(sinh(psi + this.e * atanh(this.e * sin(north))));
    return north;
  }

  q(north: number): number {
    const { e } = this;
    const s = sin(north);
    return e ? (1 - e * e) * (s / (1 - (e * s) ** 2) + atanh(e * s) / e) : 2 * s;
  }

  fromQ(q: number): number {
    const ratio = Math.min(Math.max(q / this.q90, -1), 1);
    let north = asin(ratio);
    if (abs(ratio) > 1 - 1e-12) return north;
    for (let turn = 0; turn < 6; turn++)
      north +=
        ((q - this.q(north)) * (1 - (this.e * sin(north)) ** 2) ** 2) / (2 * cos(north) * (1 - this.e ** 2));
    return north;
  }
}

type Parameter = (names: string, other?: number) => number;

/** Formulas by `grid_mapping_name`. */
const FORMULAS: Record<
  string,
  (of: Parameter, body: Body, list: number[], attributes: Properties) => Formula
> = {
  mercator(of, body, [parallel]) {
    const k =
      body.a *
      (parallel === undefined ? of("scale_factor_at_projection_origin", 1) : body.m(parallel * DEGREE));
    return {
      forward: (east, north) => [k * east, k * body.isometric(north)],
      inverse: (x, y) => [x / k, body.fromIsometric(y / k)],
    };
  },
  polar_stereographic(of, body, [parallel]) {
    const { a, e } = body;
    const s = of("latitude_of_projection_origin", parallel ?? 90) < 0 ? -1 : 1;
    const at = abs(parallel ?? 90) * DEGREE;
    const k =
      abs(parallel ?? 90) < 90
        ? a * body.m(at) * exp(body.isometric(at))
        : (2 * a * of("scale_factor_at_projection_origin", 1)) /
          sqrt((1 + e) ** (1 + e) * (1 - e) ** (1 - e));
    return {
      forward: (east, north) => {
        const radius = k * exp(-s * body.isometric(north));
        return [radius * sin(east), -s * radius * cos(east)];
      },
      inverse: (x, y) => [atan2(x, -s * y), s * body.fromIsometric(log(k / hypot(x, y)))],
    };
  },
  lambert_conformal_conic(of, body, parallels) {
    const [one, two] = [
      parallels[0] ?? of("latitude_of_projection_origin"),
      parallels[1] ?? parallels[0] ?? of("latitude_of_projection_origin"),
    ].map((each) => each * DEGREE) as [number, number];
    const n =
      abs(one - two) < 1e-9
        ? sin(one)
        : log(body.m(one) / body.m(two)) / (body.isometric(two) - body.isometric(one));
    const k =
      (body.a * of("scale_factor_at_projection_origin", 1) * body.m(one) * exp(n * body.isometric(one))) / n;
    const radius = (north: number): number => k * exp(-n * body.isometric(north));
    const base = radius(of("latitude_of_projection_origin", 0) * DEGREE);
    return {
      forward: (east, north) => [radius(north) * sin(n * east), base - radius(north) * cos(n * east)],
      inverse: (x, y) => [
        atan2(sign(n) * x, sign(n) * (base - y)) / n,
        body.fromIsometric(-log((sign(n) * hypot(x, base - y)) / k) / n),
      ],
    };
  },
  transverse_mercator(of, body) {
    const f = 1 - sqrt(1 - body.e ** 2);
    const n = f / (2 - f);
    const a = [
      n / 2 - (2 / 3) * n ** 2 + (5 / 16) * n ** 3,
      (13 / 48) * n ** 2 - (3 / 5) * n ** 3,
      (61 / 240) * n ** 3,
    ];
    const b = [n / 2 - (2 / 3) * n ** 2 + (37 / 96) * n ** 3, n ** 2 / 48 + n ** 3 / 15, (17 / 480) * n ** 3];
    const k = (of("scale_factor_at_central_meridian", 1) * body.a * (1 + n ** 2 / 4 + n ** 4 / 64)) / (1 + n);
    const series = (u: number, v: number, terms: number[], way: number): Place => [
      terms.reduce((sum, term, at) => sum + way * term * sin(2 * (at + 1) * u) * cosh(2 * (at + 1) * v), u),
      terms.reduce((sum, term, at) => sum + way * term * cos(2 * (at + 1) * u) * sinh(2 * (at + 1) * v), v),
    ];
    const up = (east: number, north: number): Place => {
      const t = sinh(body.isometric(north));
      return series(atan2(t, cos(east)), asinh(sin(east) / hypot(t, cos(east))), a, 1);
    };
    const [origin] = up(0, of("latitude_of_projection_origin", 0) * DEGREE);
    return {
      forward: (east, north) => {
        if (cos(east) <= 0) return [NaN, NaN];
        const [u, v] = up(east, north);
        return [k * v, k * (u - origin)];
      },
      inverse: (x, y) => {
        const [u, v] = series(y / k + origin, x / k, b, -1);
        return [atan2(sinh(v), cos(u)), body.fromIsometric(asinh(sin(u) / hypot(sinh(v), cos(u))))];
      },
    };
  },
  lambert_azimuthal_equal_area(of, body) {
    const origin = of("latitude_of_projection_origin", 90) * DEGREE;
    const r = body.a * sqrt(body.q90 / 2);
    const beta = asin(Math.min(Math.max(body.q(origin) / body.q90, -1), 1));
    const d = abs(abs(origin) - Math.PI / 2) < 1e-9 ? 1 : (body.a * body.m(origin)) / (r * cos(beta));
    return {
      forward: (east, north) => {
        const b = asin(Math.min(Math.max(body.q(north) / body.q90, -1), 1));
        const k = r * sqrt(2 / (1 + sin(beta) * sin(b) + cos(beta) * cos(b) * cos(east)));
        return [k * d * cos(b) * sin(east), (k / d) * (cos(beta) * sin(b) - sin(beta) * cos(b) * cos(east))];
      },
      inverse: (x, y) => {
        const radius = hypot(x / d, y * d);
        if (radius === 0) return [0, origin];
        const c = 2 * asin(radius / (2 * r));
        return [
          atan2((x / d) * sin(c), radius * cos(beta) * cos(c) - d * y * sin(beta) * sin(c)),
          body.fromQ(body.q90 * (cos(c) * sin(beta) + (d * y * sin(c) * cos(beta)) / radius)),
        ];
      },
    };
  },
  geostationary(of, { a, e }, _, { sweep_angle_axis: sweep, fixed_angle_axis: fixed }) {
    const height = a + of("perspective_point_height");
    const flat = 1 - e * e; // (b / a) squared
    const isX = sweep === "x" || fixed === "y";
    return {
      forward: (east, north) => {
        const centric = atan(flat * tan(north));
        const radius = (a * sqrt(flat)) / sqrt(1 - (1 - flat) * cos(centric) ** 2);
        const [toward, right, up] = [
          height - radius * cos(centric) * cos(east),
          radius * cos(centric) * sin(east),
          radius * sin(centric),
        ];
        if (height * (height - toward) < right ** 2 + up ** 2 / flat + (height - toward) ** 2)
          return [NaN, NaN];
        const far = hypot(toward, right, up);
        return isX ? [asin(right / far), atan(up / toward)] : [atan(right / toward), asin(up / far)];
      },
      inverse: (x, y) => {
        const [dx, dy, dz] = isX
          ? [cos(x) * cos(y), sin(x), cos(x) * sin(y)]
          : [cos(y) * cos(x), cos(y) * sin(x), sin(y)];
        const [p, q] = [dx ** 2 + dy ** 2 + dz ** 2 / flat, height * dx];
        const t = (q - sqrt(q * q - p * (height ** 2 - a ** 2))) / p;
        return [atan2(t * dy, height - t * dx), atan((t * dz) / flat / hypot(height - t * dx, t * dy))];
      },
    };
  },
};

const MERIDIANS =
  "longitude_of_central_meridian straight_vertical_longitude_from_pole longitude_of_projection_origin";

const turn = (degrees: number): number => degrees - 360 * Math.floor((degrees + 180) / 360);

/** The system of a grid mapping; undefined for one that is not in the table. */
export function crsOf(attributes: Properties): Crs | undefined {
  const name = String(attributes["grid_mapping_name"] ?? "").toLowerCase();
  const of: Parameter = (names, other = 0) => {
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
  const make = Object.hasOwn(FORMULAS, name) ? FORMULAS[name] : undefined;
  if (!make) return undefined;
  const a = of("semi_major_axis earth_radius", 6_378_137);
  const inverse = of(
    "inverse_flattening",
    (attributes.semi_major_axis ?? attributes.earth_radius) ? 0 : 298.257223563,
  );
  const b = of("semi_minor_axis", inverse ? a * (1 - 1 / inverse) : a);
  const { standard_parallel: parallels } = attributes;
  const list = [parallels ?? []].flat().map(Number);
  const formula = make(of, new Body(a, sqrt(Math.max(0, 1 - (b / a) ** 2))), list, attributes);
  const meridian = of(MERIDIANS);
  const [east, north] = [of("false_easting"), of("false_northing")];
  return {
    name,
    forward: (longitude, latitude) => {
      const [x, y] = formula.forward(turn(longitude - meridian) * DEGREE, latitude * DEGREE);
      return [x + east, y + north];
    },
    inverse: (x, y) => {
      const [longitude, latitude] = formula.inverse(x - east, y - north);
      return [turn(longitude / DEGREE + meridian), latitude / DEGREE];
    },
  };
}

const polar = (latitude: number, longitude: number, parallel: number): Properties => ({
  grid_mapping_name: "polar_stereographic",
  latitude_of_projection_origin: latitude,
  straight_vertical_longitude_from_pole: longitude,
  standard_parallel: parallel,
});
const HUGHES = { semi_major_axis: 6_378_273, semi_minor_axis: 6_356_889.449 };
const equal = (latitude: number, longitude = 0, east = 0, north = 0): Properties => ({
  grid_mapping_name: "lambert_azimuthal_equal_area",
  latitude_of_projection_origin: latitude,
  longitude_of_projection_origin: longitude,
  false_easting: east,
  false_northing: north,
});
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
  3411: { ...polar(90, -45, 70), ...HUGHES },
  3412: { ...polar(-90, 0, -70), ...HUGHES },
  3035: equal(52, 10, 4_321_000, 3_210_000),
  6931: equal(90),
  6932: equal(-90),
};

/** The grid mapping of a code such as `EPSG:32633`; undefined if this page does not know it. */
export function mappingOfCode(code: string): Properties | undefined {
  if (/CRS84$/i.test(code)) return DEGREES;
  const number = Number(/^(?:EPSG:+)?(\d+)$/i.exec(code.trim())?.[1]);
  if (CODES[number]) return CODES[number];
  const [, family = "", zone = ""] = /^(326|327|258|269)(\d\d)$/.exec(String(number)) ?? [];
  if (!family || Number(zone) < 1 || Number(zone) > 60) return undefined;
  return {
    grid_mapping_name: "transverse_mercator",
    longitude_of_central_meridian: Number(zone) * 6 - 183,
    scale_factor_at_central_meridian: 0.9996,
    false_easting: 500_000,
    false_northing: family === "327" ? 10_000_000 : 0,
  };
}
