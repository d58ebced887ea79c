/** Data types, elements as bytes, and copies of boxes of them. */

import { unknownCodec, wrongFormat } from "../base/errors";
import {
  entryOf,
  firstWhere,
  half,
  hex,
  nth,
  outside,
  product,
  type Properties,
  record,
  type Shape,
  unbase64,
  unhex,
  viewOf,
} from "../base/lists";

/** Elements as stored. */
export type Raw = ArrayLike<number> | string[] | BigInt64Array | BigUint64Array;

/** Elements in row-major order: little-endian bytes, or a list if they have no fixed size. */
export type Elements = Uint8Array | string[];

export interface DType {
  readonly name: string;
  readonly size: number; // bytes of an element, 0 for a list
  readonly unit: number; // bytes whose order depends on the endianness
  readonly isComplex?: boolean;
  wrap(elements: Elements): Raw;
  fill(value: unknown): Uint8Array | string;
}

type Typed = ArrayBufferView & Exclude<Raw, string[]>;
type TypedClass<T extends Typed = Typed> = {
  new (buffer: ArrayBufferLike, offset: number, length: number): T;
  readonly BYTES_PER_ELEMENT: number;
};

const NAMED: Record<string, number> = { NaN, Infinity, "-Infinity": -Infinity };
const hexBytes = (value: string): Uint8Array => unhex(value.slice(2)).reverse();

function view<T extends Typed>(elements: Elements, type: TypedClass<T>): T {
  const bytes = elements as Uint8Array;
  const aligned = bytes.byteOffset % type.BYTES_PER_ELEMENT === 0 ? bytes : bytes.slice();
  return new type(aligned.buffer, aligned.byteOffset, Math.floor(aligned.length / type.BYTES_PER_ELEMENT));
}

type Put = (view: DataView, value: unknown, at: number) => void;

function number(value: unknown): number {
  if (typeof value === "number" || typeof value === "boolean") return Number(value);
  const named = typeof value === "string" ? entryOf(NAMED, value) : undefined;
  if (named !== undefined) return named;
  throw wrongFormat(`unknown fill value ${JSON.stringify(value)}`);
}

function integer(value: unknown, low: bigint, high: bigint): bigint {
  if (value === "NaT") return low;
  // a number of JSON beyond 2**53 is rounded, perhaps out of the range
  const exact = BigInt(value as number | string);
  return exact < low ? low : exact > high ? high : exact;
}

/** The view of the elements of a type, and how a value becomes one. */
const PLAIN = {
  bool: [Uint8Array, (v, x, at) => v.setUint8(at, Number(x))],
  int8: [Int8Array, (v, x, at) => v.setInt8(at, number(x))],
  uint8: [Uint8Array, (v, x, at) => v.setUint8(at, number(x))],
  int16: [Int16Array, (v, x, at) => v.setInt16(at, number(x), true)],
  uint16: [Uint16Array, (v, x, at) => v.setUint16(at, number(x), true)],
  int32: [Int32Array, (v, x, at) => v.setInt32(at, number(x), true)],
  uint32: [Uint32Array, (v, x, at) => v.setUint32(at, number(x), true)],
  int64: [BigInt64Array, (v, x, at) => v.setBigInt64(at, integer(x, -(2n ** 63n), 2n ** 63n - 1n), true)],
  uint64: [BigUint64Array, (v, x, at) => v.setBigUint64(at, integer(x, 0n, 2n ** 64n - 1n), true)],
  float16: [Uint16Array, (v, x, at) => v.setUint16(at, halfBits(number(x)), true)],
  float32: [Float32Array, (v, x, at) => v.setFloat32(at, number(x), true)],
  float64: [Float64Array, (v, x, at) => v.setFloat64(at, number(x), true)],
} satisfies Record<string, [TypedClass, Put]>;

