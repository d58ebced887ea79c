/** The CF conventions: elements as stored to values and labels, with the results of xarray. */

import {
  f64,
  hex,
  nth,
  placeAt,
  placesOf,
  product,
  type Properties,
  record,
  type Shape,
  strides,
  unbase64,
  viewOf,
} from "../base/lists";
import { type Clock, clockOf, precisionOf, timeText, unitOf } from "./calendar";
import type { ArrayNode, Region } from "../format/types";

/** Meanings of the numbers of an array. */
interface Flags {
  /** All numbers with a meaning, in their order; undefined if a number can have several meanings. */
  readonly values?: Shape;
  names(value: number): string;
}

/** CF: fill values to NaN, scale_factor, add_offset, times to milliseconds (with their clock) or labels. */
export interface Decoded {
  readonly shape: number[];
  readonly values: Float64Array | string[];
  readonly clock?: Clock;
  readonly units?: string;
  readonly flags?: Flags;
  label(index: number): string;
  /** An element of which its value is not all: 64 bits, a time in nanoseconds, or the parts of a complex number. */
  exact?(index: number): bigint | readonly [real: number, imaginary: number];
  /** The text of any value; undefined if values are plain numbers. */
  text?(value: number): string;
}

const SPECIAL: Record<string, number> = { nan: NaN, infinity: Infinity, "-infinity": -Infinity };
/** A unit of numpy's times. */
const numpyUnit = (unit: unknown): ReturnType<typeof unitOf> => unitOf(unit === "W" ? "weeks" : String(unit));
/** The precision of labels is found from at most this many times. */
const SAMPLE = 10_000;
const MISSING = "no value";
const NOT_A_TIME = -(2n ** 63n);

/** A number of an attribute, as programs write it: also NaN as text, and a fill value as base64. */
export function numberOf(value: unknown): number | undefined {
  const single: unknown = Array.isArray(value) && value.length === 1 ? value[0] : value;
  if (typeof single === "number") return single;
  if (typeof single !== "string") return undefined;
  const special = SPECIAL[single.toLowerCase()];
  if (special !== undefined) return special;
  // xarray writes a float of Zarr format 3 as the base64 text of eight bytes
  if (/^[A-Za-z0-9+/]{11}=$/.test(single)) {
    return viewOf(unbase64(single)).getFloat64(0, true);
  }
  const plain = Number(single);
  return single.trim() === "" || Number.isNaN(plain) ? undefined : plain;
}

/** The elements that have no value, and how the attribute `_Unsigned` changes elements. */
function missingOf(node: ArrayNode) {
  const attributes = record(node.document.attributes);
  const signed = reinterpreted(node, attributes);
  const round = node.dtype === "float32" ? Math.fround : (value: number): number => value;
  const markers = [attributes._FillValue, attributes.missing_value].flat();
  const fills = markers.map((each) => numberOf(each) ?? NaN).filter((fill) => !Number.isNaN(fill));
  return { signed, missing: new Set(fills.map((fill) => round(signed ? signed(fill) : fill))) };
}

/** What attributes decide about the statistics of chunks, as `Meaning.context` of Frazil has it: 16 digits. */
export async function missingDigest(node: ArrayNode): Promise<string | undefined> {
  const { signed, missing } = missingOf(node);
  const numbers = Float64Array.of(...[...missing].sort((a, b) => a - b), signed ? 1 : 0);
  const hash = await globalThis.crypto?.subtle?.digest("SHA-256", numbers);
  return hash && hex(new Uint8Array(hash, 0, 8));
}

/** The clock of an array of times: a data type of numpy, or numbers with units. */
function clock(node: ArrayNode, attributes: Properties): Clock | undefined {
  const { name, configuration } = record(node.document.data_type);
  if (name === "numpy.datetime64") {
    const { unit, scale_factor: scale } = record(configuration);
    const tick = numpyUnit(unit);
    if (!tick) return undefined;
    // a difference of nanoseconds would have more digits than a person reads
    const duration = tick[1] < 1000 ? (["seconds", 1000] as const) : tick;
    return { calendar: "proleptic_gregorian", duration, step: tick[1] * Number(scale ?? 1), origin: 0 };
  }
  const { units, calendar } = attributes;
  return typeof units === "string"
    ? clockOf(units, typeof calendar === "string" ? calendar : undefined)
    : undefined;
}

