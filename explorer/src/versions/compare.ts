/** What differs between the trees of two versions. */

import { nth, u32 } from "../base/lists";
import type { Node, Repository, Snapshot } from "../format/types";
import { commitsBack } from "./writers";

export type NodeChange = "added" | "removed" | "changed" | "data" | "unknown";
export type NodeDifference = { readonly path: string; readonly change: NodeChange };

/** `data` holds the ids of arrays whose chunks changed; undefined if nobody recorded it: then all arrays may have changed. */
export function compareNodes(
  before: Snapshot,
  after: Snapshot,
  data: ReadonlySet<string> | undefined,
): NodeDifference[] {
  const differences: NodeDifference[] = [];
  for (const node of after.nodes) {
    const old = before.node(node.path);
    const change = !old
      ? "added"
      : describe(old) !== describe(node)
        ? "changed"
        : node.kind === "group"
          ? undefined
          : !data
            ? "unknown"
            : data.has(node.id) || old.id !== node.id
              ? "data"
              : undefined;
    if (change) differences.push({ path: node.path, change });
  }
  for (const node of before.nodes)
    if (!after.node(node.path)) differences.push({ path: node.path, change: "removed" });
  return differences.sort((a, b) => (a.path < b.path ? -1 : 1));
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

export type LineDifference = { readonly sign: " " | "+" | "-"; readonly text: string };

/** Lines of two texts side by side: common, removed, added. Long texts are compared as sets. */
export function compareLines(before: string, after: string): LineDifference[] {
  const [old, now] = [before.split("\n"), after.split("\n")];
  if (old.length * now.length > 4_000_000) {
    const [oldSet, nowSet] = [new Set(old), new Set(now)];
    return [
      ...old.filter((text) => !nowSet.has(text)).map((text) => ({ sign: "-" as const, text })),
      ...now.filter((text) => !oldSet.has(text)).map((text) => ({ sign: "+" as const, text })),
    ];
  }
  const width = now.length + 1;
  const common = new Uint32Array((old.length + 1) * width); // longest common part of the rests
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      common[i * width + j] =
        old[i] === now[j]
          ? u32(common, (i + 1) * width + j + 1) + 1
          : Math.max(u32(common, (i + 1) * width + j), u32(common, i * width + j + 1));
    }
  }
  const lines: LineDifference[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      lines.push({ sign: " ", text: nth(old, i++) });
      j++;
    } else if (
      i < old.length &&
      (j === now.length || u32(common, (i + 1) * width + j) >= u32(common, i * width + j + 1))
    )
      lines.push({ sign: "-", text: nth(old, i++) });
    else lines.push({ sign: "+", text: nth(now, j++) });
  }
  return lines;
}