function halfBits(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  // The bits of positive floats are in the order of their values
  const above = firstWhere(0x7c00, (bits) => half(bits) >= size);
  const isBelow = above > 0 && 2 * size < half(above) + half(above - 1);
  return sign | (isBelow ? above - 1 : above);
}

function plain(name: keyof typeof PLAIN): DType {
  const [type, put]: [TypedClass, Put] = PLAIN[name];
  const size = type.BYTES_PER_ELEMENT;
  return {
    name,
    size,
    unit: size,
    wrap: (elements) => view(elements, type),
    fill: (value) => {
      if (typeof value === "string" && value.startsWith("0x")) return hexBytes(value);
      const out = new Uint8Array(size);
      put(new DataView(out.buffer), value ?? 0, 0);
      return out;
    },
  };
}

function complex(name: string, part: DType): DType {
  const fill = (value: unknown): Uint8Array => {
    const [real, imaginary] = Array.isArray(value) ? (value as unknown[]) : [value, 0];
    return Uint8Array.from([...(part.fill(real) as Uint8Array), ...(part.fill(imaginary) as Uint8Array)]);
  };
  return { ...part, name, size: 2 * part.size, isComplex: true, fill };
}

const latin = (bytes: Uint8Array): string => String.fromCharCode(...bytes);

function fixed(
  name: string,
  size: number,
  unit: number,
  show: (bytes: Uint8Array) => string,
  fill: (value: unknown) => Uint8Array,
): DType {
  if (!(size > 0 && size < 2 ** 20)) throw wrongFormat(`data type ${name} with ${size} bytes`);
  const wrap = (elements: Elements): string[] =>
    Array.from({ length: elements.length / size }, (_, i) =>
      show((elements as Uint8Array).subarray(i * size, (i + 1) * size)),
    );
  const padded = (value: unknown): Uint8Array => {
    const out = new Uint8Array(size);
    out.set(fill(value).subarray(0, size));
    return out;
  };
  return { name, size, unit, wrap, fill: padded };
}

function utf32(bytes: Uint8Array): string {
  const points = viewOf(bytes);
  let out = "";
  for (let at = 0; at < bytes.length; at += 4)
    out += String.fromCodePoint(Math.min(points.getUint32(at, true), 0x10ffff));
  return out.replace(/\0+$/, "");
}

function utf32Bytes(value: unknown): Uint8Array {
  const points = Uint32Array.from(String(value ?? ""), (letter) => letter.codePointAt(0) ?? 0);
  return new Uint8Array(points.buffer);
}

function base64(value: unknown): Uint8Array {
  if (Array.isArray(value)) return Uint8Array.from(value as number[]);
  return typeof value === "string" ? unbase64(value) : new Uint8Array(0);
}

const list = (name: string): DType => ({
  name,
  size: 0,
  unit: 0,
  wrap: (elements) => elements,
  fill: (value) => (typeof value === "string" ? value : ""),
});

const TYPES: Record<string, (configuration: Properties) => DType> = {
  ...Object.fromEntries(Object.keys(PLAIN).map((name) => [name, () => plain(name as keyof typeof PLAIN)])),
  float16: () => ({
    ...plain("float16"),
    wrap: (elements) => Float32Array.from(view(elements, Uint16Array), half),
  }),
  complex64: () => complex("complex64", plain("float32")),
  complex128: () => complex("complex128", plain("float64")),
  "numpy.datetime64": () => plain("int64"),
  "numpy.timedelta64": () => plain("int64"),
  string: () => list("string"),
  bytes: () => list("bytes"),
  variable_length_bytes: () => list("bytes"),
  fixed_length_utf32: ({ length_bytes: size }) =>
    fixed("fixed_length_utf32", size as number, 4, utf32, utf32Bytes),
  null_terminated_bytes: ({ length_bytes: size }) =>
    fixed("null_terminated_bytes", size as number, 1, (bytes) => latin(bytes).replace(/\0+$/, ""), base64),
  raw_bytes: ({ length_bytes: size }) => fixed("raw_bytes", size as number, 1, hex, base64),
};

