/** The map of the chunks of an array: which reference lies in which cell, and its colour. */

import { ChunkKind, type ChunkTable } from "./format/types";
import { table as colourTable } from "./colour";

/** Kinds as a person sees them; colours by Okabe and Ito. */
export const KINDS = [
  { name: "missing", colour: "" },
  { name: "inline", colour: "#e69f00" },
  { name: "in a pack", colour: "#56b4e9" },
  { name: "own file", colour: "#0072b2" },
  { name: "virtual", colour: "#cc79a7" },
] as const;

const kindsOf = new WeakMap<ChunkTable, Uint8Array>();

/** Row -> place in KINDS. */
export function kinds(table: ChunkTable): Uint8Array {
  let places = kindsOf.get(table);
  if (!places) {
    places = new Uint8Array(table.length);
    for (let row = 0; row < table.length; row++) {
      const kind = table.kind[row] as ChunkKind;
      places[row] = kind === ChunkKind.Inline ? 1 : kind === ChunkKind.Virtual ? 4 : table.isPacked(row) ? 2 : 3;
    }
    kindsOf.set(table, places);
  }
  return places;
}

export function summary(table: ChunkTable | undefined, places: number): { kinds: { name: string; colour: string; count: number; size: number }[]; size: number } {
  const totals = KINDS.map((kind) => ({ ...kind, count: 0, size: 0 }));
  if (!table) return { kinds: totals, size: 0 };
  kinds(table).forEach((kind, row) => {
    totals[kind]!.count++;
    totals[kind]!.size += table.size[row]!;
  });
  totals[0]!.count = Math.max(0, places - table.length);
  return { kinds: totals, size: totals.reduce((sum, kind) => sum + kind.size, 0) };
}

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
export function cellsOf(table: ChunkTable, grid: readonly number[], x: number, y: number, index: readonly number[]): Cells {
  const rank = grid.length;
  const across = x < 0 ? 1 : grid[x]!;
  const wrapped = y < 0;
  const down = wrapped ? 1 : grid[y]!;
  const both = Math.max(1, wrapped ? Math.ceil(across / MOST_CELLS) : Math.ceil(Math.sqrt((across * down) / MOST_CELLS)));
  const [right, below] = wrapped ? [both, 1] : [Math.max(both, Math.ceil(across / LONGEST)), Math.max(both, Math.ceil(down / LONGEST))];
  const line = Math.ceil(across / right);
  const width = wrapped && line > 64 ? Math.ceil(Math.sqrt(line * 2)) : Math.max(1, line);
  const height = wrapped ? Math.ceil(line / width) : Math.ceil(down / below);
  const rows = new Int32Array(width * height);
  const cell = (across: number, down: number): number => Math.floor(down / below) * width + Math.floor(across / right);
  const others = index.map((_, dimension) => dimension).filter((dimension) => dimension !== x && dimension !== y);
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
export function paintCells(cells: Cells, shade: (row: number) => number, colours: Uint32Array, missing: number, plain: number, pixels: Uint32Array): void {
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
export function columnShade(values: ArrayLike<number>): Shade & { readonly low: number; readonly high: number } {
  let [low, high] = [Infinity, -Infinity];
  for (let row = 0; row < values.length; row++) {
    if (values[row]! < low) low = values[row]!;
    if (values[row]! > high) high = values[row]!;
  }
  if (low > high) [low, high] = [0, 1];
  const scale = 255 / (high - low || 1);
  return { colours: colourTable("viridis"), shade: (row) => (Number.isNaN(values[row]!) ? -1 : ((values[row]! - low) * scale) | 0), low, high };
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

/** Coordinates -> one number, for a grid that has room for all of them. */
function flat(coords: Uint32Array, row: number, extent: readonly number[]): number {
  let place = 0;
  for (let dimension = 0, at = row * extent.length; dimension < extent.length; dimension++, at++) place = place * extent[dimension]! + coords[at]!;
  return place;
}

function extentOf(rank: number, coords: Uint32Array): number[] {
  const extent = new Array<number>(rank).fill(1);
  for (let at = 0; at < coords.length; at++) extent[at % rank] = Math.max(extent[at % rank]!, coords[at]! + 1);
  return extent;
}

const DENSE = 1 << 24; // places of a grid for which a list of all of them is small

/** From coordinates to the row of the table that has them, or -1. */
export function rowFinder(table: Pick<ChunkTable, "length" | "coords">, rank: number): (coords: Uint32Array, at: number) => number {
  if (rank === 0) return () => table.length - 1;
  const extent = extentOf(rank, table.coords);
  const places = extent.reduce((product, length) => product * length, 1);
  const isInside = (coords: Uint32Array, at: number): boolean => extent.every((length, dimension) => coords[at * rank + dimension]! < length);
  if (places > DENSE || places > 1000 * table.length) {
    const rows = new Map<number, number>();
    for (let row = 0; row < table.length; row++) rows.set(flat(table.coords, row, extent), row);
    return (coords, at) => (isInside(coords, at) ? (rows.get(flat(coords, at, extent)) ?? -1) : -1);
  }
  const rows = new Int32Array(places).fill(-1);
  for (let row = 0; row < table.length; row++) rows[flat(table.coords, row, extent)] = row;
  return (coords, at) => (isInside(coords, at) ? rows[flat(coords, at, extent)]! : -1);
}

/** Row of the table -> 1 if its coordinates are among `changed`. */
export function changedRows(table: ChunkTable, rank: number, changed: Uint32Array): Uint8Array {
  if (rank === 0) return new Uint8Array(table.length).fill(1);
  const marks = new Uint8Array(table.length);
  const rowOf = rowFinder(table, rank);
  for (let at = 0; at < changed.length / rank; at++) {
    const row = rowOf(changed, at);
    if (row >= 0) marks[row] = 1;
  }
  return marks;
}

/** What differs between the references of two versions. */
export interface TableDifference {
  readonly added: number;
  readonly removed: number;
  readonly changed: number;
  /** Coordinates of what is new or changed in the newer version. */
  readonly coords: Uint32Array;
}

export function compareTables(before: ChunkTable, after: ChunkTable, rank: number): TableDifference {
  const rowOf = rowFinder(before, rank);
  let [added, changed, common] = [0, 0, 0];
  const coords: number[] = [];
  for (let row = 0; row < after.length; row++) {
    const old = rowOf(after.coords, row);
    if (old < 0) added++;
    else {
      common++;
      if (isSame(before, old, after, row)) continue;
      changed++;
    }
    for (let dimension = 0; dimension < rank; dimension++) coords.push(after.coords[row * rank + dimension]!);
  }
  return { added, removed: before.length - common, changed, coords: Uint32Array.from(coords) };
}

function isSame(before: ChunkTable, old: number, after: ChunkTable, row: number): boolean {
  if (before.kind[old] !== after.kind[row] || before.size[old] !== after.size[row] || before.offset[old] !== after.offset[row]) return false;
  if (after.kind[row] !== ChunkKind.Inline) return before.location(old) === after.location(row);
  const [now, former] = [after.reference?.(row).data, before.reference?.(old).data];
  return !now?.some((byte, at) => byte !== former?.[at]);
}

export const chunkBox = (coords: readonly number[], shape: readonly number[], chunkShape: readonly number[]): { start: number[]; stop: number[] } => ({
  start: coords.map((at, dimension) => Math.min(at * chunkShape[dimension]!, shape[dimension]!)),
  stop: coords.map((at, dimension) => Math.min((at + 1) * chunkShape[dimension]!, shape[dimension]!)),
});

