import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync, gzipSync } from "node:zlib";
import { hex, unhex } from "../../src/base/lists";
import { decodeLz4Block } from "../../src/codecs/blosc";
import { type ChunkSpec, decodeChunk, planOf } from "../../src/codecs/codecs";
import { copyBox, dtypeOf, filled, numpyType } from "../../src/codecs/elements";
import { present } from "../present";

const BYTES = { name: "bytes", configuration: { endian: "little" } };

const spec = (codecs: unknown[], type: unknown = "uint8", shape = [4], fill: unknown = 0): ChunkSpec => ({
  codecs,
  type,
  shape,
  fill,
});

async function decode(of: ChunkSpec, data: Uint8Array): Promise<unknown[]> {
  return Array.from(dtypeOf(of.type).wrap(await decodeChunk(of, data)) as ArrayLike<unknown>);
}

test("compressed bytes, each codec with its checks", async () => {
  const plain = Uint8Array.of(1, 2, 3, 4);
  assert.deepEqual(await decode(spec([BYTES, "gzip"]), gzipSync(plain)), [1, 2, 3, 4]);
  assert.deepEqual(await decode(spec([BYTES, "numcodecs.zlib"]), deflateSync(plain)), [1, 2, 3, 4]);
  assert.deepEqual(await decode(spec([BYTES, "crc32c"]), unhex("01020304f48c3029")), [1, 2, 3, 4]);
  await assert.rejects(decodeChunk(spec([BYTES, "crc32c"]), unhex("01020305f48c3029")), /checksum crc32c/);
  await assert.rejects(decodeChunk(spec([BYTES]), plain.subarray(1)), /3 bytes, expected 4/);
  // what unpacks to far more than the chunk is refused before it fills the memory
  await assert.rejects(decodeChunk(spec([BYTES, "gzip"]), gzipSync(new Uint8Array(2 ** 21))), /damaged gzip/);
});

test("codecs that this page does not have", async () => {
  for (const codecs of [["bytes", "pcodec"], ["wavpack"]])
    await assert.rejects(decodeChunk(spec(codecs), new Uint8Array(4)), { kind: "codec" });
  for (const codecs of [[], ["transpose"]])
    await assert.rejects(decodeChunk(spec(codecs), new Uint8Array(4)), { kind: "format" });
  assert.throws(() => planOf(spec([BYTES], "int128")), { kind: "codec", message: /data type "int128"/ });
  assert.throws(() => numpyType("<M8"), { kind: "codec" });
});

test("LZ4: literals, matches that overlap, damage", () => {
  assert.deepEqual([...decodeLz4Block(unhex("40 01020304".replace(" ", "")), 4)], [1, 2, 3, 4]);
  // one literal, then a match of 7 bytes at the distance 1
  assert.deepEqual([...decodeLz4Block(unhex("13050100" + "1006"), 9)], [5, 5, 5, 5, 5, 5, 5, 5, 6]);
  const long = unhex("f002" + "00".repeat(17));
  assert.equal(decodeLz4Block(long, 17).length, 17);
  for (const [data, size] of [
    ["4001", 4],
    ["13050000", 8],
    ["13050900", 8],
    ["40010203", 9],
    ["f0ff", 300],
    ["1305", 8],
  ] as const)
    assert.throws(() => decodeLz4Block(unhex(data), size), RangeError, data);
});

test("codecs that change elements", async () => {
  const transpose = { name: "transpose", configuration: { order: [1, 0] } };
  const bytes = Uint8Array.of(1, 2, 3, 4, 5, 6);
  assert.deepEqual(await decode(spec([transpose, BYTES], "uint8", [2, 3]), bytes), [1, 3, 5, 2, 4, 6]);
  const fortran = { name: "transpose", configuration: { order: "F" } };
  assert.deepEqual(await decode(spec([fortran, BYTES], "uint8", [2, 3]), bytes), [1, 3, 5, 2, 4, 6]);
  for (const order of [[0], [0, 0], [0, 2], "X"])
    await assert.rejects(
      decodeChunk(spec([{ name: "transpose", configuration: { order } }, BYTES], "uint8", [2, 3]), bytes),
      { kind: "format" },
    );
  const delta = { name: "numcodecs.delta", configuration: { dtype: "<i2", astype: "|i1" } };
  assert.deepEqual(await decode(spec([delta, BYTES], "int16", [3]), Uint8Array.of(5, 1, 0xfe)), [5, 6, 4]);
  const scaled = {
    name: "numcodecs.fixedscaleoffset",
    configuration: { scale: 10, offset: 1, dtype: "<f4", astype: "|u1" },
  };
  assert.deepEqual(await decode(spec([scaled, BYTES], "float32", [2]), Uint8Array.of(5, 0)), [1.5, 1]);
  const big = { name: "bytes", configuration: { endian: "big" } };
  assert.deepEqual(await decode(spec([big], "uint16", [2]), unhex("01020304")), [0x102, 0x304]);
});

