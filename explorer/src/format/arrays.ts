/** Reads regions of arrays: which chunks, their bytes in few requests, and the copy of what was asked for. */
import { codecList, planOf, shardIndex, shardOf, type ChunkSpec } from "./codecs";
import { copyBox, dtypeOf, filled, product, strides, type DType, type Elements } from "./elements";
import { formatError, reading } from "./files";
import { chunkGrid, type ChunkGrid } from "./grid";
import { parallel, pool } from "./pool";
import { readBytes } from "./remote";
import { ChunkKind, ExplorerError, type ArrayNode, type ChunkRef, type Region, type Repository, type Snapshot, type Source } from "./types";

const MAX_BYTES = 2 ** 30;
const MAX_CHUNKS = 100_000;
/** Neighbours in one file are read together if the gap is small, up to a size. */
const GAP = 1 << 16;
const JOINED = 1 << 23;
/** Shards up to this size are read at once: the index alone costs as much. */
const SMALL_SHARD = 1 << 16;

/** What is asked for along one dimension: from `first`, every `step` elements, `count` times. */
interface Axis {
  readonly first: number;
  readonly step: number;
  readonly count: number;
}

/** The part of an axis within [start, start + length): first element after start, number, and place in the result. */
function within({ first, step, count }: Axis, start: number, length: number): { at: number; count: number; place: number } {
  const skipped = Math.max(0, Math.ceil((start - first) / step));
  const end = Math.min(count, Math.ceil((start + length - first) / step));
  return { at: first + skipped * step - start, count: Math.max(0, end - skipped), place: skipped };
}

/** Chunks along one dimension that have a wanted element: index, first element, length. */
function chunksOf(axis: Axis, grid: ChunkGrid, d: number): { index: number; start: number; length: number }[] {
  const out: { index: number; start: number; length: number }[] = [];
  const add = (index: number, start: number, length: number): void => {
    if (within(axis, start, length).count > 0) out.push({ index, start, length });
  };
  if (axis.count === 0) return out;
  const last = axis.first + (axis.count - 1) * axis.step;
  const edges = grid.edges?.[d];
  if (edges) {
    let start = 0;
    edges.forEach((length, index) => {
      add(index, start, length);
      start += length;
    });
    return out;
  }
  const length = grid.chunkShape[d];
  if (length < 1) throw new ExplorerError("format", "a chunk without elements");
  for (let index = Math.floor(axis.first / length); index * length <= last; index++) {
    add(index, index * length, length);
    if (out.length > MAX_CHUNKS) throw new ExplorerError("unsupported", `the region has more than ${MAX_CHUNKS} chunks. Choose a smaller one`);
  }
  return out;
}

interface Piece {
  readonly ref: ChunkRef;
  readonly start: number[]; // of the chunk, in elements of the array
  readonly shape: number[];
}

/** The elements of a result, and how chunks come into it. */
class Target {
  readonly shape: number[];
  readonly elements: Elements;
  private readonly steps: number[];

  constructor(readonly axes: Axis[], readonly type: DType, fill: unknown) {
    this.shape = axes.map(({ count }) => count);
    this.steps = strides(this.shape);
    this.elements = filled(type, product(this.shape), fill);
  }

  isWanted(start: number[], shape: number[]): boolean {
    return this.axes.every((axis, d) => within(axis, start[d], shape[d]).count > 0);
  }

  put(elements: Elements, start: number[], shape: number[]): void {
    const from = strides(shape);
    const parts = this.axes.map((axis, d) => within(axis, start[d], shape[d]));
    const to = { elements: this.elements, start: parts.reduce((sum, { place }, d) => sum + place * this.steps[d], 0), steps: this.steps };
    const source = { elements, start: parts.reduce((sum, { at }, d) => sum + at * from[d], 0), steps: from.map((step, d) => step * this.axes[d].step) };
    copyBox(to, source, parts.map(({ count }) => count), this.type.size);
  }
}

type Read = (start: number, end: number) => Promise<Uint8Array>;

/** Decodes a chunk, or of a shard only the inner chunks that are wanted. */
async function decodeInto(target: Target, spec: ChunkSpec, start: number[], size: number, read: Read): Promise<void> {
  const plan = planOf(spec);
  if (plan.serializer.name !== "sharding_indexed" || plan.arrays.length > 0 || plan.bytes.length > 0 || size <= SMALL_SHARD) {
    target.put(await pool().chunk(spec, await read(0, size)), start, spec.shape);
    return;
  }
  const { configuration } = plan.serializer;
  const shard = shardOf(spec, configuration);
  if (shard.indexSize > size) throw new RangeError("a shard is smaller than its index");
  const index = await shardIndex(shard, configuration, shard.isAtEnd ? await read(size - shard.indexSize, size) : await read(0, shard.indexSize));
  const places = strides(shard.grid);
  const parts: { offset: number; length: number; start: number[] }[] = [];
  for (let i = 0; i < index.length / 2; i++) {
    const inner = shard.grid.map((count, d) => start[d] + (Math.floor(i / places[d]) % count) * shard.inner.shape[d]);
    if (index[2 * i] < 0 || !target.isWanted(inner, shard.inner.shape)) continue;
    if (index[2 * i] + index[2 * i + 1] > size) throw new RangeError("an inner chunk ends after its shard");
    parts.push({ offset: index[2 * i], length: index[2 * i + 1], start: inner });
  }
  await inGroups(parts, read, ({ start: inner, length }, part) => decodeInto(target, shard.inner, inner, length, part));
}

