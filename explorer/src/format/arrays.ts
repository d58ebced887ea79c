/** Reads regions of arrays: which chunks, their bytes in few requests, and the copy of what was asked for. */

import { ExplorerError, reasonOf, unsupported, wrongFormat } from "../base/errors";
import { nth, placeAt, placesOf, product, type Shape, strides, u32 } from "../base/lists";
import { type ChunkSpec, codecList, openShard, planOf } from "../codecs/codecs";
import { copyBox, type DType, dtypeOf, type Elements, filled } from "../codecs/elements";
import { parallel, pool } from "../codecs/pool";
import { reading } from "./files";
import { readBytes } from "./remote";
import { chunkGrid, type ChunkGrid } from "./snapshot";
import {
  type ArrayNode,
  ChunkKind,
  type ChunkRef,
  type Lost,
  type ManifestPart,
  type Region,
  type Repository,
  type Selection,
  type Snapshot,
  type Source,
} from "./types";

const MAX_BYTES = 2 ** 30;
const MAX_CHUNKS = 100_000;
const MAX_SPANS = 1_000_000; // chunks along one dimension
const MAX_REFERENCES = 1_000_000; // of an array that are read for a few of them
/** Neighbours in one file are read together if the gap is small, up to a size. */
const GAP = 1 << 16;
const JOINED = 1 << 23;
/** Shards up to this size are read at once: the index costs as much. */
const SMALL_SHARD = 1 << 16;

/** What is asked for along one dimension: from `first`, every `step` elements, `count` times. */
type Axis = { readonly first: number; readonly step: number; readonly count: number };

/** The part of an axis within [start, start + length): first element after start, number, and place in the result. */
type Within = { at: number; count: number; place: number };

function within({ first, step, count }: Axis, start: number, length: number): Within {
  const skipped = Math.max(0, Math.ceil((start - first) / step));
  const end = Math.min(count, Math.ceil((start + length - first) / step));
  return { at: first + skipped * step - start, count: Math.max(0, end - skipped), place: skipped };
}

/** A chunk along one dimension: index, first element, length. */
type Span = { readonly index: number; readonly start: number; readonly length: number };

/** Chunks along one dimension that have a wanted element, from the chunk `low` up to the chunk `high`, exclusive. */
function chunksOf(axis: Axis, grid: ChunkGrid, d: number, low: number, high: number): Span[] {
  const { first, step, count } = axis;
  const out: Span[] = [];
  const edges = grid.edges?.[d];
  if (edges) {
    let start = 0;
    edges.forEach((length, index) => {
      const isWanted = within(axis, start, length).count > 0;
      if (isWanted && index >= low && index < high) out.push({ index, start, length });
      start += length;
    });
    return out;
  }
  const length = nth(grid.chunkShape, d);
  if (length < 1) throw wrongFormat("a chunk without elements");
  // One step for each chunk that has a wanted element, although others may lie between them
  for (let at = Math.max(0, Math.ceil((low * length - first) / step)); at < count;) {
    const index = Math.floor((first + at * step) / length);
    if (index >= high) break;
    out.push({ index, start: index * length, length });
    if (out.length > MAX_SPANS) throw tooMany(`more than ${MAX_SPANS}`);
    at = Math.max(at + 1, Math.ceil(((index + 1) * length - first) / step));
  }
  return out;
}

const tooMany = (count: string): ExplorerError =>
  unsupported(`the region has ${count} chunks, at most ${MAX_CHUNKS} are read. Choose a smaller one`);

/** How many chunks are stored in a box of the chunk grid, at most. */
export function storedChunks(parts: readonly ManifestPart[], low: Shape, high: Shape): number {
  return parts.reduce((sum, { extents, count }) => {
    const shared = low.map((from, d) =>
      Math.max(0, Math.min(nth(high, d), u32(extents, 2 * d + 1)) - Math.max(from, u32(extents, 2 * d))),
    );
    return sum + Math.min(count, product(shared));
  }, 0);
}

