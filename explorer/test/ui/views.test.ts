import assert from "node:assert/strict";
import { test } from "node:test";
import { diverging, paint, robust, spread, symmetric, table, ticks } from "../../src/array/colour";
import {
  changedPaths,
  codecs,
  coordinate,
  gridShape,
  itemSize,
  listed,
  rows,
  tree,
} from "../../src/array/nodes";
import { changedRows, chunkBox, compareTables, kinds, summary } from "../../src/array/references";
import {
  box,
  boxShape,
  cellEdges,
  cellFinder,
  chunksOf,
  type Labels,
  parseSlice,
  plane,
  sliceQuery,
  typedIndex,
} from "../../src/array/slices";
import { clockOf, periodOf, timeText, timeTicks } from "../../src/cf/calendar";
import { cellsOf, paintCells } from "../../src/chunks/shades";
import type { ArrayNode, History } from "../../src/format/types";
import { HOME, parseRoute, resolve, writeRoute } from "../../src/page/route";
import { afterwards, first } from "../../src/page/state";
import { bytes, firstLine, fitted, isolated, number, parent, when } from "../../src/page/text";
import { search } from "../../src/versions/search";
import { chunkWriters } from "../../src/versions/writers";
import { changedData, compareLines, compareNodes } from "../../src/views/diff";
import { present } from "../present";
import { array, chunkTable, history, memoryReader, nodes } from "./memory";

test("addresses say the same after reading and writing", () => {
  const routes = [
    HOME,
    { ...HOME, query: { q: "author:Ada & more", at: "A" } },
    { ...HOME, page: "node" as const, version: "feature/a b", path: "/with space/ä#?%" },
    { ...HOME, page: "node" as const, version: "main", path: "/", query: { view: "data", i: "1,2" } },
    { ...HOME, page: "diff" as const, base: "branch.x", version: "tag.v1/2", path: "/a/b" },
  ];
  for (const route of routes) assert.deepEqual(parseRoute(writeRoute(route)), route);
});

test("addresses that nobody wrote", () => {
  for (const hash of ["", "#", "#/", "#/v", "#/v/", "#/diff/a", "#/nothing/here"])
    assert.equal(parseRoute(hash).page, "home");
  assert.equal(parseRoute("#/history?q=a").page, "history");
  assert.equal(parseRoute("#/v/%E0%A4%A/x").version, "%E0%A4%A");
  assert.equal(parseRoute("#/v/main").path, "/");
  assert.equal(parseRoute("#/v/main//a//b?x=1?2").query["x"], "1?2");
});

test("names of versions", () => {
  const ids = ["A", "B", "C", "D", "T"]; // each the parent of the next
  const history = { parent: Int32Array.from([-1, 0, 1, 2, 3]), id: (row: number) => ids[row] } as History;
  const branches = new Map([
    ["main", "B"],
    ["both", "C"],
    ["tag.x", "D"],
    ["x~1", "T"],
  ]);
  const names = { branches, tags: new Map([["both", "T"]]), history, row: (id: string) => ids.indexOf(id) };
  const ancestors = {
    "main~1": "A",
    "main~": "A",
    "~1": "A",
    "main~0": "B",
    "tag.both~2": "C",
    "T~4": "A",
    "x~1": "T",
  };
  for (const version of ["main~2", "main~9", "nothing~1", "main~x"])
    assert.equal(resolve(names, version), version);
  const wanted = {
    ...ancestors,
    main: "B",
    both: "C",
    "tag.both": "T",
    "branch.both": "C",
    "tag.x": "D",
    "1CECHNKREP0F1RSTCMT0": "1CECHNKREP0F1RSTCMT0",
  };
  for (const [version, id] of Object.entries(wanted)) assert.equal(resolve(names, version), id);
});

