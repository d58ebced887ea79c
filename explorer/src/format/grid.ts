/** Shapes, chunk grids and data types of `zarr.json`. */

import { unsupported, wrongFormat } from "../base/errors";
import { record, sizes } from "../base/lists";
import type { Node } from "./types";

export interface ChunkGrid {
  readonly shape: number[];
  readonly chunkShape: number[]; // the largest chunk of a rectilinear grid
  readonly edges?: number[][];
}

/** More chunks along one dimension are no grid that a page can show. */
const MAX_EDGES = 10_000_000;

/** Lengths along one dimension: one number for all, or a list of lengths and [length, count]. */
function edgesOf(spec: unknown, length: number, what: string): number[] {
  const items: unknown[] = Array.isArray(spec)
    ? (spec as unknown[])
    : [[spec, Math.ceil(length / Math.max(1, Number(spec)))]];
  const out: number[] = [];
  for (const item of items) {
    const [edge = 0, count] = sizes(Array.isArray(item) ? item : [item, 1], what);
    if (edge === 0 || count === undefined || out.length + count > MAX_EDGES)
      throw wrongFormat(`${what}: wrong length or number of chunks`);
    for (let i = 0; i < count; i++) out.push(edge);
  }
  return out;
}

const grids = new WeakMap<object, ChunkGrid>();

export function chunkGrid(node: Pick<Node, "path" | "document">): ChunkGrid {
  const entry = grids.get(node);
  if (entry) return entry;
  const shape = sizes(node.document.shape, `shape of ${node.path}`);
  const grid = record(node.document.chunk_grid);
  const config = record(grid.configuration);
  const what = `chunk grid of ${node.path}`;
  let result: ChunkGrid;
  if (grid.name === "regular") result = { shape, chunkShape: sizes(config.chunk_shape, what) };
  else if (grid.name === "rectilinear" && Array.isArray(config.chunk_shapes)) {
    const edges = config.chunk_shapes.map((spec, d) => edgesOf(spec, shape[d] ?? 0, what));
    result = { shape, edges, chunkShape: edges.map((list) => list.reduce((a, b) => Math.max(a, b), 1)) };
  } else throw unsupported(`${what}: this page does not know grids of the kind ${JSON.stringify(grid.name)}`);
  if (result.chunkShape.length !== shape.length)
    throw wrongFormat(`${what}: ${result.chunkShape.length} dimensions, but the shape has ${shape.length}`);
  grids.set(node, result);
  return result;
}

/** Numpy's name where it has one. */
export function dtypeName(type: unknown): string {
  if (typeof type === "string") return type;
  const { name, configuration } = record(type);
  const { unit, scale_factor: scale, length_bytes: length } = record(configuration);
  const factor = scale === 1 || scale === undefined ? "" : String(scale);
  if (unit !== undefined) return `${String(name).replace("numpy.", "")}[${factor}${String(unit)}]`;
  return length === undefined ? String(name) : `${String(name)}(${String(length)} bytes)`;
}
