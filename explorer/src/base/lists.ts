/**
 * Lists, columns, bytes, and values of JSON. An index outside of its list is an error: of damaged bytes, or
 * of a mistake. Columns have a function for each class, because the engine compiles a function well that
 * sees one class.
 */

import { wrongFormat } from "./errors";

export const RADIANS = Math.PI / 180; // of a degree

/** A shape, a place or other numbers, one for each dimension. */
export type Shape = readonly number[];

export function outside({ length }: ArrayLike<unknown>, at: number): never {
  throw new RangeError(`the place ${at} is outside of a list of ${length}`);
}

export function nth<T>(list: ArrayLike<T>, at: number): T {
  const value = list[at];
  return value === undefined ? outside(list, at) : value;
}
export const u8 = (column: Uint8Array, at: number): number => column[at] ?? outside(column, at);
export const u16 = (column: Uint16Array, at: number): number => column[at] ?? outside(column, at);
export const u32 = (column: Uint32Array, at: number): number => column[at] ?? outside(column, at);
export const i32 = (column: Int32Array, at: number): number => column[at] ?? outside(column, at);
export const f64 = (column: Float64Array, at: number): number => column[at] ?? outside(column, at);

export const clamp = (value: number, low: number, high: number): number =>
  Math.min(Math.max(value, low), high);

/** The first index for which a test holds that holds for all later ones, too; `length` if there is none. */
export function firstWhere(length: number, test: (at: number) => boolean): number {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

export const product = (shape: Shape): number => shape.reduce((a, b) => a * b, 1);

/** The steps between neighbours along each dimension of a list in row-major order. */
export const strides = (shape: Shape): number[] => shape.map((_, d) => product(shape.slice(d + 1)));

/** The place in such a list of the element at a place along each dimension. */
export const placeAt = (steps: Shape, place: (d: number) => number): number =>
  steps.reduce((sum, step, d) => sum + step * place(d), 0);

/** The place along each dimension of an element of a list in row-major order. */
export const placesOf = (at: number, shape: Shape): number[] =>
  strides(shape).map((step, d) => Math.floor(at / step) % nth(shape, d));

export type Properties = Record<string, unknown>;

export function record(value: unknown): Properties {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Properties) : {};
}

export const list = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);
export const records = (value: unknown): Properties[] => list(value).map(record);

/** The entry of a table, and not of its prototype. */
export const entryOf = <T>(table: Readonly<Record<string, T>>, name: string): T | undefined =>
  Object.hasOwn(table, name) ? table[name] : undefined;

export function sizes(value: unknown, what: string): number[] {
  if (!Array.isArray(value) || !value.every((n) => Number.isSafeInteger(n) && n >= 0))
    throw wrongFormat(`${what}: expected a list of sizes, found ${JSON.stringify(value)}`);
  return value as number[];
}

export const viewOf = (bytes: Uint8Array): DataView =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** An unsigned integer of 64 bits. */
export const wide = (view: DataView, position: number): number =>
  view.getUint32(position, true) + view.getUint32(position + 4, true) * 2 ** 32;

const decoder = new TextDecoder();
export const text = (data: Uint8Array): string => decoder.decode(data);

export const hex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export const unhex = (digits: string): Uint8Array =>
  Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));

export const unbase64 = (letters: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));

export function joined(parts: readonly Uint8Array[]): Uint8Array {
  const [only] = parts;
  if (only && parts.length === 1) return only;
  const out = new Uint8Array(parts.reduce((total, { length }) => total + length, 0));
  parts.reduce((at, part) => (out.set(part, at), at + part.length), 0);
  return out;
}

/** A float of 16 bits. */
export function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
}
