import assert from "node:assert/strict";
import { test } from "node:test";
import { nth } from "../../src/base/lists";
import { type Item, layered, type Linked } from "../../src/page/graph";

const graph = (text: string): Linked[] =>
  text.split(" ").map((each) => {
    const [id = "", sources = ""] = each.split("<");
    return { id, sources: sources.split(",").filter(Boolean) };
  });

const placed = (nodes: readonly Linked[]): Map<string, string> =>
  new Map(layered(nodes).items.flatMap(({ id, column, row }) => (id ? [[id, `${column},${row}`]] : [])));

const random = (seed: number) => (): number => {
  seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
  return seed / 2 ** 31;
};

/** What is true of each layout: lines go to the right, one column at a time, and no two items share a place. */
function check(nodes: readonly Linked[]): Item[] {
  const { items, lines } = layered(nodes);
  assert.deepEqual(items.flatMap(({ id = [] }) => id).sort(), nodes.map(({ id }) => id).sort());
  for (const line of lines)
    line.slice(1).forEach((item, at) => assert.equal(item.column, nth(line, at).column + 1));
  for (const each of items) {
    const rows = items.filter(({ column }) => column === each.column).map(({ row }) => row);
    assert.equal(rows.filter((row) => Math.abs(row - each.row) < 0.999).length, 1, String(rows));
  }
  assert.equal(Math.min(...items.map(({ row }) => row)), 0);
  return items;
}

test("one node, and a chain", () => {
  assert.deepEqual([...placed(graph("a"))], [["a", "0,0"]]);
  assert.deepEqual([...placed(graph("a b<a c<b")).values()], ["0,0", "1,0", "2,0"]);
});

test("a node is in the middle of its sources, and lines do not cross where they need not", () => {
  const places = placed(graph("a b c z<a,b,c"));
  assert.deepEqual([places.get("a"), places.get("c"), places.get("z")], ["0,0", "0,2", "1,1"]);
  const crossed = placed(graph("a b x<b y<a"));
  assert.deepEqual([crossed.get("y"), crossed.get("x")], ["1,0", "1,1"]);
});

test("a line over several columns has a row of its own in each of them", () => {
  const items = check(graph("a b<a c<b z<a,c"));
  assert.equal(items.filter(({ id }) => id === undefined).length, 2);
});

test("circles, sources that are unknown, and a source that is named twice", () => {
  check(graph("a<b b<a"));
  check(graph("a<a,nothing b<a,a"));
  assert.equal(layered(graph("a b<a,a")).lines.length, 1);
});

test("200 nodes", () => {
  for (const seed of [1, 2, 3]) {
    const next = random(seed);
    const nodes = Array.from({ length: 200 }, (_, at) => ({
      id: `n${at}`,
      sources: at < 40 ? [] : [1, 2].map(() => `n${Math.floor(next() * at)}`),
    }));
    check(nodes);
  }
});
