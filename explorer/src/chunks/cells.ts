/** The map of the chunks of an array as cells, and their colours. */

import { table as colourTable } from "../array/colour";
import type { ChunkTable } from "../format/types";

const MOST_CELLS = 4_000_000;
const LONGEST = 16_000; // pixels of a canvas in every browser

/** A plane of the grid of chunks. A cell stands for several chunks if the plane is very large. */
export interface Cells {
  readonly width: number;
  readonly height: number;
  /** Chunks of a cell, across and down. */
  readonly factor: readonly [number, number];
  /** Cell -> row of the table + 1; 0 is missing. */
  readonly rows: Int32Array;
  /** Number of cells with a place in the grid: the last line of a wrapped plane can be shorter. */
  readonly length: number;
  coords(cell: number): number[];
  cell(coords: readonly number[]): number;
}

/** The plane of dimensions `x` and `y`; the others are fixed at `index`. With `y` = -1 the line is wrapped. */
export function cellsOf(
  table: ChunkTable,
  grid: readonly number[],
  x: number,
  y: number,
  index: readonly number[],
): Cells {
  const rank = grid.length;
  const across = x < 0 ? 1 : grid[x]!;
  const wrapped = y < 0;
  const down = wrapped ? 1 : grid[y]!;
  const both = Math.max(
    1,
    wrapped ? Math.ceil(across / MOST_CELLS) : Math.ceil(Math.sqrt((across * down) / MOST_CELLS)),
  );
  const [right, below] = wrapped
    ? [both, 1]
    : [Math.max(both, Math.ceil(across / LONGEST)), Math.max(both, Math.ceil(down / LONGEST))];
  const line = Math.ceil(across / right);
  const width = wrapped && line > 64 ? Math.ceil(Math.sqrt(line * 2)) : Math.max(1, line);
  const height = wrapped ? Math.ceil(line / width) : Math.ceil(down / below);
  const rows = new Int32Array(width * height);
  const cell = (across: number, down: number): number =>
    Math.floor(down / below) * width + Math.floor(across / right);
  const others = index
    .map((_, dimension) => dimension)
    .filter((dimension) => dimension !== x && dimension !== y);
  const { coords } = table;
  scan: for (let row = 0, at = 0; row < table.length; row++, at += rank) {
    for (const dimension of others) if (coords[at + dimension] !== index[dimension]) continue scan;
    const [column, place] = [x < 0 ? 0 : coords[at + x]!, wrapped ? 0 : coords[at + y]!];
    if (column < across && place < down) rows[cell(column, place)] = row + 1; // others lie outside a smaller new shape
  }
  return {
    width,
    height,
    factor: [right, below],
    rows,
    length: wrapped ? line : width * height,
    coords: (at) =>
      index.map((fixed, dimension) => {
        if (dimension === x) return (wrapped ? at : at % width) * right;
        return dimension === y ? Math.floor(at / width) * below : fixed;
      }),
    cell: (place) => cell(x < 0 ? 0 : place[x]!, wrapped ? 0 : place[y]!),
  };
}

/** Colour of each cell by a number in 0..255 per row, or -1 for `plain`. */
export function paintCells(
  cells: Cells,
  shade: (row: number) => number,
  colours: Uint32Array,
  missing: number,
  plain: number,
  pixels: Uint32Array,
): void {
  const { rows, length } = cells;
  for (let cell = 0; cell < pixels.length; cell++) {
    const row = rows[cell]!;
    const at = row ? shade(row - 1) : -1;
    pixels[cell] = cell >= length ? 0 : !row ? missing : at < 0 ? plain : colours[at]!;
  }
}

/** A colour of each chunk: a place among `colours`, or -1 where nothing is known. */
export interface Shade {
  readonly colours: Uint32Array;
  shade(row: number): number;
}

/** Colours of a column of numbers, one for each row of a table, with their limits. */
export function columnShade(
  values: ArrayLike<number>,
): Shade & { readonly low: number; readonly high: number } {
  let [low, high] = [Infinity, -Infinity];
  for (let row = 0; row < values.length; row++) {
    if (values[row]! < low) low = values[row]!;
    if (values[row]! > high) high = values[row]!;
  }
  if (low > high) [low, high] = [0, 1];
  const scale = 255 / (high - low || 1);
  return {
    colours: colourTable("viridis"),
    shade: (row) => (Number.isNaN(values[row]!) ? -1 : ((values[row]! - low) * scale) | 0),
    low,
    high,
  };
}

/** Sizes on a logarithmic scale, with their limits in bytes. */
export function sizeShade(table: ChunkTable): ReturnType<typeof columnShade> {
  const { low, high, ...rest } = columnShade(Float64Array.from(table.size, (size) => Math.log(size + 1)));
  return { ...rest, low: Math.round(Math.exp(low) - 1), high: Math.round(Math.exp(high) - 1) };
}

/** Neighbours in the same file have the same colour: the packs of an array show. */
export function fileShade(table: ChunkTable): (row: number) => number {
  const numbers = new Map<string, number>();
  const shades = new Int16Array(table.length).fill(-2);
  return (row) => {
    if (shades[row] === -2) {
      const location = table.location(row);
      if (location === undefined) shades[row] = -1;
      else {
        if (!numbers.has(location)) numbers.set(location, (numbers.size * 97) % 256); // 97: far apart and never repeating within 256
        shades[row] = numbers.get(location)!;
      }
    }
    return shades[row]!;
  };
}
