/** Which part of an array a view shows, as text in the address and as a region to read. */

import { clamp, f64, firstWhere, nth, type Shape, strides } from "../base/lists";
import { periodOf } from "../cf/calendar";
import type { Decoded } from "../cf/cf";
import type { Selection } from "../format/types";

export interface Slice {
  /** Dimension along the horizontal axis; -1 for an array without dimensions. */
  readonly x: number;
  /** Dimension along the vertical axis; -1 for a line. */
  readonly y: number;
  /** Per dimension: the index where it is fixed. */
  readonly index: Shape;
  /** Per dimension: the part that an axis shows. */
  readonly from: Shape;
  readonly to: Shape;
}

export type Box = Required<Selection>;
export type Query = Readonly<Record<string, string>>;

const whole = (text: string | undefined, other: number): number =>
  text !== undefined && /^\d+$/.test(text) ? Number(text) : other;

/** `x=2&y=1&i=5,0,0&r1=0-90&r2=10-20`; all parts are optional. */
export function parseSlice(shape: Shape, query: Query): Slice {
  const rank = shape.length;
  const long = shape.map((_, d) => d).filter((d) => nth(shape, d) > 1);
  const usual = long.length > 0 ? long : shape.map((_, d) => d);
  const x = clamp(whole(query["x"], usual.at(-1) ?? -1), -1, rank - 1);
  const isLine = query["y"] === "none" || (query["y"] === undefined && long.length < 2);
  let y = isLine ? -1 : clamp(whole(query["y"], usual.at(-2) ?? -1), -1, rank - 1);
  if (y === x)
    y =
      query["x"] !== undefined && query["y"] === undefined ? (usual.filter((d) => d !== x).at(-1) ?? -1) : -1;
  const indices = (query["i"] ?? "").split(",");
  const ranges = shape.map((length, d) => {
    const [, low, high] = /^(\d+)-(\d+)$/.exec(query[`r${d}`] ?? "") ?? [];
    const from = clamp(whole(low, 0), 0, Math.max(0, length - 1));
    return { from, to: clamp(whole(high, length), Math.min(from + 1, length), length) };
  });
  return {
    x,
    y,
    index: shape.map((length, d) => clamp(whole(indices[d], 0), 0, Math.max(0, length - 1))),
    from: ranges.map((range) => range.from),
    to: ranges.map((range) => range.to),
  };
}

export function sliceQuery(shape: Shape, slice: Slice): Record<string, string> {
  const query: Record<string, string> = {
    x: String(slice.x),
    y: slice.y < 0 ? "none" : String(slice.y),
    i: slice.index.some((at) => at > 0) ? slice.index.join(",") : "",
  };
  shape.forEach((length, d) => {
    const all = slice.from[d] === 0 && slice.to[d] === length;
    query[`r${d}`] = all ? "" : `${slice.from[d]}-${slice.to[d]}`;
  });
  return query;
}

/** A slice in the indices of a coarser level, of whose elements each stands for some others. */
export function coarserSlice(slice: Slice, ratio: Shape, shape: Shape): Slice {
  const scaled = (list: Shape, round: (value: number) => number, least: number): number[] =>
    list.map((at, d) => clamp(round(at / nth(ratio, d)), Math.min(least, nth(shape, d)), nth(shape, d)));
  const index = scaled(slice.index, Math.floor, 0).map((at, d) =>
    Math.min(at, Math.max(0, nth(shape, d) - 1)),
  );
  return { ...slice, index, from: scaled(slice.from, Math.floor, 0), to: scaled(slice.to, Math.ceil, 1) };
}

/** The reverse. What reaches the end of the coarser level reaches the end of the finer one, too. */
export function finerSlice(slice: Slice, ratio: Shape, shape: Shape, finer: Shape): Slice {
  const scaled = (list: Shape): number[] =>
    list.map((at, d) => (at === nth(shape, d) ? nth(finer, d) : at * nth(ratio, d)));
  return {
    ...slice,
    index: slice.index.map((at, d) => at * nth(ratio, d)),
    from: scaled(slice.from),
    to: scaled(slice.to),
  };
}

/** The region to read. Axes with more than `most` values are read with a step. */
export function box(shape: Shape, slice: Slice, most: number): Box {
  const axis = (d: number): boolean => d === slice.x || d === slice.y;
  const start = shape.map((_, d) => (axis(d) ? nth(slice.from, d) : nth(slice.index, d)));
  const stop = shape.map((length, d) =>
    axis(d) ? nth(slice.to, d) : Math.min(length, nth(slice.index, d) + 1),
  );
  const step = shape.map((_, d) =>
    axis(d) ? Math.max(1, Math.ceil((nth(stop, d) - nth(start, d)) / most)) : 1,
  );
  return { start, stop, step };
}