test("codecs of scales and of casts", async () => {
  const scaled = { name: "scale_offset", configuration: { scale: 10, offset: 5 } };
  const floats = new Uint8Array(Float32Array.of(0, -20, NaN).buffer);
  assert.deepEqual(await decode(spec([scaled, BYTES], "float32", [3]), floats), [5, 3, NaN]);
  const tenth = { name: "scale_offset", configuration: { scale: 3 } };
  const one = new Uint8Array(Float32Array.of(1).buffer);
  assert.deepEqual(await decode(spec([tenth, BYTES], "float32", [1]), one), [
    Math.fround(1 / Math.fround(3)),
  ]);
  assert.deepEqual(await decode(spec([scaled, BYTES], "uint8", [2]), Uint8Array.of(10, 200)), [6, 25]);
  const cast = {
    name: "cast_value",
    configuration: { data_type: "int8", scalar_map: { decode: [[-128, "NaN"]] } },
  };
  const bytes = Uint8Array.of(0x80, 0, 100);
  assert.deepEqual(await decode(spec([cast, BYTES], "float64", [3]), bytes), [NaN, 0, 100]);
  assert.deepEqual(await decode(spec([scaled, cast, BYTES], "float64", [3]), bytes), [NaN, 5, 15]);
  const unknown = { name: "cast_value", configuration: { data_type: "int7" } };
  await assert.rejects(decodeChunk(spec([unknown, BYTES]), bytes), { kind: "codec" });
});

const sharding = (location: string, index = ["bytes"]): unknown => ({
  name: "sharding_indexed",
  configuration: { chunk_shape: [2], codecs: [BYTES], index_codecs: index, index_location: location },
});
const le = (...numbers: number[]): string => hex(new Uint8Array(BigUint64Array.from(numbers, BigInt).buffer));
const NONE = "ff".repeat(16);

test("shards: a missing chunk has the fill value, a damaged index is an error", async () => {
  const end = unhex("0708" + le(0, 2) + NONE);
  assert.deepEqual(await decode(spec([sharding("end")], "uint8", [4], 9), end), [7, 8, 9, 9]);
  const start = unhex(NONE + le(32, 2) + "0708");
  assert.deepEqual(await decode(spec([sharding("start")], "uint8", [4], 9), start), [9, 9, 7, 8]);
  await assert.rejects(decodeChunk(spec([sharding("end")]), new Uint8Array(31)), /smaller than its index/);
  await assert.rejects(decodeChunk(spec([sharding("end")]), unhex("0708" + le(33, 2) + NONE)), /damaged/);
  await assert.rejects(decodeChunk(spec([sharding("end")], "uint8", [3]), end), { kind: "format" });
  await assert.rejects(decodeChunk(spec([sharding("end", ["bytes", "gzip"])]), end), { kind: "codec" });
});

test("fill values of all types", () => {
  const cases: [unknown, unknown, unknown][] = [
    ["bool", true, 1],
    ["int8", -3, -3],
    ["uint16", 65535, 65535],
    ["int64", "NaT", -(2n ** 63n)],
    ["uint64", 2 ** 64, 2n ** 64n - 1n],
    ["float16", 1.5, 1.5],
    ["float16", 1e9, Infinity],
    ["float32", "NaN", NaN],
    ["float32", "-Infinity", -Infinity],
    ["float64", "0x3ff8000000000000", 1.5],
    ["complex64", [1, -2], 1],
    ["string", "text", "text"],
    [{ name: "fixed_length_utf32", configuration: { length_bytes: 12 } }, "né", "né"],
    [{ name: "null_terminated_bytes", configuration: { length_bytes: 4 } }, "YWI=", "ab"],
    ["r16", "AQI=", "0102"],
    [{ name: "numpy.datetime64", configuration: { unit: "D" } }, 7, 7n],
  ];
  for (const [type, fill, value] of cases) {
    const dtype = dtypeOf(type);
    const all = Array.from(dtype.wrap(filled(dtype, 3, fill)) as ArrayLike<unknown>);
    assert.equal(all.length, dtype.isComplex ? 6 : 3);
    assert.deepEqual(all[0], value, JSON.stringify([type, fill]));
    assert.deepEqual(all.at(dtype.isComplex ? -2 : -1), value);
  }
  assert.throws(() => filled(dtypeOf("float32"), 1, "many"), { kind: "format" });
  assert.throws(() => dtypeOf({ name: "raw_bytes", configuration: { length_bytes: 0 } }), { kind: "format" });
});

test("a box of elements of any size", () => {
  for (const type of ["uint8", "uint16", "float32", "float64", "string"]) {
    const { size } = dtypeOf(type);
    const list = (count: number): Uint8Array | string[] =>
      size ? new Uint8Array(count * size) : Array.from({ length: count }, () => "");
    const [source, target] = [list(12), list(6)];
    for (let i = 0; i < 12; i++)
      if (Array.isArray(source)) source[i] = String(i);
      else source.fill(i, i * size, (i + 1) * size);
    // every second column of a plane of 3 by 4
    const from = { elements: source, start: 0, steps: [4, 2] };
    copyBox({ elements: target, start: 0, steps: [2, 1] }, from, [3, 2], size);
    const shown = Array.from({ length: 6 }, (_, i) =>
      Number(Array.isArray(target) ? target[i] : present(target[i * size])),
    );
    assert.deepEqual(shown, [0, 2, 4, 6, 8, 10], type);
  }
});
