/**
 * Zstandard, with dictionaries: the locations of manifests need them, and no small library has them. After
 * RFC 8878.
 */

import { joined, nth, u16, u32, u8, viewOf } from "../base/lists";

const MAGIC = 0xfd2fb528;
const DICTIONARY_MAGIC = 0xec30a437;
const BLOCK = 1 << 17;

class Corrupt extends Error {
  constructor(what: string) {
    super(`damaged zstd data: ${what}`);
  }
}

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
  if (at !== 0) throw new Corrupt("table of states");
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
    if (bit > end * 8 + 16) throw new Corrupt("table of states");
    return value;
  };
  const log = read(4) + 5;
  if (log > maxLog) throw new Corrupt("table of states");
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
    if (counts.length > maxSymbol + 1) throw new Corrupt("table of states");
  }
  const position = (bit + 7) >> 3;
  if (left < 0 || position > end) throw new Corrupt("table of states");
  return [states(counts, log), position];
}

/** A stream of bits that is read from its end. Eight zero bytes before it stand for what is before its start. */
let scratch = viewOf(new Uint8Array(BLOCK + 64));

/** Copies a stream; returns the position of its last bit. */
function reversed(src: Uint8Array, start: number, end: number): number {
  const length = end - start;
  if (length <= 0 || end > src.length) throw new Corrupt("stream of bits");
  if (length + 16 > scratch.byteLength) scratch = viewOf(new Uint8Array(length * 2 + 16));
  const bytes = new Uint8Array(scratch.buffer);
  bytes.set(src.subarray(start, end), 8);
  bytes.fill(0, 8 + length, 16 + length);
  const last = u8(src, end - 1);
  if (last === 0) throw new Corrupt("stream of bits");
  return (8 + length - 1) * 8 + high(last);
}

/** Up to 25 bits. */
const bitsAt = (stream: DataView, bit: number, count: number): number =>
  (stream.getUint32(bit >> 3, true) >>> (bit & 7)) & ((1 << count) - 1);

function huffman(src: Uint8Array, start: number, end: number): [Codes, number] {
  const head = src[start++];
  if (head === undefined) throw new Corrupt("literals");
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
    if (stop > end) throw new Corrupt("literals");
    const [table, from] = distribution(src, start, stop, 6, 255);
    let bit = reversed(src, from, stop);
    const stream = scratch;
    const read = (count: number): number => bitsAt(stream, Math.max((bit -= count), 0), count);
    for (let [place, other] = [read(table.log), read(table.log)]; ;) {
      const state = u32(table.entry, place);
      weights.push(state & 255);
      if (weights.length > 255) throw new Corrupt("literals");
      const count = (state >> 8) & 255;
      if (bit - count < 64) {
        weights.push(u32(table.entry, other) & 255);
        break;
      }
      [place, other] = [other, (state >> 16) + read(count)];
    }
    start = stop;
  }
  if (start > end) throw new Corrupt("literals");
  let total = 0;
  for (const weight of weights) total += weight > 0 ? 1 << (weight - 1) : 0;
  if (total === 0) throw new Corrupt("literals");
  const log = high(total) + 1;
  const rest = (1 << log) - total;
  if (log > 12 || (rest & (rest - 1)) !== 0) throw new Corrupt("literals");
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

function literals(
  src: Uint8Array,
  start: number,
  end: number,
  codes: Codes,
  out: Uint8Array,
  from: number,
  to: number,
): void {
  let bit = reversed(src, start, end);
  const stream = scratch;
  const { log, entry } = codes;
  const mask = (1 << log) - 1;
  let at = from;
  // two codes of at most 12 bits are in reach of one read
  for (const stop = to - 1; at < stop && bit >= 32; at += 2) {
    const low = bit - 25;
    const bits = stream.getUint32(low >> 3, true) >>> (low & 7);
    const one = u16(entry, (bits >> (25 - log)) & mask);
    const length = one & 15;
    const two = u16(entry, (bits >> (25 - log - length)) & mask);
    out[at] = one >> 4;
    out[at + 1] = two >> 4;
    bit -= length + (two & 15);
  }
  for (; at < to; at++) {
    const low = bit - log;
    if (low < 0) throw new Corrupt("literals");
    const code = u16(entry, bitsAt(stream, low, log));
    out[at] = code >> 4;
    bit -= code & 15;
  }
  if (bit !== 64) throw new Corrupt("literals");
}