export const boxShape = ({ start, stop, step }: Box): number[] =>
  start.map((low, d) => Math.max(0, Math.ceil((nth(stop, d) - low) / nth(step, d))));

/** Number of stored chunks that a region touches. */
export function chunksOf({ start, stop, step }: Box, chunkShape: Shape): number {
  return start.reduce((product, low, d) => {
    const size = nth(chunkShape, d);
    if (nth(stop, d) <= low) return 0;
    const steps = Math.ceil((nth(stop, d) - low) / nth(step, d));
    return product * Math.min(steps, Math.floor((nth(stop, d) - 1) / size) - Math.floor(low / size) + 1);
  }, 1);
}

/** The values of a region, or their places, as rows of `y` and columns of `x`; none with a length of 0. */
export function plane(values: Float64Array | undefined, shape: Shape, x: number, y: number): Float64Array {
  if (shape.includes(0)) return new Float64Array();
  const width = x < 0 ? 1 : nth(shape, x);
  const height = y < 0 ? 1 : nth(shape, y);
  const steps = strides(shape);
  const [across, down] = [x < 0 ? 0 : nth(steps, x), y < 0 ? 0 : nth(steps, y)];
  const cells = new Float64Array(width * height);
  for (let row = 0, at = 0; row < height; row++)
    for (let column = 0, place = row * down; column < width; column++, at++, place += across)
      cells[at] = values ? f64(values, place) : place;
  return cells;
}

/** Edges of cells around centres, one more than there are centres; undefined if the centres neither rise nor fall. */
export function cellEdges(centres: ArrayLike<number>): Float64Array | undefined {
  const { length } = centres;
  const step = (at: number): number => (length < 2 ? 1 : nth(centres, at + 1) - nth(centres, at));
  const way = Math.sign(step(0));
  for (let at = 0; at < length - 1; at++) if (!(step(at) * way > 0)) return undefined;
  if (length === 0 || !Number.isFinite(nth(centres, 0) + nth(centres, length - 1))) return undefined;
  const edges = new Float64Array(length + 1);
  for (let at = 1; at < length; at++) edges[at] = (nth(centres, at - 1) + nth(centres, at)) / 2;
  edges[0] = nth(centres, 0) - step(0) / 2;
  edges[length] = nth(centres, length - 1) + step(length - 2) / 2;
  return edges;
}

/** From a value to the index of the cell around it; -1 outside. With a period, longitudes may be turns away. */
export function cellFinder(edges: Float64Array, period = 0): (value: number) => number {
  const length = edges.length - 1;
  const sign = f64(edges, length) < f64(edges, 0) ? -1 : 1;
  const rising = edges.map((edge) => edge * sign);
  const [low, high] = [f64(rising, 0), f64(rising, length)];
  return (place) => {
    let value = place * sign;
    if (period) value = low + ((((value - low) % period) + period) % period);
    if (!(value >= low && value <= high)) return -1;
    return firstWhere(length - 1, (at) => value < f64(rising, at + 1));
  };
}

/** The labels of a dimension, among which a person looks for one. Longitudes that differ by 360 are one place. */
export type Labels = Pick<Decoded, "values" | "clock" | "label"> & { name: string; isLongitude?: boolean };

const TURN = 360;
const turned = (value: number): number => ((value % TURN) + TURN) % TURN;

/** Distinct numbers in their order. Longitudes begin behind the widest gap of the circle. */
function inOrder(values: Float64Array, isLongitude: boolean): number[] {
  const numbers = values.filter(Number.isFinite).map((value) => (isLongitude ? turned(value) : value));
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  if (!isLongitude || sorted.length < 2) return sorted;
  const gap = (at: number): number =>
    at ? nth(sorted, at) - nth(sorted, at - 1) : nth(sorted, 0) + TURN - nth(sorted, sorted.length - 1);
  const first = sorted.reduce((best, _, at) => (gap(at) > gap(best) + 1e-9 ? at : best), 0);
  return [...sorted.slice(first), ...sorted.slice(0, first).map((value) => value + TURN)];
}

/**
 * The number nearest to `place`, and whether it is near: within half of the distance to its neighbour on the side of
 * `place`; beyond the ends, half of the last distance. A single number is near to itself only.
 */
type Nearest = { index: number; isNear: boolean };

