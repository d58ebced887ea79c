import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { type Job, runJob } from "../../src/codecs/pool";
import { formatError } from "../../src/format/files";
import { present } from "../present";
import { DATA, digest, type Digest, FolderSource, readJson } from "./folder";
import { type ArrayNode, openRepository, readRegion, useWorkers } from "./reader";

interface Expected {
  readonly refs: { branches: Record<string, string> };
  readonly arrays: Record<
    string,
    Digest & { dtype: string; regions: (Digest & { start: number[]; stop: number[]; step: number[] })[] }
  >;
}

/** A worker of this process, which gets copies like a real one. */
class NearWorker {
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onerror = null;

  terminate(): void {}

  async postMessage(message: { id: number; job: Job }, transfer: Transferable[]): Promise<void> {
    const { id, job } = structuredClone(message, { transfer });
    const reply = await runJob(job).then(
      (value) => ({ id, value }),
      (error) => ({ id, error: { kind: formatError("data", error).kind, message: String(error) } }),
    );
    this.onmessage?.({ data: structuredClone(reply) });
  }
}

async function check(version: string): Promise<void> {
  const source = new FolderSource(join(DATA, "random", version, "repo"));
  const { refs, arrays } = readJson<Expected>(DATA, "random", version, "expected.json");
  const repository = await openRepository(source);
  assert.deepEqual(Object.fromEntries(repository.branches), refs.branches);
  assert.deepEqual(repository.history.metadata(1), {
    n: [1, 2.5, null, { deep: true }],
    text: "ü",
    big: 2 ** 40,
  });
  const snapshot = await repository.snapshot(refs.branches.main ?? "");
  for (const [path, { dtype, regions, ...whole }] of Object.entries(arrays)) {
    const { shape, document } = snapshot.node(path) as ArrayNode;
    const isText = dtype === "string";
    const all = { start: shape.map(() => 0), stop: shape, step: shape.map(() => 1), ...whole };
    for (const { start, stop, step, ...wanted } of [all, ...regions]) {
      const region = await readRegion(repository, source, snapshot, path, { start, stop, step });
      assert.deepEqual(
        digest(region.raw, dtype, isText),
        wanted,
        `${path} ${dtype} ${JSON.stringify({ start, stop, step, shape, grid: document.chunk_grid, codecs: document.codecs })}`,
      );
    }
  }
}

test("random arrays, spec version 2", () => check("v2"));
test("random arrays, spec version 1", () => check("v1"));
test("random arrays, decoded in workers", async () => {
  useWorkers(() => new NearWorker() as unknown as Worker);
  try {
    await check("v2");
  } finally {
    useWorkers(undefined);
  }
});

test("a page that may not start workers decodes in place", async () => {
  let started = 0;
  class Refused {
    onerror: ((event: { message: string; preventDefault(): void }) => void) | null = null;

    constructor() {
      started++;
    }

    terminate(): void {}

    postMessage(): void {
      setTimeout(() => this.onerror?.({ message: "refused", preventDefault: () => undefined }));
    }
  }
  useWorkers(() => new Refused() as unknown as Worker);
  try {
    const source = new FolderSource(join(DATA, "random", "v2", "repo"));
    const repository = await openRepository(source);
    const snapshot = await repository.snapshot(present(repository.branches.get("main")));
    for (let i = 0; i < 3; i++)
      assert.equal(
        (await readRegion(repository, source, snapshot, "/nested", { start: [0, 0], stop: [2, 2] })).raw
          .length,
        4,
      );
    assert.equal(started, 1);
  } finally {
    useWorkers(undefined);
  }
});

test("a small part of a large shard is read with few and small requests", async () => {
  const source = new FolderSource(join(DATA, "random", "v2", "repo"));
  const repository = await openRepository(source);
  const snapshot = await repository.snapshot(present(repository.branches.get("main")));
  let bytes = 0;
  const counting = {
    label: "counting",
    get: async (key: string, start?: number, end?: number) => {
      const data = await source.get(key, start, end);
      bytes += data?.length ?? 0;
      return data;
    },
  };
  const ref = present(await snapshot.chunk("/nested", [0, 0]));
  assert.ok(ref.size > 200_000);
  source.requests = [];
  await readRegion(repository, counting, snapshot, "/nested", { start: [100, 100], stop: [104, 104] });
  assert.equal(source.requests.length, 2);
  assert.ok(bytes < 20_000);
});
