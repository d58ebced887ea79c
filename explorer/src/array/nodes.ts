/** The tree of a version as rows, and facts about nodes. */

import { type Box, chunksOf, type Slice } from "./slices";
import { list, nth, product, type Properties, record, records, type Shape } from "../base/lists";
import { storedChunks } from "../format/arrays";
import type { ArrayNode, Changes, Node, Snapshot } from "../format/types";
import type { Target } from "../page/home";
import { count, isolated, last, parent } from "../page/text";

export type Branch = { readonly node: Node; readonly depth: number; readonly children: Branch[] };

/** The root of the tree. Children come in the order of their names, groups and arrays mixed. */
export function tree(nodes: readonly Node[]): Branch | undefined {
  const branches = new Map<string, Branch>();
  for (const node of nodes) {
    const group = node.path === "/" ? undefined : branches.get(parent(node.path)); // it comes before its members
    const branch = { node, depth: group ? group.depth + 1 : 0, children: [] };
    branches.set(node.path, branch);
    group?.children.push(branch);
  }
  return branches.get("/");
}

/** The rows on the screen. A search shows the matches and the groups above them. */
export function rows(root: Branch | undefined, isOpen: (branch: Branch) => boolean, text = ""): Branch[] {
  const branches: Branch[] = [];
  const words = text.trim().toLowerCase();
  const visit = (branch: Branch): boolean => {
    const at = branches.push(branch);
    const own = !words || branch.node.path.toLowerCase().includes(words);
    let any = own;
    if (words || isOpen(branch)) for (const child of branch.children) any = visit(child) || any;
    if (!any) branches.length = at - 1;
    return any;
  };
  if (root) visit(root);
  return branches;
}

/** Whether a path lies in a group that Frazil writes for itself. */
export const isHidden = (path: string): boolean => path.split("/").includes(".frazil");

/** The nodes that a view at a path lists: groups of Frazil itself only where the path lies in one. */
export const listed = <T extends { readonly path: string }>(
  nodes: readonly T[],
  path: string,
): readonly T[] => (isHidden(path) ? nodes : nodes.filter((node) => !isHidden(node.path)));

export const isArray = (node: Node | undefined): node is ArrayNode => node?.kind === "array";
export const arrays = ({ nodes }: Snapshot): readonly ArrayNode[] => listed(nodes.filter(isArray), "/");

/** Bytes of an element; undefined for strings and types of other extensions. */
export function itemSize(dtype: string): number | undefined {
  if (dtype === "bool") return 1;
  const [, kind, bits] = /^(int|uint|float|bfloat|complex|r)(\d+)/.exec(dtype) ?? [];
  if (kind) return Number(bits) / 8;
  return /^(numpy\.)?(datetime64|timedelta64)/.test(dtype) ? 8 : undefined;
}

/** The chunks that a read of a region needs, at most, and the bytes of their values. Missing chunks cost nothing. */
export function costOf({ snapshot, node }: Target, region: Box): { chunks: number; bytes: number } {
  const { chunkShape, edges, path } = node;
  const low = region.start.map((at, d) => (edges ? 0 : Math.floor(at / nth(chunkShape, d))));
  const high = region.stop.map((at, d) => (edges ? Infinity : Math.ceil(at / nth(chunkShape, d))));
  const chunks = Math.min(chunksOf(region, chunkShape), storedChunks(snapshot.manifests(path), low, high));
  return { chunks, bytes: chunks * product(chunkShape) * (itemSize(node.dtype) ?? 8) };
}

/** Whether a read takes longer than people like to wait. */
export const isSlow = ({ chunks, bytes }: ReturnType<typeof costOf>): boolean => chunks > 64 || bytes > 50e6;

export const gridShape = (node: ArrayNode): number[] =>
  node.shape.map((length, at) => Math.ceil(length / Math.max(1, nth(node.chunkShape, at))));

export const dimensionName = (node: ArrayNode, d: number): string =>
  isolated(node.dimensions[d] || `dimension ${d}`);

