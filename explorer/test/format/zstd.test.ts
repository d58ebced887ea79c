import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ZSTDDecoder } from "zstddec";
import { decompress, readDictionary, statedSize } from "../../src/codecs/zstd";
import { decodeLarge } from "../../src/worker";
import { DATA, readJson } from "./folder";
import { flipBit } from "./reader";

const FOLDER = join(DATA, "zstd");
const read = (name: string): Uint8Array => new Uint8Array(readFileSync(join(FOLDER, name)));
const dictionary = readDictionary(read("dictionary"));
const dictionaryOf = (name: string) => (name.includes("dictionary") ? dictionary : undefined);
const names = readJson<string[]>(FOLDER, "names.json");

test("frames of all levels, with and without dictionary", () => {
  for (const name of names) {
    const found = decompress(read(name), 2 ** 30, dictionaryOf(name));
    assert.ok(Buffer.compare(found, read(`${name.split(".")[0]}.raw`)) === 0, name);
  }
});

test("WebAssembly decodes the same, also frames that do not state their size", async () => {
  const large = new ZSTDDecoder();
  await large.init();
  const plain = names.filter((name) => dictionaryOf(name) === undefined);
  assert.ok(plain.some((name) => statedSize(read(name)) === undefined));
  for (const name of plain) {
    const raw = read(`${name.split(".")[0]}.raw`);
    assert.ok(Buffer.compare(decodeLarge(large, read(name), 2 ** 30), raw) === 0, name);
    if (raw.length) assert.throws(() => decodeLarge(large, read(name), raw.length - 1), /damaged/, name);
  }
  const both = Uint8Array.from([...read("5.1.zst"), ...read("6.3.zst")]);
  assert.deepEqual([...decodeLarge(large, both, 2 ** 20)], [...read("5.raw"), ...read("6.raw")]);
});

test("frames one after the other, and frames to skip", () => {
  const [a, b] = [read("5.1.zst"), read("6.3.zst")];
  const skipped = Uint8Array.of(0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3);
  const found = decompress(Uint8Array.from([...a, ...skipped, ...b]));
  assert.deepEqual([...found], [...read("5.raw"), ...read("6.raw")]);
});

test("a limit holds", () => {
  assert.throws(() => decompress(read("2.1.zst"), 299_999), /damaged/);
  assert.throws(() => decompress(read("2.3.zst"), 299_999), /damaged/);
});

test("damaged frames throw, or give other bytes", () => {
  let seed = 7;
  const next = (n: number): number => (seed = (Math.imul(seed, 1103515245) + 12345) >>> 0) % n;
  for (const name of names.filter((name) => read(name).length < 5000)) {
    for (let turn = 0; turn < 12; turn++) {
      let data = read(name).slice();
      if (turn % 3 === 0) data = data.subarray(0, next(data.length));
      else flipBit(data, next(data.length), next(8));
      try {
        decompress(data, 2 ** 24, dictionaryOf(name));
      } catch (error) {
        assert.match(String(error), /damaged|Range/);
      }
    }
  }
});
