/** Snapshots: nodes with their shapes and chunk grids, and the references of their chunks. */

import { notFound, unsupported, wrongFormat } from "../base/errors";
import { nth, type Properties, record, sizes, u32 } from "../base/lists";
import { PARALLEL, turns } from "../codecs/pool";
import { type Body, type Cache, readFile, reading } from "./files";
import { type Flat, idText } from "./flatbuffer";
import { ChunkColumns, Manifest } from "./manifest";
import { readStatistics } from "./statistics";
import type { ArrayNode, ChunkRef, ManifestPart, Node, Progress, Snapshot, Source } from "./types";
import { properties } from "./values";

export const MANIFEST_BYTES = 128 * 2 ** 20;
const TURN = 30; // milliseconds of work after which the page may draw
const NODE_TYPES = ["", "array", "group"] as const;

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
function dtypeName(type: unknown): string {
  if (typeof type === "string") return type;
  const { name, configuration } = record(type);
  const { unit, scale_factor: scale, length_bytes: length } = record(configuration);
  const factor = scale === 1 || scale === undefined ? "" : String(scale);
  if (unit !== undefined) return `${String(name).replace("numpy.", "")}[${factor}${String(unit)}]`;
  return length === undefined ? String(name) : `${String(name)}(${String(length)} bytes)`;
}

/** A node, whose document is parsed when it is needed. */
class NodeView {
  readonly kind: "group" | "array";
  readonly id: string;
  private parsed: Properties | undefined;

  constructor(
    protected readonly flat: Flat,
    readonly table: number,
    readonly path: string,
  ) {
    const kind = NODE_TYPES[flat.u8(table, 3)];
    if (!kind) throw new RangeError(`node ${path} of an unknown type`);
    this.kind = kind;
    this.id = flat.id(table, 0, 8);
  }

  get document(): Properties {
    return (this.parsed ??= reading(`zarr.json of ${this.path}`, () => {
      const document = JSON.parse(this.flat.text(this.table, 2) ?? "") as unknown;
      if (typeof document !== "object" || document === null)
        throw new TypeError("expected an object of JSON");
      return document as Properties;
    }));
  }
}

class ArrayView extends NodeView implements ArrayNode {
  declare readonly kind: "array";
  private refs: Omit<ManifestPart, "count">[] | undefined;

  get shape(): number[] {
    return chunkGrid(this).shape;
  }

  get chunkShape(): number[] {
    return chunkGrid(this).chunkShape;
  }

  get edges(): number[][] | undefined {
    return chunkGrid(this).edges;
  }

  get dimensions(): (string | null)[] {
    const names = this.document.dimension_names;
    return Array.isArray(names)
      ? names.map((name) => (typeof name === "string" ? name : null))
      : this.shape.map(() => null);
  }

  get dtype(): string {
    return dtypeName(this.document.data_type);
  }

  /** The manifests with the part of the chunk grid that each covers. */
  get manifests(): Omit<ManifestPart, "count">[] {
    const { flat } = this;
    return (this.refs ??= flat.tables(flat.table(this.table, 4), 2).map((table) => {
      const [start, length] = flat.vector(table, 1, 8);
      const extents = Uint32Array.from({ length: 2 * length }, (_, i) =>
        flat.view.getUint32(start + 4 * i, true),
      );
      return { id: flat.id(table, 0, 12), extents };
    }));
  }
}

export type SnapshotHead = ReturnType<typeof snapshotHead>;

/** What a snapshot file of spec version 1 says about itself. */
export function snapshotHead({ flat, spec }: Body) {
  const root = flat.root();
  return {
    id: flat.id(root, 0, 12),
    parent: flat.optionalId(root, 1, 12),
    time: flat.u64(root, 3) / 1000,
    message: flat.required(root, 4),
    metadata: properties(flat, root, 5, spec),
  };
}

/** The number of references of each manifest of a snapshot. */
function manifestSizes(flat: Flat, root: number, spec: number): Map<string, number> {
  if (spec === 1) {
    const [start, count] = flat.vector(root, 6, MANIFEST_STRUCT);
    const places = Array.from({ length: count }, (_, i) => start + MANIFEST_STRUCT * i);
    return new Map(places.map((at) => [idText(flat.bytes, at, 12), flat.view.getUint32(at + 24, true)]));
  }
  return new Map(flat.tables(root, 7).map((table) => [flat.id(table, 0, 12), flat.u32(table, 2)]));
}