export function dtypeOf(type: unknown): DType {
  const name = typeof type === "string" ? type : String(record(type).name);
  const bits = /^r(\d+)$/.exec(name);
  if (bits) return fixed(name, Number(bits[1]) / 8, 1, hex, base64);
  const make = entryOf(TYPES, name);
  if (!make) throw unknownCodec(`this page cannot show the data type ${JSON.stringify(type)}`);
  return make(record(record(type).configuration));
}

const FAMILIES: Record<string, string> = { b: "bool", i: "int", f: "float", u: "uint" };

/** Numpy's short names, in the configurations of codecs. */
export function numpyType(code: unknown): DType {
  const [, family = "", bytes] = /^[<>|=]?([bifu])(\d)$/.exec(String(code)) ?? [];
  const make = entryOf(TYPES, `${FAMILIES[family]}${family === "b" ? "" : Number(bytes) * 8}`);
  if (!make) throw unknownCodec(`this page does not know the data type ${JSON.stringify(code)}`);
  return make({});
}

/** Elements that all have the fill value. */
export function filled(dtype: DType, count: number, fill: unknown): Elements {
  const element = dtype.fill(fill);
  if (typeof element === "string") return Array.from({ length: count }, () => element);
  const out = new Uint8Array(count * dtype.size);
  if (count === 0 || element.every((byte) => byte === 0)) return out;
  out.set(element);
  for (let done = element.length; done < out.length; done *= 2)
    out.copyWithin(done, 0, Math.min(done, out.length - done));
  return out;
}

/** A box within elements: first element, and the step of each dimension, in elements. */
export type Box = { readonly elements: Elements; readonly start: number; readonly steps: Shape };

/** Copies a box of `shape`. Both lists of elements have the same type, `size` bytes for each (0 for a list). */
export function copyBox(target: Box, source: Box, shape: Shape, size: number): void {
  if (product(shape) === 0) return;
  const run = runCopy(target, source, shape.at(-1) ?? 1, size);
  const visit = (d: number, t: number, s: number): void => {
    if (d >= shape.length - 1) return run(t, s);
    const [length, down, up] = [nth(shape, d), nth(target.steps, d), nth(source.steps, d)];
    for (let i = 0; i < length; i++) visit(d + 1, t + i * down, s + i * up);
  };
  visit(0, target.start, source.start);
}

/** A copy of `count` elements along the last dimension, from one place to another. */
function runCopy(into: Box, out: Box, count: number, size: number): (target: number, source: number) => void {
  const [target, source] = [into.elements, out.elements];
  const [to = 1, from = 1] = [into.steps.at(-1), out.steps.at(-1)];
  if (!(target instanceof Uint8Array) || !(source instanceof Uint8Array)) {
    const [a, b] = [target as string[], source as string[]];
    return (t, s) => {
      for (let i = 0; i < count; i++) a[t + i * to] = nth(b, s + i * from);
    };
  }
  if (to === 1 && from === 1)
    return (t, s) => target.set(source.subarray(s * size, (s + count) * size), t * size);
  // words are faster than bytes, if both sides are aligned
  const type: TypedClass<Uint32Array | Uint16Array | Uint8Array> =
    [Uint32Array, Uint16Array].find(({ BYTES_PER_ELEMENT: width }) =>
      [size, target.byteOffset, source.byteOffset].every((place) => place % width === 0),
    ) ?? Uint8Array;
  const width = type.BYTES_PER_ELEMENT;
  const a = new type(target.buffer, target.byteOffset, target.length / width);
  const b = new type(source.buffer, source.byteOffset, Math.floor(source.length / width));
  const words = size / width;
  return (t, s) => {
    for (let i = 0; i < count; i++)
      for (let w = 0, at = (s + i * from) * words; w < words; w++, at++)
        a[(t + i * to) * words + w] = b[at] ?? outside(b, at);
  };
}