function nearNumber(values: Float64Array, place: number, isLongitude: boolean): Nearest {
  const offset = (value: number): number => {
    const difference = place - value;
    return isLongitude ? turned(difference + TURN / 2) - TURN / 2 : difference;
  };
  const sorted = inOrder(values, isLongitude);
  // Of two that are equally near, the larger one, as in xarray
  const offsets = sorted.map(offset);
  const least = offsets.reduce((size, each) => Math.min(size, Math.abs(each)), Infinity);
  const at = offsets.indexOf(offsets.includes(-least) ? -least : least);
  const off = nth(offsets, at);
  const same = (value: number): number => (isLongitude ? turned(value) : value);
  const index = values.findIndex((value) => same(value) === same(nth(sorted, at)));
  const above = at + 1 < sorted.length ? nth(sorted, at + 1) - nth(sorted, at) : NaN;
  const below = at > 0 ? nth(sorted, at) - nth(sorted, at - 1) : NaN;
  const [asked, other] = off > 0 ? [above, below] : [below, above];
  const spacing = Number.isNaN(asked) ? other : asked;
  // Coordinates of 32 bits are not exact
  const isEqual = Math.abs(off) <= 1e-6 * Math.abs(place);
  return { index, isNear: off === 0 || isEqual || Math.abs(off) <= (spacing / 2) * (1 + 1e-6) };
}

/** The index of a label, or a sentence why there is none. */
function labelIndex(text: string, labels: Labels): number | string {
  const { name, values, clock, isLongitude = false, label } = labels;
  if (!(values instanceof Float64Array)) return textIndex(text, name, values);
  const period = clock ? periodOf(text, clock.calendar) : { start: Number(text), end: Number(text) };
  if (typeof period === "string") return period;
  if (!Number.isFinite(period.start))
    return `"${text}" is not a number: write a value of ${name}, or # and an index.`;
  const known = [...values.keys()]
    .filter((at) => Number.isFinite(values[at]))
    .sort((a, b) => f64(values, a) - f64(values, b));
  if (!known.length) return `${name} has no values.`;
  // A year, a month or a day has the first label that lies in it
  const inside = known.find((at) => f64(values, at) >= period.start && f64(values, at) < period.end);
  if (inside !== undefined) return inside;
  const { index, isNear } = nearNumber(values, period.start, isLongitude);
  if (isNear) return index;
  const range =
    known.length > 1
      ? `goes from ${label(nth(known, 0))} to ${label(nth(known, known.length - 1))}`
      : "has one label";
  return `${text} is not on this axis: ${name} ${range}, and the nearest label is ${label(index)}.`;
}

function textIndex(text: string, name: string, values: readonly string[]): number | string {
  const begin = text.toLowerCase();
  const exact = values.findIndex((value) => value.toLowerCase() === begin);
  if (exact >= 0) return exact;
  const matches = [...values.keys()].filter((at) => nth(values, at).toLowerCase().startsWith(begin));
  const [only, another] = matches;
  if (only !== undefined && another === undefined) return only;
  const some = matches
    .slice(0, 3)
    .map((at) => values[at])
    .join(", ");
  if (matches.length)
    return `${matches.length} labels of ${name} begin with "${text}": ${some}${matches.length > 3 ? ", …" : ""}.`;
  return `No label of ${name} begins with "${text}".`;
}

/** The index of a typed place: `#12` an index, a date, a number or a label. A sentence if there is no such place. */
export function typedIndex(typed: string, length: number, name: string, labels?: Labels): number | string {
  const text = typed.trim();
  const [, index] = /^#\s*(\S*)$/.exec(text) ?? [];
  if (length === 0) return `${name} has no values.`;
  if (text === "") return `Write a value of ${name}, or # and an index.`;
  if (index === undefined && labels) return labelIndex(text, labels);
  const at = /^\d+$/.test(index ?? text) ? Number(index ?? text) : NaN;
  return at < length ? at : `The indices of ${name} go from 0 to ${length - 1}.`;
}

/** A place of an array that a person chose: an index along each dimension. */
export type Point = Shape;
export const MOST_POINTS = 7; // as many as there are colours

/** `p=0.12.34,0.20.50`: points by their indices. */
export const parsePoints = (text: string | undefined, shape: Shape): Point[] =>
  (text ?? "")
    .split(",")
    .map((part) => part.split(".").map((at) => (/^\d+$/.test(at) ? Number(at) : NaN)))
    .filter((point) => point.length === shape.length && point.every((at, d) => at < nth(shape, d)))
    .slice(0, MOST_POINTS);

/** The points without those that have the place of an earlier one along some dimensions: they have the same line. */
export const distinct = (points: readonly Point[], dimensions: Shape): Point[] =>
  points.filter(
    (point, at) => points.findIndex((each) => dimensions.every((d) => each[d] === point[d])) === at,
  );

/** The dimension of the lines of points: as the address says, else of times, else one that the plane does not show. */
export function lineDimension(
  shape: Shape,
  { x, y }: Slice,
  isTime: (d: number) => boolean,
  text: string | undefined,
): number {
  const long = shape.map((_, d) => d).filter((d) => nth(shape, d) > 1);
  if (text && long.includes(Number(text))) return Number(text);
  const others = long.filter((d) => d !== x && d !== y);
  return others.find(isTime) ?? others[0] ?? long.find(isTime) ?? x;
}
