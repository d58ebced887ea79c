/** The axes of a picture: coordinates, cells between their edges, and where they say that cells are on Earth. */

import type { ArrayNode, Decoded, Snapshot } from "./format/types";
import type { Geolocation } from "./geolocation";
import type { Reader } from "./home";
import { scaleOf, type Scale } from "./scale";
import { arrayNear, attributes, coordinate, dimensionName, inherited, isArray } from "./nodes";
import { boxShape, cellEdges, cellFinder, type Box } from "./slices";
import { useLoad } from "./state";

const LONGEST = 500_000; // values of a coordinate

/** The coordinate of a dimension, with the edges of its cells if the repository has them. */
export interface Coordinate extends Decoded {
  readonly name: string;
  readonly isLongitude: boolean;
  readonly isLatitude: boolean;
  readonly edges?: Float64Array;
}

export interface Axis {
  readonly title: string;
  readonly length: number;
  readonly units?: string | undefined;
  /** Numbers of the coordinate that are no times. */
  readonly values?: Float64Array | undefined;
  /** Times, and how they are written. */
  readonly times?: { readonly values: Float64Array; readonly scale: Scale } | undefined;
  /** Edges of the cells in the coordinate, where the picture has cells between them; otherwise all cells have one width. */
  readonly edges?: Float64Array | undefined;
  /** The first index is at the lower end: the axis goes north or up. */
  readonly isTurned: boolean;
  /** The cells of the coordinate have different widths. */
  readonly isUneven: boolean;
  label(index: number): string;
  /** Places on the screen, from 0 to 1. Axes that go north or up are turned round. */
  centre(index: number): number;
  /** The two sides of a cell, the lower one first. */
  sides(index: number): readonly [number, number];
  /** The place of a number of the coordinate; only with `edges`. */
  place(value: number): number;
  /** The cell at a place. */
  cell(place: number): number;
}

