/** Codecs of Zarr: from the bytes of a chunk to its elements. */

import { hex, joined, text } from "../base/bytes";
import { ExplorerError } from "../base/errors";
import { record, sizes } from "../base/json";
import { product, strides } from "../base/lists";
import { damaged, decodeBlosc, decodeLz4Block, unshuffle } from "./blosc";
import { copyBox, type DType, dtypeOf, type Elements, filled, numpyType } from "./elements";
import { decompress } from "./zstd";

export interface Codec {
  readonly name: string;
  readonly configuration: Record<string, unknown>;
}

/** What decoding a chunk needs to know: plain values, which can be sent to a worker. */
export interface ChunkSpec {
  readonly codecs: unknown;
  readonly type: unknown; // data type as in zarr.json
  readonly fill: unknown;
  readonly shape: number[];
}

/** No chunk that a page can show is larger. */
const MAX_BYTES = 2 ** 31 - 1;
/** Strings have no size that is known before. */
const MAX_TEXT = 2 ** 30;

/** What decodes zstd: a worker replaces it once it has much to do. */
export const decoder: { zstd(data: Uint8Array, limit: number): Uint8Array } = { zstd: decompress };

async function inflate(format: CompressionFormat, data: Uint8Array, limit: number): Promise<Uint8Array> {
  const stream = new Blob([data as Uint8Array<ArrayBuffer>])
    .stream()
    .pipeThrough(new DecompressionStream(format));
  const parts: Uint8Array[] = [];
  let total = 0;
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    total += value.length;
    if (total > limit) {
      await reader.cancel();
      throw damaged(format);
    }
    parts.push(value);
  }
  return joined(parts);
}

/** Castagnoli's polynomial, reflected. */
const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0x82f63b78 : n >>> 1;
  return n;
});

function crc32c(data: Uint8Array): Uint8Array {
  const body = data.subarray(0, data.length - 4);
  const stated = new DataView(data.buffer, data.byteOffset, data.byteLength).getUint32(data.length - 4, true);
  let sum = 0xffffffff;
  for (let i = 0; i < body.length; i++) sum = CRC[(sum ^ body[i]) & 255] ^ (sum >>> 8);
  if (~sum >>> 0 !== stated) throw new RangeError("the checksum crc32c does not match");
  return body;
}

function lz4(data: Uint8Array, _: unknown, limit: number): Uint8Array {
  const size = new DataView(data.buffer, data.byteOffset, data.byteLength).getUint32(0, true);
  if (size > limit) throw damaged("lz4");
  return decodeLz4Block(data.subarray(4), size);
}

type BytesDecoder = (
  data: Uint8Array,
  configuration: Record<string, unknown>,
  limit: number,
) => Uint8Array | Promise<Uint8Array>;

const BYTES: Record<string, BytesDecoder> = {
  zstd: (data, _, limit) => decoder.zstd(data, limit),
  gzip: (data, _, limit) => inflate("gzip", data, limit),
  zlib: (data, _, limit) => inflate("deflate", data, limit),
  blosc: (data, _, limit) =>
    decodeBlosc(data, limit, { zstd: decoder.zstd, zlib: (part, size) => inflate("deflate", part, size) }),
  lz4,
  crc32c,
  crc32: (data) => data.subarray(4),
  adler32: (data) => data.subarray(4),
  fletcher32: (data) => data.subarray(0, -4),
  shuffle: (data, { elementsize }) => {
    const out = new Uint8Array(data.length);
    unshuffle(data, out, typeof elementsize === "number" && elementsize > 0 ? elementsize : 4);
    return out;
  },
};

/** Codecs that change elements, and what the codec after them sees. */
interface ArrayCodec {
  encoded(
    type: DType,
    shape: number[],
    configuration: Record<string, unknown>,
  ): { type: DType; shape: number[] };
  decode(elements: Elements, type: DType, shape: number[], configuration: Record<string, unknown>): Elements;
}

function orderOf({ order }: Record<string, unknown>, rank: number): number[] {
  if (order === "C" || order === undefined) return Array.from({ length: rank }, (_, d) => d);
  if (order === "F") return Array.from({ length: rank }, (_, d) => rank - 1 - d);
  const axes = sizes(order, "order of the codec transpose");
  if (axes.length !== rank || new Set(axes).size !== rank || axes.some((d) => d >= rank))
    throw new ExplorerError("format", "wrong order of the codec transpose");
  return axes;
}

function numbers(elements: Elements, type: DType): number[] {
  const raw = type.wrap(elements);
  return Array.from(raw as ArrayLike<number | bigint>, Number);
}

