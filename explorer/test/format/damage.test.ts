import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { decompress } from "../../src/codecs/zstd";
import { present } from "../present";
import { goldenFolders } from "./folder";
import {
  type ArrayNode,
  decodeCF,
  ExplorerError,
  flipBit,
  type Node,
  openRepository,
  readRegion,
  type Repository,
  type Snapshot,
  type Source,
} from "./reader";

const HEADER = 39;

/** Its one reference has more bytes than a chunk. */
const UNREADABLE = "/elsewhere";

async function readNode(
  repository: Repository,
  source: Source,
  snapshot: Snapshot,
  node: Node,
): Promise<void> {
  void node.document;
  if (node.kind !== "array") return;
  const array = node as ArrayNode;
  const table = await snapshot.chunks(node.path);
  for (let row = 0; row < Math.min(table.length, 50); row++) {
    table.location(row);
    table.isPacked(row);
  }
  if (array.shape.reduce((a, b) => a * b, 1) > 1e5)
    throw new ExplorerError("unsupported", "too large for this test");
  const region = await readRegion(repository, source, snapshot, node.path, {
    start: array.shape.map(() => 0),
    stop: array.shape,
  });
  if (region.raw.length > 0) decodeCF(array, region).label(0);
}

/** Reads all that a page can show. */
async function readAll(source: Source): Promise<void> {
  let failed: unknown;
  const repository = await openRepository(source);
  const { history } = repository;
  for (let row = 0; row < history.parent.length; row++) history.metadata(row);
  void repository.ops;
  for (const id of repository.branches.values()) {
    const snapshot = await repository.snapshot(id);
    const changes = await repository.changes(id);
    void changes?.moves;
    for (const node of snapshot.nodes) {
      try {
        await readNode(repository, source, snapshot, node);
      } catch (error) {
        // the other nodes must be readable, or damaged in an orderly way
        if (!(error instanceof ExplorerError)) throw error;
        if (node.path !== UNREADABLE) failed ??= error;
      }
    }
  }
  if (failed) throw failed;
}

function files(folder: string): Map<string, Uint8Array> {
  const out = new Map<string, Uint8Array>();
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const data = new Uint8Array(readFileSync(path));
    const key = path.slice(folder.length + 1);
    // without compression, so that a changed byte reaches the decoder behind it
    const plain = key.startsWith("chunks/")
      ? data
      : Uint8Array.from([...data.subarray(0, HEADER - 1), 0, ...decompress(data.subarray(HEADER))]);
    out.set(key, plain);
  }
  return out;
}

for (const name of ["story", "rectilinear", "expired"]) {
  const { folder } = present(goldenFolders().find(({ folder }) => basename(folder) === name));
  const good = files(join(folder, "repo"));
  const keys = [...good.keys()].filter((key) => !key.startsWith("overwritten/"));

  test(`files of ${name} that are not compressed are read`, () =>
    readAll({
      label: "good",
      get: async (key, start, end) => good.get(key)?.subarray(start, end),
      external: async (_, start, end) => new Uint8Array(end - start),
    }));

  test(`damaged files of ${name} are errors with a kind`, async (t) => {
    let seed = 11;
    const next = (n: number): number => (seed = (Math.imul(seed, 1103515245) + 12345) >>> 0) % n;
    const kinds = new Map<string, number>();
    const turns = 800;
    for (let turn = 0; turn < turns; turn++) {
      const key = keys[turn % keys.length];
      const source = {
        label: "damaged",
        get: async (wanted: string, start?: number, end?: number) => {
          let data = good.get(wanted);
          if (data && wanted === key) {
            data = data.slice();
            const kind = turn % 4;
            if (kind === 0) data = data.subarray(0, next(data.length));
            else if (kind === 1) flipBit(data, next(data.length), next(8));
            else
              data.set(
                [0, 1, 0x7f, 0x80, 0xff].map(() => next(256)).slice(0, kind),
                HEADER + next(Math.max(1, data.length - HEADER - kind)),
              );
          }
          return data?.subarray(start, end);
        },
        external: async (_: string, start: number, end: number) => new Uint8Array(end - start),
      };
      try {
        await readAll(source);
        kinds.set("none", (kinds.get("none") ?? 0) + 1);
      } catch (error) {
        assert.ok(
          error instanceof ExplorerError,
          `${key}, turn ${turn}: ${error instanceof Error ? error.stack : String(error)}`,
        );
        kinds.set(error.kind, (kinds.get(error.kind) ?? 0) + 1);
      }
    }
    t.diagnostic(JSON.stringify(Object.fromEntries(kinds)));
    assert.ok((kinds.get("format") ?? 0) > turns / 10);
  });
}
