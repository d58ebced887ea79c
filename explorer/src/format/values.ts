/** Metadata of commits and of the repository: FlexBuffers in files of spec version 2, MessagePack in version 1. */

import { half, nth, type Properties, text, viewOf } from "../base/lists";
import type { Flat } from "./flatbuffer";

const MAX_DEPTH = 128;
/** Parts of a value can be shared, so a small file can stand for a value that fills the memory. */
const MAX_VALUES = 1_000_000;

/** The items of a vector of `MetadataItem`. */
export function properties(flat: Flat, table: number, slot: number, spec: number): Properties {
  const decode = spec === 1 ? msgpack : flexbuffer;
  const out: Properties = {};
  for (const item of flat.tables(table, slot))
    put(out, flat.required(item, 0), decode(flat.data(item, 1) ?? new Uint8Array(0)));
  return out;
}

/** Sets a property of any name: plain assignment of `__proto__` sets the prototype. */
function put(target: Properties, name: string, value: unknown): void {
  Object.defineProperty(target, name, { value, enumerable: true, writable: true, configurable: true });
}

function part(data: Uint8Array, start: number, length: number): Uint8Array {
  if (start < 0 || start + length > data.length) throw new RangeError("a value ends after its file");
  return data.subarray(start, start + length);
}

type Read = (at: number, width: number) => number;

/** Integers of 1, 2, 4 and 8 bytes: unsigned, signed. */
const GETTERS = [
  ["getUint8", "getInt8"],
  ["getUint16", "getInt16"],
  ["getUint32", "getInt32"],
  ["getBigUint64", "getBigInt64"],
] as const;

const integers =
  (bytes: DataView, isLittle: boolean, which: 0 | 1): Read =>
  (at, width) =>
    Number(bytes[nth(GETTERS, Math.log2(width))[which]](at, isLittle));

export function flexbuffer(data: Uint8Array): unknown {
  const bytes = viewOf(data);
  let count = 0;
  const [unsigned, signed] = [integers(bytes, true, 0), integers(bytes, true, 1)];
  const float = (at: number, width: number): number =>
    width === 8
      ? bytes.getFloat64(at, true)
      : width === 4
        ? bytes.getFloat32(at, true)
        : half(unsigned(at, 2));
  const back = (at: number, width: number): number => at - unsigned(at, width);
  const key = (at: number): string => {
    const end = data.indexOf(0, at);
    if (at < 0 || end < 0) throw new RangeError("a key without an end");
    return text(data.subarray(at, end));
  };
  const NUMBERS = [signed, unsigned, float];

  const vector = (
    at: number,
    width: number,
    depth: number,
    typeOf: (i: number, length: number) => number,
  ): unknown[] => {
    const length = unsigned(at - width, width);
    part(data, at, length * width);
    return Array.from({ length }, (_, i) => value(at + i * width, width, typeOf(i, length), depth + 1));
  };

  const value = (at: number, parent: number, packed: number, depth: number): unknown => {
    if (depth > MAX_DEPTH || ++count > MAX_VALUES) throw new RangeError("too deep or too many values");
    const type = packed >> 2;
    if (type === 0) return null;
    if (type <= 3) return nth(NUMBERS, type - 1)(at, parent);
    if (type === 26) return unsigned(at, parent) !== 0;
    const target = back(at, parent);
    const width = 1 << (packed & 3);
    if (type === 4) return key(target);
    if (type === 5) return text(part(data, target, unsigned(target - width, width)));
    if (type <= 8) return nth(NUMBERS, type - 6)(target, width);
    if (type === 9) {
      const values = vector(target, width, depth, (i, length) => bytes.getUint8(target + length * width + i));
      const keyWidth = unsigned(target - 2 * width, width);
      const keys = back(target - 3 * width, width);
      const out: Properties = {};
      values.forEach((item, i) => put(out, key(back(keys + i * keyWidth, keyWidth)), item));
      return out;
    }
    if (type === 10)
      return vector(target, width, depth, (i, length) => bytes.getUint8(target + length * width + i));
    if (type <= 14) return vector(target, width, depth, () => (type - 10) << 2);
    if (type === 15) return vector(target, width, depth, () => 5 << 2);
    if (type <= 24) {
      const read = nth(NUMBERS, (type - 16) % 3);
      return Array.from({ length: Math.floor((type - 16) / 3) + 2 }, (_, i) =>
        read(target + i * width, width),
      );
    }
    if (type === 25) return [...part(data, target, unsigned(target - width, width))];
    if (type === 36) return vector(target, width, depth, () => 26 << 2);
    throw new RangeError(`value of the unknown type ${type}`);
  };

  const end = data.length;
  const width = bytes.getUint8(end - 1);
  return value(end - 2 - width, width, bytes.getUint8(end - 2), 0);
}

export function msgpack(data: Uint8Array): unknown {
  const bytes = viewOf(data);
  let at = 0;
  const next =
    (read: Read) =>
    (width: number): number =>
      read((at += width) - width, width);
  const [unsigned, signed] = [next(integers(bytes, false, 0)), next(integers(bytes, false, 1))];
  const take = (length: number): Uint8Array => part(data, (at += length) - length, length);
  const list = (length: number, depth: number): unknown[] => {
    part(data, at, length);
    return Array.from({ length }, () => value(depth + 1));
  };
  const map = (length: number, depth: number): Properties => {
    part(data, at, length);
    const out: Properties = {};
    for (let i = 0; i < length; i++) put(out, String(value(depth + 1)), value(depth + 1));
    return out;
  };
  const value = (depth: number): unknown => {
    if (depth > MAX_DEPTH) throw new RangeError("too deep");
    const head = unsigned(1);
    if (head < 0x80) return head;
    if (head < 0x90) return map(head & 15, depth);
    if (head < 0xa0) return list(head & 15, depth);
    if (head < 0xc0) return text(take(head & 31));
    if (head >= 0xe0) return head - 256;
    for (const [first, last, read] of types)
      if (head >= first && head <= last) return read(1 << (head - first), depth);
    throw new RangeError(`value of the unknown type ${head}`);
  };
  /** First and last type of a family, and how it is read: the width of a number doubles from type to type. */
  const types: readonly [number, number, (width: number, depth: number) => unknown][] = [
    [0xc0, 0xc0, () => null],
    [0xc2, 0xc3, (width) => width === 2],
    [0xc4, 0xc6, (width) => [...take(unsigned(width))]],
    [0xca, 0xca, () => bytes.getFloat32((at += 4) - 4)],
    [0xcb, 0xcb, () => bytes.getFloat64((at += 8) - 8)],
    [0xcc, 0xcf, unsigned],
    [0xd0, 0xd3, signed],
    [0xd9, 0xdb, (width) => text(take(unsigned(width)))],
    [0xdc, 0xdd, (width, depth) => list(unsigned(2 * width), depth)],
    [0xde, 0xdf, (width, depth) => map(unsigned(2 * width), depth)],
  ];
  return value(0);
}
