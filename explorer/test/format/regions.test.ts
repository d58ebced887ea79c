import assert from "node:assert/strict";
import { test } from "node:test";
import { product } from "../../src/base/lists";
import { present } from "../present";
import { DATA, FolderSource } from "./folder";
import { openRepository, readRegion, type Region, type Source, storedChunks } from "./reader";

const folder = `${DATA}/sparse`;

async function read(path: string, source: Source, step = 1): Promise<Region> {
  const repository = await openRepository(source);
  const snapshot = await repository.snapshot(present(repository.branches.get("main")));
  const node = present(snapshot.node(path));
  const shape = node.document.shape as number[];
  return readRegion(repository, source, snapshot, path, {
    start: shape.map(() => 0),
    stop: shape,
    step: shape.map(() => step),
  });
}

test("few chunks of very many", async () => {
  const step = Math.ceil(2 ** 31 / 1500);
  const places = (region: Region): number[] =>
    [...(region.raw as Uint8Array).entries()].filter(([, value]) => value).map(([at]) => at);
  const wide = await read("/wide", new FolderSource(folder), step);
  assert.deepEqual(
    [wide.shape, places(wide)],
    [
      [1500, 1500],
      [0, 1501, 1400 * 1500],
    ],
  );
  const long = await read("/long", new FolderSource(folder), 20_000);
  assert.deepEqual([long.shape, places(long)], [[50_000], [3]]);
  assert.deepEqual(places(await read("/empty", new FolderSource(folder), step)), []);
});

test("how many chunks are stored", async () => {
  const source = new FolderSource(folder);
  const repository = await openRepository(source);
  const snapshot = await repository.snapshot(present(repository.branches.get("main")));
  source.requests = [];
  const stored = (path: string, low: number[], high: number[]): number =>
    storedChunks(snapshot.manifests(path), low, high);
  assert.equal(stored("/empty", [0, 0], [2 ** 31, 2 ** 31]), 0);
  assert.equal(stored("/four", [0, 0], [1, 2]), 2);
  assert.equal(stored("/long", [0], [60_000]), 0);
  assert.ok(stored("/wide", [0, 0], [2 ** 31, 2 ** 31]) < 20);
  assert.deepEqual(source.requests, []);
});

/** A source with other bytes in the files of chunks. */
function changed(change: (data: Uint8Array) => Uint8Array | undefined): Source {
  const source = new FolderSource(folder);
  const { get } = source;
  source.get = async (key, start, end) => {
    const data = await get.call(source, key);
    return (data && key.startsWith("chunks/") ? change(data) : data)?.subarray(start, end);
  };
  return source;
}

const ZSTD = Buffer.of(0x28, 0xb5, 0x2f, 0xfd);

test("one damaged chunk does not hide the others", async () => {
  const short = changed((data) => data.subarray(0, 3 * 3200 - 5));
  const frames = changed((data) => {
    const at = Buffer.from(data).indexOf(ZSTD, 900);
    return at < 0 ? data : data.slice().fill(255, at, at + 4);
  });
  for (const [path, source, sizes] of [
    ["/four", short, [400, 400]],
    ["/shards", frames, [100]],
  ] as const) {
    const { lost = [] } = await read(path, source);
    assert.deepEqual(
      lost.map(({ count }) => product(count)),
      sizes,
      path,
    );
    for (const { message } of lost) assert.match(message, /^chunk \d, \d of \/\w+ in chunks\/\w{20}: /);
  }
  await assert.rejects(
    read(
      "/four",
      changed(() => undefined),
    ),
    /chunk 0, 0 of \/four in chunks\/\w{20}: .* is missing/,
  );
});
