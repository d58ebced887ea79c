/**
 * Statistics of chunks: files of Frazil for each manifest, which other programs ignore. The layout is in
 * `src/frazil/format/statistics_file.py`. A missing file means that nothing is known; a damaged one is ignored.
 */

import { text } from "../base/bytes";
import { nth, u32 } from "../base/lists";
import { parallel, pool } from "../codecs/pool";
import { statedSize } from "../codecs/zstd";
import { formatError } from "./files";
import { idText } from "./flatbuffer";
import type { ChunkColumns, Origin } from "./manifest";
import type { ArrayNode, ChunkStatistics, Source } from "./types";

const MAGIC = "FRZSTAT1";
const BODY = MAGIC.length + 32; // after the hash
const DIGIT = 2 ** 32;

/** What a file says about the references of one array in one manifest. */
interface Header {
  readonly node: string;
  readonly context: string;
  readonly kind: string;
  readonly ndim: number;
  readonly rows: number;
  readonly tiles: number;
  readonly size: number;
}

/** Decodes the columns of an array; undefined if the file has none for it. */
async function columnsOf(
  data: Uint8Array,
  manifest: string,
  nodeId: string,
  count: number,
): Promise<{ header: Header; columns: Uint8Array } | undefined> {
  if (text(data.subarray(0, MAGIC.length)) !== MAGIC) throw new RangeError("other bytes");
  const body = data.subarray(BODY);
  // a page that is not from a secure place has no hashes
  const hash = await globalThis.crypto?.subtle?.digest("SHA-256", body.slice());
  if (hash && new Uint8Array(hash).some((byte, at) => byte !== data[MAGIC.length + at]))
    throw new RangeError("another checksum");
  const length = new DataView(body.buffer, body.byteOffset).getUint32(0, true);
  const document = JSON.parse(text(body.subarray(4, 4 + length))) as { manifest: string; arrays: Header[] };
  if (document.manifest !== manifest) throw new RangeError("it belongs to another manifest");
  let start = 4 + length;
  for (const header of document.arrays) {
    const frame = body.subarray(start, start + header.size);
    start += header.size;
    const bytes = Uint8Array.from(header.node.match(/../g) ?? [], (pair) => parseInt(pair, 16));
    if (idText(bytes, 0, 8) !== nodeId) continue;
    if (header.rows !== count) throw new RangeError("other references");
    const digits = header.kind === "f" ? 16 : 32;
    const size = header.rows * header.tiles * (33 + digits + 4 * header.ndim);
    if (statedSize(frame) !== size) throw new RangeError("columns of another size");
    return { header, columns: await pool().zstd(frame) };
  }
  return undefined;
}

/** Adds the rows of one manifest. */
function add(
  out: ChunkStatistics,
  { header, columns }: { header: Header; columns: Uint8Array },
  { first, numbers }: Origin,
  sizeOf: (row: number) => number,
): void {
  const { kind, ndim, rows, tiles } = header;
  const count = rows * tiles;
  const view = new DataView(columns.buffer, columns.byteOffset, columns.length);
  const wide = (at: number): number => Number(view.getBigUint64(at, true));
  const value = {
    f: (at: number) => view.getFloat64(at, true),
    i: (at: number) => Number(view.getBigInt64(at, true)),
    u: wide,
  }[kind];
  if (!value) throw new RangeError(`elements of the kind ${kind}`);
  const [nan, missing, minimum, maximum, sum] = [1, 9, 17, 25, 33].map((bytes) => bytes * count) as [
    number,
    number,
    number,
    number,
    number,
  ];
  const extent = (kind === "f" ? 49 : 65) * count;
  const exact = (at: number): number =>
    view.getUint32(at, true) +
    view.getUint32(at + 4, true) * DIGIT +
    view.getInt32(at + 8, true) * DIGIT ** 2;
  numbers.forEach((number, place) => {
    const row = first + place;
    let [low, high, total, size, gaps, isKnown] = [Infinity, -Infinity, 0, 0, 0, true];
    for (let tile = number * tiles; tile < (number + 1) * tiles; tile++) {
      isKnown &&= columns[tile] === 1;
      let elements = 1;
      for (let d = 0; d < ndim; d++) elements *= view.getUint32(extent + 4 * (tile * ndim + d), true);
      const without = wide(nan + 8 * tile) + wide(missing + 8 * tile);
      size += elements;
      gaps += without;
      if (elements === without) continue;
      low = Math.min(low, value(minimum + 8 * tile));
      high = Math.max(high, value(maximum + 8 * tile));
      total += kind === "f" ? view.getFloat64(sum + 8 * tile, true) : exact(sum + 12 * tile);
    }
    // an array that grew has other elements in its last chunks
    if (!isKnown || size !== sizeOf(row) || gaps > size) return;
    out.gaps[row] = gaps / size;
    if (gaps < size) [out.minimum[row], out.maximum[row], out.mean[row]] = [low, high, total / (size - gaps)];
  });
}

/** The statistics of the chunks of an array, in the order of its table. */
export async function readStatistics(
  source: Source,
  node: ArrayNode,
  table: ChunkColumns,
  signal?: AbortSignal,
): Promise<ChunkStatistics> {
  const column = (): Float64Array => new Float64Array(table.length).fill(NaN);
  const out: ChunkStatistics = {
    minimum: column(),
    maximum: column(),
    mean: column(),
    gaps: column(),
    notes: [],
  };
  const { shape, chunkShape, edges } = node;
  const extent = (at: number, d: number): number =>
    edges?.[d]?.[at] ?? Math.min(nth(chunkShape, d), nth(shape, d) - at * nth(chunkShape, d));
  const sizeOf = (row: number): number =>
    shape.reduce((size, _, d) => size * extent(u32(table.coords, row * shape.length + d), d), 1);
  await parallel(table.origins(node.id), async (origin) => {
    signal?.throwIfAborted();
    const key = `statistics/${origin.id}`;
    const data = await source.get(key);
    if (!data?.length) return; // a server answers with an empty file
    try {
      const columns = await columnsOf(data, origin.id, node.id, origin.count);
      if (columns) add(out, columns, origin, sizeOf);
    } catch (error) {
      out.notes.push(formatError(key, error).message);
    }
  });
  return out;
}
