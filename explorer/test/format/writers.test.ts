import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { chunkWriters, type Writers } from "../../src/versions/writers";
import { present } from "../present";
import { DATA, FolderSource, readJson } from "./folder";
import { type ArrayNode, openRepository } from "./reader";

const folder = join(DATA, "history");
type Blame = Record<string, string | null>;
const expected = readJson<{
  whole: Blame;
  expired: Blame;
  merged: Blame;
  lost: string[];
  messages: Record<string, string>;
}>(folder, "expected.json");

async function blame(
  name: string,
  lost: string[] = [],
  most?: number,
): Promise<{ cells: Blame; writers: Writers }> {
  const repository = await openRepository(new FolderSource(join(folder, name)));
  const changes = repository.changes.bind(repository);
  repository.changes = async (id) => (lost.includes(id) ? undefined : changes(id));
  const id = present(repository.branches.get("main"));
  const snapshot = await repository.snapshot(id);
  const table = await snapshot.chunks("/b");
  const writers = await chunkWriters(
    repository,
    id,
    snapshot.node("/b") as ArrayNode,
    table,
    undefined,
    undefined,
    most,
  );
  const cells = Object.fromEntries(
    Array.from(writers.rows, (row, at) => [
      table.coords.subarray(2 * at, 2 * at + 2).join(),
      row < 0 ? null : repository.history.id(row),
    ]),
  );
  return { cells, writers };
}

test("the commits of all chunks, with an amended commit and a renamed array", async () => {
  const { cells, writers } = await blame("whole");
  assert.deepEqual(cells, expected.whole);
  assert.ok(new Set(Object.values(cells)).size > 4);
  assert.equal(writers.older, 0);
  assert.equal(
    writers.commits.reduce((sum, each) => sum + each.count, 0),
    writers.rows.length,
  );
  writers.places.forEach((place, at) => assert.equal(present(writers.commits[place]).row, writers.rows[at]));
});

test("chunks of expired versions are older than the record", async () => {
  const { cells, writers } = await blame("expired");
  assert.deepEqual(cells, expected.expired);
  assert.ok(writers.older > 0 && writers.commits.length > 0);
});

test("without a record, the references say what changed", async () => {
  assert.equal(expected.lost.length, 2);
  assert.deepEqual((await blame("whole", expected.lost)).cells, expected.whole);
});

test("the search ends at a bound", async () => {
  const { writers } = await blame("whole", [], 3);
  assert.equal(writers.read, 3);
  assert.ok(writers.older > 0);
});

test("chunks of a merge have the commits of its branch, or the merge if a record is missing", async () => {
  const { cells, writers } = await blame("merged");
  assert.deepEqual(cells, expected.merged);
  const { messages } = expected;
  assert.ok(
    [messages["write 0"], messages["write 1"], messages["write 3"]].some((id) =>
      Object.values(cells).includes(present(id)),
    ),
  );
  assert.equal(writers.merges.size, 0);
  const lost = await blame("merged", [present(messages["write 1"])]);
  const [row] = lost.writers.merges;
  assert.ok(
    Object.values(lost.cells).includes(
      present(Object.entries(messages).find(([text]) => /[Mm]erge.*dev/.test(text)))[1],
    ),
  );
  assert.ok(lost.writers.commits.some((each) => each.row === row));
});
