import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { nth } from "../../src/base/lists";
import { decompress } from "../../src/codecs/zstd";
import { HEADER } from "../../src/format/files";
import { Flat } from "../../src/format/flatbuffer";
import { ChunkColumns, Manifest } from "../../src/format/manifest";
import { present } from "../present";
import { DATA, FolderSource } from "./folder";
import { ChunkKind, type ChunkRef, openRepository } from "./reader";

const ALL = Uint32Array.of(0, 1000, 0, 1000);
const source = new FolderSource(`${DATA}/sparse`);

/** The manifest of an array with four chunks. Each test changes bytes of its own. */
async function open(): Promise<{ flat: Flat; node: string; start: number; load: () => Manifest }> {
  const repository = await openRepository(source);
  const snapshot = await repository.snapshot(present(repository.branches.get("main")));
  const [part] = snapshot.manifests("/four");
  const file = new Uint8Array(readFileSync(join(source.label, "manifests", present(part).id)));
  const flat = new Flat(decompress(file.subarray(HEADER)).slice());
  const load = (): Manifest => new Manifest("manifests/X", { flat, spec: 2 });
  const { id: node } = present(snapshot.node("/four"));
  return { flat, node, start: load().references(node)[0], load };
}

const PLACES = [
  [0, 0],
  [0, 1],
  [1, 0],
  [1, 1],
];
const of = (ref: ChunkRef | undefined): string | undefined => ref && `${ref.location} ${ref.offset}`;

/** Writes the references of an array in another order, each as often as it is named. */
function arrange(flat: Flat, start: number, order: readonly number[]): void {
  const targets = [0, 1, 2, 3].map((at) => flat.follow(start + 4 * at));
  order.forEach((from, at) =>
    flat.view.setUint32(start + 4 * at, nth(targets, from) - (start + 4 * at), true),
  );
}

test("a chunk is found in its place, and no chunk in others", async () => {
  const { node, load } = await open();
  const manifest = load();
  const found = PLACES.map((place) => of(manifest.find(node, place)));
  assert.equal(new Set(found).size, 4);
  assert.ok(found.every((each) => each?.match(/^[0-9A-Z]{20} \d+$/)));
  for (const place of [
    [2, 0],
    [0, 2],
    [7, 7],
  ])
    assert.equal(manifest.find(node, place), undefined);
  assert.equal(manifest.find("0".repeat(13), [0, 0]), undefined);
  assert.throws(() => manifest.find(node, [0]), /another rank/);
});

test("references that another writer did not sort are found", async () => {
  const { flat, node, start, load } = await open();
  const sorted = PLACES.map((place) => of(load().find(node, place)));
  for (const order of [
    [3, 2, 1, 0],
    [1, 0, 3, 2],
    [2, 3, 0, 1],
  ]) {
    arrange(flat, start, order);
    const manifest = load();
    assert.deepEqual(
      PLACES.map((place) => of(manifest.find(node, place))),
      sorted,
      order.join(),
    );
    assert.equal(manifest.find(node, [5, 5]), undefined);
    arrange(
      flat,
      start,
      [0, 1, 2, 3].map((at) => order.indexOf(at)),
    );
  }
});

test("all references as columns, within the extents of the manifest", async () => {
  const { node, load } = await open();
  const columns = new ChunkColumns(2);
  columns.add(load(), node, ALL, 1);
  columns.finish();
  assert.equal(columns.length, 4);
  assert.deepEqual([...columns.coords], PLACES.flat());
  assert.deepEqual([...new Set(columns.kind)], [ChunkKind.Native]);
  PLACES.forEach((place, row) => {
    assert.equal(of(columns.reference(row)), of(load().find(node, place)));
    assert.equal(columns.location(row), columns.reference(row).location);
  });
  const files = PLACES.map((_, row) => columns.location(row));
  PLACES.forEach((_, row) =>
    assert.equal(columns.isPacked(row), files.filter((file) => file === files[row]).length > 1),
  );
  assert.throws(() => columns.reference(4), RangeError);
  const part = new ChunkColumns(2);
  part.add(load(), node, Uint32Array.of(0, 1, 1, 2), 1);
  part.add(load(), node, Uint32Array.of(1, 2, 0, 1), 1);
  assert.deepEqual([...part.finish().coords], [0, 1, 1, 0]);
  assert.deepEqual(
    part.origins(node).map(({ id, first, numbers }) => [id, first, [...numbers]]),
    [
      ["X", 0, [1]],
      ["X", 1, [2]],
    ],
  );
});

test("damaged references are errors, and never other chunks", async () => {
  const { flat, node, start, load } = await open();
  const saved = flat.bytes.slice();
  const cases: [string, () => void][] = [
    ["a vector beyond its file", () => flat.view.setUint32(start - 4, 1e6, true)],
    ["a reference beyond the file", () => flat.view.setUint32(start, 1e9, true)],
    ["extents of another rank", () => undefined],
  ];
  for (const [name, damage] of cases) {
    flat.bytes.set(saved);
    damage();
    const extents = name.startsWith("extents") ? Uint32Array.of(0, 9) : ALL;
    assert.throws(() => new ChunkColumns(2).add(load(), node, extents, 1), RangeError, name);
  }
});
