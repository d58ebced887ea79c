/** Tables of flatbuffers by position: no object for a row. Every read is checked, by `DataView` or here. */

import { text, u8, viewOf, wide } from "../base/lists";

const SLOTS = 9; // of the largest table that has rows

export class Flat {
  readonly view: DataView;
  private vtable = -1; // the one of `slots`
  private readonly slots = new Uint16Array(SLOTS);

  constructor(readonly bytes: Uint8Array) {
    this.view = viewOf(bytes);
  }

  root(): number {
    return this.view.getUint32(0, true);
  }

  /** Position of a field of a table, 0 if it is absent. */
  field(table: number, slot: number): number {
    const vtable = table - this.view.getInt32(table, true);
    if (4 + 2 * slot >= this.view.getUint16(vtable, true)) return 0;
    const offset = this.view.getUint16(vtable + 4 + 2 * slot, true);
    return offset === 0 ? 0 : table + offset;
  }

  /** Positions of the fields of a table, relative to it, 0 if absent. Most tables of a vector share one layout. */
  layout(table: number): Uint16Array {
    const vtable = table - this.view.getInt32(table, true);
    if (vtable !== this.vtable) {
      const length = this.view.getUint16(vtable, true);
      for (let slot = 0; slot < SLOTS; slot++)
        this.slots[slot] = 4 + 2 * slot < length ? this.view.getUint16(vtable + 4 + 2 * slot, true) : 0;
      this.vtable = vtable;
    }
    return this.slots;
  }

  follow(position: number): number {
    return position + this.view.getUint32(position, true);
  }

  /** The table that a field refers to, 0 if it is absent. */
  table(table: number, slot: number): number {
    const position = this.field(table, slot);
    return position === 0 ? 0 : this.follow(position);
  }

  /** Position of the first element and number of elements; [0, 0] for an absent vector. */
  vector(table: number, slot: number, width: number): [number, number] {
    const position = this.field(table, slot);
    if (position === 0) return [0, 0];
    const start = this.follow(position);
    const length = this.view.getUint32(start, true);
    if (start + 4 + length * width > this.bytes.length) throw new RangeError("a vector ends after its file");
    return [start + 4, length];
  }

  /** Positions of the tables of a vector. */
  tables(table: number, slot: number): number[] {
    const [start, length] = this.vector(table, slot, 4);
    return Array.from({ length }, (_, i) => this.follow(start + 4 * i));
  }

  data(table: number, slot: number): Uint8Array | undefined {
    if (this.field(table, slot) === 0) return undefined;
    const [start, length] = this.vector(table, slot, 1);
    return this.bytes.subarray(start, start + length);
  }

  text(table: number, slot: number): string | undefined {
    const data = this.data(table, slot);
    return data && text(data);
  }

  /** A text that must be there, in right UTF-8: a name or a path. */
  required(table: number, slot: number): string {
    this.need(table, slot);
    return strict.decode(this.data(table, slot));
  }

  /** Throws if a field is absent that the format requires. */
  need(table: number, ...slots: number[]): void {
    for (const slot of slots)
      if (this.field(table, slot) === 0) throw new RangeError(`field ${slot} of a table is missing`);
  }

  u8 = (table: number, slot: number, absent = 0): number =>
    this.number(table, slot, (position) => this.view.getUint8(position), absent);
  u16 = (table: number, slot: number): number =>
    this.number(table, slot, (position) => this.view.getUint16(position, true));
  u32 = (table: number, slot: number): number =>
    this.number(table, slot, (position) => this.view.getUint32(position, true));
  u64 = (table: number, slot: number): number =>
    this.number(table, slot, (position) => wide(this.view, position));

  private number(table: number, slot: number, read: (position: number) => number, absent = 0): number {
    const position = this.field(table, slot);
    return position === 0 ? absent : read(position);
  }

  /** An id of a table, which must have it. */
  id(table: number, slot: number, width: number): string {
    this.need(table, slot);
    return idText(this.bytes, this.field(table, slot), width);
  }

  optionalId(table: number, slot: number, width: number): string | undefined {
    return this.field(table, slot) === 0 ? undefined : this.id(table, slot, width);
  }

  /** The ids of a vector of structs. */
  ids(table: number, slot: number, width: number): string[] {
    const [start, length] = this.vector(table, slot, width);
    return Array.from({ length }, (_, i) => idText(this.bytes, start + width * i, width));
  }
}

const strict = new TextDecoder("utf-8", { fatal: true });
const ALPHABET = new TextEncoder().encode("0123456789ABCDEFGHJKMNPQRSTVWXYZ");

/** An id in Crockford's base 32. */
export function idText(bytes: Uint8Array, start: number, width: number): string {
  if (start + width > bytes.length) throw new RangeError("an id ends after its file");
  const letters: number[] = [];
  let bits = 0;
  let value = 0;
  for (let i = start; i < start + width; i++) {
    value = ((value << 8) | u8(bytes, i)) & 0xfff;
    for (bits += 8; bits >= 5; bits -= 5) letters.push(u8(ALPHABET, (value >> (bits - 5)) & 31));
  }
  if (bits > 0) letters.push(u8(ALPHABET, (value << (5 - bits)) & 31));
  return String.fromCharCode(...letters);
}
