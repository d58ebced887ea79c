/** Colour maps that people with colour blindness can read, and limits of colours. */

import { clamp, entryOf, f64, nth, u32, unhex } from "../base/lists";

const STOPS = {
  viridis: "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
  cividis: "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838",
  balance: "171c42 293a8f 0b66bd 4590b9 8eb5c2 d2d8db e6d2cc d59d89 c46548 ac2b24 780e28 3c0911",
  thermal: "0b1b4d 3b2a8c 7d3b93 b84f7d e7715f f9a24b fbe27a",
  ice: "04142d 1c3a63 33679a 5f9cc4 a3cfe0 f2fafd",
  rain: "fafaf2 cfe6d4 8cc9bf 4aa0b5 2a6fa8 24408e 2a1a5e",
  relief: "0a1f44 164278 2b6aa6 5b9cc8 a9d3e4 3f7a4a 93ad62 d9c089 a9743f f4f1ec",
  land: "3f7a4a 93ad62 d9c089 a9743f f4f1ec",
  grey: "000000 ffffff",
  clouds: "ffffff 000000",
};

/** Colours that fit to a quantity, and limits that it has. */
export interface Palette {
  readonly map: string;
  /** Zero is in the middle. */
  readonly isCentred?: boolean;
  readonly low?: number;
  readonly high?: number;
}

/** Words of the names of quantities, with their colours: the first row counts. */
const QUANTITIES: readonly (readonly [RegExp, Palette])[] = [
  [/anomal|difference|departure|_bias|increment|tendency/, { map: "balance", isCentred: true }],
  [/ice_(area|conc|cover|fraction)|siconc|snow_(area|cover)/, { map: "ice", low: 0, high: 1 }],
  [/precipitation|rainfall|snowfall|rain_rate/, { map: "rain", low: 0 }],
  [/topograph|surface_altitude|orograph|elevation|height_above_geoid/, { map: "relief" }],
  [/bathymetr|sea_floor_depth/, { map: "relief" }],
  [/brightness_temperature/, { map: "clouds" }],
  [/temperature/, { map: "thermal" }],
  [/reflectance|albedo|cloud_area_fraction|cloud_cover/, { map: "grey" }],
  [/eastward|northward|upward|zonal|meridional|vorticity|divergence/, { map: "balance", isCentred: true }],
];

/** The colours of values with such names and limits, unless a person chooses others. */
export function paletteOf(names: string, units: string, limits: Limits): Palette {
  const found = QUANTITIES.find(([words]) => words.test(names.toLowerCase().replace(/\s+/g, "_")))?.[1];
  if (!found) return diverging(limits) ? { map: "balance", isCentred: true } : { map: "viridis" };
  const { map, high } = found;
  // The sea is blue only where there is a sea
  if (map === "relief") return limits[0] < 0 && limits[1] > 0 ? { map, isCentred: true } : { map: "land" };
  if (high === undefined) return found;
  return { ...found, high: units === "%" || limits[1] > 1.5 ? 100 : high };
}

export const MAPS = Object.keys(STOPS);
type Colour = readonly [red: number, green: number, blue: number];

const parsed = (hex: string): Colour => {
  const [red = 0, green = 0, blue = 0] = unhex(hex.replace("#", ""));
  return [red, green, blue];
};

/** A colour as a pixel of an ImageData: red is the lowest byte. */
const pack = ([red, green, blue]: Colour): number => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
export const pixel = (hex: string): number => pack(parsed(hex));

/** A pixel as a colour of CSS. */
export const cssColour = (pixel: number): string =>
  `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;

/** 256 colours as pixels. */
export function table(name: string): Uint32Array {
  const stops = (entryOf(STOPS, name) ?? STOPS.viridis).split(" ").map(parsed);
  return Uint32Array.from({ length: 256 }, (_, at) => {
    const where = (at / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(where), stops.length - 2);
    const [one, other] = [nth(stops, low), nth(stops, low + 1)];
    const mix = (channel: 0 | 1 | 2): number =>
      Math.round(one[channel] + (where - low) * (other[channel] - one[channel]));
    return pack([mix(0), mix(1), mix(2)]);
  });
}

/** Colours by Okabe and Ito, and by Tol: neighbours differ. */
export const CATEGORIES =
  "#0072b2 #e69f00 #009e73 #cc79a7 #56b4e9 #d55e00 #f0e442 #882255 #44aa99 #999933 #aa4499 #332288".split(
    " ",
  );

/** 256 colours in `size` blocks of one colour. */
export function categoryTable(size: number): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, at) =>
    pixel(nth(CATEGORIES, Math.floor((at * size) / 256) % CATEGORIES.length)),
  );
}

export type Limits = readonly [number, number];
const SAMPLE = 50_000;

/** The values below which `low` and `high` percent of the numbers lie; equal numbers are spread a little. */
export function robust(values: Float64Array, low = 2, high = 98): Limits {
  const step = Math.max(1, Math.floor(values.length / SAMPLE));
  const length = Math.ceil(values.length / step);
  const sample = Float64Array.from({ length }, (_, at) => f64(values, at * step));
  const sorted = sample.filter(Number.isFinite).sort();
  if (sorted.length === 0) return [0, 1];
  const at = (percent: number): number => f64(sorted, Math.round((percent / 100) * (sorted.length - 1)));
  return spread([at(low), at(high)]);
}

export function spread([low, high]: Limits): Limits {
  if (low < high) return [low, high];
  const room = Math.abs(low) * 1e-6 || 1;
  return [low - room, low + room];
}

/** Limits with zero in the middle, for differences. */
export const symmetric = ([low, high]: Limits): Limits => {
  const size = Math.max(Math.abs(low), Math.abs(high)) || 1;
  return [-size, size];
};

export const diverging = ([low, high]: Limits): boolean =>
  low < 0 && high > 0 && Math.min(-low, high) > 0.2 * Math.max(-low, high);

/** Red, green and blue between their limits as pixels. A place without one of them has no number. */
export function composite(bands: readonly Float64Array[], limits: readonly Limits[]): Float64Array {
  const [red, green, blue] = bands.map((values, at) => {
    const [low, high] = nth(limits, at);
    return values.map((value) => Math.round(clamp((255 * (value - low)) / (high - low), 0, 255)));
  }) as [Float64Array, Float64Array, Float64Array];
  return red.map((value, at) => {
    const colour: Colour = [value, f64(green, at), f64(blue, at)];
    return colour.some(Number.isNaN) ? NaN : pack(colour);
  });
}

/** Values to pixels; without colours, values are pixels. What is not a number stays transparent. */
export function paint(values: Float64Array, [low, high]: Limits, colours: Uint32Array | undefined) {
  if (!colours) return Uint32Array.from(values);
  const [scale, pixels] = [255 / (high - low), new Uint32Array(values.length)];
  for (let at = 0; at < pixels.length; at++) {
    const where = (f64(values, at) - low) * scale;
    pixels[at] = Number.isNaN(where) ? 0 : u32(colours, where <= 0 ? 0 : where >= 255 ? 255 : where | 0);
  }
  return pixels;
}

/** Round numbers between two limits for an axis. */
export function ticks([low, high]: Limits, most: number): number[] {
  if (!(high > low) || most < 1) return [];
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  // Numbers have no digits left for steps between large ones
  if (step < 1e-12 * Math.max(Math.abs(low), Math.abs(high))) return [];
  const places: number[] = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++)
    places.push(Number((at * step).toPrecision(12)));
  return places;
}
