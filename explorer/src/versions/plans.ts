/** Plans of changes: which branch they concern, and what they say. */

import type { Properties } from "../base/json";
import { i32 } from "../base/lists";
import type { Repository } from "../format/types";
import { ID } from "../page/state";
import { firstLine, plural, short } from "../page/text";

export type Action = "branch" | "tag" | "merge" | "revert" | "undo";

/** What a dialog begins with: the action, the id of a commit (except for `undo`), and its name if it is the tip of a branch. */
export type Change = { readonly action: Action; readonly id: string; readonly name?: string };

/** The branch of a commit: `main`, or the first one that leads to it. */
export function branchOf(repository: Repository, id: string): string {
  const { parent } = repository.history;
  const goal = repository.row(id);
  for (const name of new Set(["main", ...repository.branches.keys()])) {
    let row = repository.row(repository.branches.get(name) ?? "");
    while (row >= 0 && row !== goal) row = i32(parent, row);
    if (row >= 0) return name;
  }
  return "main";
}

/** What `frazil merge --json` and others print; chunks as counts. */
export interface Rehearsal {
  readonly id?: string;
  readonly before?: string;
  readonly source?: string;
  readonly message?: string;
  readonly commits?: number;
  readonly changes?: Properties | readonly Move[];
  readonly discarded?: readonly { path: string; side: string; values: number | null; chunks: number }[];
  readonly updates?: readonly { time: string; update: string }[];
  readonly notes?: readonly string[];
}

const FIELDS: readonly (readonly [string, string, string])[] = [
  ["new_groups", "added", "new"],
  ["new_arrays", "added", "new"],
  ["updated_groups", "changed", "changed"],
  ["updated_arrays", "changed", "changed"],
  ["deleted_groups", "removed", "deleted"],
  ["deleted_arrays", "removed", "deleted"],
];

type Move = { readonly subject: string; readonly before: string | null; readonly after: string | null };
const isList = (changes: Rehearsal["changes"]): changes is readonly Move[] => Array.isArray(changes);

const versionText = (text: string | null | undefined): string =>
  text && ID.test(text) ? short(text) : (text ?? "none");

/** A line of a plan: a class of the style sheet, and a text. */
type Line = readonly [style: string, text: string];

/** The lines of a plan. Empty if nothing would change. */
export function planLines(
  of: Change,
  branch: string,
  { id, before, source, message, commits, changes = {}, discarded = [], updates = [], notes = [] }: Rehearsal,
): Line[] {
  if (of.action === "branch" || of.action === "tag")
    return [["added", `new ${of.action} ${branch} at ${versionText(id)}`]];
  if (isList(changes)) {
    const undos = updates.map(({ update, time }): Line => [
      "",
      `undo ${update} of ${time.slice(0, 19).replace("T", " ")}`,
    ]);
    const moves = changes.map(({ subject, before: from, after: to }): Line => [
      to === null ? "removed" : "changed",
      `${subject}: ${versionText(from)} to ${versionText(to)}`,
    ]);
    return [...undos, ...moves, ...notes.map((note): Line => ["removed", note])];
  }
  if (id === before) return [];
  const fields = changes;
  const list = (name: string): unknown[] => (Array.isArray(fields[name]) ? (fields[name] as unknown[]) : []);
  const tip = id === source ? versionText(id) : `a new commit: ${firstLine(message ?? "")}`;
  const lines: Line[] = [["changed", `${branch} moves from ${versionText(before)} to ${tip}`]];
  if (commits !== undefined) lines.push(["", `brings ${plural(commits, "commit")}`]);
  for (const pair of list("moved_nodes")) lines.push(["changed", `moved ${(pair as string[]).join(" to ")}`]);
  for (const [name, style, word] of FIELDS)
    for (const path of list(name)) lines.push([style, `${word} ${path}`]);
  for (const [path, chunks] of Object.entries(fields["updated_chunks"] ?? {}))
    lines.push(["data", `data ${path}: ${plural(Number(chunks), "chunk")}`]);
  for (const { path, side, values, chunks } of discarded) {
    const what = `${values === null ? "values" : plural(values, "value")} of ${side === "branch" ? branch : "the other side"}`;
    lines.push(["removed", `conflict in ${path}: discards ${what} in ${plural(chunks, "chunk")}`]);
  }
  return lines;
}
