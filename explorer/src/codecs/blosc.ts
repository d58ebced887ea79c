/** Blosc 1 containers, LZ4 blocks, shuffle and bitshuffle. */

import { unknownCodec } from "../base/errors";
import { entryOf, u8, viewOf } from "../base/lists";

type Inflate = (data: Uint8Array, size: number) => Uint8Array | Promise<Uint8Array>;
const MAX_SPLITS = 16;
const MIN_SPLIT = 128;
const FORMATS = ["blosclz", "lz4", "snappy", "zlib", "zstd"];

export const damaged = (what: string): RangeError => new RangeError(`damaged ${what} data`);

export async function decodeBlosc(data: Uint8Array, limit: number, others: { zlib: Inflate; zstd: Inflate }) {
  const view = viewOf(data);
  const flags = view.getUint8(2);
  const typeSize = Math.max(1, view.getUint8(3));
  const size = view.getUint32(4, true);
  const blockSize = view.getUint32(8, true);
  if (size > limit) throw damaged("blosc");
  if (flags & 2) {
    if (16 + size > data.length) throw damaged("blosc");
    return data.slice(16, 16 + size);
  }
  const out = new Uint8Array(size);
  if (size === 0) return out;
  if (blockSize === 0 || blockSize > 2 ** 31) throw damaged("blosc");
  const format = FORMATS[flags >> 5];
  const table: Record<string, Inflate> = { blosclz: decodeBloscLz, lz4: decodeLz4Block, ...others };
  const inflate = entryOf(table, format ?? "");
  if (!inflate)
    throw unknownCodec(`this page cannot decompress blosc data with ${format ?? `format ${flags >> 5}`}`);
  const blocks = Math.ceil(size / blockSize);
  const block = new Uint8Array(Math.min(blockSize, size));
  for (let b = 0; b < blocks; b++) {
    const start = b * blockSize;
    const length = Math.min(blockSize, size - start);
    const isSplit =
      !(flags & 16) && typeSize <= MAX_SPLITS && blockSize / typeSize >= MIN_SPLIT && length === blockSize;
    const parts = isSplit ? typeSize : 1;
    const partSize = Math.floor(length / parts);
    let at = view.getUint32(16 + 4 * b, true);
    for (let p = 0; p < parts; p++) {
      const packed = view.getInt32(at, true);
      at += 4;
      if (packed < 0 || at + packed > data.length) throw damaged("blosc");
      const source = data.subarray(at, at + packed);
      const content = packed === partSize ? source : await inflate(source, partSize);
      if (content.length !== partSize) throw damaged("blosc");
      block.set(content, p * partSize);
      at += packed;
    }
    const target = out.subarray(start, start + length);
    const source = block.subarray(0, length);
    if (flags & 4) bitUnshuffle(source, target, typeSize);
    else if (flags & 1 && typeSize > 1) unshuffle(source, target, typeSize);
    else target.set(source);
  }
  return out;
}

/** The first bytes of all elements, the second bytes, and so on; bytes after the last whole element as they are. */
export function unshuffle(source: Uint8Array, target: Uint8Array, size: number): void {
  const count = Math.floor(source.length / size);
  for (let j = 0; j < size; j++)
    for (let i = 0, from = j * count, to = j; i < count; i++, to += size) target[to] = u8(source, from + i);
  target.set(source.subarray(count * size), count * size);
}

function bitUnshuffle(source: Uint8Array, target: Uint8Array, size: number): void {
  const count = Math.floor(source.length / size);
  if (count % 8 !== 0) return target.set(source);
  const rows = count / 8;
  target.fill(0);
  for (let j = 0; j < size; j++) {
    for (let bit = 0; bit < 8; bit++) {
      const from = (j * 8 + bit) * rows;
      for (let i = 0; i < rows; i++) {
        const byte = u8(source, from + i);
        if (byte === 0) continue;
        for (let k = 0; k < 8; k++)
          target[(i * 8 + k) * size + j] = u8(target, (i * 8 + k) * size + j) | (((byte >> k) & 1) << bit);
      }
    }
  }
  target.set(source.subarray(count * size), count * size);
}

/** What a decoder of matches has written so far. A part that does not fit is damage. */
class Output {
  readonly bytes: Uint8Array;
  private end = 0;

  constructor(
    size: number,
    private readonly format: string,
  ) {
    this.bytes = new Uint8Array(size);
  }

  literal(data: Uint8Array, at: number, length: number): void {
    if (at + length > data.length || this.end + length > this.bytes.length) throw damaged(this.format);
    this.bytes.set(data.subarray(at, at + length), this.end);
    this.end += length;
  }

  match(offset: number, length: number): void {
    const { bytes, end } = this;
    if (offset === 0 || offset > end || end + length > bytes.length) throw damaged(this.format);
    if (offset >= length) bytes.copyWithin(end, end - offset, end - offset + length);
    else for (let i = end; i < end + length; i++) bytes[i] = u8(bytes, i - offset);
    this.end += length;
  }

  finish(): Uint8Array {
    if (this.end !== this.bytes.length) throw damaged(this.format);
    return this.bytes;
  }
}

export function decodeLz4Block(data: Uint8Array, size: number): Uint8Array {
  const out = new Output(size, "lz4");
  let at = 0;
  const more = (length: number): number => {
    for (let byte = length < 15 ? 0 : 255; byte === 255; length += byte) byte = u8(data, at++);
    return length;
  };
  while (at < data.length) {
    const token = u8(data, at++);
    const literal = more(token >> 4);
    out.literal(data, at, literal);
    at += literal;
    if (at >= data.length) break;
    const offset = u8(data, at) | (u8(data, at + 1) << 8);
    at += 2;
    out.match(offset, more(token & 15) + 4);
  }
  return out.finish();
}

const FAR = 8191;

function decodeBloscLz(data: Uint8Array, size: number): Uint8Array {
  const out = new Output(size, "blosclz");
  let at = 0;
  const next = (): number => u8(data, at++);
  let control = next() & 31;
  for (;;) {
    if (control >= 32) {
      let length = (control >> 5) + 2;
      let offset = (control & 31) << 8;
      for (let byte = length === 9 ? 255 : 0; byte === 255; length += byte) byte = next();
      const low = next();
      if (low === 255 && offset === 31 << 8) {
        offset = FAR + (next() << 8);
        offset += next();
      } else offset += low;
      out.match(offset + 1, length);
    } else {
      out.literal(data, at, control + 1);
      at += control + 1;
    }
    if (at >= data.length) return out.finish();
    control = next();
  }
}
