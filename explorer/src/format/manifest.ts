/** References of chunks, as columns. */

import { f64, firstWhere, nth, text, u16, u32, u8, wide } from "../base/lists";
import { decompress, type Dictionary, readDictionary } from "../codecs/zstd";
import { type Body, reading } from "./files";
import type { Flat } from "./flatbuffer";
import { ChunkKind, type ChunkRef, type ChunkTable } from "./types";

// Fields of a reference
const [INLINE, OFFSET, LENGTH, CHUNK_ID] = [1, 2, 3, 4];
const [LOCATION, ETAG, MODIFIED, COMPRESSED] = [5, 6, 7, 8];
const MAX_LOCATION = 1 << 16;
const MOST_SPARE = 1 << 20; // rows of columns that wait for other manifests

export class Manifest {
  readonly flat: Flat;
  private readonly arrays = new Map<string, number>();
  private readonly sorted = new Map<string, boolean>(); // by node
  private dictionary: Dictionary | undefined;

  constructor(
    readonly key: string,
    { flat }: Body,
  ) {
    this.flat = flat;
    flat.need(flat.root(), 0, 1);
    for (const table of flat.tables(flat.root(), 1)) {
      flat.need(table, 1);
      this.arrays.set(flat.id(table, 0, 8), table);
    }
  }

  /** Position of the first reference of an array and their number. */
  references(nodeId: string): [number, number] {
    const table = this.arrays.get(nodeId);
    return table === undefined ? [0, 0] : this.flat.vector(table, 1, 4);
  }

  location(table: number): string | undefined {
    const { flat } = this;
    if (flat.field(table, CHUNK_ID) !== 0) return flat.id(table, CHUNK_ID, 12);
    const plain = flat.text(table, LOCATION);
    if (plain !== undefined) return plain;
    const packed = flat.data(table, COMPRESSED);
    if (packed === undefined) return undefined;
    const root = flat.root();
    if (flat.u8(root, 3, 1) === 0) return text(packed);
    this.dictionary ??= readDictionary(flat.data(root, 2) ?? new Uint8Array(0));
    return text(decompress(packed, MAX_LOCATION, this.dictionary));
  }

  reference(table: number): ChunkRef {
    const { flat } = this;
    const isNative = flat.field(table, CHUNK_ID) !== 0; // before other kinds, as in the reference
    const data = isNative ? undefined : flat.data(table, INLINE);
    if (data) return { kind: ChunkKind.Inline, offset: 0, size: data.length, data };
    const modified = flat.u32(table, MODIFIED);
    return {
      kind: isNative ? ChunkKind.Native : ChunkKind.Virtual,
      location: this.location(table),
      offset: flat.u64(table, OFFSET),
      size: flat.u64(table, LENGTH),
      checksum:
        flat.text(table, ETAG) ?? (modified === 0 ? undefined : new Date(modified * 1000).toUTCString()),
    };
  }

  /** Whether the references of an array are sorted, which a search needs. Other writers may not sort them. */
  private isSorted(nodeId: string): boolean {
    let sorted = this.sorted.get(nodeId);
    if (sorted === undefined) {
      const [start, count] = this.references(nodeId);
      sorted = true;
      for (let at = start + 4; at < start + 4 * count && sorted; at += 4) {
        const [former, rank] = this.index(at - 4);
        sorted = this.compare(at, rank, (d) => this.flat.view.getUint32(former + 4 * d, true)) > 0;
      }
      this.sorted.set(nodeId, sorted);
    }
    return sorted;
  }

  /** Position and number of the coordinates of a reference. */
  private index(reference: number): [number, number] {
    return this.flat.vector(this.flat.follow(reference), 0, 4);
  }

  /** Positive for a reference after other coordinates, negative for one before them. */
  private compare(reference: number, rank: number, other: (d: number) => number): number {
    const [index, own] = this.index(reference);
    if (own !== rank) throw new RangeError("a reference with an index of another rank");
    for (let d = 0; d < rank; d++) {
      const difference = this.flat.view.getUint32(index + 4 * d, true) - other(d);
      if (difference !== 0) return difference;
    }
    return 0;
  }

  /** The reference of a chunk. */
  find(nodeId: string, coords: number[]): ChunkRef | undefined {
    const [start, count] = this.references(nodeId);
    const order = (at: number): number => this.compare(start + 4 * at, coords.length, (d) => nth(coords, d));
    const isHere = (at: number): boolean => at < count && order(at) === 0;
    let at = firstWhere(count, (at) => order(at) >= 0);
    // Of two references for one chunk, the first one counts
    if (!isHere(at) && !this.isSorted(nodeId)) for (at = 0; at < count && !isHere(at);) at++;
    return isHere(at) ? this.reference(this.flat.follow(start + 4 * at)) : undefined;
  }
}

/** Rows of a table from one manifest: its id, its references of the array, their numbers from row `first` on. */
export type Origin = ReturnType<ChunkColumns["origins"]>[number];

type Part = { readonly manifest: Manifest; readonly first: number };

/** The references of one array from all of its manifests. */
export class ChunkColumns implements ChunkTable {
  length = 0;
  coords = new Uint32Array();
  kind = new Uint8Array();
  offset = new Float64Array();
  size = new Float64Array();
  private table = new Uint32Array(); // position of the reference in its manifest
  private readonly parts: Part[] = [];
  private packed: Uint8Array | undefined;

  constructor(private readonly rank: number) {}

