/** Derived arrays of a version: what is made of what, and what is behind. Attributes of Frazil's own arrays say it. */

import { attributes, isArray, isHidden } from "../array/nodes";
import { list, type Properties, record } from "../base/lists";
import type { Node, Repository, Snapshot } from "../format/types";
import { last } from "../page/text";
import { commitsBack, isCompaction, mergedRows } from "./writers";

/** An array, and what makes it from which arrays: nothing for a source that nothing makes. */
type Derivation = { readonly path: string; readonly operation: string; readonly sources: readonly string[] };

/**
 * A derived array, and what its definition says: `target` is the group of the results of one call, and a source that
 * the version does not have is undefined. Each computation changes `table`, which has the definition and digests.
 */
export type Result = ReturnType<typeof results>[number];

const TABLES = "/.frazil/derived/";

export function results(snapshot: Snapshot) {
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

export type State = "broken" | "edited" | "behind" | "not known" | "current"; // the worst one first

/**
 * The states of derived arrays, by what commits changed since the computation of each: its sources, or itself.
 * It reads no digests, so an array whose source got the same values again is "behind".
 */
export async function derivedStates(repository: Repository, snapshot: Snapshot): Promise<Map<Result, State>> {
  const states = new Map<Result, State>();
  const open = new Map<Result, State>(); // what later commits did
  for (const each of results(snapshot)) {
    if (each.sources.every(Boolean)) open.set(each, "current");
    else states.set(each, "broken");
  }
  for await (const { row, changes } of open.size ? commitsBack(repository, snapshot.id) : []) {
    if (!changes || !open.size) break;
    if (isCompaction(repository, row)) continue;
    const { newArrays, updatedArrays, updatedChunks } = changes;
    const ids = new Set([...newArrays, ...updatedArrays, ...updatedChunks.map(({ nodeId }) => nodeId)]);
    const has = (node: Node | undefined): boolean => node !== undefined && ids.has(node.id);
    for (const [each, state] of open) {
      if (has(each.table)) {
        states.set(each, mergedRows(repository, row).length ? "not known" : state); // a merge has no order
        open.delete(each);
      } else if (has(each.node)) open.set(each, "edited");
      else if (state === "current" && each.sources.some(has)) open.set(each, "behind");
    }
  }
  for (const each of open.keys()) states.set(each, "not known");
  for (let size = -1, late = new Set<Node | undefined>(); size !== late.size;) {
    size = late.size; // what is made of an array that will change is behind, too
    for (const [each, state] of states) {
      if (state === "current" && each.sources.some((node) => late.has(node))) states.set(each, "behind");
      if (states.get(each) === "behind") late.add(each.node);
    }
  }
  return states;
}

const RECORD = "/.frazil/pipeline";
const VERSION = 1;

/** The definitions in a version. Those of later releases with another meaning are left out. */
export const pipelines = (snapshot: Snapshot): Properties[] =>
  snapshot.nodes
    .filter(({ path, kind }) => kind === "group" && path.endsWith(RECORD))
    .map(attributes)
    .filter(({ version, ingest }) => version === VERSION && list(ingest).length > 0);

/** What a check of rules has found, by one of its rows in the metadata of a commit. */
export const ruleText = ({ ok, rule, path, found, expected }: Properties): string =>
  `${ok === true ? "passed" : "failed"}: ${rule} of ${path}, found ${found}, expected ${expected}`;
