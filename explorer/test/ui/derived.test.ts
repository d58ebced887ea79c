import assert from "node:assert/strict";
import { test } from "node:test";
import type { Node, Snapshot } from "../../src/format/types";
import { layered } from "../../src/page/graph";
import { derivations } from "../../src/versions/derived";
import { present } from "../present";

const array = (path: string, id: string, attributes = {}, dimensions = ["y", "x"]): Node =>
  ({
    path,
    id,
    kind: "array",
    document: { attributes },
    shape: dimensions.map(() => 4),
    chunkShape: dimensions.map(() => 2),
    dimensions,
    dtype: "float32",
  }) as Node;

const made = (id: string, operation: string, ...sources: [string, string][]): Node =>
  array(`/.frazil/derived/${id}`, `table of ${id}`, {
    operation,
    sources: sources.map(([node, path]) => ({ node, path })),
  });

const snapshot = (...nodes: Node[]): Snapshot => {
  const paths = new Map(nodes.map((node) => [node.path, node]));
  return { id: "version", nodes, node: (path: string) => paths.get(path) } as unknown as Snapshot;
};

function graph(of: Snapshot, path = "/"): string[] {
  const drawn = new Map(derivations(of, path).map((each) => [each.path, each]));
  const { items } = layered([...drawn.values()].map(({ path: id, sources }) => ({ id, sources })));
  return items.map(({ id = "", column, row }) => {
    const { operation, sources } = present(drawn.get(id));
    return `${column},${row} ${id} ${operation} ${sources.join(" ")}`;
  });
}

const CHAIN = snapshot(
  array("/data/t", "A"),
  array("/data/time", "T", {}, ["time"]),
  array("/half/t", "B"),
  array("/mean/t", "C"),
  array("/other/u", "D"),
  made("B", "coarsen", ["A", "/data/t"], ["T", "/data/time"]),
  made("C", "reduce", ["B", "/half/t"]),
  made("D", "select", ["gone", "/no/longer"]),
);

test("results are to the right of their sources, without coordinates", () => {
  assert.deepEqual(graph(CHAIN), [
    "0,0 /data/t  ",
    "0,1 /other/u select ",
    "1,0 /half/t coarsen /data/t",
    "2,0 /mean/t reduce /half/t",
  ]);
});

test("an array shows what it is made of, and what is made of it", () => {
  assert.deepEqual(graph(CHAIN, "/half"), graph(CHAIN, "/mean/t"));
  assert.deepEqual(graph(CHAIN, "/half/t").length, 3);
  assert.deepEqual(graph(CHAIN, "/other"), ["0,0 /other/u select "]);
  assert.deepEqual(graph(CHAIN, "/data/time"), []);
});

test("a moved source has its id, and a circle ends", () => {
  const moved = snapshot(array("/new/t", "A"), array("/r", "B"), made("B", "copy", ["A", "/old/t"]));
  assert.deepEqual(graph(moved), ["0,0 /new/t  ", "1,0 /r copy /new/t"]);
  const circle = snapshot(
    array("/p", "P"),
    array("/q", "Q"),
    made("P", "one", ["Q", "/q"]),
    made("Q", "two", ["P", "/p"]),
  );
  assert.equal(graph(circle).length, 2);
});

test("definitions that nobody can read are left out", () => {
  const damaged = snapshot(
    array("/t", "A"),
    array("/.frazil/derived/A", "X", { sources: 3 }),
    array("/.frazil/derived/unknown", "Y", { operation: "copy", sources: [] }),
  );
  assert.deepEqual(graph(damaged), []);
});
