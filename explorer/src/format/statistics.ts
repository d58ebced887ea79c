/**
 * Statistics of chunks: files of Frazil for each manifest, which other programs ignore. The layout is in
 * `src/frazil/format/statistics_file.py`. A missing file means that nothing is known; a damaged one is ignored.
 */

import { nth, product, text, u32, unhex, viewOf } from "../base/lists";
import { parallel, pool } from "../codecs/pool";
import { statedSize } from "../codecs/zstd";
import { formatError } from "./files";
import { idText } from "./flatbuffer";
import type { ChunkColumns, Origin } from "./manifest";
import type { ArrayNode, ChunkStatistics, Source } from "./types";

const MAGIC = "FRZSTAT2";
const BODY = MAGIC.length + 32; // after the hash
const DIGIT = 2 ** 32;

/** What a file says about the references of one array in one manifest. Columns: name, type of numpy, shape. */
interface Header {
  readonly node: string;
  readonly context: string;
  readonly rows: number;
  readonly tiles: number;
  readonly columns: readonly (readonly [name: string, dtype: string, shape: readonly number[]])[];
  readonly size: number;
}

const READ: Readonly<Record<string, (view: DataView, at: number) => number>> = {
  "|b1": (view, at) => view.getUint8(at),
  "<u4": (view, at) => view.getUint32(at, true),
  "<u8": (view, at) => Number(view.getBigUint64(at, true)),
  "<i8": (view, at) => Number(view.getBigInt64(at, true)),
  "<f8": (view, at) => view.getFloat64(at, true),
};

const itemSize = (dtype: string): number => Number(dtype.slice(2));

/** The number of bytes of columns. */
const sizeOf = ({ rows, tiles }: Header, columns: Header["columns"]): number =>
  columns.reduce((sum, [, dtype, shape]) => sum + rows * tiles * itemSize(dtype) * product(shape), 0);

/** The columns of an array by name. Columns of later versions lie between those that this reader knows. */
function columnsIn(header: Header, bytes: Uint8Array) {
  const view = viewOf(bytes);
  const { tiles, columns } = header;
  const column = (wanted: string) => {
    const place = columns.findIndex(([name]) => name === wanted);
    const [, dtype = "", shape = []] = columns[place] ?? [];
    const read = READ[dtype];
    if (!read)
      throw new RangeError(place < 0 ? `no column ${wanted}` : `a column ${wanted} of the type ${dtype}`);
    const [start, size, width] = [sizeOf(header, columns.slice(0, place)), itemSize(dtype), product(shape)];
    return {
      width,
      value: (tile: number, item = 0): number => read(view, start + (tile * width + item) * size),
    };
  };
  return { tiles, column };
}

type Columns = ReturnType<typeof columnsIn>;

/** Decodes the columns of an array; undefined if the file has none for it. */
async function columnsOf(data: Uint8Array, { id, count }: Origin, nodeId: string, missing?: string) {
  if (text(data.subarray(0, MAGIC.length)) !== MAGIC) throw new RangeError("other bytes");
  const body = data.subarray(BODY);
  // a page that is not from a secure place has no hashes
  const hash = await globalThis.crypto?.subtle?.digest("SHA-256", body.slice());
  if (hash && new Uint8Array(hash).some((byte, at) => byte !== data[MAGIC.length + at]))
    throw new RangeError("another checksum");
  const length = viewOf(body).getUint32(0, true);
  const document = JSON.parse(text(body.subarray(4, 4 + length))) as { manifest: string; arrays: Header[] };
  if (document.manifest !== id) throw new RangeError("it belongs to another manifest");
  let start = 4 + length;
  for (const header of document.arrays) {
    const frame = body.subarray(start, start + header.size);
    start += header.size;
    if (idText(unhex(header.node), 0, 8) !== nodeId) continue;
    if (missing && !header.context.endsWith(missing)) break; // of an array with other missing values
    if (header.rows !== count) throw new RangeError("other references");
    if (statedSize(frame) !== sizeOf(header, header.columns)) throw new RangeError("columns of another size");
    return columnsIn(header, await pool().zstd(frame));
  }
  return undefined;
}

/** Adds the rows of one manifest. */
function add(
  out: ChunkStatistics,
  { tiles, column }: Columns,
  { first, numbers }: Origin,
  sizeOf: (row: number) => number,
): void {
  const [known, nan, missing] = [column("known"), column("nan"), column("missing")];
  const [minimum, maximum] = [column("minimum"), column("maximum")];
  const [sum, extent] = [column("sum"), column("extent")];
  // digits of 32 bits, the last one with the sign
  const exact = (tile: number): number =>
    sum.value(tile) + sum.value(tile, 1) * DIGIT + (sum.value(tile, 2) | 0) * DIGIT ** 2;
  numbers.forEach((number, place) => {
    const row = first + place;
    let [low, high, total, size, gaps, isKnown] = [Infinity, -Infinity, 0, 0, 0, true];
    for (let tile = number * tiles; tile < (number + 1) * tiles; tile++) {
      isKnown &&= known.value(tile) === 1;
      let elements = 1;
      for (let d = 0; d < extent.width; d++) elements *= extent.value(tile, d);
      const without = nan.value(tile) + missing.value(tile);
      size += elements;
      gaps += without;
      if (elements === without) continue;
      low = Math.min(low, minimum.value(tile));
      high = Math.max(high, maximum.value(tile));
      total += sum.width === 1 ? sum.value(tile) : exact(tile);
    }
    // an array that grew has other elements in its last chunks
    if (!isKnown || size !== sizeOf(row) || gaps > size) return;
    out.gaps[row] = gaps / size;
    if (gaps < size) [out.minimum[row], out.maximum[row], out.mean[row]] = [low, high, total / (size - gaps)];
  });
}

/** The statistics of the chunks of an array with these `missing` values, in the order of its table. */
export async function readStatistics(
  source: Source,
  node: ArrayNode,
  table: ChunkColumns,
  missing?: string,
  signal?: AbortSignal,
): Promise<ChunkStatistics> {
  const column = (): Float64Array => new Float64Array(table.length).fill(NaN);
  const [minimum, maximum, mean, gaps] = [column(), column(), column(), column()];
  const out: ChunkStatistics = { minimum, maximum, mean, gaps, notes: [] };
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
      const columns = await columnsOf(data, origin, node.id, missing);
      if (columns) add(out, columns, origin, sizeOf);
    } catch (error) {
      out.notes.push(formatError(key, error).message);
    }
  });
  return out;
}