function pack(values: number[], type: DType): Uint8Array {
  const out = new Uint8Array(values.length * type.size);
  values.forEach((value, i) => out.set(type.fill(value) as Uint8Array, i * type.size));
  return out;
}

const same: ArrayCodec = { encoded: (type, shape) => ({ type, shape }), decode: (elements) => elements };

const ARRAYS: Record<string, ArrayCodec> = {
  bitround: same,
  quantize: same,
  transpose: {
    encoded: (type, shape, configuration) => ({
      type,
      shape: orderOf(configuration, shape.length).map((d) => shape[d]),
    }),
    decode: (elements, type, shape, configuration) => {
      const order = orderOf(configuration, shape.length);
      const from = strides(order.map((d) => shape[d]));
      const steps = new Array<number>(shape.length);
      order.forEach((d, i) => (steps[d] = from[i]));
      const out: Elements =
        type.size === 0 ? new Array<string>(elements.length) : new Uint8Array(elements.length);
      copyBox(
        { elements: out, start: 0, steps: strides(shape) },
        { elements, start: 0, steps },
        shape,
        type.size,
      );
      return out;
    },
  },
  fixedscaleoffset: {
    encoded: (type, shape, { astype, dtype }) => ({ type: numpyType(astype ?? dtype ?? type.name), shape }),
    decode: (elements, type, _, { scale, offset, astype, dtype }) => {
      const values = numbers(elements, numpyType(astype ?? dtype));
      return pack(
        values.map((value) => value / Number(scale) + Number(offset)),
        type,
      );
    },
  },
  delta: {
    encoded: (type, shape, { astype, dtype }) => ({ type: numpyType(astype ?? dtype ?? type.name), shape }),
    decode: (elements, type, _, { astype, dtype }) => {
      let sum = 0;
      return pack(
        numbers(elements, numpyType(astype ?? dtype)).map((value) => (sum += value)),
        type,
      );
    },
  },
};

function swap(bytes: Uint8Array, unit: number): Uint8Array {
  const out = new Uint8Array(bytes.length);
  for (let at = 0; at + unit <= bytes.length; at += unit)
    for (let i = 0; i < unit; i++) out[at + i] = bytes[at + unit - 1 - i];
  return out;
}

function texts(data: Uint8Array, count: number, show: (part: Uint8Array) => string): string[] {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (view.getUint32(0, true) !== count) throw damaged("text");
  let at = 4;
  return Array.from({ length: count }, () => {
    const length = view.getUint32(at, true);
    const start = at + 4;
    at = start + length;
    if (at > data.length) throw damaged("text");
    return show(data.subarray(start, at));
  });
}

type Serializer = (
  data: Uint8Array,
  type: DType,
  shape: number[],
  configuration: Record<string, unknown>,
  spec: ChunkSpec,
) => Elements | Promise<Elements>;

const SERIALIZERS: Record<string, Serializer> = {
  bytes: (data, type, shape, { endian }) => {
    const total = product(shape) * type.size;
    if (type.size === 0 || data.length !== total)
      throw new RangeError(`a chunk has ${data.length} bytes, expected ${total}`);
    return endian === "big" && type.unit > 1 ? swap(data, type.unit) : data;
  },
  "vlen-utf8": (data, _, shape) => texts(data, product(shape), text),
  "vlen-bytes": (data, _, shape) => texts(data, product(shape), hex),
  sharding_indexed: decodeShard,
};

export function codecList(codecs: unknown): Codec[] {
  if (!Array.isArray(codecs)) throw new ExplorerError("format", "expected a list of codecs");
  return codecs.map((codec) => {
    const { name, configuration } =
      typeof codec === "string" ? { name: codec, configuration: {} } : record(codec);
    return { name: String(name).replace(/^numcodecs\./, ""), configuration: record(configuration) };
  });
}

interface Plan {
  readonly arrays: {
    codec: ArrayCodec;
    configuration: Record<string, unknown>;
    type: DType;
    shape: number[];
  }[];
  readonly serializer: Codec;
  readonly type: DType; // that the serializer sees
  readonly shape: number[];
  readonly bytes: Codec[];
}

export function planOf(spec: ChunkSpec): Plan {
  const codecs = codecList(spec.codecs);
  const arrays: Plan["arrays"] = [];
  let type = dtypeOf(spec.type);
  let { shape } = spec;
  let at = 0;
  for (; at < codecs.length && Object.hasOwn(ARRAYS, codecs[at].name); at++) {
    const codec = ARRAYS[codecs[at].name];
    const { configuration } = codecs[at];
    arrays.push({ codec, configuration, type, shape });
    ({ type, shape } = codec.encoded(type, shape, configuration));
  }
  const serializer = codecs[at];
  const bytes = codecs.slice(at + 1);
  const unknown = [
    ...(serializer && !Object.hasOwn(SERIALIZERS, serializer.name) ? [serializer] : []),
    ...bytes.filter(({ name }) => !Object.hasOwn(BYTES, name)),
  ][0];
  if (unknown)
    throw new ExplorerError("codec", `this page cannot decode data of the codec "${unknown.name}"`);
  if (!serializer) throw new ExplorerError("format", "no codec makes bytes of the elements");
  return { arrays, serializer, type, shape, bytes };
}

