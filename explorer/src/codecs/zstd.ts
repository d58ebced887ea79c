/**
 * Zstandard, with dictionaries: the locations of manifests need them, and no small library has them. After RFC
 * 8878. Workers decode what is large with `zstddec`, so this decoder is short rather than fast.
 */

import { joined, nth, u16, u32, u8, viewOf } from "../base/lists";

const MAGIC = 0xfd2fb528;
const DICTIONARY_MAGIC = 0xec30a437;
const BLOCK = 1 << 17;

const corrupt = (what: string): Error => new RangeError(`damaged zstd data: ${what}`);

/** States of an entropy decoder: what to add to the next bits << 16 | number of bits << 8 | symbol. */
type States = { readonly log: number; readonly entry: Uint32Array };

/** Codes by their first `log` bits: symbol << 4 | length. */
type Codes = { readonly log: number; readonly entry: Uint16Array };

function high(value: number): number {
  return 31 - Math.clz32(value);
}

function states(counts: number[], log: number): States {
  const size = 1 << log;
  const entry = new Uint32Array(size);
  const next = new Uint16Array(counts.length);
  let top = size;
  counts.forEach((count, s) => {
    if (count === -1) entry[--top] = s;
    next[s] = count === -1 ? 1 : count;
  });
  const step = (size >> 1) + (size >> 3) + 3;
  let at = 0;
  counts.forEach((count, s) => {
    for (let i = 0; i < count; i++) {
      entry[at] = s;
      do at = (at + step) & (size - 1);
      while (at >= top);
    }
  });
  if (at !== 0) throw corrupt("table of states");
  for (let i = 0; i < size; i++) {
    const symbol = u32(entry, i);
    const value = u16(next, symbol);
    next[symbol] = value + 1;
    const bits = log - high(value);
    entry[i] = (((value << bits) - size) << 16) | (bits << 8) | symbol;
  }
  return { log, entry };
}

/** Reads the distribution of a table of states; returns it with the position after it. */
function distribution(
  src: Uint8Array,
  start: number,
  end: number,
  maxLog: number,
  maxSymbol: number,
): [States, number] {
  let bit = start * 8;
  const read = (count: number): number => {
    const value = (word(src, bit >> 3) >>> (bit & 7)) & ((1 << count) - 1);
    bit += count;
    if (bit > end * 8 + 16) throw corrupt("table of states");
    return value;
  };
  const log = read(4) + 5;
  if (log > maxLog) throw corrupt("table of states");
  const counts: number[] = [];
  let left = 1 << log;
  while (left > 0) {
    const bits = high(left + 1) + 1;
    let value = read(bits);
    const lower = (1 << (bits - 1)) - 1;
    const threshold = (1 << bits) - 2 - left;
    if ((value & lower) < threshold) {
      value &= lower;
      bit--;
    } else if (value > lower) value -= threshold;
    const count = value - 1;
    left -= Math.abs(count);
    counts.push(count);
    if (count === 0) {
      let repeat: number;
      do {
        repeat = read(2);
        for (let i = 0; i < repeat; i++) counts.push(0);
      } while (repeat === 3);
    }
    if (counts.length > maxSymbol + 1) throw corrupt("table of states");
  }
  const position = (bit + 7) >> 3;
  if (left < 0 || position > end) throw corrupt("table of states");
  return [states(counts, log), position];
}

/** A stream of bits that is read from its end. Before its start are zeros, and `left` is negative. */
class Bits {
  private readonly view: DataView;
  left: number;

  constructor(src: Uint8Array, start: number, end: number) {
    const last = src[end - 1] ?? 0;
    if (end <= start || last === 0) throw corrupt("stream of bits");
    const padded = new Uint8Array(end - start + 16);
    padded.set(src.subarray(start, end), 8);
    this.view = viewOf(padded);
    this.left = (end - start - 1) * 8 + high(last);
  }

  /** The next bits, at most 25. */
  peek(count: number): number {
    const at = 64 + this.left - count;
    return (this.view.getUint32(at >> 3, true) >>> (at & 7)) & ((1 << count) - 1);
  }

  read(count: number): number {
    const value = this.peek(count);
    this.left -= count;
    return value;
  }
}

