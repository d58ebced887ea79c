import assert from "node:assert/strict";
import { test } from "node:test";
import type { ComponentChildren, VNode } from "preact";
import { CATEGORIES, pixel } from "../../src/array/colour";
import { decodeCF } from "../../src/cf/cf";
import { SHADES, type ShadeData } from "../../src/chunks/shades";
import type { ArrayNode, Snapshot } from "../../src/format/types";
import type { Reader } from "../../src/page/home";
import { parseSlice } from "../../src/array/slices";
import { statisticsOf, summaryOf } from "../../src/values/summary";
import type { Writers } from "../../src/versions/writers";
import { present } from "../present";
import { array, chunkTable, memoryReader } from "./memory";

// the colours of the style sheet
const element = { style: {}, remove: () => undefined };
Object.assign(globalThis, {
  document: { createElement: () => element, documentElement: { appendChild: () => element } },
  getComputedStyle: () => ({ color: "rgb(1, 2, 3)" }),
});

/** The text of elements whose components have no state. */
function textOf(node: ComponentChildren): string {
  if (Array.isArray(node)) return (node as ComponentChildren[]).map(textOf).join("");
  if (node === null || typeof node !== "object") return typeof node === "boolean" ? "" : String(node ?? "");
  const { type, props } = node as VNode<{ children?: ComponentChildren }>;
  if (typeof type === "function" && type.length)
    return textOf((type as (of: unknown) => ComponentChildren)(props));
  return textOf(props.children);
}

const node = array("/t", [40, 8], [10, 8], ["y", "x"]);
const table = chunkTable(node, (at) => at !== 2);
const { repository } = memoryReader({ commits: 50, stations: 1 });
const writers: Writers = {
  rows: Int32Array.of(40, 30, -1),
  places: Int32Array.of(0, 1, -1),
  commits: [
    { row: 40, count: 1 },
    { row: 30, count: 1 },
  ],
  merges: new Set([30]),
  older: 1,
  read: 20,
};

const data: ShadeData = {
  repository,
  table,
  places: 4,
  changed: Uint8Array.of(0, 1, 0),
  writers,
  statistics: undefined,
};

/** Statistics as stored, for an array with these attributes. */
async function withStatistics(attributes: Record<string, unknown>): Promise<ShadeData> {
  const own = array("/t", [40, 8], [10, 8], ["y", "x"], attributes);
  const snapshot = {
    statistics: async () => ({
      minimum: Float64Array.of(1, 2, NaN),
      maximum: Float64Array.of(10, 20, NaN),
      mean: Float64Array.of(5, 6, NaN),
      gaps: Float64Array.of(0, 0.25, NaN),
      notes: ["statistics/X is damaged"],
    }),
  } as unknown as Snapshot;
  const reader = {
    decode: (_: Snapshot, of: ArrayNode, region: Parameters<typeof decodeCF>[1]) => decodeCF(of, region),
  } as unknown as Reader;
  const array_ = { reader, snapshot, node: own };
  return { ...data, statistics: await statisticsOf(array_, table, new AbortController().signal) };
}

test("each colour has a label of its own", () => {
  const labels = Object.values(SHADES).flatMap(({ label, labelBetween }) => [label, labelBetween ?? ""]);
  const shown = labels.filter(Boolean);
  assert.equal(new Set(shown).size, shown.length);
  assert.ok(Object.values(SHADES).length >= 9);
});

test("each colour is a place in its list, before and after what it needs is loaded", () => {
  for (const [name, { show }] of Object.entries(SHADES)) {
    for (const of of [data, { ...data, writers: undefined, changed: undefined }]) {
      const { colours, shade } = show(of);
      for (let row = 0; row < table.length; row++)
        assert.ok(shade(row) >= -1 && shade(row) < colours.length, `${name} of row ${row}`);
    }
  }
});

test("kinds, sizes and changes", () => {
  const kind = SHADES.kind.show(data);
  assert.match(textOf(kind.legend), /missing 1.*inline 1.*in a pack/s);
  assert.match(textOf(present(SHADES.size).show(data).legend), /^\d+(\.\d+)? k?bytes?.*B$|bytes/);
  const change = present(SHADES.change).show(data);
  assert.deepEqual([0, 1, 2].map(change.shade), [-1, 0, -1]);
  assert.equal(textOf(change.legend), " changed 1");
  assert.equal(change.colours[0], pixel("#d55e00"));
});

