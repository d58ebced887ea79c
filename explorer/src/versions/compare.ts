/** What differs between the trees of two versions. */

import { diffArrays } from "diff";
import type { Node, Repository, Snapshot } from "../format/types";
import { commitsBack } from "./writers";

export type NodeChange = "added" | "removed" | "changed" | "data" | "unknown";
type NodeDifference = { readonly path: string; readonly change: NodeChange };

/** `data` holds the ids of arrays whose chunks changed; undefined if nobody recorded it: then all arrays may have changed. */
export function compareNodes(
  before: Snapshot,
  after: Snapshot,
  data: ReadonlySet<string> | undefined,
): NodeDifference[] {
  const differences: NodeDifference[] = [];
  for (const node of after.nodes) {
    const change = changeOf(before.node(node.path), node, data);
    if (change) differences.push({ path: node.path, change });
  }
  for (const node of before.nodes)
    if (!after.node(node.path)) differences.push({ path: node.path, change: "removed" });
  return differences.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function changeOf(old: Node | undefined, now: Node, data?: ReadonlySet<string>): NodeChange | undefined {
  if (!old) return "added";
  if (describe(old) !== describe(now)) return "changed";
  if (now.kind === "group") return undefined;
  if (!data) return "unknown";
  return data.has(now.id) || old.id !== now.id ? "data" : undefined;
}

const describe = (node: Node): string =>
  JSON.stringify(node.document, (_, value: unknown) =>
    value && typeof value === "object" && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)))
      : value,
  );

const MOST_COMMITS = 200;

/** Ids of the arrays whose chunks changed between `base` and its descendant; undefined if that is not on record. */
export async function changedData(
  repository: Repository,
  base: string,
  version: string,
): Promise<Set<string> | undefined> {
  const oldest = repository.row(base);
  const arrays = new Set<string>();
  for await (const { row, changes } of commitsBack(repository, version, MOST_COMMITS)) {
    if (row === oldest) return arrays;
    if (!changes) return undefined;
    for (const item of changes.updatedChunks) arrays.add(item.nodeId);
  }
  return undefined;
}

type LineDifference = { readonly sign: " " | "+" | "-"; readonly text: string };

const MOST_EDITS = 1000; // the time of a comparison grows with their square

/** Lines of two texts side by side: common, removed, added. Texts with very many edits have no common lines. */
export function compareLines(before: string, after: string): LineDifference[] {
  const [old, now] = [before.split("\n"), after.split("\n")];
  const parts = diffArrays(old, now, { maxEditLength: MOST_EDITS }) ?? [
    { value: old, removed: true, added: false },
    { value: now, removed: false, added: true },
  ];
  return parts.flatMap(({ value, added, removed }) =>
    value.map((text) => ({ sign: added ? "+" : removed ? "-" : " ", text }) as const),
  );
}
