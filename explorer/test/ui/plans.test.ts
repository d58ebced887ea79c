import assert from "node:assert/strict";
import { test } from "node:test";
import type { Repository } from "../../src/format/types";
import { branchOf, planLines } from "../../src/views/change";
import { steps } from "../../src/views/repository";
import { present } from "../present";

const id = (row: number): string => String(row).padStart(20, "0");

/** main: 0 1 3; dev: 0 1 2 4. */
const repository = {
  history: {
    parent: Int32Array.of(-1, 0, 1, 1, 2),
    times: Float64Array.of(0, 1, 2, 4, 3),
    id,
    metadata: (row: number) =>
      row === 3
        ? {
            frazil_job: { name: "mean", outputs: ["/mean"], inputs: [{ paths: ["/t"], snapshot: id(1) }, 7] },
          }
        : { frazil_job: row },
  },
  branches: new Map([
    ["dev", id(4)],
    ["main", id(3)],
    ["old", id(9)],
  ]),
  row: (text: string) => (Number(text) < 5 && text ? Number(text) : -1),
} as unknown as Repository;

test("the branch on which a commit is undone", () => {
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((row) => branchOf(repository, id(row))),
    ["main", "main", "dev", "main", "dev"],
  );
});

test("the lines of a plan", () => {
  const merge = { action: "merge", id: id(4) } as const;
  const changes = {
    new_arrays: ["/a"],
    deleted_groups: ["/g"],
    moved_nodes: [["/x", "/y"]],
    updated_chunks: { "/t": 1234 },
  };
  const plan = {
    id: "N".repeat(20),
    before: "B".repeat(20),
    source: id(4),
    message: "Merge dev\nand more",
    commits: 2,
    changes,
    discarded: [{ path: "/t", side: "source", values: 3, chunks: 1 }],
  };
  assert.deepEqual(
    planLines(merge, "main", plan).map(([, text]) => text),
    [
      "main moves from BBBBBB to a new commit: Merge dev",
      "brings 2 commits",
      "moved /x to /y",
      "new /a",
      "deleted /g",
      "data /t: 1,234 chunks",
      "conflict in /t: discards 3 values of the other side in 1 chunk",
    ],
  );
  assert.deepEqual(planLines(merge, "main", { ...plan, id: plan.before }), []);
  assert.equal(
    present(planLines(merge, "main", { ...plan, id: id(4) })[0])[1],
    "main moves from BBBBBB to 000000",
  );
  assert.deepEqual(planLines({ action: "tag", id: id(1) }, "v1", { id: id(1) }), [
    ["added", "new tag v1 at 000000"],
  ]);
  const undo = {
    updates: [{ time: "2026-11-01T00:00:00.5Z", update: "branch-created" }],
    changes: [{ subject: "branch `x`", before: id(1), after: null }],
    notes: ["the branch `x` is deleted"],
  };
  assert.deepEqual(
    planLines({ action: "undo", id: "" }, "", undo).map(([, text]) => text),
    ["undo branch-created of 2026-11-01 00:00:00", "branch `x`: 000000 to none", "the branch `x` is deleted"],
  );
});

test("the steps of jobs, whatever the metadata have", () => {
  const read = `/t of ${id(1)}; `;
  const time = "1970-01-01 00:00";
  assert.deepEqual(steps(repository), [{ time, commit: id(3), job: "mean", wrote: "/mean", read }]);
});