test("the commit that wrote a chunk, and its age", () => {
  const commit = present(SHADES.commit).show(data);
  assert.deepEqual([0, 1, 2].map(commit.shade), [0, 1, -1]);
  assert.equal(commit.colours.length, CATEGORIES.length);
  const { history } = repository;
  assert.match(
    present(commit.describe?.(0)),
    new RegExp(`^${history.id(40).slice(0, 6)} .*, \\d{4}-\\d\\d-\\d\\d `),
  );
  assert.match(present(commit.describe?.(1)), /^came with merge /);
  assert.equal(commit.describe?.(2), "older than 20 commits");
  const legend = textOf(commit.legend);
  assert.ok(legend.includes(history.id(30).slice(0, 6)) && legend.includes("came with merge "));
  assert.ok(legend.endsWith("1 chunk older than the 20 commits on record"));
  const age = present(SHADES.age).show(data);
  assert.deepEqual([0, 1, 2].map(age.shade), [255, 0, -1]);
  const none = { ...writers, rows: new Int32Array(3).fill(-1), commits: [], older: 3, read: 1 };
  const old = present(SHADES.age).show({ ...data, writers: none });
  assert.equal(textOf(old.legend), " 3 chunks older than the commit on record");
});

test("statistics of chunks as values", async () => {
  const plain = await withStatistics({ units: "K" });
  const mean = present(SHADES.mean).show(plain);
  assert.deepEqual([0, 1, 2].map(mean.shade), [0, 255, -1]);
  assert.equal(mean.describe?.(0), "minimum 1, maximum 10, mean 5");
  assert.equal(mean.describe?.(1), "minimum 2, maximum 20, mean 6, 25 % without value");
  assert.equal(mean.describe?.(2), "no statistics");
  const legend = textOf(mean.legend);
  assert.match(legend, /^56 1 chunk without statistics/);
  assert.ok(legend.endsWith("statistics/X is damaged. The file is ignored."));
  assert.match(textOf(present(SHADES.gaps).show(plain).legend), /^0 %25 %/);
});

test("packed statistics: a negative factor exchanges the extremes, and a fill value is a number", async () => {
  const packed = await withStatistics({ scale_factor: -2, add_offset: 1, _FillValue: 5 });
  assert.equal(present(SHADES.mean).show(packed).describe?.(0), "minimum -19, maximum -1, mean -9");
  const times = await withStatistics({ units: "days since 2000-01-01" });
  assert.equal(
    present(SHADES.minimum).show(times).describe?.(0),
    "minimum 2000-01-02, maximum 2000-01-11, mean 2000-01-06",
  );
});

test("a picture from statistics has the mean of each chunk in its middle", async () => {
  const own = array("/t", [3, 25, 20], [1, 10, 10], ["time", "y", "x"], { scale_factor: 2 });
  const chunks = chunkTable(own, (at) => at !== 8); // of 3 * 3 * 2 places
  const known = Float64Array.from({ length: chunks.length }, (_, row) => row);
  const snapshot = {
    id: "S",
    manifests: () => [{ id: "M", extents: Uint32Array.of(0, 3, 0, 3, 0, 2), count: chunks.length }],
    chunks: async () => chunks,
    statistics: async () => ({
      minimum: known,
      maximum: known,
      mean: known,
      gaps: known.map(() => 0),
      notes: [],
    }),
  } as unknown as Snapshot;
  const reader = {
    decode: (_: Snapshot, of: ArrayNode, region: Parameters<typeof decodeCF>[1]) => decodeCF(of, region),
  } as unknown as Reader;
  const slice = parseSlice(own.shape, { i: "1,0,0" });
  const plane = await summaryOf({ reader, snapshot, node: own }, slice, new AbortController().signal);
  // Places 6 to 11 of the table are those of the second time; place 8 has no chunk. Packing is applied
  assert.deepEqual([...(plane?.values ?? [])], [12, 14, NaN, 16, 18, 20]);
  assert.deepEqual(plane?.box, { start: [1, 5, 5], stop: [2, 26, 16], step: [1, 10, 10] });
  assert.equal(plane?.isSummary, true);
  const without = { ...snapshot, manifests: () => [] };
  assert.equal(
    await summaryOf({ reader, snapshot: without, node: own }, slice, new AbortController().signal),
    undefined,
  );
});