test("slices of arrays", () => {
  const shape = [365, 73, 144];
  const usual = parseSlice(shape, {});
  assert.deepEqual([usual.x, usual.y], [2, 1]);
  assert.deepEqual(box(shape, usual, 1000), { start: [0, 0, 0], stop: [1, 73, 144], step: [1, 1, 1] });
  const line = parseSlice(shape, { x: "0", y: "none", i: "0,20,500" });
  assert.deepEqual([line.y, ...line.index], [-1, 0, 20, 143]);
  assert.deepEqual(box(shape, line, 100), { start: [0, 20, 143], stop: [365, 21, 144], step: [4, 1, 1] });
  assert.deepEqual(boxShape(box(shape, line, 100)), [92, 1, 1]);
  for (const query of [
    { x: "0", y: "1", i: "0,0,7", r0: "10-20", r1: "", r2: "" },
    sliceQuery(shape, usual),
  ]) {
    assert.deepEqual(
      parseSlice(shape, sliceQuery(shape, parseSlice(shape, query))),
      parseSlice(shape, query),
    );
  }
});

test("slices of unusual arrays and queries", () => {
  assert.deepEqual(parseSlice([], {}), { x: -1, y: -1, index: [], from: [], to: [] });
  assert.deepEqual([parseSlice([5], {}).x, parseSlice([5], {}).y], [0, -1]);
  assert.deepEqual([parseSlice([4, 1, 5], {}).x, parseSlice([4, 1, 5], {}).y], [2, 0]);
  assert.deepEqual([parseSlice([1, 1], {}).y, parseSlice([0], {}).to[0]], [-1, 0]);
  const wild = parseSlice([3, 4], { x: "9", y: "-4", i: "a,99", r0: "7-2", r1: "3-99" });
  assert.ok(
    wild.x <= 1 && wild.index[1] === 3 && present(wild.from[0]) < present(wild.to[0]) && wild.to[1] === 4,
  );
  assert.deepEqual(boxShape(box([0, 3], parseSlice([0, 3], { x: "0", y: "1" }), 10)), [0, 3]);
});

test("chunks of a region", () => {
  assert.equal(chunksOf({ start: [0, 5], stop: [10, 15], step: [1, 1] }, [4, 10]), 6);
  assert.equal(chunksOf({ start: [0], stop: [1000], step: [100] }, [10]), 10);
  assert.equal(chunksOf({ start: [3], stop: [3], step: [1] }, [10]), 0);
});

test("planes", () => {
  const values = Float64Array.from({ length: 24 }, (_, at) => at);
  assert.deepEqual([...plane(values.subarray(0, 6), [1, 2, 3], 2, 1)], [0, 1, 2, 3, 4, 5]);
  assert.deepEqual([...plane(values.subarray(0, 6), [1, 2, 3], 1, 2)], [0, 3, 1, 4, 2, 5]);
  assert.deepEqual([...plane(values.subarray(0, 3), [1, 3, 1], 1, -1)], [0, 1, 2]);
  assert.deepEqual([...plane(values.subarray(7, 8), [], -1, -1)], [7]);
  assert.deepEqual([...plane(new Float64Array(), [0, 2, 3], 2, 1)], []);
});

const labelsOf = (values: number[] | string[], more: Partial<Labels> = {}): Labels => ({
  name: "x",
  values: typeof values[0] === "string" ? (values as string[]) : Float64Array.from(values as number[]),
  label: (at) => String(values[at]),
  ...more,
});
const even = (from: number, step: number, length: number): number[] =>
  Array.from({ length }, (_, at) => from + at * step);