function huffman(src: Uint8Array, start: number, end: number): [Codes, number] {
  const head = src[start++];
  if (head === undefined) throw corrupt("literals");
  const weights: number[] = [];
  if (head >= 128) {
    const count = head - 127;
    for (let i = 0; i < count; i++) {
      const byte = u8(src, start + (i >> 1));
      weights.push(i & 1 ? byte & 15 : byte >> 4);
    }
    start += (count + 1) >> 1;
  } else {
    const stop = start + head;
    if (stop > end) throw corrupt("literals");
    const [table, from] = distribution(src, start, stop, 6, 255);
    const bits = new Bits(src, from, stop);
    for (let [place, other] = [bits.read(table.log), bits.read(table.log)]; ;) {
      const state = u32(table.entry, place);
      weights.push(state & 255);
      if (weights.length > 255) throw corrupt("literals");
      const count = (state >> 8) & 255;
      if (bits.left < count) {
        weights.push(u32(table.entry, other) & 255);
        break;
      }
      [place, other] = [other, (state >> 16) + bits.read(count)];
    }
    start = stop;
  }
  if (start > end) throw corrupt("literals");
  let total = 0;
  for (const weight of weights) total += weight > 0 ? 1 << (weight - 1) : 0;
  if (total === 0) throw corrupt("literals");
  const log = high(total) + 1;
  const rest = (1 << log) - total;
  if (log > 12 || (rest & (rest - 1)) !== 0) throw corrupt("literals");
  weights.push(high(rest) + 1);
  const entry = new Uint16Array(1 << log);
  let at = 0;
  for (let weight = 1; weight <= log; weight++) {
    weights.forEach((value, symbol) => {
      if (value !== weight) return;
      entry.fill((symbol << 4) | (log + 1 - weight), at, at + (1 << (weight - 1)));
      at += 1 << (weight - 1);
    });
  }
  return [{ log, entry }, start];
}

function decodeLiterals(bits: Bits, { log, entry }: Codes, out: Uint8Array): void {
  for (let at = 0; at < out.length; at++) {
    const code = u16(entry, bits.peek(log));
    out[at] = code >> 4;
    bits.left -= code & 15;
  }
  if (bits.left !== 0) throw corrupt("literals");
}

const range = (count: number, from: number): number[] => Array.from({ length: count }, (_, i) => i + from);
const many = (value: number, count: number): number[] => Array.from({ length: count }, () => value);

/** The lengths of literals and of matches by their codes: the first value and the number of extra bits. */
function lengths(first: number, plain: number, digits: string): [base: Uint32Array, bits: Uint8Array] {
  const bits = [...many(0, plain), ...Array.from(digits, Number), ...range(10, 7)];
  let next = first;
  return [Uint32Array.from(bits, (count) => (next += 1 << count) - (1 << count)), Uint8Array.from(bits)];
}
const [LITERAL_BASE, LITERAL_BITS] = lengths(0, 16, "1111223346");
const [MATCH_BASE, MATCH_BITS] = lengths(3, 32, "11112233445");

/** Literal lengths, offsets, match lengths: largest logarithm of a table, largest symbol, the usual table. */
const KINDS = [
  [9, 35, states([4, 3, ...many(2, 11), 1, 1, 1, ...many(2, 9), 3, 2, ...many(1, 5), ...many(-1, 4)], 6)],
  [8, 31, states([...many(1, 6), 2, 2, 2, ...many(1, 15), ...many(-1, 5)], 5)],
  [9, 52, states([1, 4, 3, ...many(2, 6), ...many(1, 37), ...many(-1, 7)], 6)],
] as const;

type Table = States | undefined;

/** What a dictionary gives to each frame. */
export interface Dictionary {
  readonly content: Uint8Array;
  readonly codes?: Codes;
  readonly tables: readonly [Table, Table, Table];
  readonly offsets: readonly [number, number, number];
}

const NO_DICTIONARY: Dictionary = {
  content: new Uint8Array(0),
  tables: [undefined, undefined, undefined],
  offsets: [1, 4, 8],
};

export function readDictionary(data: Uint8Array): Dictionary {
  if (word(data, 0) !== DICTIONARY_MAGIC) return { ...NO_DICTIONARY, content: data };
  const [codes, a] = huffman(data, 8, data.length);
  const [offset, b] = distribution(data, a, data.length, 8, 31);
  const [match, c] = distribution(data, b, data.length, 9, 52);
  const [literal, d] = distribution(data, c, data.length, 9, 35);
  if (d + 12 > data.length) throw corrupt("dictionary");
  return {
    content: data.subarray(d + 12),
    codes,
    tables: [literal, offset, match],
    offsets: [word(data, d), word(data, d + 4), word(data, d + 8)],
  };
}

/** What is behind the end counts as zero: whoever reads there checks the position afterwards. */
const byte = (data: Uint8Array, at: number): number => data[at] ?? 0;

const word = (data: Uint8Array, at: number): number =>
  (byte(data, at) | (byte(data, at + 1) << 8) | (byte(data, at + 2) << 16) | (byte(data, at + 3) << 24)) >>>
  0;

