/** What the page copies of a plane: the rows that it shows, with all of their digits. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Coordinate, type Coordinates, scaleOf } from "../../src/array/axes";
import type { Slice } from "../../src/array/slices";
import { decodeCF } from "../../src/cf/cf";
import type { Region, Snapshot } from "../../src/format/types";
import { csvOf, linesOf } from "../../src/values/copy";
import type { Plane } from "../../src/values/picture";
import { array } from "./memory";

const SLICE: Slice = { x: 0, y: -1, index: [0], from: [0], to: [4] };

function planeOf(raw: Region["raw"], more: Partial<Plane> = {}): Plane {
  const node = array("/v", [4], [4], ["time"]);
  const decoded = decodeCF(node, { shape: [raw.length], raw });
  const box = { start: [0], stop: [raw.length], step: [1] };
  const values = decoded.values as Float64Array;
  return { node, values, box, slice: SLICE, scale: scaleOf(decoded), lost: [], ...more };
}

/** The coordinate of numbers with units. */
function timesOf(units: string, raw: Region["raw"]): Coordinates {
  const node = array("/time", [raw.length], [raw.length], ["time"], { units });
  const coordinate: Coordinate = { ...decodeCF(node, { shape: [raw.length], raw }), name: "time" };
  return new Map([[0, coordinate]]);
}

/** The condition of the lines of SQL for the cells from `start` to `stop`; undefined without such lines. */
function condition(coordinates: Coordinates, start: number, stop: number): string | undefined {
  const plane = planeOf([1, 2, 3, 4], { box: { start: [start], stop: [stop], step: [1] } });
  const snapshot = { id: "S", nodes: [] } as unknown as Snapshot;
  const lines = linesOf("ice", { snapshot, plane, coordinates }).find(([title]) => title === "SQL");
  return lines && (/ where (.*)'\n$/.exec(lines[1] ?? "")?.[1] ?? "").replaceAll("'\\''", "'");
}

test("times in SQL are the ones that the plane shows", () => {
  const days = timesOf("days since 2000-01-01", [0, 1, 2, 3]);
  assert.equal(condition(days, 0, 4), "");
  assert.equal(
    condition(days, 1, 3),
    `"time" between timestamp '2000-01-02 00:00:00.000' and timestamp '2000-01-03 00:00:00.000'`,
  );
  const fractions = timesOf("days since 2000-01-01", [0, 1 / 7, 2 / 7, 3]);
  assert.equal(
    condition(fractions, 1, 3),
    `"time" between timestamp '2000-01-01 03:25:42.857' and timestamp '2000-01-01 06:51:25.715'`,
  );
  const apart = timesOf("microseconds since 2000-01-01", BigInt64Array.of(0n, 2001n, 1_500_001n, 3_000_000n));
  assert.equal(
    condition(apart, 1, 3),
    `"time" between timestamp '2000-01-01 00:00:00.001' and timestamp '2000-01-01 00:00:01.501'`,
  );
  const near = timesOf("nanoseconds since 2000-01-01", BigInt64Array.of(0n, 40n, 1000n, 2000n));
  assert.equal(condition(near, 0, 2), undefined);
  assert.equal(condition(timesOf("microseconds since 2000-01-01", [0, 1, 2, 3]), 1, 3), undefined);
});

test("CSV has all digits", () => {
  assert.equal(csvOf(planeOf([0.1 + 0.2, NaN]), new Map()), "time,v\n0,0.30000000000000004\n1,\n");
  const times = timesOf("nanoseconds since 2000-01-01", BigInt64Array.of(0n, 1000n));
  const lines = "time,v\n2000-01-01 00:00:00.000000000,1\n2000-01-01 00:00:00.000001000,2\n";
  assert.equal(csvOf(planeOf([1, 2]), times), lines);
  const wide = planeOf(BigInt64Array.of(1n, 2n), { exact: (at) => String(2n ** 60n + BigInt(at)) });
  assert.equal(csvOf(wide, new Map()), "time,v\n0,1152921504606846976\n1,1152921504606846977\n");
});
