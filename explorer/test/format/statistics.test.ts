import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { present } from "../present";
import { DATA, FolderSource, readJson } from "./folder";
import { missingDigest } from "../../src/cf/cf";
import type { ArrayNode } from "../../src/format/types";
import { type ChunkStatistics, type ChunkTable, openRepository } from "./reader";

const folder = join(DATA, "statistics");
const expected = readJson<Record<string, Record<string, [number, number, number, number] | null>>>(
  folder,
  "expected.json",
);

async function statistics(
  path: string,
  name = "ice",
  source = new FolderSource(join(folder, name)),
): Promise<{ table: ChunkTable; of: ChunkStatistics }> {
  const repository = await openRepository(source);
  const snapshot = await repository.snapshot(present(repository.branches.get("main")));
  const table = await snapshot.chunks(path);
  const missing = await missingDigest(snapshot.node(path) as ArrayNode);
  return { table, of: await snapshot.statistics(path, table, missing) };
}

const files = ["ice", "later"]; // of this version, and with columns of a later one
const cases = files.flatMap((name) => Object.entries(expected).map((array) => [name, ...array] as const));

test("statistics of chunks are those of numpy", async () => {
  for (const [name, path, chunks] of cases) {
    const { table, of } = await statistics(path, name);
    const rank = table.coords.length / table.length;
    assert.deepEqual(of.notes, []);
    assert.equal(table.length, Object.keys(chunks).length);
    for (let row = 0; row < table.length; row++) {
      const facts = chunks[table.coords.subarray(rank * row, rank * (row + 1)).join()];
      const found = [of.minimum, of.maximum, of.mean, of.gaps].map((column) => present(column[row]));
      if (!facts) assert.ok(found.every(Number.isNaN), path);
      else
        found.forEach((value, at) =>
          assert.ok(
            Math.abs(value - present(facts[at])) <= 1e-9 * Math.abs(present(facts[at])),
            `${path} ${row}: ${value} is not ${facts[at]}`,
          ),
        );
    }
    assert.ok(
      (path === "/shards" || Object.values(chunks).some((facts) => facts === null)) &&
        (path === "/refilled" || Object.values(chunks).some((facts) => facts !== null)),
    );
  }
});

test("damaged files are ignored with a note, missing ones without", async () => {
  const { of, table } = await statistics("/floats", "damaged");
  assert.ok(of.gaps.every(Number.isNaN) && of.gaps.length === table.length);
  assert.match(of.notes.join(), /statistics\/.*checksum/);
  const source = new FolderSource(join(folder, "ice"));
  const get = source.get.bind(source);
  source.get = async (key, ...range) => (key.startsWith("statistics/") ? undefined : get(key, ...range));
  const { of: nothing } = await statistics("/floats", "ice", source);
  assert.ok(nothing.gaps.every(Number.isNaN) && nothing.notes.length === 0);
});