test("a typed place is the label that it names, or a sentence", () => {
  const globe = labelsOf(even(1.875, 3.75, 96), { isLongitude: true });
  const region = labelsOf(even(-15, 0.25, 141), { isLongitude: true });
  const wrapped = labelsOf([350, 355, 0, 5], { isLongitude: true });
  const down = labelsOf(even(88.75, -2.5, 72));
  const table: [string, Labels | undefined, number | RegExp][] = [
    ["11.4", labelsOf([10, 11, 12]), 1],
    ["12.5", labelsOf([10, 11, 12]), 2],
    ["12.6", labelsOf([10, 11, 12]), /x goes from 10 to 12, and the nearest label is 12/],
    ["9", labelsOf([10, 11, 12]), /nearest label is 10/],
    ["3", labelsOf([3, 1, 2]), 0],
    ["30", labelsOf([0, 10, 100]), 1],
    ["54", labelsOf([0, 10, 100]), 1],
    ["56", labelsOf([0, 10, 100]), 2],
    ["146", labelsOf([0, 10, 100]), /nearest label is 100/],
    ["5", labelsOf([5]), 0],
    ["5.1", labelsOf([5]), /x has one label, and the nearest label is 5/],
    ["0.1", labelsOf([Math.fround(0.1)]), 0],
    ["1", labelsOf([NaN, 1, NaN]), 1],
    ["-60", globe, 80],
    ["300", globe, 80],
    ["660", globe, 80],
    ["359.9", globe, 95],
    ["-0.1", globe, 95],
    ["355", region, 40],
    ["20.1", region, 140],
    ["25", region, /from -15 to 20, and the nearest label is 20/],
    ["-60", region, /nearest label is -15/],
    ["50", region, /nearest label is 20/],
    ["-2.5", wrapped, 2],
    ["6", wrapped, 3],
    ["100", wrapped, /nearest label is/],
    ["180", wrapped, /nearest label is/],
    ["180", globe, 48],
    ["0", globe, 0],
    ["359", labelsOf([0, 90, 180, 270, 360], { isLongitude: true }), 0],
    ["-4", labelsOf([0, 1, 5, 20, 40], { isLongitude: true }), /nearest label is 0/],
    ["15", labelsOf([10, 20, 30]), 1],
    ["95", down, /from -88.75 to 88.75, and the nearest label is 88.75/],
    ["90", down, 0],
    ["Infinity", down, /not a number/],
    ["north", down, /not a number/],
    ["#2", labelsOf([10, 11, 12]), 2],
    ["#3", labelsOf([10, 11, 12]), /go from 0 to 2/],
    ["#-1", labelsOf([10, 11, 12]), /go from 0 to 2/],
    ["", labelsOf([1]), /Write/],
    ["ber", labelsOf(["Oslo", "Bergen", "x"]), 1],
    ["o", labelsOf(["Oslo", "O"]), 1],
    ["st", labelsOf(["ST1", "ST2"]), /2 labels of x begin with "st": ST1, ST2/],
    ["rome", labelsOf(["Oslo"]), /No label/],
    ["1", labelsOf([NaN, NaN]), /x has no values/],
    ["2", undefined, 2],
    ["96", undefined, /go from 0 to 95/],
    ["1.5", undefined, /go from 0 to 95/],
  ];
  for (const [text, labels, wanted] of table) {
    const found = typedIndex(text, labels?.values.length ?? 96, "x", labels);
    if (typeof wanted === "number") assert.equal(found, wanted, `${text}: ${found}`);
    else assert.match(String(found), wanted, text);
  }
});

