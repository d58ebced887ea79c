/** The places of the cells of a plane on Earth, and the cell at a place. Loaded with the first such plane. */

import type { Axis } from "../array/axes";
import { type Box, cellFinder, type Slice } from "../array/slices";
import { clamp, f64, firstWhere, i32, nth, type Properties, RADIANS, u32 } from "../base/lists";
import type { Decoded } from "../cf/cf";
import { type Crs, crsOf, mappingOfCode, type Place } from "./crs";
import type { EarthReference, Sampling } from "./reference";
import type { ArrayNode } from "../format/types";

export interface Geolocation {
  /** How the places are known. */
  readonly name: string;
  /** Each cell has a place of its own. */
  readonly isByCell?: boolean;
  readonly width: number;
  readonly height: number;
  /** Longitude and latitude of a cell's centre, in degrees. */
  place(column: number, row: number): Place;
  /** The cell at a place, as row * width + column; -1 if there is none. */
  find(longitude: number, latitude: number): number;
  /** The cells are stations or samples: their names along a dimension, and the lines of trajectories. */
  readonly samples?: { readonly lines: readonly Place[][]; name(at: number, d: number): string | undefined };
}

/** The places of a plane, or the name of a system that this page does not know. */
export type Located = { readonly places: Geolocation } | { readonly unknown: string } | undefined;

type Reading = (of: ArrayNode) => Promise<Float64Array>;

/** `x` and `y` are axes by coordinates. `read` gives the longitudes and latitudes of all cells. */
export async function locate(of: EarthReference, x: Axis, y: Axis, read: Reading): Promise<Located> {
  const { isDegrees, mapping, code, cells } = of;
  const standard = isDegrees ? mappingOfCode("EPSG:4326") : code !== undefined && mappingOfCode(code);
  const crs = (mapping && crsOf(mapping)) ?? crsOf(standard || {});
  const places = crs && ofCrs(crs, x, y, mapping ?? {});
  if (places) return { places };
  if (cells) {
    const [longitudes, latitudes] = await Promise.all([read(cells[0]), read(cells[1])]);
    return { places: ofCells(longitudes, latitudes, x.length, y.length) };
  }
  if (crs) return undefined; // a known system, but no coordinates along the axes
  return {
    unknown:
      code ?? String(mapping?.["grid_mapping_name"] ?? mapping?.["crs_wkt"] ?? "without a name").slice(0, 80),
  };
}

/** Radians, metres or degrees of the system for one unit of an axis. */
function unitOf({ units }: Axis, crs: Crs, mapping: Properties): number {
  const metres = /^(km|kilomet(er|re)s?)$/i.test(units ?? "") ? 1000 : 1;
  const isLength = /^k?m(et(er|re)s?)?$|^kilomet/i.test(units ?? "");
  return crs.name === "geostationary" && isLength
    ? metres / Number(mapping["perspective_point_height"])
    : units?.startsWith("micro")
      ? 1e-6
      : metres;
}

function ofCrs(crs: Crs, x: Axis, y: Axis, mapping: Properties): Geolocation | undefined {
  const { edges: columns, values: easts } = x;
  const { edges: rows, values: norths } = y;
  if (!columns || !easts || !rows || !norths) return undefined;
  const isPeriodic = crs.name.endsWith("latitude_longitude");
  const [column, row] = [cellFinder(columns, isPeriodic ? 360 : 0), cellFinder(rows)];
  const [across, up] = [unitOf(x, crs, mapping), unitOf(y, crs, mapping)];
  return {
    name: crs.name.replaceAll("_", " "),
    width: x.length,
    height: y.length,
    place: (at, down) => crs.inverse(f64(easts, at) * across, f64(norths, down) * up),
    find: (longitude, latitude) => {
      const [east, north] = crs.forward(longitude, latitude);
      const [right, down] = [column(east / across), row(north / up)];
      return right < 0 || down < 0 ? -1 : down * x.length + right;
    },
  };
}

/** The places of the elements of a part of an array. */
export async function ofSampling(
  { along, places, names, sizes, isTrajectory }: Sampling,
  [x, y]: readonly [Axis, Axis],
  { start, step }: Box,
  { x: across }: Slice,
  read: Reading,
  readAll: (of: ArrayNode) => Promise<Decoded>,
): Promise<Geolocation> {
  const [width, height] = [x.length, y.length];
  const [east = new Float64Array(), north = east] = await Promise.all(places.map(read));
  const [labels, rows] = await Promise.all([names && readAll(names), sizes && readAll(sizes)]);
  let end = 0;
  const ends = Float64Array.from((rows?.values ?? []) as Float64Array, (size) => (end += size || 0));
  const place = (column: number, row: number): Place => [
    f64(east, row * width + column),
    f64(north, row * width + column),
  ];
  /** The number of the station, or of the trajectory of a sample. */
  const number = (at: number, d: number): number => {
    const index = nth(start, d) + at * nth(step, d);
    return sizes ? firstWhere(ends.length, (row) => f64(ends, row) > index) : index;
  };
  const lines: Place[][] = [];
  const isAcross = along.at(-1) === across; // the samples of a trajectory are in a row, or else in a column
  const [many, long] = !isTrajectory ? [0, 0] : isAcross ? [height, width] : [width, height];
  for (let line = 0; line < many; line++) {
    for (let at = 0; at < long; at++) {
      if (!at || (sizes && number(at, across) !== number(at - 1, across))) lines.push([]);
      const spot = isAcross ? place(at, line) : place(line, at);
      if (spot.every(Number.isFinite)) lines.at(-1)?.push(spot);
    }
  }
  const name = (at: number, d: number): string | undefined =>
    labels && d === along[0]
      ? `${sizes ? `${x.label(at)} of ` : ""}${labels.label(number(at, d))}`
      : undefined;
  return { name: "samples", width, height, place, find: () => -1, samples: { lines, name } };
}

