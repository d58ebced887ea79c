import assert from "node:assert/strict";
import { test } from "node:test";
import { differenceScale, withUnit, NUMBERS, scaleOf } from "../../src/array/axes";
import { categoryTable, cssColour, MAPS, paint, pixel, table } from "../../src/array/colour";
import { f64, nth, u32 } from "../../src/base/lists";
import { decodeCF } from "../../src/cf/cf";
import { snapshotOf } from "../../src/page/state";
import { allCategories, statistics } from "../../src/values/numbers";
import { limitOf } from "../../src/values/picture";
import { array, memoryReader } from "./memory";

const decoded = (attributes: Record<string, unknown>, ...values: number[]): ReturnType<typeof decodeCF> =>
  decodeCF(array("/t", [values.length], [values.length], ["x"], attributes), {
    shape: [values.length],
    raw: Float64Array.from(values),
  });

test("plain numbers, with units", () => {
  const scale = scaleOf(decoded({ units: "K" }, 1.5, NaN));
  assert.deepEqual([withUnit(scale, 1.5), withUnit(scale, NaN)], ["1.5 K", "no value"]);
  assert.deepEqual(
    scale.ticks([0, 10], 5).map(({ text }) => text),
    ["0", "2", "4", "6", "8", "10"],
  );
  assert.equal(scaleOf(decoded({ units: "1" }, 1)).units, "");
  // A mean is between the integers of which it is the mean
  const values = [16777216.25, 1e10 + 0.5, 123456.7, 12345.67, 0.00001, 1e15, -1e6 - 0.7];
  assert.deepEqual(
    values.map((value) => withUnit(NUMBERS, value)),
    ["16777216", "10000000001", "123457", "12345.7", "1e-5", "1e+15", "-1000001"],
  );
});

test("times, and differences of times in the unit of the array", () => {
  const times = decoded({ units: "days since 2000-01-01" }, 0, 1.5);
  const scale = scaleOf(times);
  assert.equal(withUnit(scale, f64(times.values as Float64Array, 1)), "2000-01-02 12:00");
  const day = 86_400_000;
  const begin = f64(times.values as Float64Array, 0);
  assert.deepEqual(
    scale.ticks([begin, begin + 4 * day], 4).map(({ text }) => text),
    ["2000-01-01", "2000-01-02", "2000-01-03", "2000-01-04", "2000-01-05"],
  );
  assert.equal(withUnit(scale, 1234.5), "1970-01-01 00:00:01.235"); // a mean
  const difference = differenceScale(times);
  assert.equal(withUnit(difference, 1.5 * day), "1.5 days");
  assert.deepEqual(
    difference.ticks([0, 2 * day], 2).map(({ value, text }) => [value / day, text]),
    [
      [0, "0"],
      [1, "1"],
      [2, "2"],
    ],
  );
});

test("meanings of numbers are categories without a mean", () => {
  const flags = { flag_values: [3, 1], flag_meanings: "rain snow" };
  const scale = scaleOf(decoded(flags, 1, 3, 7));
  assert.deepEqual([scale.categories, scale.hasMean], [[1, 3], false]);
  assert.deepEqual([1, 3, 7].map(scale.text), ["1 (snow)", "3 (rain)", "7"]);
  assert.deepEqual(
    scale.ticks([0, 2], 9).map(({ text }) => text),
    ["snow"],
  );
  assert.deepEqual(allCategories(Float64Array.of(9, 1, NaN, 7), [1, 3]), [1, 3, 7, 9]);
  const masks = scaleOf(decoded({ flag_masks: [1, 2], flag_meanings: "wet cold" }, 3));
  assert.deepEqual([masks.categories, masks.hasMean, masks.text(3)], [undefined, false, "3 (wet, cold)"]);
});

test("the extremes and the mean of the values that are there", () => {
  assert.deepEqual(statistics(Float64Array.of(NaN, 4, -1, 4, NaN)), {
    count: 3,
    mean: 7 / 3,
    low: -1,
    high: 4,
    lowAt: 2,
    highAt: 1,
  });
  assert.equal(statistics(Float64Array.of(NaN)).count, 0);
  assert.deepEqual(statistics(Float64Array.of(Infinity, -Infinity)).lowAt, 1);
});

test("colours as pixels and for style sheets", () => {
  assert.equal(pixel("#010203"), 0xff030201);
  assert.equal(cssColour(pixel("#0a0b0c")), "rgb(10 11 12)");
  for (const name of MAPS) {
    const colours = table(name);
    assert.equal(colours.length, 256);
    assert.ok(colours.every((colour) => colour >>> 24 === 255));
    assert.ok(new Set(colours).size > 100, name);
  }
  assert.deepEqual(table("toString"), table("viridis"));
  const three = categoryTable(3);
  assert.deepEqual([...new Set(three)], ["#0072b2", "#e69f00", "#009e73"].map(pixel));
  const colours = table("grey");
  const pixels = paint(Float64Array.of(-9, 0, 0.5, 1, NaN), [0, 1], colours);
  assert.deepEqual([...pixels], [0, 0, 127, 255].map((at) => u32(colours, at)).concat(0));
});

test("limits of colours that a person types", () => {
  const { clock } = decoded({ units: "days since 2000-01-01" }, 0);
  assert.deepEqual(
    [undefined, "", "many", "1.5"].map((text) => limitOf(text, undefined)),
    [undefined, undefined, undefined, 1.5],
  );
  assert.equal(limitOf("2000-02", clock), Date.UTC(2000, 1));
  assert.equal(limitOf("2000-13", clock), undefined);
});

test("the snapshot of a branch, an ancestor or an id", async () => {
  const { repository } = memoryReader({ commits: 30, stations: 1 });
  const [[name, id] = ["", ""]] = repository.branches;
  assert.equal((await snapshotOf(repository, name)).id, id);
  assert.equal((await snapshotOf(repository, id)).id, id);
  const above = nth(repository.history.parent, repository.row(id));
  assert.equal((await snapshotOf(repository, `${name}~1`)).id, repository.history.id(above));
  await assert.rejects(snapshotOf(repository, "nobody"), { kind: "not-found", message: /commit nobody/ });
});