export const shapeText = (node: ArrayNode): string =>
  node.shape.length === 0
    ? "scalar"
    : node.shape
        .map((length, at) => `${node.dimensions[at] ? `${dimensionName(node, at)} ` : ""}${count(length)}`)
        .join(" × ");

/** The node and the groups around it, from the inside. */
const around = (path: string): string[] =>
  path.split("/").map((_, at, parts) => parts.slice(0, parts.length - at).join("/") || "/");

/** The array of a name in the same group or above that fits. */
export function arrayNear(
  snapshot: Snapshot,
  node: Node,
  name: string,
  fits: (array: ArrayNode) => boolean = () => true,
): ArrayNode | undefined {
  for (const group of around(parent(node.path))) {
    const array = snapshot.node(`${group === "/" ? "" : group}/${name}`);
    if (isArray(array) && fits(array)) return array;
  }
  return undefined;
}

/** The array with the coordinates of a dimension: a 1-D array with its name, in the same group or above. */
export function coordinate(snapshot: Snapshot, node: ArrayNode, d: number): ArrayNode | undefined {
  const name = node.dimensions[d];
  return name
    ? arrayNear(snapshot, node, name, ({ shape }) => shape.length === 1 && shape[0] === node.shape[d])
    : undefined;
}

const owners = new WeakMap<Snapshot, Map<string, ArrayNode>>();

/** The arrays of a snapshot that name bounds by CF, by the paths of the bounds. */
function ownersOf(snapshot: Snapshot): Map<string, ArrayNode> {
  let paths = owners.get(snapshot);
  if (!paths) {
    owners.set(snapshot, (paths = new Map<string, ArrayNode>()));
    for (const node of snapshot.nodes.filter(isArray)) {
      const { bounds, climatology } = attributesOr(node);
      const name = bounds ?? climatology;
      const path = typeof name === "string" && arrayNear(snapshot, node, name)?.path;
      if (path) paths.set(path, node);
    }
  }
  return paths;
}

const MOST_CORNERS = 16; // of a cell

/** The array with the units that its values have: bounds inherit units and calendar of their coordinate. */
export function withUnits(snapshot: Snapshot, node: ArrayNode): ArrayNode {
  const own = attributes(node);
  const isComplete =
    own.units !== undefined && (own.calendar !== undefined || !/ since /.test(String(own.units)));
  if (isComplete || (node.shape.at(-1) ?? Infinity) > MOST_CORNERS) return node;
  const owner = ownersOf(snapshot).get(node.path);
  if (!owner) return node;
  const { units, calendar } = attributes(owner);
  return withAttributes(node, { units, calendar, ...own });
}

export const withAttributes = (node: ArrayNode, attributes: Properties): ArrayNode =>
  Object.create(node, { document: { value: { ...node.document, attributes } } }) as ArrayNode;

/** An attribute of a node, or of the groups around it. */
export const inherited = (snapshot: Snapshot, node: Node, name: string): unknown =>
  around(node.path)
    .map((path) => snapshot.node(path))
    .map((each) => each && attributes(each)[name])
    .find((value) => value !== undefined);

export const attributes = (node: Node): Properties =>
  (node.document["attributes"] as Properties | undefined) ?? {};

/** The attributes, or none if the description of the node is damaged. */
export function attributesOr(node: Node): Properties {
  try {
    return attributes(node);
  } catch {
    return {};
  }
}

/** The paths of the levels of a pyramid that a group describes, by the convention `multiscales` or by OME-NGFF. */
function levelsOf(group: Node): string[] {
  const { multiscales, ome } = attributesOr(group);
  const [image] = [record(ome).multiscales].flat();
  const [layout, datasets] = [record(multiscales).layout, record(image).datasets];
  const names = [...records(layout).map(({ asset }) => asset), ...records(datasets).map(({ path }) => path)];
  return names
    .filter((name) => typeof name === "string")
    .map((name) => `${group.path === "/" ? "" : group.path}/${name}`);
}

