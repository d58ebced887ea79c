/** The axes of a picture: coordinates, cells between their edges, and where they say that cells are on Earth. */

import { type Limits, ticks } from "./colour";
import { arrayNear, attributes, coordinate, dimensionName, inherited } from "./nodes";
import { type Box, boxShape, cellEdges, cellFinder } from "./slices";
import { clamp, f64, list, nth, type Properties, type Shape } from "../base/lists";
import { type Clock, type Tick, timeTicks } from "../cf/calendar";
import type { Decoded } from "../cf/cf";
import type { ArrayNode, Snapshot } from "../format/types";
import { type ArrayProps, valuesOf } from "../page/home";
import { useLoad } from "../page/state";
import { number } from "../page/text";

const LONGEST = 500_000; // values of a coordinate

/** The coordinate of a dimension, with the edges of its cells if the repository has them. */
export interface Coordinate extends Decoded {
  readonly name: string;
  readonly isLongitude?: boolean;
  readonly isLatitude?: boolean;
  readonly edges?: Float64Array;
}

/** The coordinates of an array by the places of their dimensions. */
export type Coordinates = ReadonlyMap<number, Coordinate>;

export type Axis = ReturnType<typeof axisOf>;

/** Coordinates of all dimensions that have them. A coordinate that cannot be read leaves the index. */
export function useCoordinates({ reader, snapshot, node }: ArrayProps) {
  const loaded = useLoad(
    async (signal) => {
      const coordinates = new Map<number, Coordinate>();
      await Promise.all(
        node.shape.map(async (length, d) => {
          const array = coordinate(snapshot, node, d);
          const known = array ?? affine(snapshot, node, d);
          if (known && !("path" in known)) coordinates.set(d, known);
          if (!array || length > LONGEST || array.path === node.path) return;
          const read = (of: ArrayNode): Promise<Decoded> =>
            valuesOf({ reader, snapshot, node: of }, undefined, signal);
          const fits = ({ shape }: ArrayNode): boolean => shape.join() === `${length},2`;
          try {
            const facts = attributes(array);
            const bounds =
              typeof facts.bounds === "string" ? arrayNear(snapshot, array, facts.bounds, fits) : undefined;
            const [decoded, pairs] = await Promise.all([
              read(array),
              bounds && read(bounds).catch(() => undefined),
            ]);
            const edges = pairs && joined(pairs, decoded);
            const name = dimensionName(node, d);
            const [isEast, isNorth] = [isLongitude(name, facts), isLatitude(name, facts)];
            coordinates.set(d, { ...decoded, name, edges, isLongitude: isEast, isLatitude: isNorth });
          } catch (cause) {
            console.warn(`coordinate ${array.path}:`, cause);
          }
        }),
      );
      return { id: node.id, coordinates };
    },
    [snapshot, node.path],
    true,
  );
  // Those of another version stay until the new ones are there; those of another array do not
  return {
    coordinates: loaded.value?.id === node.id ? loaded.value.coordinates : EMPTY,
    waiting: loaded.busy,
  };
}

/**
 * The coordinate of a raster that states a `spatial:transform`: the size of its cells, and x and y of its first corner
 * or, with the registration `node`, of its first centre.
 */
export function affine(snapshot: Snapshot, node: ArrayNode, d: number): Coordinate | undefined {
  const [transform, names, registration] = ["transform", "dimensions", "registration"].map((key) =>
    inherited(snapshot, node, `spatial:${key}`),
  );
  const numbers = list(transform).map(Number);
  const place = Array.isArray(names)
    ? names.length - 1 - names.indexOf(node.dimensions[d])
    : node.shape.length - 1 - d; // 0 is x, 1 is y
  const [size, skew, first] = place ? [numbers[4], numbers[3], numbers[5]] : numbers;
  const length = nth(node.shape, d);
  if (place > 1 || !size || skew !== 0 || first === undefined || length > LONGEST) return undefined;
  const middle = registration === "node" ? 0 : 0.5;
  const values = Float64Array.from({ length }, (_, at) => first + (at + middle) * size);
  const label = (at: number): string => number(values[at] ?? NaN);
  return { name: dimensionName(node, d), shape: [length], values, label };
}

