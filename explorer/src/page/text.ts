/** Text for people: sizes, counts, times. */

const UNITS = ["bytes", "kB", "MB", "GB", "TB", "PB"];

export function bytes(size: number): string {
  let unit = 0;
  for (; size >= 999.5 && unit < UNITS.length - 1; unit++) size /= 1000;
  const digits = unit === 0 || size >= 100 ? Math.round(size) : size.toPrecision(3);
  return `${digits} ${size === 1 && unit === 0 ? "byte" : UNITS[unit]}`;
}

const COUNT = new Intl.NumberFormat("en-US"); // toLocaleString would make one for each number
export const count = (value: number): string => COUNT.format(value);

export const plural = (value: number, noun: string): string =>
  `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

export function when(milliseconds: number): string {
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? "unknown time" : date.toISOString().slice(0, 19).replace("T", " ");
}

/** A time without its seconds. */
export const minute = (milliseconds: number): string => when(milliseconds).slice(0, 16);

/** The begin of an id. */
export const short = (id: string): string => id.slice(0, 6);

/** A number with as many digits as a reader needs. */
export function number(value: number): string {
  if (Number.isNaN(value)) return "no value";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) return value.toExponential(4).replace(/\.?0*e/, "e");
  // Integers have all digits: a mean lies between them
  return String(size < 1e5 ? Number(value.toPrecision(6)) : Math.round(value));
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc]/;

/** A name within a text: letters from right to left do not turn what follows. */
export const isolated = (name: string): string =>
  RIGHT_TO_LEFT.test(name) ? `\u2068${name.replace(/[\u2066-\u2069]/g, "")}\u2069` : name;

export const FONT = "12px system-ui, sans-serif"; // of texts on a canvas

/** The begin of a text that fits into a width; `measure` is the width of a text. */
export function fitted(text: string, width: number, measure: (text: string) => number): string {
  if (measure(text) <= width) return text;
  let length = text.length - 1;
  while (length > 0 && measure(`${text.slice(0, length)}…`) > width) length--;
  return `${text.slice(0, length).trimEnd()}…`;
}

export const firstLine = (text: string): string => text.split("\n", 1).join();
export const last = (path: string): string => path.slice(path.lastIndexOf("/") + 1);
export const parent = (path: string): string => path.slice(0, Math.max(1, path.lastIndexOf("/")));

export const json = (value: unknown): string =>
  JSON.stringify(value, (_, item: unknown) => (typeof item === "bigint" ? String(item) : item), 2);
