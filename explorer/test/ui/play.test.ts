import assert from "node:assert/strict";
import { test } from "node:test";
import { lineDimension, parsePoints, parseSlice } from "../../src/array/slices";
import { Cache } from "../../src/format/files";
import { aheadOf } from "../../src/values/play";
import { meansAlong } from "../../src/values/points";

test("frames are read once, and the oldest ones are dropped", async () => {
  const frames = new Cache<string>(2);
  const reads: string[] = [];
  const get = (key: string): Promise<string> => frames.get(key, async () => (reads.push(key), key));
  for (const key of ["a", "b", "a", "c", "a", "b"]) assert.equal(await get(key), key);
  assert.deepEqual(reads, ["a", "b", "c", "b"]);
  await assert.rejects(frames.get("d", async () => assert.fail("no frame")));
  assert.equal(await get("d"), "d");
  assert.deepEqual([1, 1500 * 1500, 1e9].map(aheadOf), [3, 2, 0]);
});

test("points of an address", () => {
  const shape = [5, 10, 20];
  assert.deepEqual(parsePoints("0.1.2,4.9.19,5.0.0,1.2,0.x.1,", shape), [
    [0, 1, 2],
    [4, 9, 19],
  ]);
  assert.equal(parsePoints(Array.from({ length: 9 }, (_, at) => `0.${at}.0`).join(), shape).length, 7);
  const slice = parseSlice(shape, {});
  const along = (text?: string, time = 0): number =>
    lineDimension(shape, slice, (dimension) => dimension === time, text);
  assert.deepEqual(
    [along(), along("2"), along("9"), along("", 2), lineDimension([1, 4, 4], slice, () => false, "")],
    [0, 2, 0, 0, slice.x],
  );
});

test("means over all dimensions but one, with weights and gaps", () => {
  const values = Float64Array.of(1, 2, 3, 4, 5, NaN, 7, 8, NaN, NaN, NaN, NaN);
  assert.deepEqual([...meansAlong(values, [3, 2, 2], 0)], [2.5, 20 / 3, NaN]);
  assert.deepEqual([...meansAlong(values, [3, 2, 2], 2)], [4, 14 / 3]);
  const weighted = meansAlong(values, [3, 2, 2], 0, Float64Array.of(1, 3), 1);
  assert.deepEqual([...weighted], [(3 + 3 * 7) / 8, (5 + 3 * 15) / 7, NaN]);
  assert.deepEqual([...meansAlong(new Float64Array(), [0, 2], 1)], [NaN, NaN]);
});