/** The wanted chunks that are stored, with their place in each list of `perAxis`. */
async function references(snapshot: Snapshot, path: string, perAxis: Span[][], signal?: AbortSignal) {
  const count = product(perAxis.map(({ length }) => length));
  const found: [ChunkRef, Span[]][] = [];
  if (count > MAX_CHUNKS) {
    // Of a sparse array, what is stored is less than what is wanted
    const stored = snapshot.manifests(path).reduce((sum, part) => sum + part.count, 0);
    if (stored > MAX_REFERENCES) throw tooMany(String(count));
    const spans = perAxis.map((list) => new Map(list.map((span) => [span.index, span])));
    const table = await snapshot.chunks(path);
    for (let row = 0; row < table.length; row++) {
      const chosen = spans.map((map, d) => map.get(u32(table.coords, row * spans.length + d)));
      const ref = chosen.every((span) => span !== undefined) && table.reference?.(row);
      if (ref) found.push([ref, chosen.filter((span) => span !== undefined)]);
    }
    if (found.length > MAX_CHUNKS) throw tooMany(String(found.length));
    return found;
  }
  const lengths = perAxis.map(({ length }) => length);
  await parallel([...Array(count).keys()], async (i) => {
    signal?.throwIfAborted();
    const places = placesOf(i, lengths);
    const chosen = perAxis.map((list, d) => nth(list, nth(places, d)));
    const coords = chosen.map(({ index }) => index);
    const ref = await snapshot.chunk(path, coords);
    if (ref) found.push([ref, chosen]);
  });
  return found;
}

/** The elements of a result, and how chunks come into it. */
class Target {
  readonly shape: number[];
  readonly elements: Elements;
  readonly lost: Lost[] = [];
  private readonly steps: number[];

  constructor(
    readonly axes: Axis[],
    readonly type: DType,
    fill: unknown,
  ) {
    this.shape = axes.map(({ count }) => count);
    this.steps = strides(this.shape);
    this.elements = filled(type, product(this.shape), fill);
  }

  /** The part of the result that lies in a chunk, for each dimension. */
  private parts(start: number[], shape: number[]): Within[] {
    return this.axes.map((axis, d) => within(axis, nth(start, d), nth(shape, d)));
  }

  isWanted(start: number[], shape: number[]): boolean {
    return this.parts(start, shape).every(({ count }) => count > 0);
  }

  /** A part without values. */
  lose(start: number[], shape: number[], name: string, error: unknown): void {
    const parts = this.parts(start, shape);
    this.lost.push({
      start: parts.map(({ place }) => place),
      count: parts.map(({ count }) => count),
      message: `${name}: ${reasonOf(error)}`,
      kind: error instanceof ExplorerError ? error.kind : "format",
    });
  }

  put(elements: Elements, start: number[], shape: number[]): void {
    const parts = this.parts(start, shape);
    const from = strides(shape);
    const to = {
      elements: this.elements,
      start: placeAt(this.steps, (d) => nth(parts, d).place),
      steps: this.steps,
    };
    const source = {
      elements,
      start: placeAt(from, (d) => nth(parts, d).at),
      steps: from.map((step, d) => step * nth(this.axes, d).step),
    };
    const counts = parts.map(({ count }) => count);
    copyBox(to, source, counts, this.type.size);
  }
}

type Read = (start: number, end: number) => Promise<Uint8Array>;

/** What is wrong with the stored bytes. Another attempt does not help, and other chunks can be read. */
function isDamage(error: unknown): boolean {
  if (error instanceof ExplorerError) return error.kind === "format" || error.kind === "not-found";
  return !(error instanceof DOMException && error.name === "AbortError");
}

/** Decodes a chunk, or of a shard only the inner chunks that are wanted. A damaged one is a lost part of the result. */
async function decode(
  target: Target,
  name: string,
  spec: ChunkSpec,
  start: number[],
  size: number,
  read: Read,
): Promise<void> {
  try {
    const { shard } = planOf(spec);
    if (!shard || size <= SMALL_SHARD) {
      try {
        return target.put(await pool().chunk(spec, await read(0, size)), start, spec.shape);
      } catch (error) {
        // The other chunks of a shard can be read
        if (!shard || !isDamage(error)) throw error;
      }
    }
    const { inner, chunks } = await openShard(spec, shard, size, read);
    const parts: { offset: number; length: number; place: number[] }[] = [];
    for (const { offset, length, start: within } of chunks) {
      const place = start.map((at, d) => at + nth(within, d));
      if (!target.isWanted(place, inner.shape)) continue;
      if (offset + length > size) throw new RangeError("an inner chunk ends after its shard");
      parts.push({ offset, length, place });
    }
    await inGroups(parts, read, ({ place, length }, part) =>
      decode(target, name, inner, place, length, part),
    );
  } catch (error) {
    if (!isDamage(error)) throw error;
    target.lose(start, spec.shape, name, error);
  }
}