/** The dimension of bands, of which three can be colours; -1 if there is none besides the plane. */
export const bandDimension = ({ dimensions, shape, dtype }: ArrayNode, x = -1, y = -1): number =>
  shape.findIndex((length, d) => {
    const isNamed = /^(bands?|wavelengths?)$/i.test(dimensions[d] ?? "");
    return d !== x && d !== y && length >= 3 && (isNamed || (length <= 4 && dtype === "uint8"));
  });

/** A level of a pyramid, and the elements of another level that each of its elements stands for. */
export interface Level {
  readonly node: ArrayNode;
  readonly ratio: Shape;
  /** Its place among the levels: 0 is the finest. */
  readonly place: number;
}

type Levels = readonly [Level, ...Level[]];

/** An array and the coarser levels of the pyramid to which it belongs, the finest one first. */
export function levelsFrom(snapshot: Snapshot, node: ArrayNode): Levels {
  const own: Level = { node, ratio: node.shape.map(() => 1), place: 0 };
  for (const path of around(node.path)) {
    const group = snapshot.node(path);
    const paths = group ? levelsOf(group) : [];
    const above = paths.find((level) => `${node.path}/`.startsWith(`${level}/`));
    if (above === undefined) continue;
    const arrays = paths
      .map((level) => snapshot.node(level + node.path.slice(above.length)))
      .filter((each) => isArray(each) && each.shape.length === node.shape.length) as ArrayNode[];
    arrays.sort((one, other) => product(other.shape) - product(one.shape));
    const levels = arrays.map((each, place) => ({
      node: each,
      ratio: node.shape.map((length, d) => Math.max(1, Math.round(length / Math.max(1, nth(each.shape, d))))),
      place,
    }));
    const first = levels.find((each) => each.node.path === node.path) ?? own;
    return [first, ...levels.filter((each) => product(each.node.shape) < product(node.shape))];
  }
  return [own];
}

/** The coarsest level with as many elements along an axis of a slice as a screen has pixels; else the finest. */
export function levelFor([finest, ...coarser]: Levels, slice: Slice, pixels: number): Level {
  const length = ({ ratio }: Level, d: number): number =>
    ((slice.to[d] ?? 0) - (slice.from[d] ?? 0)) / (ratio[d] ?? 1);
  return (
    coarser.findLast((level) => Math.max(length(level, slice.x), length(level, slice.y)) >= pixels) ?? finest
  );
}

/** Title of an array's values: long name and units by CF. */
export function title(node: Node): string {
  const { long_name, standard_name, units } = attributes(node);
  const name = [long_name, standard_name].find((value) => typeof value === "string") ?? last(node.path);
  const shown = isolated(name);
  return typeof units === "string" && units && !/ since /.test(units) ? `${shown} (${units})` : shown;
}

/** Codecs as one line each, with those inside shards. */
export function codecs(node: Node): string[] {
  const line = (codec: unknown): string[] => {
    if (typeof codec === "string") return [codec];
    const { name = "unknown", configuration } = record(codec);
    const { codecs: inner, index_codecs: _, ...rest } = record(configuration);
    const settings = Object.entries(rest).map(
      ([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`,
    );
    const own = `${name}${settings.length ? ` (${settings.join(", ")})` : ""}`;
    return [own, ...list(inner).flatMap((each) => line(each).map((text) => `within the shard: ${text}`))];
  };
  return list(node.document["codecs"]).flatMap(line);
}

export type Change = "added" | "changed" | "data";

/** What a commit did to the nodes of its snapshot, by path. */
export function changedPaths(snapshot: Snapshot, changes: Changes): Map<string, Change> {
  const paths = new Map(snapshot.nodes.map((node) => [node.id, node.path]));
  const marks = new Map<string, Change>();
  const mark = (ids: readonly string[], change: Change): void => {
    for (const path of ids.map((id) => paths.get(id))) if (path !== undefined) marks.set(path, change);
  };
  const written = changes.updatedChunks.map(({ nodeId }) => nodeId);
  mark(written, "data");
  mark([...changes.updatedGroups, ...changes.updatedArrays], "changed");
  mark([...changes.newGroups, ...changes.newArrays], "added");
  return marks;
}