const EMPTY: Coordinates = new Map();

/** Pairs of bounds as edges, if each cell begins where the one before ends. */
function joined({ values, clock }: Decoded, of: Decoded): Float64Array | undefined {
  if (!(values instanceof Float64Array) || !clock !== !of.clock || values.length === 0) return undefined;
  const edges = Float64Array.from({ length: values.length / 2 + 1 }, (_, at) =>
    at ? f64(values, 2 * at - 1) : f64(values, 0),
  );
  const isJoined = edges.every((edge, at) => at === 0 || at === edges.length - 1 || edge === values[2 * at]);
  return isJoined && cellEdges(edges) ? edges : undefined;
}

const NORTH = /^(lat|latitude|y|northing|projection_y_coordinate|grid_latitude|rlat)$/i;

interface AxisOptions {
  readonly isVertical?: boolean;
  /** Whether a vertical axis goes up; undefined: by the name and the numbers of its coordinate. */
  readonly isTurned?: boolean | undefined;
}

/**
 * An axis of a picture. `numbers` are those of the coordinate; `values` are the same, unless they are times.
 * `edges` are the ends of its cells, and undefined if all cells have one width. Places on the screen go from 0 to
 * 1: that of a cell (`centre`, or `sides`, the lower one first), of a number of the coordinate (`place`, only with
 * `edges`), and back (`cell`). Axes that go north or up are turned round: their first index is at the lower end.
 */
export function axisOf(
  node: ArrayNode,
  coordinates: Coordinates,
  part: Box,
  d: number,
  { isVertical = false, isTurned: stated }: AxisOptions = {},
) {
  const decoded = coordinates.get(d);
  const [start, step] = [part.start[d] ?? 0, part.step[d] ?? 1];
  const length = d < 0 ? 1 : nth(boxShape(part), d);
  // Coordinates of another version can be shorter
  const { values } = decoded ?? {};
  const numbers =
    values instanceof Float64Array
      ? // The middle of the last chunk may lie beyond the end
        Float64Array.from(
          { length },
          (_, at) => values[start + at * step] ?? (at && at === length - 1 ? values.at(-1) : NaN) ?? NaN,
        )
      : undefined;
  const name = d < 0 ? "" : dimensionName(node, d);
  const bounds = step === 1 ? decoded?.edges?.slice(start, start + length + 1) : undefined;
  const edges = numbers && (bounds?.length === length + 1 ? bounds : cellEdges(numbers));
  const isUneven = edges !== undefined && !isEven(edges);
  const isNorth =
    (NORTH.test(name) || decoded?.isLatitude) && (numbers?.at(-1) ?? NaN) > (numbers?.[0] ?? NaN);
  const isTurned = isVertical && (stated ?? isNorth ?? false);
  const turned = (place: number): number => (isTurned ? 1 - place : place);
  const cellOf = edges && cellFinder(edges);
  const [first, extent] = edges ? [f64(edges, 0), f64(edges, length) - f64(edges, 0)] : [0, length];
  const place = (value: number): number => turned((value - first) / extent);
  return {
    title: decoded?.units && !decoded.clock ? `${name} (${decoded.units})` : name,
    length,
    units: decoded?.units,
    numbers,
    values: decoded?.clock ? undefined : numbers,
    scale: decoded?.clock ? scaleOf(decoded) : NUMBERS,
    edges,
    isTurned,
    isUneven,
    label: (at: number): string =>
      decoded ? decoded.label(start + Math.round(at) * step) : String(start + Math.round(at) * step),
    centre: (index: number): number => place(edges && numbers ? f64(numbers, index) : index + 0.5),
    sides: (index: number): readonly [number, number] => {
      const side = (at: number): number => place(edges ? f64(edges, at) : at);
      const [one, other] = [side(index), side(index + 1)];
      return one < other ? [one, other] : [other, one];
    },
    place,
    cell: (at: number): number => {
      const inside = clamp(turned(at), 0, 1);
      return clamp(cellOf ? cellOf(first + inside * extent) : Math.floor(inside * length), 0, length - 1);
    },
  };
}