/** Coordinates of all dimensions that have them. A coordinate that cannot be read leaves the index. */
export function useCoordinates(
  reader: Reader,
  snapshot: Snapshot,
  node: ArrayNode,
): { coordinates: ReadonlyMap<number, Coordinate>; waiting: boolean } {
  const loaded = useLoad(
    async (signal) => {
      const coordinates = new Map<number, Coordinate>();
      await Promise.all(
        node.shape.map(async (length, dimension) => {
          const array = coordinate(snapshot, node, dimension);
          if (!array || length > LONGEST || array.path === node.path) return;
          const read = async (of: ArrayNode): Promise<Decoded> => {
            const start = of.shape.map(() => 0);
            return reader.decode(
              snapshot,
              of,
              await reader.read(snapshot, of.path, start, of.shape, undefined, signal),
            );
          };
          try {
            const { bounds: name } = attributes(array);
            const bounds =
              typeof name === "string"
                ? arrayNear(
                    snapshot,
                    array,
                    name,
                    ({ shape }) => shape.length === 2 && shape[0] === length && shape[1] === 2,
                  )
                : undefined;
            const [decoded, pairs] = await Promise.all([
              read(array),
              bounds && read(bounds).catch(() => undefined),
            ]);
            const edges = pairs && joined(pairs, decoded);
            const own = dimensionName(node, dimension);
            const [isEast, isNorth] = [isLongitude, isLatitude].map((test) => test(own, attributes(array)));
            const named = { ...decoded, name: own, isLongitude: isEast, isLatitude: isNorth };
            coordinates.set(dimension, edges ? { ...named, edges } : named);
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

const EMPTY: ReadonlyMap<number, Coordinate> = new Map();

/** Pairs of bounds as edges, if each cell begins where the one before ends. */
function joined({ values, isTime }: Decoded, of: Decoded): Float64Array | undefined {
  if (!(values instanceof Float64Array) || isTime !== of.isTime || values.length === 0) return undefined;
  const edges = Float64Array.from({ length: values.length / 2 + 1 }, (_, at) =>
    at ? values[2 * at - 1]! : values[0]!,
  );
  const isJoined = edges.every((edge, at) => at === 0 || at === edges.length - 1 || edge === values[2 * at]);
  return isJoined && cellEdges(edges) ? edges : undefined;
}

const NORTH = /^(lat|latitude|y|northing|projection_y_coordinate|grid_latitude|rlat)$/i;

interface AxisOptions {
  /** All cells have one width. */
  readonly isByIndex?: boolean;
  readonly isVertical?: boolean;
  /** Whether a vertical axis goes up; undefined: by the name and the numbers of its coordinate. */
  readonly isTurned?: boolean | undefined;
}

export function axisOf(
  node: ArrayNode,
  coordinates: ReadonlyMap<number, Coordinate>,
  part: Box,
  dimension: number,
  { isByIndex = false, isVertical = false, isTurned: stated }: AxisOptions = {},
): Axis {
  const decoded = coordinates.get(dimension);
  const [start, step] = [part.start[dimension] ?? 0, part.step[dimension] ?? 1];
  const length = dimension < 0 ? 1 : boxShape(part)[dimension]!;
  const numbers =
    decoded?.values instanceof Float64Array
      ? Float64Array.from({ length }, (_, at) => (decoded.values as Float64Array)[start + at * step]!)
      : undefined;
  const name = dimension < 0 ? "" : dimensionName(node, dimension);
  const own =
    numbers &&
    ((step === 1 ? decoded?.edges?.slice(start, start + length + 1) : undefined) ?? cellEdges(numbers));
  const isUneven = own !== undefined && !isEven(own);
  const edges = isByIndex && isUneven ? undefined : own;
  const isNorth =
    (NORTH.test(name) || decoded?.isLatitude) && numbers !== undefined && numbers[length - 1] > numbers[0];
  const isTurned = isVertical && (stated ?? isNorth ?? false);
  const turned = (place: number): number => (isTurned ? 1 - place : place);
  const cellOf = edges && cellFinder(edges);
  const [first, extent] = edges ? [edges[0]!, edges[length]! - edges[0]!] : [0, length];
  const place = (value: number): number => turned((value - first) / extent);
  return {
    title: decoded?.units && !decoded.isTime ? `${name} (${decoded.units})` : name,
    length,
    units: decoded?.units,
    values: decoded?.isTime ? undefined : numbers,
    times: decoded?.clock && numbers ? { values: numbers, scale: scaleOf(decoded) } : undefined,
    edges,
    isTurned,
    isUneven,
    label: (at) =>
      decoded ? decoded.label(start + Math.round(at) * step) : String(start + Math.round(at) * step),
    centre: (index) => place(edges ? numbers![index]! : index + 0.5),
    sides: (index) => {
      const [one, other] = [
        place(edges ? edges[index]! : index),
        place(edges ? edges[index + 1]! : index + 1),
      ];
      return one < other ? [one, other] : [other, one];
    },
    place,
    cell: (at) => {
      const inside = Math.min(Math.max(turned(at), 0), 1);
      return Math.min(
        Math.max(cellOf ? cellOf(first + inside * extent) : Math.floor(inside * length), 0),
        length - 1,
      );
    },
  };
}

const SAMPLES = 21; // along a dimension

/** Whether a plane goes north from its first row to its last one; undefined around a pole, or if nobody knows. */
export function goesNorth({ width, height, place }: Geolocation): boolean | undefined {
  const steps = Array.from({ length: SAMPLES }, (_, at) => at / (SAMPLES - 1));
  const rows = steps
    .map((down) =>
      steps.map((across) => place(Math.round(across * (width - 1)), Math.round(down * (height - 1)))[1]),
    )
    .map((latitudes) => latitudes.filter(Number.isFinite))
    .filter((latitudes) => latitudes.length > 0); // at the edge of a plane, cells may have no places
  if (!rows.length) return undefined;
  const [first, last] = [rows[0], rows[rows.length - 1]].map(
    (row) => row.reduce((sum, each) => sum + each, 0) / row.length,
  );
  const spread = Math.max(...rows.flat()) - Math.min(...rows.flat());
  return Math.abs(last - first) > spread / 5 ? last > first : undefined;
}

/** Whether all cells have one width, as far as a person sees it. */
function isEven(edges: Float64Array): boolean {
  const width = (edges[edges.length - 1]! - edges[0]!) / (edges.length - 1);
  return edges.every(
    (edge, at) => at === 0 || Math.abs(edge - edges[at - 1]! - width) < Math.abs(width) * 0.02,
  );
}

/** Width by height of a cell, if both axes are places in one unit: cells of a map keep their shape. */
export function aspect(node: ArrayNode, vertical: number, x: Axis, y: Axis): number | undefined {
  const step = (axis: Axis): number | undefined =>
    axis.values && axis.length > 1
      ? Math.abs((axis.values[axis.length - 1]! - axis.values[0]!) / (axis.length - 1))
      : undefined;
  if (!NORTH.test(dimensionName(node, vertical))) return undefined;
  const [across, down] = [step(x), step(y)];
  const ratio = across && down ? across / down : undefined;
  return ratio && ratio > 0.05 && ratio < 20 ? ratio : undefined;
}

/** What the metadata say about the places of the cells of a plane on Earth. */
export interface EarthReference {
  /** The axes are longitude and latitude. */
  readonly isDegrees: boolean;
  /** Attributes of a grid mapping by CF, and a code such as EPSG:3031. */
  readonly mapping?: Record<string, unknown> | undefined;
  readonly code?: string | undefined;
  /** Longitudes and latitudes of each cell. */
  readonly cells?: readonly [ArrayNode, ArrayNode] | undefined;
}

type Attributes = Record<string, unknown>;

/** Whether an axis is of longitudes: by CF, or, if it has neither a standard name nor units, by its name. */
export const isLongitude = (name: string, { standard_name, units }: Attributes): boolean =>
  standard_name === "longitude" ||
  /^degrees?(_east|_?E)$/.test(String(units)) ||
  (standard_name === undefined && units === undefined && /^(lon|longitude)$/i.test(name));

const isLatitude = (name: string, { standard_name, units }: Attributes): boolean =>
  standard_name === "latitude" ||
  /^degrees?(_north|_?N)$/.test(String(units)) ||
  (standard_name === undefined && units === undefined && /^(lat|latitude)$/i.test(name));

/** The code at the end of a system as well-known text. */
const codeOfText = (text: unknown): string | undefined =>
  /(?:ID|AUTHORITY)\["EPSG",\s*"?(\d+)"?\]\s*\]\s*$/.exec(String(text ?? ""))?.[1];

export function earthReference(
  snapshot: Snapshot,
  node: ArrayNode,
  x: number,
  y: number,
): EarthReference | undefined {
  if (x < 0 || y < 0) return undefined;
  const is = (test: typeof isLongitude, dimension: number): boolean => {
    const array = coordinate(snapshot, node, dimension);
    // The axes of a rotated pole are degrees, too
    const isRotated = String(array && attributes(array).standard_name).startsWith("grid_");
    return array !== undefined && !isRotated && test(dimensionName(node, dimension), attributes(array));
  };
  if (is(isLongitude, x) && is(isLatitude, y)) return { isDegrees: true };
  const plane = new Set([node.dimensions[x], node.dimensions[y]]);
  const group = node.path.slice(0, node.path.lastIndexOf("/") + 1);
  const flat = snapshot.nodes.filter(
    (each): each is ArrayNode =>
      each.path.startsWith(group) &&
      !each.path.slice(group.length).includes("/") &&
      isArray(each) &&
      each.shape.length === 2 &&
      each.dimensions.every((name) => name !== null && plane.has(name)),
  );
  const cellsOf = (test: typeof isLongitude): ArrayNode | undefined =>
    flat.find((array) => test(array.path.slice(group.length), attributes(array)));
  const [longitudes, latitudes] = [cellsOf(isLongitude), cellsOf(isLatitude)];
  const name = attributes(node)["grid_mapping"];
  const array = typeof name === "string" ? arrayNear(snapshot, node, name.split(/[:\s]/, 1)[0]!) : undefined;
  const mapping = array && attributes(array);
  const [stated, number, text, json] = ["proj:code", "proj:epsg", "proj:wkt2", "proj:projjson"].map((key) =>
    inherited(snapshot, node, key),
  );
  const { id } = (json ?? {}) as { id?: { authority?: string; code?: unknown } };
  const code = [
    stated,
    number,
    codeOfText(text),
    id && `${id.authority}:${id.code}`,
    codeOfText(mapping?.["crs_wkt"] ?? mapping?.["spatial_ref"]),
  ].find((each) => each !== undefined && each !== null);
  const cells = longitudes && latitudes ? ([longitudes, latitudes] as const) : undefined;
  return mapping || code !== undefined || cells
    ? { isDegrees: false, mapping, code: code === undefined ? undefined : String(code), cells }
    : undefined;
}