/** Reads ranges, neighbours together, and passes each on with a reader of its bytes. */
async function inGroups<T extends { offset: number; length: number }>(
  items: T[],
  read: Read,
  use: (item: T, part: Read) => Promise<void>,
): Promise<void> {
  const groups: { items: T[]; start: number; end: number }[] = [];
  for (const item of items.toSorted((a, b) => a.offset - b.offset)) {
    const [start, end] = [item.offset, item.offset + item.length];
    const group = groups.at(-1);
    if (group && start - group.end <= GAP && end - group.start <= JOINED) {
      group.items.push(item);
      group.end = Math.max(group.end, end);
    } else groups.push({ items: [item], start, end });
  }
  await parallel(groups, async ({ items: group, start, end }) => {
    // a single one is not read in advance: it can be a shard, of which only a part is wanted
    const data =
      group.length > 1 &&
      (await read(start, end).catch((error) => {
        // A file that ends too early still has the first of its chunks
        if (!isDamage(error)) throw error;
      }));
    const part =
      ({ offset }: T): Read =>
      async (from, to) =>
        data ? data.subarray(offset - start + from, offset - start + to) : read(offset + from, offset + to);
    if (data) for (const item of group) await use(item, part(item));
    else await parallel(group, (item) => use(item, part(item)));
  });
}

function axesOf(node: ArrayNode, { start, stop, step = [] }: Selection): Axis[] {
  return node.shape.map((length, d) => {
    const [from, to, by] = [nth(start, d), nth(stop, d), step[d] ?? 1];
    const isValid = [from, to, by].every(Number.isSafeInteger) && from >= 0 && to <= length && by > 0;
    if (!isValid)
      throw unsupported(
        `${node.path}: ${from}:${to}:${by} is not a selection of dimension ${d}, which has ${length} elements`,
      );
    return { first: from, step: by, count: Math.max(0, Math.ceil((to - from) / by)) };
  });
}

/** Reads a part of an array. Decodes in a worker where there is one. */
export async function readRegion(
  repository: Repository,
  source: Source,
  snapshot: Snapshot,
  path: string,
  selection: Selection,
  signal?: AbortSignal,
): Promise<Region> {
  const parts = snapshot.manifests(path); // an error unless the path is that of an array
  const array = snapshot.node(path) as ArrayNode;
  const { codecs, data_type: dataType, fill_value: fill } = array.document;
  const grid = chunkGrid(array);
  const axes = axesOf(array, selection);
  const what = `${path} of snapshot ${snapshot.id}`;
  const type = dtypeOf(dataType);
  if (product(axes.map(({ count }) => count)) * (type.size || 64) > MAX_BYTES)
    throw unsupported("the region is too large for a page. Choose a smaller one, or a step");
  const target = reading(what, () => new Target(axes, type, fill));
  const spec = (shape: number[]): ChunkSpec => ({ codecs, type: dataType, fill, shape });
  reading(what, () => codecList(codecs));

  const perAxis = axes.map((axis, d) => {
    const low = parts.reduce((least, { extents }) => Math.min(least, u32(extents, 2 * d)), Infinity);
    const high = parts.reduce((most, { extents }) => Math.max(most, u32(extents, 2 * d + 1)), 0);
    return low < high ? chunksOf(axis, grid, d, low, high) : [];
  });
  const found = parts.length ? await references(snapshot, path, perAxis, signal) : [];
  // Chunks to read: parts of files
  const all = found.map(([ref, spans]) => {
    const index = spans.map((span) => span.index).join(", ");
    const place = ref.kind === ChunkKind.Native ? `chunks/${ref.location}` : ref.location;
    return {
      ref,
      name: `chunk ${index} of ${path}${place ? ` in ${place}` : ""}`,
      file:
        ref.kind === ChunkKind.Inline
          ? `inline ${index}`
          : `${ref.kind} ${ref.location} ${ref.checksum ?? ""}`,
      start: spans.map((span) => span.start),
      shape: spans.map((span) => span.length),
      offset: ref.offset,
      length: ref.size,
    };
  });
  const files = new Map(all.map(({ file }) => [file, [] as typeof all]));
  for (const piece of all) files.get(piece.file)?.push(piece);

  let count = 0;
  await parallel([...files.values()], async (pieces) => {
    count += pieces.length;
    const read: Read = (from, to) => {
      signal?.throwIfAborted();
      const whole = { ...nth(pieces, 0).ref, offset: 0 };
      return readBytes(source, repository.configuration ?? {}, whole, from, to, signal);
    };
    await inGroups(pieces, read, (piece, part) => {
      signal?.throwIfAborted();
      return decode(target, piece.name, spec(piece.shape), piece.start, piece.length, part);
    });
  });
  const { lost } = target;
  if (lost[0] && lost.length >= count) throw new ExplorerError(lost[0].kind, lost[0].message);
  return {
    shape: target.shape,
    raw: type.wrap(target.elements),
    ...(type.isComplex ? { isComplex: true } : {}),
    ...(lost.length ? { lost } : {}),
  };
}