const MANIFEST_STRUCT = 32; // bytes: id, size, number of references

export class SnapshotView implements Snapshot {
  readonly nodes: Node[];
  private readonly sizes: Map<string, number>;
  private readonly byPath: Map<string, Node>;

  constructor(
    readonly id: string,
    { flat, spec }: Body,
    private readonly source: Source,
    private readonly files: Cache<Manifest>,
  ) {
    const root = flat.root();
    if (flat.id(root, 0, 12) !== id)
      throw wrongFormat(`snapshots/${id}: the file is of snapshot ${flat.id(root, 0, 12)}`);
    flat.need(root, 2, 4, 5, 6); // nodes, message, metadata, manifest files
    this.sizes = manifestSizes(flat, root, spec);
    const nodes = flat.tables(root, 2).map((table) => {
      flat.need(table, 2, 4); // zarr.json, what the node is
      const path = flat.required(table, 1);
      return flat.u8(table, 3) === 1 ? new ArrayView(flat, table, path) : new NodeView(flat, table, path);
    });
    // writers have sorted paths in two ways; children right after their parent suit a tree
    const keys = nodes.map(({ path }) => path.replaceAll("/", "\0"));
    const isSorted = keys.every((key, at) => at === 0 || nth(keys, at - 1) < key);
    this.nodes = isSorted
      ? nodes
      : [...keys.keys()].sort((a, b) => (nth(keys, a) < nth(keys, b) ? -1 : 1)).map((at) => nth(nodes, at));
    this.byPath = new Map(nodes.map((node) => [node.path, node]));
  }

  node(path: string): Node | undefined {
    return this.byPath.get(path);
  }

  private array(path: string): ArrayView {
    const node = this.byPath.get(path);
    if (!(node instanceof ArrayView))
      throw notFound(node ? `${path} is a group` : `no node ${path} in snapshot ${this.id}`);
    return node;
  }

  manifests(path: string): ManifestPart[] {
    const node = this.array(path);
    const parts = reading(`snapshots/${this.id}`, () => node.manifests);
    return parts.map((part) => ({ ...part, count: this.sizes.get(part.id) ?? Infinity }));
  }

  private manifest(id: string): Promise<Manifest> {
    const key = `manifests/${id}`;
    const load = async (): Promise<Manifest> => {
      const manifest = await readFile(this.source, key, "manifest", (body) => new Manifest(key, body));
      if (!manifest) throw notFound(`${key} is missing: no reader can find these chunks`);
      return manifest;
    };
    return this.files.get(id, load, ({ flat }) => flat.bytes.length);
  }

  async chunks(path: string, onProgress?: Progress): Promise<ChunkColumns> {
    const node = this.array(path);
    const refs = this.manifests(path);
    const columns = new ChunkColumns(node.shape.length);
    const pending: Promise<Manifest>[] = [];
    const turn = turns(TURN);
    for (const [i, { id, extents }] of refs.entries()) {
      for (const { id: next } of refs.slice(i + pending.length, i + PARALLEL)) {
        const manifest = this.manifest(next);
        manifest.catch(() => undefined); // awaited below, perhaps after the failure of another one
        pending.push(manifest);
      }
      const manifest = await pending.shift();
      if (manifest)
        reading(`manifests/${id}`, () => columns.add(manifest, node.id, extents, (i + 1) / refs.length));
      onProgress?.(i + 1, refs.length);
      await turn();
    }
    return columns.finish();
  }

  statistics(...[path, table, missing, signal]: Parameters<Snapshot["statistics"]>) {
    return readStatistics(this.source, this.array(path), table as ChunkColumns, missing, signal);
  }

  async chunk(path: string, coords: number[]): Promise<ChunkRef | undefined> {
    const node = this.array(path);
    for (const { id, extents } of this.manifests(path)) {
      if (!coords.every((at, d) => at >= u32(extents, 2 * d) && at < u32(extents, 2 * d + 1))) continue;
      const manifest = await this.manifest(id);
      const chunk = reading(`manifests/${id}`, () => manifest.find(node.id, coords));
      if (chunk) return chunk;
    }
    return undefined;
  }
}
