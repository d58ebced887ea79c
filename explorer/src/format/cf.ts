/** The CF conventions: elements as stored to values and labels, with the results of xarray. */
import { clockOf, precisionOf, timeText, type Clock } from "./calendar";
import { record } from "./grid";
import type { ArrayNode, Decoded, Region } from "./types";

const SPECIAL: Record<string, number> = { nan: NaN, infinity: Infinity, "-infinity": -Infinity };
const TICKS: Record<string, number> = { W: 604_800_000, D: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, ns: 1e-6 };
/** The precision of labels is found from at most so many times. */
const SAMPLE = 10_000;
const NOT_A_TIME = -(2n ** 63n);

function numberOf(value: unknown): number | undefined {
  const single: unknown = Array.isArray(value) && value.length === 1 ? value[0] : value;
  if (typeof single === "number") return single;
  if (typeof single !== "string") return undefined;
  const special = SPECIAL[single.toLowerCase()];
  if (special !== undefined) return special;
  // xarray writes a float of Zarr format 3 as the base64 text of eight bytes
  if (/^[A-Za-z0-9+/]{11}=$/.test(single)) {
    const bytes = Uint8Array.from(atob(single), (letter) => letter.charCodeAt(0));
    return new DataView(bytes.buffer).getFloat64(0, true);
  }
  const plain = Number(single);
  return single.trim() === "" || Number.isNaN(plain) ? undefined : plain;
}

function fills(attributes: Record<string, unknown>): number[] {
  const { _FillValue: fill, missing_value: missing } = attributes;
  return [fill, ...(Array.isArray(missing) ? (missing as unknown[]) : [missing])].map(numberOf).filter((value) => value !== undefined);
}

/** The clock of an array of times: a data type of numpy, or numbers with units. */
function clock(node: ArrayNode, attributes: Record<string, unknown>): Clock | undefined {
  const { name, configuration } = record(node.document.data_type);
  if (name === "numpy.datetime64") {
    const { unit, scale_factor: scale } = record(configuration);
    const step = TICKS[String(unit)];
    return step === undefined ? undefined : { calendar: "proleptic_gregorian", step: step * Number(scale ?? 1), origin: 0 };
  }
  const { units, calendar } = attributes;
  return typeof units === "string" ? clockOf(units, typeof calendar === "string" ? calendar : undefined) : undefined;
}

/** The range of an integer type that the attribute `_Unsigned` asks for: bits, whether unsigned. */
function reinterpreted(node: ArrayNode, attributes: Record<string, unknown>): ((value: number) => number) | undefined {
  const match = /^(u?)int(8|16|32)$/.exec(node.dtype);
  const flag = String(attributes._Unsigned ?? "").toLowerCase();
  if (!match || !["true", "false"].includes(flag) || (flag === "true") === (match[1] === "u")) return undefined;
  const size = 2 ** Number(match[2]);
  return flag === "true" ? (value) => (value < 0 ? value + size : value) : (value) => (value >= size / 2 ? value - size : value);
}

function numberText(value: number, isShort: boolean): string {
  if (Number.isNaN(value)) return "missing";
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(isShort ? 7 : 15)));
}

function complexText(real: number, imaginary: number): string {
  return `${numberText(real, true)}${imaginary < 0 ? "-" : "+"}${numberText(Math.abs(imaginary), true)}i`;
}

/** Fill values to NaN, scale_factor, add_offset, times to milliseconds since 1970 of their calendar. */
export function decodeCF(node: ArrayNode, region: Region): Decoded {
  const attributes = record(node.document.attributes);
  const units = typeof attributes.units === "string" ? attributes.units : undefined;
  const { shape, raw } = region;
  if (region.isComplex) {
    const parts = raw as ArrayLike<number>;
    const values = Float64Array.from({ length: parts.length / 2 }, (_, i) => Math.hypot(parts[2 * i], parts[2 * i + 1]));
    return { shape, values, isTime: false, units, label: (i) => complexText(parts[2 * i], parts[2 * i + 1]) };
  }
  if (Array.isArray(raw) && (raw.length === 0 || typeof raw[0] === "string")) {
    const values = raw as string[];
    return { shape, values, isTime: false, units, label: (i) => values[i] };
  }
  const stored = raw as ArrayLike<number | bigint>;
  const values = new Float64Array(stored.length);
  for (let i = 0; i < values.length; i++) values[i] = Number(stored[i]);
  const ticks = /^(datetime64|timedelta64)/.test(node.dtype);
  // the smallest integer is exact as a float, but an int64 near it is not
  if (ticks) for (let i = 0; i < values.length; i++) if (stored[i] === NOT_A_TIME) values[i] = NaN;
  const signed = reinterpreted(node, attributes);
  if (signed) for (let i = 0; i < values.length; i++) values[i] = signed(values[i]);
  const round = node.dtype === "float32" ? Math.fround : (value: number): number => value;
  const missing = new Set(fills(attributes).map((fill) => round(signed ? signed(fill) : fill)));
  missing.delete(NaN);
  if (missing.size > 0) for (let i = 0; i < values.length; i++) if (missing.has(values[i])) values[i] = NaN;
  const scale = numberOf(attributes.scale_factor);
  const offset = numberOf(attributes.add_offset);
  if (scale !== undefined || offset !== undefined) for (let i = 0; i < values.length; i++) values[i] = values[i] * (scale ?? 1) + (offset ?? 0);
  const time = clock(node, attributes);
  if (time) {
    const { calendar, step, origin } = time;
    for (let i = 0; i < values.length; i++) values[i] = values[i] * step + origin;
    const precision = precisionOf(values.subarray(0, SAMPLE));
    return { shape, values, isTime: true, calendar, units, label: (i) => timeText(values[i], calendar, precision) };
  }
  if (node.dtype === "bool" || attributes.dtype === "bool") return { shape, values, isTime: false, units, label: (i) => (Number.isNaN(values[i]) ? "missing" : String(values[i] !== 0)) };
  const isShort = node.dtype === "float32" || node.dtype === "float16";
  const flags = flagNames(attributes);
  return {
    shape,
    values,
    isTime: false,
    units,
    label: (i) => {
      // integers beyond 2**53 are not exact as a number
      const stated = typeof stored[i] === "bigint" && scale === undefined && offset === undefined && !Number.isNaN(values[i]);
      const number = stated ? String(stored[i]) : numberText(values[i], isShort);
      const name = flags.get(values[i]);
      return name === undefined ? number : `${number} (${name})`;
    },
  };
}

function flagNames({ flag_values: values, flag_meanings: meanings }: Record<string, unknown>): Map<number, string> {
  if (!Array.isArray(values) || typeof meanings !== "string") return new Map();
  const names = meanings.split(/\s+/);
  return new Map(values.map((value, i) => [Number(value), names[i] ?? ""]));
}

