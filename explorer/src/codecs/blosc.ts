/** Blosc 1 containers, LZ4 blocks, shuffle and bitshuffle. */

import { ExplorerError } from "../base/errors";

export type Inflate = (data: Uint8Array, size: number) => Uint8Array | Promise<Uint8Array>;

const MAX_SPLITS = 16;
const MIN_SPLIT = 128;
const FORMATS = ["blosclz", "lz4", "snappy", "zlib", "zstd"];

export function damaged(what: string): RangeError {
  return new RangeError(`damaged ${what} data`);
}

export async function decodeBlosc(
  data: Uint8Array,
  limit: number,
  others: { zlib: Inflate; zstd: Inflate },
): Promise<Uint8Array> {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
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
  const inflate: Record<string, Inflate> = { blosclz: decodeBloscLz, lz4: decodeLz4Block, ...others };
  if (!Object.hasOwn(inflate, format ?? ""))
    throw new ExplorerError(
      "codec",
      `this page cannot decompress blosc data with ${format ?? `format ${flags >> 5}`}`,
    );
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
      const content = packed === partSize ? source : await inflate[format](source, partSize);
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
    for (let i = 0, from = j * count, to = j; i < count; i++, to += size) target[to] = source[from + i];
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
        const byte = source[from + i];
        if (byte === 0) continue;
        for (let k = 0; k < 8; k++) target[(i * 8 + k) * size + j] |= ((byte >> k) & 1) << bit;
      }
    }
  }
  target.set(source.subarray(count * size), count * size);
}

export function decodeLz4Block(data: Uint8Array, size: number): Uint8Array {
  const out = new Uint8Array(size);
  const end = data.length;
  let at = 0;
  let to = 0;
  const more = (length: number): number => {
    if (length < 15) return length;
    let byte: number;
    do {
      byte = data[at++];
      if (byte === undefined) throw damaged("lz4");
      length += byte;
    } while (byte === 255);
    return length;
  };
  while (at < end) {
    const token = data[at++];
    const literal = more(token >> 4);
    if (at + literal > end || to + literal > size) throw damaged("lz4");
    out.set(data.subarray(at, at + literal), to);
    at += literal;
    to += literal;
    if (at >= end) break;
    const offset = data[at] | (data[at + 1] << 8);
    at += 2;
    const match = more(token & 15) + 4;
    if (at > end || offset === 0 || offset > to || to + match > size) throw damaged("lz4");
    to = copyMatch(out, to, offset, match);
  }
  if (to !== size) throw damaged("lz4");
  return out;
}

function copyMatch(out: Uint8Array, to: number, offset: number, match: number): number {
  if (offset >= match) out.copyWithin(to, to - offset, to - offset + match);
  else for (let i = to; i < to + match; i++) out[i] = out[i - offset];
  return to + match;
}

const FAR = 8191;

function decodeBloscLz(data: Uint8Array, size: number): Uint8Array {
  const out = new Uint8Array(size);
  const end = data.length;
  let at = 0;
  let to = 0;
  const next = (): number => {
    if (at >= end) throw damaged("blosclz");
    return data[at++];
  };
  let control = next() & 31;
  for (;;) {
    if (control >= 32) {
      let length = (control >> 5) + 2;
      let offset = (control & 31) << 8;
      if (length === 9) {
        let byte: number;
        do length += byte = next();
        while (byte === 255);
      }
      const low = next();
      if (low === 255 && offset === 31 << 8) {
        offset = FAR + (next() << 8);
        offset += next();
      } else offset += low;
      offset++;
      if (offset > to || to + length > size) throw damaged("blosclz");
      to = copyMatch(out, to, offset, length);
    } else {
      const length = control + 1;
      if (at + length > end || to + length > size) throw damaged("blosclz");
      out.set(data.subarray(at, at + length), to);
      at += length;
      to += length;
    }
    if (at >= end) break;
    control = data[at++];
  }
  if (to !== size) throw damaged("blosclz");
  return out;
}