/** Decodes the bytes of a chunk. */
export async function decodeChunk(spec: ChunkSpec, data: Uint8Array): Promise<Elements> {
  const { arrays, serializer, type, shape, bytes } = planOf(spec);
  const raw = product(shape) * type.size;
  if (raw > MAX_BYTES) throw new ExplorerError("unsupported", "a chunk is larger than 2 GB");
  const limit = type.size === 0 ? MAX_TEXT : Math.min(MAX_BYTES, 2 * raw + 2 ** 20);
  let body = data;
  for (const { name, configuration } of bytes.toReversed())
    body = await BYTES[name](body, configuration, limit);
  let elements = await SERIALIZERS[serializer.name](body, type, shape, serializer.configuration, spec);
  for (const step of arrays.toReversed())
    elements = step.codec.decode(elements, step.type, step.shape, step.configuration);
  return elements;
}

/** The layout of a shard. */
export interface Shard {
  readonly inner: ChunkSpec;
  readonly grid: number[]; // inner chunks along each dimension
  readonly indexSize: number;
  readonly isAtEnd: boolean;
}

export function shardOf(spec: ChunkSpec, configuration: Record<string, unknown>): Shard {
  const shape = sizes(configuration.chunk_shape, "chunk shape of a shard");
  if (shape.length !== spec.shape.length || shape.some((n, d) => n === 0 || spec.shape[d] % n !== 0))
    throw new ExplorerError("format", "the chunk shape of a shard does not divide the shard");
  const grid = shape.map((n, d) => spec.shape[d] / n);
  const names = codecList(configuration.index_codecs).map(({ name }) => name);
  if (names[0] !== "bytes" || names.some((name, i) => i > 0 && name !== "crc32c"))
    throw new ExplorerError(
      "codec",
      `this page cannot decode an index of shards with the codecs ${names.join(", ")}`,
    );
  return {
    inner: { ...spec, codecs: configuration.codecs, shape },
    grid,
    indexSize: product(grid) * 16 + 4 * (names.length - 1),
    isAtEnd: configuration.index_location !== "start",
  };
}

/** Offset and length of each inner chunk; -1 for a missing one. */
export async function shardIndex(
  shard: Shard,
  configuration: Record<string, unknown>,
  data: Uint8Array,
): Promise<Float64Array> {
  const elements = await decodeChunk(
    { codecs: configuration.index_codecs, type: "uint64", fill: 0, shape: [...shard.grid, 2] },
    data,
  );
  const bytes = elements as Uint8Array;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float64Array.from({ length: bytes.length / 8 }, (_, i) => {
    const high = view.getUint32(8 * i + 4, true);
    const low = view.getUint32(8 * i, true);
    return high === 0xffffffff && low === 0xffffffff ? -1 : low + high * 2 ** 32;
  });
}

async function decodeShard(
  data: Uint8Array,
  type: DType,
  shape: number[],
  configuration: Record<string, unknown>,
  spec: ChunkSpec,
): Promise<Elements> {
  const shard = shardOf({ ...spec, shape }, configuration);
  if (data.length < shard.indexSize) throw damaged("sharding_indexed");
  const index = await shardIndex(
    shard,
    configuration,
    shard.isAtEnd ? data.subarray(data.length - shard.indexSize) : data.subarray(0, shard.indexSize),
  );
  const out = filled(type, product(shape), spec.fill);
  const steps = strides(shape);
  const { inner, grid } = shard;
  const innerSteps = strides(inner.shape);
  const places = strides(grid);
  for (let i = 0; i < product(grid); i++) {
    const [offset, length] = [index[2 * i], index[2 * i + 1]];
    if (offset < 0) continue;
    if (offset + length > data.length) throw damaged("sharding_indexed");
    const elements = await decodeChunk(inner, data.subarray(offset, offset + length));
    const start = grid.reduce(
      (sum, count, d) => sum + (Math.floor(i / places[d]) % count) * inner.shape[d] * steps[d],
      0,
    );
    copyBox(
      { elements: out, start, steps },
      { elements, start: 0, steps: innerSteps },
      inner.shape,
      type.size,
    );
  }
  return out;
}