/** The unit of durations of numpy. */
function durationUnit(node: ArrayNode): string | undefined {
  const { name, configuration } = record(node.document.data_type);
  if (name !== "numpy.timedelta64") return undefined;
  const { unit, scale_factor: scale } = record(configuration);
  return `${Number(scale ?? 1) === 1 ? "" : `${Number(scale)} `}${numpyUnit(unit)?.[0] ?? String(unit)}`;
}

/** The range of an integer type that the attribute `_Unsigned` asks for: bits, whether unsigned. */
function reinterpreted(node: ArrayNode, attributes: Properties): ((value: number) => number) | undefined {
  const match = /^(u?)int(8|16|32)$/.exec(node.dtype);
  const flag = String(attributes._Unsigned ?? "").toLowerCase();
  if (!match || !["true", "false"].includes(flag) || (flag === "true") === (match[1] === "u"))
    return undefined;
  const size = 2 ** Number(match[2]);
  const least = flag === "true" ? 0 : -size / 2;
  return (value) => ((value - least + size) % size) + least;
}

const SHORT = 7; // digits of 32 bits

function numberText(value: number, isShort: boolean, digits = isShort ? SHORT : 15): string {
  if (Number.isNaN(value)) return MISSING;
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(digits)));
}

/** The digits that tell labels of an axis apart, and some more: products of a scale factor have 15. */
function digitsOf(values: Float64Array): number {
  const sorted = Float64Array.from(new Set(values.filter(Number.isFinite))).sort();
  const gap = sorted.reduce(
    (least, value, at) => (at ? Math.min(least, value - f64(sorted, at - 1)) : least),
    Infinity,
  );
  const digits =
    Math.ceil(Math.log10(Math.max(...[0, -1].map((at) => Math.abs(sorted.at(at) ?? 0))) / gap)) + 4;
  return digits > SHORT ? Math.min(digits, 15) : sorted.length > 1 ? SHORT : 15;
}

const complexText = ([real, imaginary]: readonly [number, number], isShort: boolean): string =>
  `${numberText(real, isShort)}${imaginary < 0 ? "-" : "+"}${numberText(Math.abs(imaginary), isShort)}i`;

/** The elements of damaged chunks have no value. */
export function withoutLost(values: Decoded["values"], { shape, lost = [] }: Omit<Region, "raw">): void {
  const steps = strides(shape);
  for (const { start, count } of lost) {
    for (let i = 0; i < product(count); i++) {
      const place = placesOf(i, count);
      values[placeAt(steps, (d) => nth(start, d) + nth(place, d))] = Array.isArray(values) ? "damaged" : NaN;
    }
  }
}

/** A value minus an older one: 0 for two places without a value, for complex numbers the modulus. */
export function difference(now: Decoded, old: Decoded, at: number): number {
  const [value, before] = [Number(now.values[at]), Number(old.values[at])];
  if (Number.isNaN(value) || Number.isNaN(before)) return Object.is(value, before) ? 0 : NaN;
  const [one, other] = [now.exact?.(at), old.exact?.(at)];
  if (typeof one === "bigint" && typeof other === "bigint")
    return Number(one - other) / (now.clock ? 1e6 : 1);
  if (typeof one === "object" && typeof other === "object")
    return Math.hypot(one[0] - other[0], one[1] - other[1]);
  return value === before ? 0 : value - before; // also of infinite ones
}

