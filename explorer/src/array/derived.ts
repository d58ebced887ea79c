/** Derived arrays of a version: what is made of what. The definitions are attributes of arrays of Frazil itself. */

import { record } from "../base/json";
import type { Node, Snapshot } from "../format/types";
import { last } from "../page/text";
import { attributes, isArray, isHidden } from "./nodes";

/** An array in the graph, what makes it (empty for a source that nothing makes), and its place. */
export type Derivation = {
  readonly path: string;
  readonly operation: string;
  readonly sources: readonly string[];
  readonly column: number;
  readonly row: number;
};

const TABLES = "/.frazil/derived/";

/** What the arrays at and below a path are made of, and what is made of them. Sources come first. */
export function derivations(snapshot: Snapshot, path: string): Derivation[] {
  const nodes = new Map(snapshot.nodes.map((node) => [node.id, node]));
  const made = new Map<string, { operation: string; sources: string[] }>();
  for (const table of snapshot.nodes.filter((node) => isArray(node) && node.path.startsWith(TABLES))) {
    const { operation, sources } = attributes(table);
    const result = nodes.get(table.path.slice(TABLES.length));
    if (!result || isHidden(result.path) || isCoordinate(result) || !Array.isArray(sources)) continue;
    const present = sources
      .map((each) => record(each))
      .map(({ node, path: former }) => nodes.get(String(node)) ?? snapshot.node(String(former)));
    const drawn = present.filter((node) => node && !isCoordinate(node)).map((node) => node?.path ?? "");
    made.set(result.path, { operation: String(operation), sources: drawn });
  }
  const edges = [...made].flatMap(([to, { sources }]) => sources.map((from) => [from, to] as const));
  const below = path === "/" ? path : `${path}/`;
  const shown = new Set([...made.keys(), ...edges.flat()].filter((each) => `${each}/`.startsWith(below)));
  for (const end of [0, 1] as const)
    // first the results of results, then the sources of sources
    for (let size = -1; size !== shown.size;) {
      size = shown.size;
      for (const edge of edges) if (shown.has(edge[end])) shown.add(end ? edge[0] : edge[1]);
    }
  const columns = new Map<string, number>();
  const columnOf = (each: string): number => {
    const found = columns.get(each);
    if (found !== undefined) return found;
    columns.set(each, 0); // while its sources are looked for, which may be a circle
    columns.set(each, Math.max(-1, ...(made.get(each)?.sources ?? []).map(columnOf)) + 1);
    return columnOf(each);
  };
  const rows: number[] = [];
  return [...shown]
    .sort((one, other) => columnOf(one) - columnOf(other) || (one < other ? -1 : 1))
    .map((each) => {
      const column = columnOf(each);
      const row = rows[column] ?? 0;
      rows[column] = row + 1;
      return { operation: "", sources: [], ...made.get(each), path: each, column, row };
    });
}

const isCoordinate = (node: Node): boolean =>
  isArray(node) && node.shape.length === 1 && node.dimensions[0] === last(node.path);
