/** The references of the chunks of an array: their kinds, and what differs between two versions. */

import { f64, i32, nth, product, type Shape, u32 } from "../base/lists";
import { ChunkKind, type ChunkTable, type Selection } from "../format/types";

export const MOST_VALUES = 4_000_000; // of a chunk that is read whole

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
      places[row] =
        kind === ChunkKind.Inline ? 1 : kind === ChunkKind.Virtual ? 4 : table.isPacked(row) ? 2 : 3;
    }
    kindsOf.set(table, places);
  }
  return places;
}

/** The number and the size of the chunks of each kind; the kind `missing` is the rest of the places of a grid. */
export function summary(table: ChunkTable, places: number) {
  const totals = KINDS.map((kind) => ({ ...kind, count: 0, size: 0 }));
  kinds(table).forEach((kind, row) => {
    nth(totals, kind).count++;
    nth(totals, kind).size += f64(table.size, row);
  });
  nth(totals, 0).count = Math.max(0, places - table.length);
  return totals;
}

/** Coordinates -> one number, for a grid that has room for all of them. */
function flat(coords: Uint32Array, row: number, extent: Shape): number {
  let place = 0;
  for (let d = 0, at = row * extent.length; d < extent.length; d++, at++)
    place = place * nth(extent, d) + u32(coords, at);
  return place;
}

function extentOf(rank: number, coords: Uint32Array): number[] {
  const extent = Array.from({ length: rank }, () => 1);
  for (let at = 0; at < coords.length; at++)
    extent[at % rank] = Math.max(nth(extent, at % rank), u32(coords, at) + 1);
  return extent;
}

const DENSE = 1 << 24; // places of a grid for which a list of all of them is small

/** From coordinates to the row of the table that has them, or -1. */
export function rowFinder(
  table: Pick<ChunkTable, "length" | "coords">,
  rank: number,
): (coords: Uint32Array, at: number) => number {
  if (rank === 0) return () => table.length - 1;
  const extent = extentOf(rank, table.coords);
  const places = product(extent);
  const isInside = (coords: Uint32Array, at: number): boolean =>
    extent.every((length, d) => u32(coords, at * rank + d) < length);
  if (places > DENSE || places > 1000 * table.length) {
    const rows = new Map<number, number>();
    for (let row = 0; row < table.length; row++) rows.set(flat(table.coords, row, extent), row);
    return (coords, at) => (isInside(coords, at) ? (rows.get(flat(coords, at, extent)) ?? -1) : -1);
  }
  const rows = new Int32Array(places).fill(-1);
  for (let row = 0; row < table.length; row++) rows[flat(table.coords, row, extent)] = row;
  return (coords, at) => (isInside(coords, at) ? i32(rows, flat(coords, at, extent)) : -1);
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

/** What differs between the references of two versions, with the coordinates of what is new or changed. */
export function compareTables(before: ChunkTable, after: ChunkTable, rank: number) {
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
    for (let d = 0; d < rank; d++) coords.push(u32(after.coords, row * rank + d));
  }
  return { added, removed: before.length - common, changed, coords: Uint32Array.from(coords) };
}

function isSame(before: ChunkTable, old: number, after: ChunkTable, row: number): boolean {
  if (
    before.kind[old] !== after.kind[row] ||
    before.size[old] !== after.size[row] ||
    before.offset[old] !== after.offset[row]
  )
    return false;
  if (after.kind[row] !== ChunkKind.Inline) return before.location(old) === after.location(row);
  const [now, former] = [after.reference?.(row).data, before.reference?.(old).data];
  return !now?.some((byte, at) => byte !== former?.[at]);
}

type Chunked = { readonly shape: Shape; readonly chunkShape: Shape; readonly edges?: number[][] | undefined };

/** The elements of a chunk, within the array. */
export function chunkBox(coords: Shape, { shape, chunkShape, edges }: Chunked): Selection {
  const side = (at: number, d: number): number => {
    const start = edges?.[d]?.slice(0, at).reduce((sum, edge) => sum + edge, 0);
    return Math.min(start ?? at * nth(chunkShape, d), nth(shape, d));
  };
  return { start: coords.map(side), stop: coords.map((at, d) => side(at + 1, d)) };
}