/** Fill values to NaN, scale_factor, add_offset, times to milliseconds since 1970 of their calendar. */
export function decodeCF(node: ArrayNode, region: Region): Decoded {
  const attributes = record(node.document.attributes);
  const units = typeof attributes.units === "string" ? attributes.units : durationUnit(node);
  const { shape, raw } = region;
  if (region.isComplex) {
    const parts = raw as ArrayLike<number>;
    const exact = (i: number) => [nth(parts, 2 * i), nth(parts, 2 * i + 1)] as const;
    const values = Float64Array.from({ length: parts.length / 2 }, (_, i) => Math.hypot(...exact(i)));
    withoutLost(values, region);
    const label = (i: number): string =>
      Number.isNaN(values[i]) ? MISSING : complexText(exact(i), node.dtype === "complex64");
    return { shape, units, values, label, exact };
  }
  if (Array.isArray(raw) && (raw.length === 0 || typeof raw[0] === "string")) {
    const values: string[] = raw;
    withoutLost(values, region);
    return { shape, units, values, label: (i) => values[i] ?? MISSING };
  }
  const stored = raw as ArrayLike<number | bigint>;
  const values = new Float64Array(stored.length);
  const time = clock(node, attributes);
  const isTime = time !== undefined || /^(datetime64|timedelta64)/.test(node.dtype);
  // the smallest integer is exact as a float, but an int64 near it is not
  for (let i = 0; i < values.length; i++)
    values[i] = isTime && stored[i] === NOT_A_TIME ? NaN : Number(stored[i]);
  const { signed, missing } = missingOf(node);
  if (signed) for (let i = 0; i < values.length; i++) values[i] = signed(f64(values, i));
  if (missing.size > 0)
    for (let i = 0; i < values.length; i++) if (missing.has(f64(values, i))) values[i] = NaN;
  withoutLost(values, region);
  const scale = numberOf(attributes.scale_factor);
  const offset = numberOf(attributes.add_offset);
  if (scale !== undefined || offset !== undefined)
    for (let i = 0; i < values.length; i++) values[i] = f64(values, i) * (scale ?? 1) + (offset ?? 0);
  const isExact = typeof stored[0] === "bigint" && scale === undefined && offset === undefined;
  const withText = (text: (value: number) => string): Decoded => {
    return { shape, units, values, text, label: (i) => text(values[i] ?? NaN) };
  };
  if (time) {
    const { calendar, step, origin } = time;
    for (let i = 0; i < values.length; i++) values[i] = f64(values, i) * step + origin;
    const precision = precisionOf(values.subarray(0, SAMPLE));
    const text = (value: number): string =>
      timeText(value, calendar, precisionOf([value], precision)) ??
      numberText((value - origin) / step, false);
    const exact = (i: number): bigint =>
      BigInt(nth(stored, i)) * BigInt(Math.round(step * 1e6)) + BigInt(origin) * 1_000_000n;
    /** The nanoseconds after a millisecond. */
    const rest = (i: number): number =>
      Number.isNaN(values[i] ?? NaN) ? 0 : (Number(exact(i) % 1_000_000n) + 1e6) % 1e6;
    const isFine = isExact && step < 1 && Number.isInteger(origin) && values.some((_, i) => rest(i) > 0);
    const label = (i: number): string => {
      const value = values[i] ?? NaN;
      const digits = String(rest(i))
        .padStart(6, "0")
        .slice(0, step < 1e-3 ? 6 : 3);
      return timeText(value - rest(i) / 1e6, calendar, "millisecond", digits) ?? text(value);
    };
    return { ...withText(text), clock: time, ...(isFine ? { exact, label } : {}) };
  }
  if (node.dtype === "bool" || attributes.dtype === "bool") {
    const text = (value: number): string =>
      value === 0 ? "false" : value === 1 ? "true" : numberText(value, true);
    const flags: Flags = { values: [0, 1], names: text };
    return { ...withText(text), flags };
  }
  const isShort = node.dtype === "float32" || node.dtype === "float16";
  const flags = flagsOf(attributes);
  let digits: number | undefined;
  const exact = isExact ? (i: number): bigint => BigInt(nth(stored, i)) : undefined;
  const plain = (i: number): string => {
    if (exact && !Number.isNaN(values[i])) return String(exact(i));
    if (!isShort && shape.length === 1) digits ??= digitsOf(values);
    return numberText(values[i] ?? NaN, isShort, digits);
  };
  if (!flags) return { shape, units, values, label: plain, exact };
  const text = (value: number): string => {
    const names = flags.names(value);
    return names ? `${numberText(value, isShort)} (${names})` : numberText(value, isShort);
  };
  return { ...withText(text), flags };
}

/** The meanings of numbers by CF: `flag_meanings` with `flag_values`, `flag_masks` or both. */
function flagsOf(attributes: Properties): Flags | undefined {
  const { flag_values: values, flag_masks: masks, flag_meanings: meanings } = attributes;
  const [states, bits] = [values, masks].map((list) =>
    Array.isArray(list) ? list.map(Number) : typeof list === "number" ? [list] : undefined,
  );
  const first = states ?? bits;
  if (!first || typeof meanings !== "string") return undefined;
  const names = meanings.trim().split(/\s+/);
  if (!bits) {
    const table = new Map(first.map((value, i) => [value, names[i] ?? ""]));
    return { values: [...table.keys()].sort((a, b) => a - b), names: (value) => table.get(value) ?? "" };
  }
  const isSet = (value: number, i: number): boolean =>
    (value & nth(bits, i)) === (states?.[i] ?? bits[i]) && (bits[i] !== 0 || value === 0);
  return {
    names: (value) =>
      Number.isInteger(value) ? names.filter((_, i) => i < bits.length && isSet(value, i)).join(", ") : "",
  };
}
