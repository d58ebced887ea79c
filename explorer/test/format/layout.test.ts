/** What Frazil and the page must agree on: `expected.py` writes it. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { FILE_TYPES, HEADER, MAGIC } from "../../src/format/files";
import { idText } from "../../src/format/flatbuffer";
import { OPERATIONS } from "../../src/format/repository";
import { FORBIDDEN } from "../../src/page/home";
import { MOVED, planLines, type Rehearsal } from "../../src/views/change";
import { SLOW } from "../../src/views/repository";
import { present } from "../present";

interface Layout {
  magic: number[];
  header: number;
  types: Record<string, number>;
  updates: [string, number][];
  ids: [number[], string][];
  errors: string[];
  commands: string[];
  plans: Record<"merge" | "revert" | "branch" | "undo", { plan: Rehearsal; apply: Record<string, string> }>;
}
const path = join(present(process.env.FRAZIL_DATA), "layout/layout.json");
const layout = JSON.parse(readFileSync(path, "utf8")) as Layout;

test("the envelope of a file", () => {
  assert.deepEqual([...MAGIC], layout.magic);
  assert.equal(HEADER, layout.header);
  assert.deepEqual(
    Object.entries(layout.types).map(([name, number]) => [name.toLowerCase().replaceAll("_", " "), number]),
    Object.entries(FILE_TYPES).map(([number, name]) => [name, Number(number)]),
  );
});

test("kinds of updates, and the numbers of their fields", () => {
  const snake = (name: string): string =>
    name
      .replace("GCRan", "GcRan")
      .replaceAll(/\B([A-Z])/g, "_$1")
      .toUpperCase();
  assert.deepEqual(
    OPERATIONS.slice(1).map(([name, ...fields]) => [snake(name), fields.length]),
    layout.updates,
  );
});

test("the text of an id", () => {
  for (const [bytes, text] of layout.ids) assert.equal(idText(Uint8Array.from(bytes), 0, bytes.length), text);
  assert.throws(() => idText(new Uint8Array(11), 0, 12), RangeError);
});

test("kinds of errors and names of answers", () => {
  for (const kind of [...MOVED, FORBIDDEN, "rebase-failed"]) assert.ok(layout.errors.includes(kind), kind);
  for (const [, name] of SLOW) assert.ok(layout.commands.includes(name), name);
});

test("the plans of the server", () => {
  const { merge, revert, branch, undo } = layout.plans;
  const tip = present(merge.plan.id).slice(0, 6);
  const texts = (
    of: Parameters<typeof planLines>[0],
    name: string,
    { plan }: { plan: Rehearsal },
  ): string[] => planLines(of, name, plan).map(([, text]) => text);
  assert.deepEqual(texts({ action: "merge", id: "" }, "main", merge), [
    `main moves from ${present(merge.plan.before).slice(0, 6)} to ${tip}`,
    "brings 1 commit",
    "new /g",
    "deleted /old",
    "data /t: 2 chunks",
  ]);
  const [first, ...others] = texts({ action: "revert", id: "" }, "dev", revert);
  assert.match(present(first), new RegExp(`^dev moves from ${tip} to a new commit: .+`));
  assert.deepEqual(others, ["new /old", "deleted /g", "data /old: 1 chunk", "data /t: 2 chunks"]);
  assert.deepEqual(texts({ action: "branch", id: "" }, "new", branch), [`new branch new at ${tip}`]);
  assert.match(present(texts({ action: "undo", id: "" }, "", undo)[0]), /^undo .* of \d{4}-\d\d-\d\d \d\d:/);
  assert.equal(merge.apply.tip, merge.plan.before);
  assert.deepEqual(Object.keys(undo.apply).sort(), ["action", "update"]);
});
