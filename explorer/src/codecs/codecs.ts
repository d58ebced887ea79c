/** Codecs of Zarr: from the bytes of a chunk to its elements. */

import { unknownCodec, unsupported, wrongFormat } from "../base/errors";
import {
  entryOf,
  hex,
  joined,
  nth,
  placeAt,
  placesOf,
  product,
  type Properties,
  record,
  sizes,
  strides,
  text,
  u32,
  viewOf,
  wide,
} from "../base/lists";
import { damaged, decodeBlosc, decodeLz4Block, unshuffle } from "./blosc";
import { copyBox, type DType, dtypeOf, type Elements, filled, numpyType } from "./elements";
import { decompress } from "./zstd";

export type Codec = { readonly name: string; readonly configuration: Properties };

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
  const stated = viewOf(data).getUint32(data.length - 4, true);
  let sum = 0xffffffff;
  for (const byte of body) sum = u32(CRC, (sum ^ byte) & 255) ^ (sum >>> 8);
  if (~sum >>> 0 !== stated) throw new RangeError("the checksum crc32c does not match");
  return body;
}

function lz4(data: Uint8Array, _: unknown, limit: number): Uint8Array {
  const size = viewOf(data).getUint32(0, true);
  if (size > limit) throw damaged("lz4");
  return decodeLz4Block(data.subarray(4), size);
}

type BytesDecoder = (data: Uint8Array, of: Properties, limit: number) => Uint8Array | Promise<Uint8Array>;

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
  encoded(type: DType, shape: number[], of: Properties): { type: DType; shape: number[] };
  decode(elements: Elements, type: DType, shape: number[], of: Properties): Elements;
}

function orderOf({ order }: Properties, rank: number): number[] {
  if (order === "C" || order === undefined) return Array.from({ length: rank }, (_, d) => d);
  if (order === "F") return Array.from({ length: rank }, (_, d) => rank - 1 - d);
  const axes = sizes(order, "order of the codec transpose");
  if (axes.length !== rank || new Set(axes).size !== rank || axes.some((d) => d >= rank))
    throw wrongFormat("wrong order of the codec transpose");
  return axes;
}

function numbers(elements: Elements, type: DType): number[] {
  const raw = type.wrap(elements);
  return Array.from(raw as ArrayLike<number | bigint>, Number);
}

function pack(values: unknown[], type: DType): Uint8Array {
  const out = new Uint8Array(values.length * type.size);
  values.forEach((value, i) => out.set(type.fill(value) as Uint8Array, i * type.size));
  return out;
}

/** A codec of numbers, which are stored with a type of their own. */
const numeric = (decode: (values: number[], of: Properties) => number[]): ArrayCodec => ({
  encoded: (type, shape, { astype, dtype }) => ({ type: numpyType(astype ?? dtype ?? type.name), shape }),
  decode: (elements, type, _, configuration) => {
    const stored = numpyType(configuration.astype ?? configuration.dtype);
    return pack(decode(numbers(elements, stored), configuration), type);
  },
});

const same: ArrayCodec = { encoded: (type, shape) => ({ type, shape }), decode: (elements) => elements };

const ARRAYS: Record<string, ArrayCodec> = {
  bitround: same,
  quantize: same,
  transpose: {
    encoded: (type, shape, configuration) => ({
      type,
      shape: orderOf(configuration, shape.length).map((d) => nth(shape, d)),
    }),
    decode: (elements, type, shape, configuration) => {
      const order = orderOf(configuration, shape.length);
      const from = strides(order.map((d) => nth(shape, d)));
      const steps = shape.map((_, d) => nth(from, order.indexOf(d)));
      const out: Elements = type.size === 0 ? [] : new Uint8Array(elements.length);
      const target = { elements: out, start: 0, steps: strides(shape) };
      copyBox(target, { elements, start: 0, steps }, shape, type.size);
      return out;
    },
  },
  fixedscaleoffset: numeric((values, { scale, offset }) =>
    values.map((value) => value / Number(scale) + Number(offset)),
  ),
  scale_offset: {
    ...same,
    decode: (elements, type, _, { scale = 1, offset = 0 }) => {
      const rounded = type.name === "float32" ? Math.fround : Number; // each step has the type of the array
      const [by, from] = [rounded(Number(scale)), rounded(Number(offset))];
      return pack(
        numbers(elements, type).map((value) => rounded(rounded(value / by) + from)),
        type,
      );
    },
  },
  cast_value: {
    encoded: (_, shape, { data_type }) => ({ type: dtypeOf(data_type), shape }),
    decode: (elements, type, _, { data_type, scalar_map }) => {
      const pairs = (record(scalar_map).decode ?? []) as [unknown, unknown][];
      const special = new Map(pairs.map(([stored, value]) => [Number(stored), value]));
      const values = numbers(elements, dtypeOf(data_type)).map((value) => special.get(value) ?? value);
      return pack(values, type);
    },
  },
  delta: numeric((values) => {
    let sum = 0;
    return values.map((value) => (sum += value));
  }),
};

function swap(bytes: Uint8Array, unit: number): Uint8Array {
  const out = bytes.slice();
  for (let at = 0; at + unit <= bytes.length; at += unit) out.subarray(at, at + unit).reverse();
  return out;
}