const range = (count: number, from: number): number[] => Array.from({ length: count }, (_, i) => i + from);
const repeat = (value: number, count: number): number[] => Array.from({ length: count }, () => value);

/** The lengths of literals and of matches by their codes: the first value and the number of extra bits. */
function lengths(first: number, plain: number, digits: string): [base: Uint32Array, bits: Uint8Array] {
  const bits = [...repeat(0, plain), ...Array.from(digits, Number), ...range(10, 7)];
  let next = first;
  return [Uint32Array.from(bits, (count) => (next += 1 << count) - (1 << count)), Uint8Array.from(bits)];
}
const [LITERAL_BASE, LITERAL_BITS] = lengths(0, 16, "1111223346");
const [MATCH_BASE, MATCH_BITS] = lengths(3, 32, "11112233445");

/** Literal lengths, offsets, match lengths: largest logarithm of a table, largest symbol, the usual table. */
const KINDS = [
  [
    9,
    35,
    states([4, 3, ...repeat(2, 11), 1, 1, 1, ...repeat(2, 9), 3, 2, ...repeat(1, 5), ...repeat(-1, 4)], 6),
  ],
  [8, 31, states([...repeat(1, 6), 2, 2, 2, ...repeat(1, 15), ...repeat(-1, 5)], 5)],
  [9, 52, states([1, 4, 3, ...repeat(2, 6), ...repeat(1, 37), ...repeat(-1, 7)], 6)],
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
  if (d + 12 > data.length) throw new Corrupt("dictionary");
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

interface Header {
  readonly size: number | undefined; // of the content, if the frame says it
  readonly body: number;
  readonly hasChecksum: boolean;
}

function header(src: Uint8Array, at: number): Header {
  const flags = u8(src, at + 4);
  const isSingle = (flags >> 5) & 1;
  const sizeBytes = nth([isSingle, 2, 4, 8], flags >> 6);
  const start = at + 5 + (isSingle ? 0 : 1) + nth([0, 1, 2, 4], flags & 3);
  if (start + sizeBytes > src.length || flags & 8) throw new Corrupt("header");
  let size = sizeBytes === 2 ? 256 : 0;
  for (let i = 0; i < sizeBytes; i++) size += u8(src, start + i) * 256 ** i;
  return {
    size: sizeBytes === 0 ? undefined : size,
    body: start + sizeBytes,
    hasChecksum: (flags & 4) !== 0,
  };
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
    if (at + 6 > src.length) throw new Corrupt("end is missing");
    const magic = word(src, at);
    if ((magic & 0xfffffff0) >>> 0 === 0x184d2a50) {
      at += 8 + word(src, at + 4);
      continue;
    }
    if (magic !== MAGIC) throw new Corrupt("no magic number");
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
  private readonly literals = new Uint8Array(BLOCK);

  constructor(
    private readonly src: Uint8Array,
    private readonly head: Header,
    private readonly limit: number,
    private readonly dictionary: Dictionary,
  ) {
    this.at = head.body;
    this.codes = dictionary.codes;
    this.tables = [...dictionary.tables];
    this.offsets = dictionary.offsets;
    if ((head.size ?? 0) > limit)
      throw new Corrupt(`${head.size} bytes of content, at most ${limit} expected`);
    // no frame is smaller than 4 bytes for each block of its content
    if ((head.size ?? 0) > (src.length / 4 + 1) * BLOCK) throw new Corrupt("size of content");
    this.out = new Uint8Array(head.size ?? Math.min(limit, src.length * 4 + 1024));
  }

  run(): Uint8Array {
    const { src } = this;
    for (let isLast = 0; !isLast;) {
      if (this.at + 3 > src.length) throw new Corrupt("end is missing");
      const head = word(src, this.at) & 0xffffff;
      isLast = head & 1;
      const size = head >> 3;
      const kind = (head >> 1) & 3;
      this.at += 3;
      const stop = this.at + (kind === 1 ? 1 : size);
      if (size > BLOCK || stop > src.length || kind === 3) throw new Corrupt("block");
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
      throw new Corrupt("size of content");
    return this.out.subarray(0, this.end);
  }

  private reserve(size: number): void {
    const needed = this.end + size;
    if (needed <= this.out.length) return;
    if (this.head.size !== undefined || needed > this.limit) throw new Corrupt("size of content");
    const out = new Uint8Array(Math.min(this.limit, Math.max(needed, this.out.length * 2)));
    out.set(this.out.subarray(0, this.end));
    this.out = out;
  }

  /** Decodes the literals of a block into `this.literals`; returns their number and the position after them. */
  private readLiterals(start: number, end: number): [number, number] {
    const { src } = this;
    const kind = u8(src, start) & 3;
    const format = (u8(src, start) >> 2) & 3;
    const low = word(src, start);
    if (kind < 2) {
      const bytes = nth([1, 2, 1, 3], format);
      const size = (low & (2 ** (8 * bytes) - 1)) >> (bytes === 1 ? 3 : 4);
      const from = start + bytes;
      const stop = from + (kind === 0 ? size : 1);
      if (size > BLOCK || stop > end) throw new Corrupt("literals");
      if (kind === 0) this.literals.set(src.subarray(from, stop));
      else this.literals.fill(u8(src, from), 0, size);
      return [size, stop];
    }
    const bits = nth([10, 10, 14, 18], format);
    const wide = low + byte(src, start + 4) * 2 ** 32;
    const size = Math.floor(wide / 16) & ((1 << bits) - 1);
    const packed = Math.floor(wide / 2 ** (4 + bits)) & ((1 << bits) - 1);
    let from = start + nth([3, 3, 4, 5], format);
    const stop = from + packed;
    if (size > BLOCK || !(stop <= end)) throw new Corrupt("literals");
    if (kind === 2) [this.codes, from] = huffman(src, from, stop);
    const { codes } = this;
    if (codes === undefined) throw new Corrupt("literals");
    if (format === 0) literals(src, from, stop, codes, this.literals, 0, size);
    else {
      let at = from + 6;
      if (at > stop) throw new Corrupt("literals");
      const part = (size + 3) >> 2;
      for (let i = 0; i < 4; i++) {
        const next = i === 3 ? stop : at + (word(src, from + 2 * i) & 0xffff);
        if (next > stop) throw new Corrupt("literals");
        const last = i === 3 ? size : Math.min(size, (i + 1) * part);
        literals(src, at, next, codes, this.literals, Math.min(size, i * part), last);
        at = next;
      }
    }
    return [size, stop];
  }

  private block(start: number, stop: number): void {
    const { src, tables } = this;
    const [literalCount, from] = this.readLiterals(start, stop);
    let at = from;
    let count = u8(src, at++);
    if (at > stop) throw new Corrupt("sequences");
    if (count === 255) {
      count = (word(src, at) & 0xffff) + 0x7f00;
      at += 2;
    } else if (count >= 128) count = ((count - 128) << 8) + u8(src, at++);
    this.reserve(0);
    if (count > 0) {
      const modes = u8(src, at++);
      for (const [i, [log, largest, usual]] of KINDS.entries()) {
        const mode = (modes >> (6 - 2 * i)) & 3;
        if (mode === 0) tables[i] = usual;
        else if (mode === 1) {
          if (u8(src, at) > largest) throw new Corrupt("sequences");
          tables[i] = { log: 0, entry: Uint32Array.of(u8(src, at++)) };
        } else if (mode === 2) [tables[i], at] = distribution(src, at, stop, log, largest);
      }
    }
    if (at > stop) throw new Corrupt("sequences");
    if (this.head.size === undefined) this.reserve(Math.min(BLOCK, this.limit - this.end));
    const { out, literals: text, dictionary } = this;
    const cap = Math.min(out.length, this.end + BLOCK);
    let end = this.end;
    let used = 0;
    if (count > 0) {
      let bit = reversed(src, at, stop);
      const buffer = scratch;
      // local variables, because properties and captured variables cost half of the speed
      const [ll, of, ml] = tables;
      if (!ll || !of || !ml) throw new Corrupt("sequences");
      const llEntry = ll.entry;
      const ofEntry = of.entry;
      const mlEntry = ml.entry;
      let l = u32(llEntry, bitsAt(buffer, (bit -= ll.log), ll.log));
      let o = u32(ofEntry, bitsAt(buffer, (bit -= of.log), of.log));
      let m = u32(mlEntry, bitsAt(buffer, (bit -= ml.log), ml.log));
      let [first, second, third] = this.offsets;
      for (let i = 0; i < count; i++) {
        if (bit < 64) throw new Corrupt("sequences");
        const code = o & 255;
        let value: number;
        if (code <= 24) value = (1 << code) + bitsAt(buffer, (bit -= code), code);
        else {
          value = 2 ** code + bitsAt(buffer, (bit -= code - 24), code - 24) * 2 ** 24;
          value += bitsAt(buffer, (bit -= 24), 24);
        }
        let match = u32(MATCH_BASE, m & 255);
        const more = u8(MATCH_BITS, m & 255);
        if (more > 0) match += bitsAt(buffer, (bit -= more), more);
        let literal = u32(LITERAL_BASE, l & 255);
        const extra = u8(LITERAL_BITS, l & 255);
        if (extra > 0) literal += bitsAt(buffer, (bit -= extra), extra);
        if (value > 3) {
          value -= 3;
          third = second;
          second = first;
          first = value;
        } else {
          if (literal === 0) value++;
          if (value === 1) value = first;
          else {
            const repeat = value === 2 ? second : value === 3 ? third : first - 1;
            if (value !== 2) third = second;
            second = first;
            first = value = repeat;
          }
        }
        if (i + 1 < count) {
          const a = (l >> 8) & 255;
          const b = (m >> 8) & 255;
          const c = (o >> 8) & 255;
          l = u32(llEntry, (l >> 16) + bitsAt(buffer, (bit -= a), a));
          m = u32(mlEntry, (m >> 16) + bitsAt(buffer, (bit -= b), b));
          o = u32(ofEntry, (o >> 16) + bitsAt(buffer, (bit -= c), c));
        }
        if (end + literal + match > cap || used + literal > literalCount || value <= 0)
          throw new Corrupt("sequences");
        if (literal > 32) {
          out.set(text.subarray(used, used + literal), end);
          end += literal;
          used += literal;
        } else while (literal-- > 0) out[end++] = u8(text, used++);
        let source = end - value;
        if (source < 0) {
          const { content } = dictionary;
          let at = content.length + source;
          if (at < 0) throw new Corrupt("sequences");
          for (; match > 0 && at < content.length; match--) out[end++] = u8(content, at++);
          source = end - value;
        }
        if (value >= match && match > 32) {
          out.copyWithin(end, source, source + match);
          end += match;
        } else while (match-- > 0) out[end++] = u8(out, source++);
      }
      if (bit !== 64) throw new Corrupt("sequences");
      this.offsets = [first, second, third];
    } else if (at !== stop) throw new Corrupt("sequences");
    if (end + literalCount - used > cap) throw new Corrupt("size of content");
    out.set(text.subarray(used, literalCount), end);
    this.end = end + literalCount - used;
  }
}