/** The size of the content of a frame, if it says it, where its body is, and whether it has a checksum. */
function header(src: Uint8Array, at: number) {
  const flags = u8(src, at + 4);
  const isSingle = (flags >> 5) & 1;
  const sizeBytes = nth([isSingle, 2, 4, 8], flags >> 6);
  const start = at + 5 + (isSingle ? 0 : 1) + nth([0, 1, 2, 4], flags & 3);
  if (start + sizeBytes > src.length || flags & 8) throw corrupt("header");
  let size = sizeBytes === 2 ? 256 : 0;
  for (let i = 0; i < sizeBytes; i++) size += u8(src, start + i) * 256 ** i;
  const stated = sizeBytes === 0 ? undefined : size;
  return { size: stated, body: start + sizeBytes, hasChecksum: (flags & 4) !== 0 };
}

/** The size of the content if all is one frame that states it. */
export function statedSize(src: Uint8Array): number | undefined {
  return src.length >= 6 && word(src, 0) === MAGIC ? header(src, 0).size : undefined;
}

/** Decompresses all frames of `src`. Refuses more than `limit` bytes. */
export function decompress(src: Uint8Array, limit = 2 ** 30, dictionary = NO_DICTIONARY): Uint8Array {
  const parts: Uint8Array[] = [];
  let at = 0;
  let total = 0;
  while (at < src.length) {
    if (at + 6 > src.length) throw corrupt("end is missing");
    const magic = word(src, at);
    if ((magic & 0xfffffff0) >>> 0 === 0x184d2a50) {
      at += 8 + word(src, at + 4);
      continue;
    }
    if (magic !== MAGIC) throw corrupt("no magic number");
    const frame = new Frame(src, header(src, at), limit - total, dictionary);
    const content = frame.run();
    parts.push(content);
    total += content.length;
    at = frame.at;
  }
  return joined(parts);
}

class Frame {
  at: number;
  private out: Uint8Array;
  private end = 0; // of the output
  private codes: Codes | undefined;
  private readonly tables: [Table, Table, Table];
  private offsets: Dictionary["offsets"];

  constructor(
    private readonly src: Uint8Array,
    private readonly head: ReturnType<typeof header>,
    private readonly limit: number,
    private readonly dictionary: Dictionary,
  ) {
    this.at = head.body;
    this.codes = dictionary.codes;
    this.tables = [...dictionary.tables];
    this.offsets = dictionary.offsets;
    if ((head.size ?? 0) > limit) throw corrupt(`${head.size} bytes of content, at most ${limit} expected`);
    // no frame is smaller than 4 bytes for each block of its content
    if ((head.size ?? 0) > (src.length / 4 + 1) * BLOCK) throw corrupt("size of content");
    this.out = new Uint8Array(head.size ?? Math.min(limit, src.length * 4 + 1024));
  }

  run(): Uint8Array {
    const { src } = this;
    for (let isLast = 0; !isLast;) {
      if (this.at + 3 > src.length) throw corrupt("end is missing");
      const head = word(src, this.at) & 0xffffff;
      isLast = head & 1;
      const size = head >> 3;
      const kind = (head >> 1) & 3;
      this.at += 3;
      const stop = this.at + (kind === 1 ? 1 : size);
      if (size > BLOCK || stop > src.length || kind === 3) throw corrupt("block");
      if (kind === 2) this.block(this.at, stop);
      else {
        this.reserve(size);
        if (kind === 0) this.out.set(src.subarray(this.at, stop), this.end);
        else this.out.fill(u8(src, this.at), this.end, this.end + size);
        this.end += size;
      }
      this.at = stop;
    }
    if (this.head.hasChecksum) this.at += 4;
    if (this.at > src.length || (this.head.size !== undefined && this.head.size !== this.end))
      throw corrupt("size of content");
    return this.out.subarray(0, this.end);
  }

  private reserve(size: number): void {
    const needed = this.end + size;
    if (needed <= this.out.length) return;
    if (this.head.size !== undefined || needed > this.limit) throw corrupt("size of content");
    const out = new Uint8Array(Math.min(this.limit, Math.max(needed, this.out.length * 2)));
    out.set(this.out.subarray(0, this.end));
    this.out = out;
  }

