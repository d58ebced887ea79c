import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { decodeCF } from "../../src/cf/cf";
import type { Reader } from "../../src/page/home";
import { pastOf } from "../../src/values/past";
import { present } from "../present";
import { DATA, FolderSource, readJson } from "./folder";
import { type ArrayNode, openRepository, readRegion } from "./reader";

const folder = join(DATA, "history");
type Past = Record<string, [id: string, value: number][]>;
const { past, lost } = readJson<{ past: Record<string, Past>; lost: string[] }>(folder, "expected.json");

async function opened(name: string, missing: string[] = []) {
  const source = new FolderSource(join(folder, name));
  const repository = await openRepository(source);
  const changes = repository.changes.bind(repository);
  repository.changes = async (id) => (missing.includes(id) ? undefined : changes(id));
  const reads: string[] = [];
  const reader: Reader = {
    repository,
    label: name,
    location: name,
    read: (snapshot, path, part, signal) => {
      reads.push(snapshot.id);
      return readRegion(repository, source, snapshot, path, part, signal);
    },
    decode: (_, node, region) => decodeCF(node, region),
  };
  const snapshot = await repository.snapshot(present(repository.branches.get("main")));
  const node = snapshot.node("/b") as ArrayNode;
  const of = (start: number[], stop = start.map((at) => at + 1)) =>
    pastOf({ reader, snapshot, node }, { start, stop }, () => undefined, new AbortController().signal);
  return { of, reads, history: repository.history };
}

for (const [name, end] of [
  ["whole", /^The array begins here\.$/],
  ["expired", /^The history begins here\. Older versions have expired\.$/],
  ["merged", /^The array begins here\.$/],
] as const)
  test(`the commits that wrote a cell and its values, as Frazil lists them: ${name}`, async () => {
    const { of, history } = await opened(name);
    let most = 0;
    for (const [cell, wanted] of Object.entries(present(past[name]))) {
      const found = await of(cell.split(",").map(Number));
      // The page also names the commit that made the array, if it did not write the chunk: there the cell has the fill value
      const isWritten = ({ row, kind, value }: (typeof found.events)[0]): boolean =>
        kind !== "new array" || value !== 0 || wanted.some(([id]) => id === history.id(row));
      const events = found.events.filter(
        (each) => each.kind !== "before" && each.kind !== "attributes" && isWritten(each),
      );
      const pairs = events.map(({ row, value }) => [history.id(row), value]);
      assert.deepEqual(pairs, wanted, cell);
      assert.match(found.end, end);
      most = Math.max(most, pairs.length);
      const before = found.events.filter(({ kind }) => kind === "before");
      assert.ok(name === "expired" ? before.length <= 1 : before.length === 0);
    }
    assert.ok(most > (name === "expired" ? 0 : 2));
  });

test("a chunk is read once for each reference, and a part has means", async () => {
  const { of, reads } = await opened("whole");
  const cell = present(Object.entries(present(past["whole"])).find(([, wanted]) => wanted.length > 2));
  const start = cell[0].split(",").map(Number);
  const { events } = await of(start);
  assert.ok(reads.length <= events.length);
  const part = await of([0, 0], [24, 18]);
  assert.ok(part.events.length > events.length);
  assert.ok(part.events.every(({ text, value }) => text !== "" && value > 0));
});

test("a missing record is named", async () => {
  const { of } = await opened("whole", [present(lost[1])]);
  const { events, end } = await of([0, 0]);
  assert.match(end, /^The commit \w{6} has no record: older ones are not known\.$/);
  assert.equal(present(events.at(-1)).kind, "before");
});
