/** What the metadata say about the places of the cells of a plane on Earth. */

import { isLatitude, isLongitude } from "../array/axes";
import { arrayNear, attributes, coordinate, dimensionName, inherited, isArray } from "../array/nodes";
import { nth, type Properties } from "../base/lists";
import type { Geolocation } from "./geolocation";
import type { ArrayNode, Snapshot } from "../format/types";

/** What the metadata say about the places of the cells of a plane on Earth. */
export interface EarthReference {
  /** The axes are longitude and latitude. */
  readonly isDegrees: boolean;
  /** Attributes of a grid mapping by CF, and a code such as EPSG:3031. */
  readonly mapping?: Properties | undefined;
  readonly code?: string | undefined;
  /** Longitudes and latitudes of each cell. */
  readonly cells?: readonly [ArrayNode, ArrayNode] | undefined;
}

type Axes = { readonly x: number; readonly y: number };

/** The code at the end of a system as well-known text. */
const codeOfText = (text: unknown): string | undefined =>
  /(?:ID|AUTHORITY)\["EPSG",\s*"?(\d+)"?\]\s*\]\s*$/.exec(String(text ?? ""))?.[1];

export function earthReference(snapshot: Snapshot, node: ArrayNode, axes: Axes): EarthReference | undefined {
  const { x, y } = axes;
  if (x < 0 || y < 0) return undefined;
  const is = (test: typeof isLongitude, d: number): boolean => {
    const array = coordinate(snapshot, node, d);
    // The axes of a rotated pole are degrees, too
    const isRotated = String(array && attributes(array).standard_name).startsWith("grid_");
    return array !== undefined && !isRotated && test(dimensionName(node, d), attributes(array));
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