  /** The literals of a block, and the position after them. */
  private literals(start: number, end: number): [Uint8Array, number] {
    const { src } = this;
    const head = word(src, start) + byte(src, start + 4) * 2 ** 32;
    const [kind, format] = [head & 3, (head >> 2) & 3];
    if (kind < 2) {
      const bytes = nth([1, 2, 1, 3], format);
      const size = Math.floor((head % 2 ** (8 * bytes)) / (bytes === 1 ? 8 : 16));
      const from = start + bytes;
      const stop = from + (kind === 0 ? size : 1);
      if (size > BLOCK || stop > end) throw corrupt("literals");
      return [kind === 0 ? src.subarray(from, stop) : new Uint8Array(size).fill(u8(src, from)), stop];
    }
    const bits = nth([10, 10, 14, 18], format);
    const size = Math.floor(head / 16) % 2 ** bits;
    let from = start + nth([3, 3, 4, 5], format);
    const stop = from + (Math.floor(head / 2 ** (4 + bits)) % 2 ** bits);
    if (size > BLOCK || stop > end) throw corrupt("literals");
    if (kind === 2) [this.codes, from] = huffman(src, from, stop);
    if (this.codes === undefined) throw corrupt("literals");
    const out = new Uint8Array(size);
    const streams = format === 0 ? 1 : 4;
    const part = Math.ceil(size / streams);
    for (let i = 0, at = streams === 1 ? from : from + 6; i < streams; i++) {
      const next = i === streams - 1 ? stop : at + (word(src, from + 2 * i) & 0xffff);
      if (next > stop) throw corrupt("literals");
      decodeLiterals(new Bits(src, at, next), this.codes, out.subarray(i * part, (i + 1) * part));
      at = next;
    }
    return [out, stop];
  }

  private block(start: number, stop: number): void {
    const { src, tables } = this;
    const [literals, from] = this.literals(start, stop);
    let at = from;
    let count = u8(src, at++);
    if (at > stop) throw corrupt("sequences");
    if (count === 255) {
      count = (word(src, at) & 0xffff) + 0x7f00;
      at += 2;
    } else if (count >= 128) count = ((count - 128) << 8) + u8(src, at++);
    if (count > 0) {
      const modes = u8(src, at++);
      for (const [i, [log, largest, usual]] of KINDS.entries()) {
        const mode = (modes >> (6 - 2 * i)) & 3;
        if (mode === 0) tables[i] = usual;
        else if (mode === 1) {
          if (u8(src, at) > largest) throw corrupt("sequences");
          tables[i] = { log: 0, entry: Uint32Array.of(u8(src, at++)) };
        } else if (mode === 2) [tables[i], at] = distribution(src, at, stop, log, largest);
      }
    }
    if (at > stop || (count === 0 && at !== stop)) throw corrupt("sequences");
    if (this.head.size === undefined) this.reserve(Math.min(BLOCK, this.limit - this.end));
    const used = count > 0 ? this.sequences(new Bits(src, at, stop), count, literals) : 0;
    if (this.end + literals.length - used > this.out.length) throw corrupt("size of content");
    this.out.set(literals.subarray(used), this.end);
    this.end += literals.length - used;
  }

  /** Literals and matches in turn. Returns the number of literals. */
  private sequences(bits: Bits, count: number, literals: Uint8Array): number {
    const { out, tables } = this;
    const { content } = this.dictionary;
    const [ll, of, ml] = tables;
    if (!ll || !of || !ml) throw corrupt("sequences");
    const cap = Math.min(out.length, this.end + BLOCK);
    let [end, used] = [this.end, 0];
    let [l, o, m] = [ll, of, ml].map(({ log, entry }) => u32(entry, bits.read(log))) as [
      number,
      number,
      number,
    ];
    const next = ({ entry }: States, state: number): number =>
      u32(entry, (state >> 16) + bits.read((state >> 8) & 255));
    for (let i = 0; i < count; i++) {
      const code = o & 255;
      const more = code > 24 ? bits.read(code - 24) * 2 ** 24 + bits.read(24) : bits.read(code);
      const match = u32(MATCH_BASE, m & 255) + bits.read(u8(MATCH_BITS, m & 255));
      const literal = u32(LITERAL_BASE, l & 255) + bits.read(u8(LITERAL_BITS, l & 255));
      const offset = this.offset(2 ** code + more, literal > 0);
      if (i + 1 < count) {
        l = next(ll, l);
        m = next(ml, m);
        o = next(of, o);
      }
      if (bits.left < 0 || end + literal + match > cap || used + literal > literals.length || offset <= 0)
        throw corrupt("sequences");
      out.set(literals.subarray(used, used + literal), end);
      used += literal;
      end += literal;
      const stop = end + match;
      for (; end < offset && end < stop; end++) out[end] = u8(content, content.length + end - offset);
      // What overlaps itself is repeated
      for (; end < stop; end += offset) out.copyWithin(end, end - offset, Math.min(end, stop - offset));
      end = stop;
    }
    if (bits.left !== 0) throw corrupt("sequences");
    this.end = end;
    return used;
  }

  /** The offset that a value stands for: a new one, or one of the last three. */
  private offset(value: number, hasLiterals: boolean): number {
    const [first, second, third] = this.offsets;
    const place = value > 3 ? 4 : value - Number(hasLiterals);
    const offset = nth([first, second, third, first - 1, value - 3], place);
    if (place > 0) this.offsets = [offset, first, place === 1 ? third : second];
    return offset;
  }
}