/** Whether all cells have one width, as far as a person sees it. */
function isEven(edges: Float64Array): boolean {
  const width = (f64(edges, edges.length - 1) - f64(edges, 0)) / (edges.length - 1);
  return edges.every(
    (edge, at) => at === 0 || Math.abs(edge - f64(edges, at - 1) - width) < Math.abs(width) * 0.02,
  );
}

/** Width by height of a cell, if both axes are places in one unit: cells of a map keep their shape. */
export function aspect(node: ArrayNode, vertical: number, x: Axis, y: Axis): number | undefined {
  const step = (axis: Axis): number | undefined =>
    axis.values && axis.length > 1
      ? Math.abs((f64(axis.values, axis.length - 1) - f64(axis.values, 0)) / (axis.length - 1))
      : undefined;
  if (!NORTH.test(dimensionName(node, vertical))) return undefined;
  const [across, down] = [step(x), step(y)];
  const ratio = across && down ? across / down : undefined;
  return ratio && ratio > 0.05 && ratio < 20 ? ratio : undefined;
}

/** Whether an axis is of such degrees: by CF, or, if it has neither a standard name nor units, by its name. */
const degreesOf =
  (standardName: string, unit: RegExp, names: RegExp) =>
  (name: string, { standard_name, units }: Properties): boolean =>
    standard_name === standardName ||
    unit.test(String(units)) ||
    (standard_name === undefined && units === undefined && names.test(name));

export const isLongitude = degreesOf("longitude", /^degrees?(_east|_?E)$/, /^(lon|longitude)$/i);
export const isLatitude = degreesOf("latitude", /^degrees?(_north|_?N)$/, /^(lat|latitude)$/i);

export interface Scale {
  readonly units: string;
  /** Meanings instead of amounts: the numbers that have one. They have no mean. */
  readonly categories?: Shape | undefined;
  readonly hasMean: boolean;
  readonly clock?: Clock | undefined;
  text(value: number): string;
  /** Round values between two limits. */
  ticks(limits: Limits, most: number): Tick[];
}

const numeric = (units: string, factor = 1): Scale => ({
  units,
  hasMean: true,
  text: (value) => number(value / factor),
  ticks: ([low, high], most) =>
    ticks([low / factor, high / factor], most).map((value) => ({
      value: value * factor,
      text: number(value),
    })),
});

export const NUMBERS = numeric("");
const unitsOf = (units: string | undefined): string => (units === undefined || units === "1" ? "" : units);

export function scaleOf({ clock, units, flags, text }: Omit<Decoded, "label" | "values" | "shape">): Scale {
  const plain = numeric(unitsOf(units));
  if (!text) return plain;
  if (clock) {
    const times = ([low, high]: Limits, most: number): Tick[] => timeTicks(low, high, most, clock.calendar);
    return { units: "", hasMean: true, clock, text, ticks: times };
  }
  if (!flags?.values) return { ...plain, text, hasMean: !flags };
  const { values, names } = flags;
  const shown = values.map((value) => ({ value, text: names(value) }));
  return {
    ...plain,
    hasMean: false,
    categories: values,
    text,
    ticks: ([low, high]) => shown.filter(({ value }) => value >= low && value <= high),
  };
}

/** A difference of times is a duration in the unit of the array. */
export const differenceScale = ({ clock, units }: Pick<Decoded, "clock" | "units">): Scale =>
  clock ? numeric(...clock.duration) : numeric(unitsOf(units));

/** A value with its unit; `own` is its text, if the number does not have all of it. */
export const withUnit = ({ text, units }: Scale, value: number, own = text(value)): string =>
  Number.isNaN(value) || !units ? own : `${own} ${units}`;

const ZERO = 273.15; // kelvins at 0 °C

/** A temperature in kelvins also in degrees Celsius. */
export const inCelsius = ({ units }: Scale, value: number): string =>
  units === "K" && value > 100 ? ` (${number(Number((value - ZERO).toFixed(2)))} °C)` : "";