/** A place on a sphere with radius 1. */
function onSphere(longitude: number, latitude: number): [number, number, number] {
  const [east, north] = [longitude * RADIANS, latitude * RADIANS];
  return [Math.cos(north) * Math.cos(east), Math.cos(north) * Math.sin(east), Math.sin(north)];
}

/**
 * A plane whose cells have places of their own. The nearest centre is searched in boxes: bands of latitude, each
 * divided into boxes that are no narrower than the band is high. A place that is farther from the centre than a cell
 * reaches has no cell.
 */
export function ofCells(longitudes: Float64Array, latitudes: Float64Array, width: number, height: number) {
  const size = width * height;
  const points = new Float64Array(3 * size); // on a sphere with radius 1
  for (let at = 0; at < size; at++) {
    points.set(onSphere(f64(longitudes, at), f64(latitudes, at)), 3 * at);
  }
  const far = (one: number, other: number): number =>
    Math.hypot(
      f64(points, 3 * one) - f64(points, 3 * other),
      f64(points, 3 * one + 1) - f64(points, 3 * other + 1),
      f64(points, 3 * one + 2) - f64(points, 3 * other + 2),
    );
  const reach = new Float64Array(size);
  for (let at = 0; at < size; at++) {
    const column = at % width;
    const [right, down] = [at + (column < width - 1 ? 1 : -1), at + (at < size - width ? width : -width)];
    for (const other of [right, down]) {
      const distance = other >= 0 && other < size ? far(at, other) : NaN;
      if (distance > f64(reach, at)) reach[at] = distance;
    }
  }
  const sorted = reach.filter((each) => each > 0).sort();
  // Most cells are smaller than a box, so that the boxes around a place have its cell
  const high = clamp(((sorted[Math.floor(sorted.length * 0.98)] ?? 0.02) / RADIANS) * 0.8, 0.02, 10);
  const bands = Math.ceil(180 / high);
  const band = (latitude: number): number => clamp(Math.floor((latitude + 90) / high), 0, bands - 1);
  const first = new Uint32Array(bands + 1);
  const boxes = new Uint32Array(bands);
  for (let at = 0; at < bands; at++) {
    const pole = Math.min(90, Math.max(Math.abs(at * high - 90), Math.abs((at + 1) * high - 90)));
    boxes[at] = Math.max(1, Math.floor((360 * Math.cos(pole * RADIANS)) / high));
    first[at + 1] = u32(first, at) + u32(boxes, at);
  }
  const box = (at: number, longitude: number): number =>
    Math.min(Math.floor(((((longitude % 360) + 360) % 360) / 360) * u32(boxes, at)), u32(boxes, at) - 1);
  const ends = new Uint32Array(u32(first, bands) + 1);
  const own = new Int32Array(size).fill(-1);
  for (let at = 0; at < size; at++) {
    if (Number.isNaN(f64(points, 3 * at) + f64(points, 3 * at + 2))) continue;
    const row = band(f64(latitudes, at));
    own[at] = u32(first, row) + box(row, f64(longitudes, at));
    const after = i32(own, at) + 1;
    ends[after] = u32(ends, after) + 1;
  }
  for (let at = 1; at < ends.length; at++) ends[at] = u32(ends, at) + u32(ends, at - 1);
  const next = ends.slice();
  const cells = new Uint32Array(u32(ends, ends.length - 1));
  own.forEach((place, at) => {
    if (place < 0) return;
    const free = u32(next, place);
    cells[free] = at;
    next[place] = free + 1;
  });

  const find = (longitude: number, latitude: number): number => {
    const [px, py, pz] = onSphere(longitude, latitude);
    let [best, least] = [-1, Infinity];
    const middle = band(latitude);
    for (let row = Math.max(0, middle - 1); row <= Math.min(bands - 1, middle + 1); row++) {
      const count = u32(boxes, row);
      const centre = box(row, longitude);
      for (let step = count < 3 ? 0 : -1; step <= (count < 3 ? count - 1 : 1); step++) {
        const place = u32(first, row) + ((centre + step + count) % count);
        for (let at = u32(ends, place); at < u32(ends, place + 1); at++) {
          const cell = u32(cells, at);
          const distance =
            (f64(points, 3 * cell) - px) ** 2 +
            (f64(points, 3 * cell + 1) - py) ** 2 +
            (f64(points, 3 * cell + 2) - pz) ** 2;
          if (distance < least) [best, least] = [cell, distance];
        }
      }
    }
    return best >= 0 && least <= (f64(reach, best) * 0.75) ** 2 ? best : -1;
  };
  const place = (column: number, row: number): Place => [
    f64(longitudes, row * width + column),
    f64(latitudes, row * width + column),
  ];
  return { name: "places of cells", isByCell: true, width, height, place, find };
}