/** Reads ranges, neighbours together, and passes each on with a reader of its bytes. */
async function inGroups<T extends { offset: number; length: number }>(items: T[], read: Read, use: (item: T, part: Read) => Promise<void>): Promise<void> {
  const groups: T[][] = [];
  let end = -1;
  for (const item of items.toSorted((a, b) => a.offset - b.offset)) {
    const group = groups[groups.length - 1];
    if (group && item.offset - end <= GAP && item.offset + item.length - group[0].offset <= JOINED) group.push(item);
    else groups.push([item]);
    end = Math.max(group === groups[groups.length - 1] ? end : 0, item.offset + item.length);
  }
  await parallel(groups, async (group) => {
    // one alone is not read in advance: it can be a shard, of which only a part is wanted
    if (group.length === 1) {
      const [{ offset }] = group;
      return use(group[0], (from, to) => read(offset + from, offset + to));
    }
    const first = group[0].offset;
    const data = await read(first, Math.max(...group.map(({ offset, length }) => offset + length)));
    for (const item of group) await use(item, async (from, to) => data.subarray(item.offset - first + from, item.offset - first + to));
  });
}

function axesOf(node: ArrayNode, start: number[], stop: number[], step: number[]): Axis[] {
  return node.shape.map((length, d) => {
    const [from, to, by] = [start[d], stop[d], step[d] ?? 1];
    const isValid = [from, to, by].every(Number.isSafeInteger) && from >= 0 && to <= length && by > 0;
    if (!isValid) throw new ExplorerError("unsupported", `${node.path}: ${from}:${to}:${by} is not a selection of dimension ${d}, which has ${length} elements`);
    return { first: from, step: by, count: Math.max(0, Math.ceil((to - from) / by)) };
  });
}

/** Reads start (inclusive) to stop (exclusive) with a step along each dimension. Decodes in a worker where there is one. */
export async function readRegion(
  repository: Repository,
  source: Source,
  snapshot: Snapshot,
  path: string,
  start: number[],
  stop: number[],
  step: number[] = [],
  signal?: AbortSignal,
): Promise<Region> {
  const node = snapshot.node(path);
  if (node?.kind !== "array") throw new ExplorerError("not-found", node ? `${path} is a group` : `no node ${path} in snapshot ${snapshot.id}`);
  const array = node as ArrayNode;
  const { document } = array;
  const grid = chunkGrid(array);
  const axes = axesOf(array, start, stop, step);
  const fill = document.fill_value;
  const what = `${path} of snapshot ${snapshot.id}`;
  const type = dtypeOf(document.data_type);
  if (product(axes.map(({ count }) => count)) * (type.size || 64) > MAX_BYTES) throw new ExplorerError("unsupported", "the region is too large for a page. Choose a smaller one, or a step");
  const target = reading(what, () => new Target(axes, type, fill));
  const spec = (shape: number[]): ChunkSpec => ({ codecs: document.codecs, type: document.data_type, fill, shape });
  reading(what, () => codecList(document.codecs));

  const perAxis = axes.map((axis, d) => chunksOf(axis, grid, d));
  const count = product(perAxis.map(({ length }) => length));
  if (count > MAX_CHUNKS) throw new ExplorerError("unsupported", `the region has ${count} chunks, at most ${MAX_CHUNKS} are read. Choose a smaller one`);
  const places = strides(perAxis.map(({ length }) => length));
  const files = new Map<string, (Piece & { offset: number; length: number })[]>();
  const indices = Array.from({ length: count }, (_, i) => i);
  await parallel(indices, async (i) => {
    signal?.throwIfAborted();
    const chosen = perAxis.map((list, d) => list[Math.floor(i / places[d]) % list.length]);
    const ref = await snapshot.chunk(path, chosen.map(({ index }) => index));
    if (!ref) return;
    const piece = { ref, start: chosen.map(({ start: at }) => at), shape: chosen.map(({ length }) => length), offset: ref.offset, length: ref.size };
    const file = ref.kind === ChunkKind.Inline ? `inline ${i}` : `${ref.kind} ${ref.location} ${ref.checksum ?? ""}`;
    const list = files.get(file);
    if (list) list.push(piece);
    else files.set(file, [piece]);
  });

  await parallel([...files.values()], async (pieces) => {
    const [{ ref }] = pieces;
    const whole: ChunkRef = { ...ref, offset: 0 };
    await inGroups(
      pieces,
      (from, to) => {
        signal?.throwIfAborted();
        return readBytes(source, repository.configuration ?? {}, whole, from, to, signal);
      },
      async (piece, read) => {
        signal?.throwIfAborted();
        try {
          await decodeInto(target, spec(piece.shape), piece.start, piece.length, read);
        } catch (error) {
          if (signal?.aborted) throw error;
          throw formatError(`chunk at ${piece.start.join(", ")} of ${path}${ref.location ? ` in ${ref.location}` : ""}`, error);
        }
      },
    );
  });
  return { shape: target.shape, raw: type.wrap(target.elements), ...(type.isComplex ? { isComplex: true } : {}) };
}