test("typed dates of any calendar", () => {
  const dates: [string, string, boolean][] = [
    ["360_day", "2001-02-30", true],
    ["360_day", "2001-01-31", false],
    ["noleap", "2004-02-29", false],
    ["all_leap", "2001-02-29 06:30", true],
    ["standard", "1582-10-10", false],
    ["julian", "1900-02-29", true],
    ["proleptic_gregorian", "1900-02-29", false],
    ["noleap", "2001-13-01", false],
    ["noleap", "nonsense", false],
  ];
  for (const [calendar, text, exists] of dates) {
    const period = periodOf(text, calendar);
    assert.equal(typeof period === "object", exists, `${text} in ${calendar}`);
    if (typeof period === "object")
      assert.equal(timeText(period.start, calendar, text.length > 10 ? "minute" : "day"), text);
  }
  assert.match(String(periodOf("2002-02-29", "noleap")), /noleap has no date 2002-02-29.*2002-02-28/);
  const clock = present(clockOf("days since 2000-01-16 12:00", "360_day"));
  const months = labelsOf(even(clock.origin, 30 * clock.step, 48), { clock });
  const table: [string, number | RegExp][] = [
    ["2000-01", 0],
    ["2000-02-16", 1],
    ["2000", 0],
    ["2001", 12],
    ["2000-03-05", 2],
    ["2003-12-30", 47],
    ["1990", /is not on this axis/],
    ["2004-01-05", /is not on this axis/],
    ["2001-01-31", /360_day has no date/],
  ];
  for (const [text, wanted] of table) {
    const found = typedIndex(text, 48, "time", months);
    if (typeof wanted === "number") assert.equal(found, wanted, `${text}: ${found}`);
    else assert.match(String(found), wanted, text);
  }
});

test("round times on an axis", () => {
  const texts = (calendar: string, units: string, length: number, most = 5): string => {
    const { step, origin } = present(clockOf(units, calendar));
    return timeTicks(origin, origin + length * step, most, calendar)
      .map(({ text }) => text)
      .join(" ");
  };
  assert.equal(
    texts("360_day", "days since 2000-02-28", 4),
    "2000-02-28 2000-02-29 2000-02-30 2000-03-01 2000-03-02",
  );
  assert.equal(texts("standard", "hours since 1582-10-04 12:00", 24), "12:00 18:00 1582-10-15 06:00 12:00");
  assert.equal(texts("noleap", "days since 2000-01-01", 365), "2000-01 2000-04 2000-07 2000-10 2001-01");
  assert.equal(texts("julian", "days since 1500-01-01", 36_525), "1500 1520 1540 1560 1580 1600");
  assert.equal(texts("julian", "days since 1500-01-01", 0), "");
});

test("edges of cells", () => {
  assert.deepEqual([...present(cellEdges([1, 2, 4]))], [0.5, 1.5, 3, 5]);
  assert.deepEqual(
    [cellEdges([1, 1]), cellEdges([1, 3, 2]), cellEdges([NaN, 1]), cellEdges([])],
    Array(4).fill(undefined),
  );
});

test("cells of a map", () => {
  const table: [number[], number, number, number][] = [
    [[0, 90, 180, 270], 360, -10, 0],
    [[0, 90, 180, 270], 360, -80, 3],
    [[0, 90, 180, 270], 360, 719, 0],
    [[-10, 0, 10], 360, 20, -1],
    [[-10, 0, 10], 0, 14.9, 2],
    [[90, 0, -90], 0, 50, 0],
    [[90, 0, -90], 0, -46, 2],
    [[1, 2, 4, 8], 0, 5.9, 2],
    [[5], 0, 5.2, 0],
    [[5], 0, NaN, -1],
  ];
  for (const [values, period, value, cell] of table)
    assert.equal(cellFinder(present(cellEdges(values)), period)(value), cell, `${values}: ${value}`);
});