function texts(data: Uint8Array, count: number, show: (part: Uint8Array) => string): string[] {
  const view = viewOf(data);
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
  configuration: Properties,
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
  sharding_indexed: async (data, type, shape, configuration, spec) => {
    const read = (start: number, end: number): Uint8Array => data.subarray(start, end);
    const { inner, chunks } = await openShard({ ...spec, shape }, configuration, data.length, read);
    const out = filled(type, product(shape), spec.fill);
    const steps = strides(shape);
    for (const { offset, length, start: place } of chunks) {
      if (offset + length > data.length) throw damaged("sharding_indexed");
      const elements = await decodeChunk(inner, read(offset, offset + length));
      const start = placeAt(steps, (d) => nth(place, d));
      const source = { elements, start: 0, steps: strides(inner.shape) };
      copyBox({ elements: out, start, steps }, source, inner.shape, type.size);
    }
    return out;
  },
};

export function codecList(codecs: unknown): Codec[] {
  if (!Array.isArray(codecs)) throw wrongFormat("expected a list of codecs");
  return codecs.map((codec) => {
    const { name, configuration } =
      typeof codec === "string" ? { name: codec, configuration: {} } : record(codec);
    return { name: String(name).replace(/^numcodecs\./, ""), configuration: record(configuration) };
  });
}

/**
 * How the bytes of a chunk become its elements: each step gets what the one before it returns. `shard` is the
 * configuration of a chunk that is nothing but a shard. `size` is that of the bytes before compression, or 0.
 */
export function planOf(spec: ChunkSpec) {
  const codecs = codecList(spec.codecs);
  const elementSteps: ((elements: Elements) => Elements)[] = [];
  let type = dtypeOf(spec.type);
  let { shape } = spec;
  let at = 0;
  for (; at < codecs.length; at++) {
    const { name, configuration } = nth(codecs, at);
    const codec = entryOf(ARRAYS, name);
    if (!codec) break;
    const [of, size] = [type, shape];
    elementSteps.unshift((elements) => codec.decode(elements, of, size, configuration));
    ({ type, shape } = codec.encoded(type, shape, configuration));
  }
  const last = codecs[at];
  if (!last) throw wrongFormat("no codec makes bytes of the elements");
  const serializer = entryOf(SERIALIZERS, last.name) ?? unknown(last.name);
  const byteSteps = codecs.slice(at + 1).map(({ name, configuration }) => {
    const step = entryOf(BYTES, name) ?? unknown(name);
    return (data: Uint8Array, limit: number) => step(data, configuration, limit);
  });
  const isShard = last.name === "sharding_indexed" && codecs.length === 1;
  return {
    shard: isShard ? last.configuration : undefined,
    size: product(shape) * type.size,
    async decode(data: Uint8Array, limit: number): Promise<Elements> {
      let body = data;
      for (const step of byteSteps.toReversed()) body = await step(body, limit);
      const elements = await serializer(body, type, shape, last.configuration, spec);
      return elementSteps.reduce((former, step) => step(former), elements);
    },
  };
}

function unknown(codec: string): never {
  throw unknownCodec(`this page cannot decode data of the codec "${codec}"`);
}

/** Decodes the bytes of a chunk. */
export async function decodeChunk(spec: ChunkSpec, data: Uint8Array): Promise<Elements> {
  const { size, decode } = planOf(spec);
  if (size > MAX_BYTES) throw unsupported("a chunk is larger than 2 GB");
  return decode(data, size === 0 ? MAX_TEXT : Math.min(MAX_BYTES, 2 * size + 2 ** 20));
}

/** Reads the index of a shard of `size` bytes: the chunks that it has, with their first elements, and their codecs. */
export async function openShard(
  spec: ChunkSpec,
  configuration: Properties,
  size: number,
  read: (start: number, end: number) => Uint8Array | Promise<Uint8Array>,
) {
  const shape = sizes(configuration.chunk_shape, "chunk shape of a shard");
  if (shape.length !== spec.shape.length || shape.some((n, d) => n === 0 || nth(spec.shape, d) % n !== 0))
    throw wrongFormat("the chunk shape of a shard does not divide the shard");
  const grid = shape.map((n, d) => nth(spec.shape, d) / n);
  const codecs = configuration.index_codecs;
  const names = codecList(codecs).map(({ name }) => name);
  if (names[0] !== "bytes" || names.some((name, i) => i > 0 && name !== "crc32c"))
    throw unknownCodec(`this page cannot decode an index of shards with the codecs ${names.join(", ")}`);
  const length = product(grid) * 16 + 4 * (names.length - 1);
  if (length > size) throw new RangeError("a shard is smaller than its index");
  const start = configuration.index_location === "start" ? 0 : size - length;
  const index = { codecs, type: "uint64", fill: 0, shape: [...grid, 2] };
  const entries = viewOf((await decodeChunk(index, await read(start, start + length))) as Uint8Array);
  function* chunks() {
    for (let i = 0; i < product(grid); i++) {
      if (entries.getBigUint64(16 * i, true) === MISSING) continue;
      const place = placesOf(i, grid).map((at, d) => at * nth(shape, d));
      yield { offset: wide(entries, 16 * i), length: wide(entries, 16 * i + 8), start: place };
    }
  }
  const inner: ChunkSpec = { ...spec, codecs: configuration.codecs, shape };
  return { inner, chunks: chunks() };
}

const MISSING = 2n ** 64n - 1n;
