/** The map of the chunks of an array as cells, and their colours. */

import { nth, type Shape, u32 } from "../base/lists";
import type { ChunkTable } from "../format/types";

const MOST_CELLS = 4_000_000;
const LONGEST = 16_000; // pixels of a canvas in every browser

/** A plane of the grid of chunks. A cell stands for `factor` chunks, across and down, if the plane is very large. */
export type Cells = ReturnType<typeof cellsOf>;

/**
 * The plane of dimensions `x` and `y`; the others are fixed at `index`. With `y` = -1 the line is wrapped, and its last
 * row can be shorter: `length` cells have a place in the grid. `rows`: cell -> row of the table + 1; 0 is missing.
 */
export function cellsOf(table: ChunkTable, grid: Shape, x: number, y: number, index: Shape) {
  const rank = grid.length;
  const across = x < 0 ? 1 : nth(grid, x);
  const wrapped = y < 0;
  const down = wrapped ? 1 : nth(grid, y);
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
  const others = index.map((_, d) => d).filter((d) => d !== x && d !== y);
  const { coords } = table;
  scan: for (let row = 0, at = 0; row < table.length; row++, at += rank) {
    for (const d of others) if (coords[at + d] !== index[d]) continue scan;
    const [column, place] = [x < 0 ? 0 : u32(coords, at + x), wrapped ? 0 : u32(coords, at + y)];
    if (column < across && place < down) rows[cell(column, place)] = row + 1; // others lie outside a smaller new shape
  }
  return {
    width,
    height,
    factor: [right, below] as const,
    rows,
    length: wrapped ? line : width * height,
    coords: (at: number): number[] =>
      index.map((fixed, d) => {
        if (d === x) return (wrapped ? at : at % width) * right;
        return d === y ? Math.floor(at / width) * below : fixed;
      }),
    cell: (place: Shape): number => cell(x < 0 ? 0 : nth(place, x), wrapped ? 0 : nth(place, y)),
  };
}

/** A colour of each chunk: a place among `colours`, or -1 where nothing is known. */
export type Shade = { readonly colours: Uint32Array; shade(row: number): number };

/** The colours of cells as pixels. `plain` is the colour of chunks of which nothing is known. */
export function paintCells({ rows, length }: Cells, of: Shade, missing: number, plain: number) {
  return Uint32Array.from(rows, (row, cell) => {
    const at = row ? of.shade(row - 1) : -1;
    return cell >= length ? 0 : !row ? missing : at < 0 ? plain : u32(of.colours, at);
  });
}
