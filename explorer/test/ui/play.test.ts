import assert from "node:assert/strict";
import { test } from "node:test";
import { lineDimension, parsePoints, parseSlice } from "../../src/array/slices";
import { Cache } from "../../src/format/files";
import { robust } from "../../src/array/colour";
import { aheadOf, samplePlaces, together, versionsOf } from "../../src/values/play";
import { meansAlong } from "../../src/values/points";
import { memoryReader } from "./memory";

test("frames are read once, and the oldest ones are dropped", async () => {
  const frames = new Cache<string>(2);
  const reads: string[] = [];
  const get = (key: string): Promise<string> => frames.get(key, async () => (reads.push(key), key));
  for (const key of ["a", "b", "a", "c", "a", "b"]) assert.equal(await get(key), key);
  assert.deepEqual(reads, ["a", "b", "c", "b"]);
  await assert.rejects(frames.get("d", async () => assert.fail("no frame")));
  assert.equal(await get("d"), "d");
  const parts = [[1], [1500, 1500], [1e9]].map((stop) => ({
    start: stop.map(() => 0),
    stop,
    step: stop.map(() => 1),
  }));
  for (const [versions, frames] of [
    [1, [3, 2, 0]],
    [2, [3, 0, 0]],
  ] as const)
    assert.deepEqual(
      parts.map((part) => aheadOf(part, versions)),
      frames,
    );
});

test("colours come from frames over the whole length", () => {
  assert.deepEqual(
    [samplePlaces(3, 99), samplePlaces(15, 99), samplePlaces(100, 2), samplePlaces(1, 1)],
    [[0, 1, 2], [0, 2, 4, 6, 8, 10, 12, 14], [0, 99], [0]],
  );
  const frame = (base: number): Float64Array =>
    Float64Array.from({ length: 100 }, (_, at) => base + at / 100);
  const [low, high] = robust(together([frame(0), frame(10)]));
  assert.ok(low < 0.1 && high > 10.9);
});

test("versions that changed an array", async () => {
  const { repository } = memoryReader({ commits: 6 });
  const id = (row: number): string => repository.history.id(row);
  assert.deepEqual(await versionsOf(repository, id(5), "id of /t2m"), [1, 2, 3, 4, 5].map(id));
  assert.deepEqual(await versionsOf(repository, id(5), "id of /stations/s00019"), [id(5)]);
  assert.deepEqual(await versionsOf(repository, id(4), "id of /wide"), [id(4)]);
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