  private resize(capacity: number): void {
    const sized = <T extends Uint8Array | Uint32Array | Float64Array>(column: T, length: number): T => {
      const out = new (column.constructor as new (length: number) => T)(length);
      out.set(column.subarray(0, length));
      return out;
    };
    this.coords = sized(this.coords, capacity * this.rank);
    this.kind = sized(this.kind, capacity);
    this.offset = sized(this.offset, capacity);
    this.size = sized(this.size, capacity);
    this.table = sized(this.table, capacity);
  }

  /** Adds the references within the extents. `part` is the share of the manifests that have come with this one. */
  add(manifest: Manifest, nodeId: string, extents: Uint32Array, part: number): void {
    const { rank } = this;
    const { view, bytes } = manifest.flat;
    const [start, count] = manifest.references(nodeId);
    const needed = this.length + count;
    // Most manifests of an array have one size: a column grows once or twice
    if (needed > this.kind.length)
      this.resize(Math.max(needed, Math.min(Math.ceil(needed / part), MOST_SPARE + needed)));
    this.parts.push({ manifest, first: this.length });
    const { coords, kind, offset, size, table: tables } = this;
    let row = this.length;
    for (let i = 0; i < count; i++) {
      const table = manifest.flat.follow(start + 4 * i);
      const slots = manifest.flat.layout(table);
      if (slots[0] === 0) throw new RangeError("a reference without an index");
      const vector = table + u16(slots, 0) + view.getUint32(table + u16(slots, 0), true);
      if (view.getUint32(vector, true) !== rank) continue;
      let isInside = true;
      for (let d = 0; d < rank; d++) {
        const at = view.getUint32(vector + 4 + 4 * d, true);
        coords[row * rank + d] = at;
        if (at < u32(extents, 2 * d) || at >= u32(extents, 2 * d + 1)) isInside = false;
      }
      if (!isInside) continue;
      tables[row] = table;
      if (slots[INLINE] !== 0 && slots[CHUNK_ID] === 0) {
        const inline = table + u16(slots, INLINE);
        kind[row] = ChunkKind.Inline;
        offset[row] = 0;
        size[row] = view.getUint32(inline + view.getUint32(inline, true), true);
      } else {
        kind[row] = slots[CHUNK_ID] !== 0 ? ChunkKind.Native : ChunkKind.Virtual;
        offset[row] = slots[OFFSET] === 0 ? 0 : wide(view, table + u16(slots, OFFSET));
        size[row] = slots[LENGTH] === 0 ? 0 : wide(view, table + u16(slots, LENGTH));
        if (kind[row] === ChunkKind.Native && table + u16(slots, CHUNK_ID) + 12 > bytes.length)
          throw new RangeError("an id ends after its file");
      }
      row++;
    }
    this.length = row;
  }

  /** Cuts the columns to the rows that are there. */
  finish(): this {
    if (this.length < this.kind.length) this.resize(this.length);
    return this;
  }

  /** Where the rows come from: the numbers of their references among those of the array in each manifest. */
  origins(nodeId: string) {
    return this.parts.map(({ manifest, first }, p) => {
      const [start, count] = manifest.references(nodeId);
      const numbers = new Uint32Array((this.parts[p + 1]?.first ?? this.length) - first);
      for (let i = 0, place = 0; i < count && place < numbers.length; i++) {
        if (manifest.flat.follow(start + 4 * i) === this.table[first + place]) numbers[place++] = i;
      }
      return { id: manifest.key.slice(manifest.key.indexOf("/") + 1), count, first, numbers };
    });
  }

  private manifest(row: number): Manifest {
    if (!(row >= 0 && row < this.length)) throw new RangeError(`row ${row} of ${this.length}`);
    return nth(this.parts, firstWhere(this.parts.length, (at) => nth(this.parts, at).first > row) - 1)
      .manifest;
  }

  location(row: number): string | undefined {
    if (this.kind[row] === ChunkKind.Inline) return undefined;
    const manifest = this.manifest(row);
    return reading(manifest.key, () => manifest.location(u32(this.table, row)));
  }

  reference(row: number): ChunkRef {
    const manifest = this.manifest(row);
    return reading(manifest.key, () => manifest.reference(u32(this.table, row)));
  }

  isPacked(row: number): boolean {
    this.packed ??= reading("manifests", () => this.findPacked());
    return this.packed[row] === 1;
  }

  /** Rows whose file has another row, by numbers of 53 bits from the bytes of ids and locations. */
  private findPacked(): Uint8Array {
    const keys = new Float64Array(this.length).fill(-1);
    this.parts.forEach(({ manifest: { flat } }, p) => {
      for (let row = nth(this.parts, p).first; row < (this.parts[p + 1]?.first ?? this.length); row++) {
        if (this.kind[row] === ChunkKind.Inline) continue;
        const table = u32(this.table, row);
        let [start, size] = [flat.field(table, CHUNK_ID), 12];
        if (this.kind[row] === ChunkKind.Virtual) [start, size] = flat.vector(table, LOCATION, 1);
        if (start === 0) [start, size] = flat.vector(table, COMPRESSED, 1);
        let [one, other] = [0x811c9dc5, 0];
        for (let at = start; at < start + size; at++) {
          one = Math.imul(one ^ u8(flat.bytes, at), 0x01000193);
          other = Math.imul(other, 31) + one;
        }
        keys[row] = (one >>> 0) * 2 ** 21 + (other >>> 11);
      }
    });
    const sorted = keys.slice().sort();
    const before = (key: number): number => firstWhere(sorted.length, (at) => f64(sorted, at) >= key);
    return Uint8Array.from(keys, (key) => Number(key >= 0 && sorted[before(key) + 1] === key));
  }
}
