/** What the metadata say about the places of the cells of a plane on Earth. */

import { isLatitude, isLongitude } from "../array/axes";
import { arrayNear, arrays, attributes, bandDimension, coordinate, inherited } from "../array/nodes";
import { parseSlice, type Query, type Slice } from "../array/slices";
import { nth, type Properties, type Shape } from "../base/lists";
import type { Geolocation } from "./geolocation";
import type { ArrayNode, Snapshot } from "../format/types";
import { last, parent } from "../page/text";

/** What the metadata say about the places of the cells of a plane on Earth: a grid mapping by CF, a code, cells. */
export interface EarthReference {
  readonly isDegrees: boolean; // the axes are longitude and latitude
  readonly mapping?: Properties | undefined;
  readonly code?: string | undefined;
  readonly cells?: readonly [longitudes: ArrayNode, latitudes: ArrayNode] | undefined;
  readonly sampling?: Sampling;
}

/**
 * Stations or samples along trajectories, by CF, each with a place. They are `along` a dimension, or along one of
 * trajectories and then one of samples, or have no places. `sizes` are the numbers of samples of trajectories that
 * follow each other. `note` says what a map cannot show.
 */
export type Sampling = NonNullable<ReturnType<typeof samplingOf>>;

const APART = "A value of this ragged array has no place of its own: no map.";
const INDEXED = "No lines: the repository has no row sizes of the trajectories.";
const FEATURES = /^(point|profile|(timeseries|trajectory)(profile)?)$/i;

/** The arrays in the group of an array, with a number of dimensions. */
function membersOf(snapshot: Snapshot, { path }: ArrayNode, rank: number) {
  const group = parent(path);
  return arrays(snapshot).filter((each) => parent(each.path) === group && each.shape.length === rank);
}

/** The arrays with the longitudes and the latitudes of cells along the dimensions of an array. */
function cellsOf(snapshot: Snapshot, node: ArrayNode, isFitting = (_: string | null) => true) {
  const flat = membersOf(snapshot, node, 2).filter(({ dimensions }) =>
    dimensions.every((each) => each && node.dimensions.includes(each) && isFitting(each)),
  );
  return [isLongitude, isLatitude].flatMap(
    (test) => flat.find((array) => test(last(array.path), attributes(array))) ?? [],
  );
}

/** The sampling of an array; undefined for a grid. */
export function samplingOf(snapshot: Snapshot, node: ArrayNode) {
  const feature = String(inherited(snapshot, node, "featureType") ?? "");
  const { coordinates } = attributes(node);
  const named = typeof coordinates === "string" ? coordinates.split(/\s+/) : [];
  const isFeature = FEATURES.test(feature);
  if (!isFeature && !named.length) return undefined;
  const lists = membersOf(snapshot, node, 1);
  const isTrajectory = feature.toLowerCase().startsWith("trajectory");
  const cells = isTrajectory ? cellsOf(snapshot, node) : [];
  if (cells.length === 2) {
    const [own = null, samples = null] = nth(cells, 0).dimensions;
    const names = lists.find(
      (each) => each.dimensions[0] === own && attributes(each)["cf_role"] !== undefined,
    );
    const along = [own, samples].map((name) => node.dimensions.indexOf(name));
    return { along, places: cells, sizes: undefined, names, isTrajectory, note: "" };
  }
  for (const [dimension, name] of node.dimensions.entries()) {
    const along = lists.filter(({ dimensions }) => name && dimensions[0] === name);
    const places = [isLongitude, isLatitude].flatMap(
      (test) =>
        along.find((each) => {
          const own = last(each.path);
          return own !== name && (isFeature || named.includes(own)) && test(own, attributes(each));
        }) ?? [],
    );
    const sizes = lists.find((each) => name && attributes(each)["sample_dimension"] === name);
    const isPlaced = places.length === 2;
    if ((!isPlaced && !sizes) || places.some(({ path }) => path === node.path)) continue;
    const isIndexed = along.some((each) => attributes(each)["instance_dimension"] !== undefined);
    return {
      along: isPlaced ? [dimension] : [],
      places,
      sizes,
      names: (sizes ? lists : along).find((each) => attributes(each)["cf_role"] !== undefined),
      isTrajectory: isTrajectory && !isIndexed,
      note: !isPlaced ? APART : isTrajectory && isIndexed ? INDEXED : "",
    };
  }
  return undefined;
}

/** The part that the address names, or the one that a view shows first. */
export function sliceOf(snapshot: Snapshot, node: ArrayNode, shape: Shape, query: Query): Slice {
  if (query["x"] !== undefined) return parseSlice(shape, query);
  const [first, second] = samplingOf(snapshot, node)?.along ?? [];
  if (second !== undefined) return parseSlice(shape, { ...query, x: `${second}`, y: `${first}` });
  if (first !== undefined) return parseSlice(shape, { ...query, x: `${first}`, y: "none" });
  const band = bandDimension(node);
  const [x = -1, y = -1] = [...shape.keys()].filter((d) => d !== band && nth(shape, d) > 1).reverse();
  if (y < 0) return parseSlice(shape, query);
  // A map has its longitudes across, also where they come first
  const [across, down] = earthReference(snapshot, node, { x: y, y: x })?.isDegrees ? [y, x] : [x, y];
  return parseSlice(shape, { x: `${across}`, y: `${down}`, ...query });
}

type Axes = { readonly x: number; readonly y: number };

/** The code at the end of a system as well-known text. */
const codeOfText = (text: unknown): string | undefined =>
  /(?:ID|AUTHORITY)\["EPSG",\s*"?(\d+)"?\]\s*\]\s*$/.exec(String(text ?? ""))?.[1];

export function earthReference(snapshot: Snapshot, node: ArrayNode, axes: Axes): EarthReference | undefined {
  const { x, y } = axes;
  const sampling = x < 0 ? undefined : samplingOf(snapshot, node);
  if (sampling && [x, y].every((d) => d < 0 || sampling.along.includes(d)))
    return { isDegrees: false, sampling };
  if (y < 0) return undefined;
  const is = (test: typeof isLongitude, d: number): boolean => {
    const array = coordinate(snapshot, node, d);
    // The axes of a rotated pole are degrees, too
    const isRotated = String(array && attributes(array).standard_name).startsWith("grid_");
    return array !== undefined && !isRotated && test(node.dimensions[d] ?? "", attributes(array));
  };
  if (is(isLongitude, x) && is(isLatitude, y)) return { isDegrees: true };
  const plane = [node.dimensions[x], node.dimensions[y]];
  const [longitudes, latitudes] = cellsOf(snapshot, node, (name) => plane.includes(name));
  const name = attributes(node)["grid_mapping"];
  const array =
    typeof name === "string" ? arrayNear(snapshot, node, nth(name.split(/[:\s]/, 1), 0)) : undefined;
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
  const means = rows.map((row) => row.reduce((sum, each) => sum + each, 0) / row.length);
  const [first, last] = [nth(means, 0), nth(means, means.length - 1)];
  const spread = Math.max(...rows.flat()) - Math.min(...rows.flat());
  return Math.abs(last - first) > spread / 5 ? last > first : undefined;
}
