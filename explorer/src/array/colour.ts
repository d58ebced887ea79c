/** Colour maps that people with colour blindness can read, and limits of colours. */

const STOPS: Record<string, string> = {
  viridis: "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
  cividis: "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838",
  balance: "171c42 293a8f 0b66bd 4590b9 8eb5c2 d2d8db e6d2cc d59d89 c46548 ac2b24 780e28 3c0911",
  grey: "000000 ffffff",
};

export const MAPS = Object.keys(STOPS);

const parsed = (hex: string): number[] => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** 256 colours as pixels of an ImageData: red is the lowest byte. */
export function table(name: string): Uint32Array {
  const stops = (STOPS[name] ?? STOPS["viridis"]!).split(" ").map(parsed);
  return Uint32Array.from({ length: 256 }, (_, at) => {
    const where = (at / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(where), stops.length - 2);
    const [red, green, blue] = stops[low]!.map((value, channel) =>
      Math.round(value + (where - low) * (stops[low + 1]![channel]! - value)),
    );
    return ((255 << 24) | (blue! << 16) | (green! << 8) | red!) >>> 0;
  });
}

export const pixel = (hex: string): number => {
  const [red, green, blue] = parsed(hex.replace("#", ""));
  return ((255 << 24) | (blue! << 16) | (green! << 8) | red!) >>> 0;
};

/** Colours by Okabe and Ito, and by Tol: neighbours differ. */
export const CATEGORIES = [
  "#0072b2",
  "#e69f00",
  "#009e73",
  "#cc79a7",
  "#56b4e9",
  "#d55e00",
  "#f0e442",
  "#882255",
  "#44aa99",
  "#999933",
  "#aa4499",
  "#332288",
];

/** 256 colours in so many blocks of one colour. */
export function categoryTable(size: number): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, at) =>
    pixel(CATEGORIES[Math.floor((at * size) / 256) % CATEGORIES.length]),
  );
}

export type Limits = readonly [number, number];

const SAMPLE = 50_000;

/** The values below which `low` and `high` percent of the numbers lie; equal numbers are spread a little. */
export function robust(values: ArrayLike<number>, low = 2, high = 98): Limits {
  const step = Math.max(1, Math.floor(values.length / SAMPLE));
  const sample = new Float64Array(Math.ceil(values.length / step));
  let size = 0;
  for (let at = 0; at < values.length; at += step)
    if (Number.isFinite(values[at]!)) sample[size++] = values[at]!;
  if (size === 0) return [0, 1];
  const sorted = sample.subarray(0, size).sort();
  const at = (percent: number): number => sorted[Math.round((percent / 100) * (size - 1))]!;
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

/** Values to pixels. What is not a number stays transparent. */
export function paint(
  values: ArrayLike<number>,
  [low, high]: Limits,
  colours: Uint32Array,
  pixels: Uint32Array,
): void {
  const scale = 255 / (high - low);
  for (let at = 0; at < pixels.length; at++) {
    const value = values[at]!;
    if (value !== value) pixels[at] = 0;
    else {
      const where = (value - low) * scale;
      pixels[at] = colours[where <= 0 ? 0 : where >= 255 ? 255 : where | 0]!;
    }
  }
}

/** Round numbers between two limits for an axis. */
export function ticks([low, high]: Limits, most: number): number[] {
  if (!(high > low) || most < 1) return [];
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const places: number[] = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++)
    places.push(Number((at * step).toPrecision(12)));
  return places;
}
