/** Derived arrays of a version: what is made of what. The definitions are attributes of arrays of Frazil itself. */

import { record } from "../base/json";
import type { Node, Snapshot } from "../format/types";
import { last } from "../page/text";
import { attributes, isArray, isHidden } from "./nodes";

/** An array, and what makes it from which arrays: nothing for a source that nothing makes. */
export type Derivation = {
  readonly path: string;
  readonly operation: string;
  readonly sources: readonly string[];
};

/** A derived array, and what its definition says. */
export interface Result {
  readonly node: Node;
  /** The node with the definition, and a digest for each chunk. Each computation changes it. */
  readonly table: Node;
  readonly operation: string;
  /** The group of the results of one call. */
  readonly target: string;
  /** Undefined for a source that the version does not have. */
  readonly sources: readonly (Node | undefined)[];
}

const TABLES = "/.frazil/derived/";

export function results(snapshot: Snapshot): Result[] {
  const nodes = new Map(snapshot.nodes.map((node) => [node.id, node]));
  return snapshot.nodes
    .filter((node) => isArray(node) && node.path.startsWith(TABLES))
    .flatMap((table) => {
      const { operation, sources, target } = attributes(table);
      const node = nodes.get(table.path.slice(TABLES.length));
      if (!node || isHidden(node.path) || isCoordinate(node) || !Array.isArray(sources)) return [];
      const present = sources
        .map((each) => record(each))
        .map(({ node: id, path }) => nodes.get(String(id)) ?? snapshot.node(String(path)));
      return [{ node, table, operation: String(operation), target: String(target), sources: present }];
    });
}

/** What the arrays at and below a path are made of, and what is made of them. */
export function derivations(snapshot: Snapshot, path: string): Derivation[] {
  const made = new Map<string, { operation: string; sources: string[] }>();
  for (const { node, operation, sources } of results(snapshot)) {
    const drawn = sources.filter((each) => each && !isCoordinate(each)).map((each) => each?.path ?? "");
    made.set(node.path, { operation, sources: drawn });
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
  return [...shown].sort().map((each) => ({ operation: "", sources: [], ...made.get(each), path: each }));
}

const isCoordinate = (node: Node): boolean =>
  isArray(node) && node.shape.length === 1 && node.dimensions[0] === last(node.path);
