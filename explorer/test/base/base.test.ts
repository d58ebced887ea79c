import assert from "node:assert/strict";
import { test } from "node:test";
import { ExplorerError, notFound, reasonOf, unsupported } from "../../src/base/errors";
import {
  clamp,
  entryOf,
  f64,
  firstWhere,
  half,
  hex,
  i32,
  joined,
  nth,
  placesOf,
  product,
  record,
  sizes,
  strides,
  text,
  u16,
  u32,
  u8,
  unhex,
  viewOf,
  wide,
} from "../../src/base/lists";

test("an index outside of a list is an error", () => {
  const columns = [
    (at: number) => u8(Uint8Array.of(1, 2), at),
    (at: number) => u16(Uint16Array.of(1, 2), at),
    (at: number) => u32(Uint32Array.of(1, 2), at),
    (at: number) => i32(Int32Array.of(1, 2), at),
    (at: number) => f64(Float64Array.of(1, 2), at),
    (at: number) => nth([1, 2], at),
  ];
  for (const column of columns) {
    assert.deepEqual([column(0), column(1)], [1, 2]);
    for (const at of [-1, 2, 0.5, NaN]) assert.throws(() => column(at), RangeError);
  }
  assert.equal(nth([null], 0), null);
  assert.ok(Number.isNaN(f64(Float64Array.of(NaN), 0)));
});

test("a search in a sorted list", () => {
  const list = [1, 3, 3, 7];
  const find = (value: number): number => firstWhere(list.length, (at) => nth(list, at) >= value);
  assert.deepEqual([0, 1, 2, 3, 4, 7, 8].map(find), [0, 0, 1, 1, 3, 3, 4]);
  assert.equal(
    firstWhere(0, () => true),
    0,
  );
});

test("shapes and places", () => {
  const shape = [2, 3, 4];
  assert.deepEqual(strides(shape), [12, 4, 1]);
  assert.deepEqual(strides([]), []);
  assert.equal(product([]), 1);
  for (let at = 0; at < product(shape); at++) {
    const places = placesOf(at, shape);
    assert.equal(
      places.reduce((sum, place, d) => sum + place * nth(strides(shape), d), 0),
      at,
    );
    places.forEach((place, d) => assert.ok(place < nth(shape, d)));
  }
  assert.deepEqual([clamp(-1, 0, 3), clamp(2, 0, 3), clamp(9, 0, 3)], [0, 2, 3]);
});

test("bytes", () => {
  assert.equal(hex(unhex("00ff10")), "00ff10");
  assert.deepEqual([...joined([Uint8Array.of(1), Uint8Array.of(), Uint8Array.of(2, 3)])], [1, 2, 3]);
  assert.equal(text(new TextEncoder().encode("grün")), "grün");
  const part = Uint8Array.of(9, 1, 0, 0, 0, 2, 0, 0, 0).subarray(1);
  assert.equal(wide(viewOf(part), 0), 2 * 2 ** 32 + 1);
  const halves: [number, number][] = [
    [0x0000, 0],
    [0x8000, -0],
    [0x3c00, 1],
    [0xc000, -2],
    [0x7bff, 65504],
    [0x0001, 2 ** -24],
    [0x7c00, Infinity],
    [0xfc00, -Infinity],
    [0x7e00, NaN],
  ];
  for (const [bits, value] of halves) assert.ok(Object.is(half(bits), value), String(value));
});

test("values of JSON that nobody has checked", () => {
  for (const value of [null, 3, "text", [1]]) assert.deepEqual(record(value), {});
  assert.deepEqual(record({ a: 1 }), { a: 1 });
  assert.equal(entryOf({ a: 1 }, "a"), 1);
  for (const name of ["b", "toString", "__proto__"]) assert.equal(entryOf({ a: 1 }, name), undefined);
  assert.deepEqual(sizes([0, 3], "a shape"), [0, 3]);
  for (const wrong of [undefined, 3, [-1], [1.5], ["1"], [2 ** 60]])
    assert.throws(() => sizes(wrong, "a shape"), {
      kind: "format",
      message: /^a shape: expected a list of sizes/,
    });
});

test("errors have a kind and a reason", () => {
  assert.deepEqual([notFound("gone").kind, unsupported("new").kind], ["not-found", "unsupported"]);
  assert.ok(notFound("gone") instanceof ExplorerError);
  assert.deepEqual(["text", 7, new Error("cause")].map(reasonOf), ["text", "7", "cause"]);
});
