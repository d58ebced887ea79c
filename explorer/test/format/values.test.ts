import assert from "node:assert/strict";
import { test } from "node:test";
import { unhex } from "../../src/base/lists";
import { flexbuffer, msgpack } from "../../src/format/values";

const bytes = (text: string): Uint8Array => unhex(text.replaceAll(" ", ""));

test("MessagePack: values of all types", () => {
  const cases: [string, unknown][] = [
    ["00", 0],
    ["7f", 127],
    ["e0", -32],
    ["ff", -1],
    ["c0", null],
    ["c2", false],
    ["c3", true],
    ["cc ff", 255],
    ["cd 0100", 256],
    ["ce 00010000", 65536],
    ["cf 0000000100000000", 2 ** 32],
    ["d0 80", -128],
    ["d1 ff00", -256],
    ["d2 ffff0000", -65536],
    ["d3 ffffffff00000000", -(2 ** 32)],
    ["ca 3fc00000", 1.5],
    ["cb 3ff8000000000000", 1.5],
    ["a3 616263", "abc"],
    ["d9 03 616263", "abc"],
    ["da 0003 616263", "abc"],
    ["db 00000003 616263", "abc"],
    ["c4 02 0102", [1, 2]],
    ["c5 0002 0102", [1, 2]],
    ["c6 00000002 0102", [1, 2]],
    ["92 01 c3", [1, true]],
    ["dc 0001 05", [5]],
    ["dd 00000001 05", [5]],
    ["81 a1 61 01", { a: 1 }],
    ["de 0001 a1 61 91 c0", { a: [null] }],
    ["df 00000001 a1 61 80", { a: {} }],
  ];
  for (const [data, value] of cases) assert.deepEqual(msgpack(bytes(data)), value, data);
});

test("MessagePack: damaged values throw", () => {
  for (const data of [
    "",
    "c1",
    "cd 01",
    "a3 61",
    "92 01",
    "81 a1 61",
    "dd ffffffff",
    "df ffffffff",
    "c4 09 01",
  ])
    assert.throws(() => msgpack(bytes(data)), RangeError, data);
  assert.throws(() => msgpack(new Uint8Array(1000).fill(0x91)), /too deep/);
});

test("a property of any name is a property", () => {
  const value = msgpack(bytes("81 a9 5f5f70726f746f5f5f 81 a1 61 01")) as object;
  assert.deepEqual(Object.keys(value), ["__proto__"]);
  assert.equal(Object.getPrototypeOf(value), Object.prototype);
});

test("FlexBuffers: values of all types", () => {
  const cases: [string, unknown][] = [
    ["00 00 01", null],
    ["fb 04 01", -5],
    ["05 08 01", 5],
    ["0000c03f 0e 04", 1.5],
    ["000000000000f83f 0f 08", 1.5],
    ["01 68 01", true],
    ["61 62 00 03 10 01", "ab"],
    ["02 61 62 00 03 14 01", "ab"],
    ["02 01 02 02 2c 01", [1, 2]],
    ["02 fe 02 04 04 04 28 01", [-2, 2]],
    ["02 01 02 02 64 01", [1, 2]],
    ["01 02 02 40 01", [1, 2]],
    ["02 01 00 02 90 01", [true, false]],
    ["61 00 01 03 01 01 01 07 04 02 24 01", { a: 7 }],
  ];
  for (const [data, value] of cases) assert.deepEqual(flexbuffer(bytes(data)), value, data);
});

test("FlexBuffers: damaged values throw", () => {
  for (const data of ["", "01", "05 08 03", "ff 14 01", "61 62 03 10 01", "7f 01 02 2c 01", "05 fc 01"])
    assert.throws(() => flexbuffer(bytes(data)), RangeError, data);
});