test("limits of colours", () => {
  const values = Float64Array.from({ length: 1001 }, (_, at) => (at === 500 ? 1e9 : at));
  assert.deepEqual(robust(values), [20, 981]);
  assert.deepEqual(robust(Float64Array.of(NaN, NaN)), [0, 1]);
  assert.deepEqual(robust(Float64Array.of(7, 7)), spread([7, 7]));
  assert.deepEqual(symmetric([-2, 5]), [-5, 5]);
  assert.equal(diverging([-2, 5]), true);
  assert.equal(diverging([-0.1, 5]), false);
  assert.deepEqual(ticks([0, 1], 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(ticks([3, 3], 5), []);
  assert.deepEqual(ticks([2 ** 53, 2 ** 53 + 2], 5), []);
  assert.deepEqual(ticks([-(2 ** 62), 512 - 2 ** 62], 5), []);
  assert.deepEqual(ticks([1e9, 1e9 + 2], 2), [1e9, 1e9 + 1, 1e9 + 2]);
  const colours = table("viridis");
  const pixels = paint(Float64Array.of(0, 1, NaN, 99), [0, 1], colours);
  assert.deepEqual([...pixels], [colours[0], colours[255], 0, colours[255]]);
  assert.equal(colours[0], 0xff540144);
});

test("cells of planes", () => {
  const node = array("/a", [40, 60], [10, 20], ["y", "x"]);
  const chunks = chunkTable(node, (at) => at !== 4);
  const grid = gridShape(node);
  assert.deepEqual(grid, [4, 3]);
  const cells = cellsOf(chunks, grid, 1, 0, [0, 0]);
  assert.deepEqual([cells.width, cells.height, cells.rows.filter((row) => row === 0).length], [3, 4, 1]);
  assert.equal(cells.rows[4], 0);
  for (let cell = 0; cell < 12; cell++) {
    assert.equal(cells.cell(cells.coords(cell)), cell);
    const row = present(cells.rows[cell]) - 1;
    if (row >= 0) assert.deepEqual([...chunks.coords.subarray(row * 2, row * 2 + 2)], cells.coords(cell));
  }
  const turned = cellsOf(chunks, grid, 0, 1, [0, 0]);
  assert.equal(turned.rows[1 * 4 + 1], 0);
  const line = cellsOf(chunkTable(array("/b", [1000], [1], ["x"])), [1000], 0, -1, [0]);
  assert.ok(line.width < 60 && line.length === 1000 && line.rows[999] === 1000);
  const scalar = cellsOf(chunkTable(array("/c", [], [], [])), [], -1, -1, []);
  assert.deepEqual([scalar.width, scalar.height, scalar.rows[0], ...scalar.coords(0)], [1, 1, 1]);
});

test("planes of any size fit a canvas", () => {
  const empty = chunkTable(array("/a", [0], [1], ["x"]));
  for (const grid of [[1e12], [1e9, 2], [2, 1e9], [1e6, 1e6], [40, 30]]) {
    const two = grid.length === 2;
    const cells = cellsOf(
      empty,
      grid,
      two ? 1 : 0,
      two ? 0 : -1,
      grid.map(() => 0),
    );
    assert.ok(cells.width <= 16_000 && cells.height <= 16_000 && cells.rows.length <= 4_100_000, `${grid}`);
    const last = grid.map((length) => length - 1);
    assert.ok(cells.cell(last) < cells.length, `${grid}`);
    assert.ok(
      cells.coords(cells.length - 1).every((at, dimension) => at < present(grid[dimension])),
      `${grid}`,
    );
  }
});

test("a table that is larger than the shape", () => {
  const before = chunkTable(array("/a", [100], [10], ["x"]));
  assert.equal(cellsOf(before, [5], 0, -1, [0]).rows.length, 5);
});

test("kinds, sizes, colours and changes of chunks", () => {
  const node = array("/a", [100], [1], ["x"]);
  const chunks = chunkTable(node, (at) => at < 80);
  const found = summary(chunks, 100);
  assert.equal(present(found[0]).count, 20);
  assert.equal(
    found.reduce((sum, kind) => sum + kind.count, 0),
    100,
  );
  assert.equal(
    found.reduce((sum, kind) => sum + kind.size, 0),
    chunks.size.reduce((sum, one) => sum + one, 0),
  );
  assert.equal(kinds(chunks)[0], 1);
  assert.deepEqual(
    [...changedRows(chunks, 1, Uint32Array.of(3, 99))].flatMap((one, row) => (one ? [row] : [])),
    [3],
  );
  const cells = cellsOf(chunks, [100], 0, -1, [0]);
  const pixels = paintCells(
    cells,
    { shade: (row) => (row === 1 ? 0 : -1), colours: Uint32Array.of(9) },
    5,
    6,
  );
  assert.deepEqual([pixels[0], pixels[1], pixels[90]], [6, 9, 5]);
});

test("differences of references", () => {
  const node = array("/a", [100, 3], [10, 1], ["x", "y"]);
  const before = chunkTable(node, (at) => at !== 1);
  const after = { ...chunkTable(node, (at) => at !== 2) };
  after.size = after.size.slice();
  after.size[5] = 1;
  const found = compareTables(before, after, 2);
  assert.deepEqual([found.added, found.removed, found.changed, [...found.coords]], [1, 1, 1, [0, 1, 2, 0]]);
  assert.deepEqual(chunkBox([9, 2], { shape: [95, 3], chunkShape: [10, 1] }), {
    start: [90, 2],
    stop: [95, 3],
  });
});

test("differences of trees", async () => {
  const { repository } = memoryReader({ commits: 60 });
  const id = (row: number): string => repository.history.id(row);
  const [even, odd] = await Promise.all([repository.snapshot(id(50)), repository.snapshot(id(51))]);
  const data = await changedData(repository, id(50), id(51));
  assert.deepEqual(compareNodes(even, odd, data), [
    { path: "/stations/s00019", change: "added" },
    { path: "/t2m", change: "data" },
  ]);
  assert.deepEqual(compareNodes(odd, even, data).at(0), { path: "/stations/s00019", change: "removed" });
  assert.equal(await changedData(repository, id(51), id(50)), undefined);
  assert.equal(compareNodes(even, odd, undefined).filter((item) => item.change === "unknown").length, 24);
  assert.equal(changedPaths(odd, present(await repository.changes(id(51)))).get("/time"), "changed");
});

test("the commit that wrote a chunk", async () => {
  const { repository } = memoryReader({ commits: 6 });
  const id = (row: number): string => repository.history.id(row);
  const writer = async (version: number, node: string, coords: number[]): Promise<string | undefined> =>
    (
      await chunkWriters(
        repository,
        id(version),
        { id: node, shape: coords },
        { length: 1, coords: Uint32Array.from(coords) },
      )
    ).commits.map(({ row }) => id(row))[0];
  assert.equal(await writer(5, "id of /t2m", [6, 0, 1]), id(5));
  assert.equal(await writer(5, "id of /t2m", [9, 0, 1]), undefined); // the log of the first commit is missing
  assert.equal(await writer(4, "id of /stations/s00019", [0]), id(3));
});

test("lines of texts", () => {
  const signs = (before: string, after: string): string =>
    compareLines(before, after)
      .map((line) => line.sign + line.text)
      .join("|");
  assert.equal(signs("a\nb\nc", "a\nx\nc"), " a|-b|+x| c");
  assert.equal(signs("a", "a\nb"), " a|+b");
  const long = Array.from({ length: 3000 }, (_, at) => `line ${at}`);
  const edited = compareLines(long.join("\n"), [...long.slice(1), "new"].join("\n"));
  assert.equal(edited.map(({ sign }) => sign).join(""), `-${" ".repeat(2999)}+`);
  const other = compareLines(long.join("\n"), long.map((text) => `${text} else`).join("\n"));
  assert.equal(other.map(({ sign }) => sign).join(""), "-".repeat(3000) + "+".repeat(3000));
});

test("the tree as rows", () => {
  const root = tree(nodes(3));
  assert.deepEqual(
    rows(root, () => true)
      .map((branch) => branch.node.path)
      .slice(-4),
    ["/stations", "/stations/s00000", "/stations/s00001", "/stations/s00002"],
  );
  assert.equal(rows(root, (branch) => branch.depth === 0).length, 7);
  assert.deepEqual(
    rows(root, () => false, "s00001").map((branch) => branch.node.path),
    ["/", "/stations", "/stations/s00001"],
  );
  assert.equal(rows(root, () => false, "nothing").length, 0);
  assert.equal(rows(undefined, () => true).length, 0);
});

test("facts of nodes", async () => {
  const { repository } = memoryReader();
  const snapshot = await repository.snapshot(present(repository.branches.get("main")));
  const node = snapshot.node("/t2m") as ArrayNode;
  assert.equal(coordinate(snapshot, node, 1)?.path, "/lat");
  assert.equal(coordinate(snapshot, snapshot.node("/stations/s00000") as ArrayNode, 0), undefined); // another length
  assert.deepEqual(codecs(node), ["bytes (endian little)", "zstd (level 3)"]);
  const sizes: [string, number | undefined][] = [
    ["float64", 8],
    ["int16", 2],
    ["complex64", 8],
    ["bool", 1],
    ["string", undefined],
  ];
  for (const [dtype, size] of sizes) assert.equal(itemSize(dtype), size);
});

test("groups of Frazil itself are listed only where a person looks at one", () => {
  const paths = ["/", "/.frazil", "/.frazil/url", "/a", "/a/.frazil", "/a/x.frazil"].map((path) => ({
    path,
  }));
  const shown = (path: string): string[] => listed(paths, path).map((each) => each.path);
  assert.deepEqual(shown("/a"), ["/", "/a", "/a/x.frazil"]);
  assert.equal(shown("/.frazil/url").length, 6);
});

test("search in the history", () => {
  const { history: all } = history(3000);
  const found = (text: string, names = new Map<number, string[]>()): number =>
    search(all, text, names).length;
  const counts: [string, number][] = [
    ["hour 1234", 1],
    ["HOUR 1234 <b>", 1],
    ["author:ada", 1000],
    [
      'author:"Ada" hour 25',
      Array.from(all.parent, (_, row) => all.message(row) + all.id(row)).filter(
        (text, row) => row % 3 && row % 2 && text.includes("25"),
      ).length,
    ],
    ["after:2024-01-02 before:2024-01-03", 144],
    ["nothing", 0],
    ["before:never", 3000],
  ];
  for (const [text, number] of counts) assert.equal(found(text), number, text);
  assert.equal(found("release", new Map([[7, ["tag.release"]]])), 1);
});

test("text", () => {
  assert.deepEqual([0, 1, 999, 1500, 999_600, 123_456_789].map(bytes), [
    "0 bytes",
    "1 byte",
    "999 bytes",
    "1.50 kB",
    "1.00 MB",
    "123 MB",
  ]);
  assert.deepEqual([NaN, 3, 0.1 + 0.2, 1e-9, 1.5e12].map(number), [
    "no value",
    "3",
    "0.3",
    "1e-9",
    "1500000000000",
  ]);
  assert.equal(when(NaN), "unknown time");
  assert.equal(when(0), "1970-01-01 00:00:00");
  assert.deepEqual(["/a", "/a/b"].map(parent), ["/", "/a"]);
  assert.equal(firstLine("a\nb"), "a");
  assert.equal(
    fitted("Near-Surface Air", 8, (text) => text.length),
    "Near-Su…",
  );
  assert.deepEqual(["lat", "\u202egpj.exe"].map(isolated), ["lat", "\u2068\u202egpj.exe\u2069"]);
});

test("what can wait comes after all that somebody waits for", async ({ mock }) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const pass = async (): Promise<void> => {
    for (let turn = 0; turn < 9; turn++) {
      mock.timers.tick(1000);
      await new Promise(setImmediate);
    }
  };
  const { signal } = new AbortController();
  const [log, ends] = [[] as string[], [] as (() => void)[]];
  const load = (name: string): Promise<unknown> =>
    first(() => new Promise<void>((end) => ends.push(end)).then(() => log.push(name)), signal);
  void load("version");
  void afterwards(async () => log.push("marks"), signal);
  await pass();
  present(ends.pop())();
  await new Promise(setImmediate);
  void load("values"); // begins in the pause before the marks
  await pass();
  present(ends.pop())();
  await pass();
  assert.deepEqual(log, ["version", "values", "marks"]);
});
