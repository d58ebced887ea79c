import assert from "node:assert/strict";
import { basename, dirname, join } from "node:path";
import { test } from "node:test";
import { f64, i32, nth } from "../../src/base/lists";
import { present } from "../present";
import { digest, type Digest, FolderSource, goldenFolders, readJson } from "./folder";
import {
  type ArrayNode,
  ChunkKind,
  openRepository,
  readRegion,
  type Repository,
  type Snapshot,
} from "./reader";

interface Entry {
  readonly id: string;
  readonly parent_id: string | null;
  readonly message: string;
  readonly written_at: string;
  readonly metadata: Record<string, unknown>;
}
interface ExpectedChunk {
  readonly index: number[];
  readonly kind: "inline" | "native" | "virtual";
  readonly inline?: string;
  readonly chunk_id?: string;
  readonly location?: string;
  readonly offset?: number;
  readonly length?: number;
  readonly etag?: string;
  readonly last_modified?: number;
}
interface ExpectedNode {
  readonly path: string;
  readonly type: string;
  readonly node_id: string;
  readonly zarr_json: unknown;
  readonly chunks?: ExpectedChunk[];
  readonly array?: Digest & { dtype?: string; shape: number[]; error?: string; values?: unknown };
}
interface Log {
  readonly new_groups: string[] | null;
  readonly new_arrays: string[] | null;
  readonly updated_chunks: { node_id: string; chunks: number[][] }[] | null;
  readonly moved_nodes: { from: string; to: string }[] | null;
}
interface Expected {
  readonly spec_version: 1 | 2;
  readonly refs: { branches: Record<string, string>; tags: Record<string, string> };
  readonly ancestry: Record<string, Entry[]>;
  readonly snapshots: Record<string, { nodes: ExpectedNode[] }>;
  readonly tx_logs: Record<string, Log>;
  readonly ops_log?: { kind: string; updated_at: string }[];
  readonly repo_metadata?: Record<string, unknown>;
}

/** Spec version 1 has no listing: what a static export writes. */
class Listed extends FolderSource {
  constructor(
    folder: string,
    virtual: string,
    private readonly expected: Expected,
  ) {
    super(join(folder, "repo"), virtual);
  }

  override async get(key: string, start?: number, end?: number): Promise<Uint8Array | undefined> {
    if (key !== "index.json" || this.expected.spec_version !== 1) return super.get(key, start, end);
    return new TextEncoder().encode(JSON.stringify(this.expected.refs));
  }
}

function checkHistory(repository: Repository, expected: Expected): void {
  assert.equal(repository.specVersion, expected.spec_version);
  assert.deepEqual(Object.fromEntries(repository.branches), expected.refs.branches);
  assert.deepEqual(Object.fromEntries(repository.tags), expected.refs.tags);
  const { history } = repository;
  history.parent.forEach((parent, row) => assert.ok(parent < row));
  for (const [ref, entries] of Object.entries(expected.ancestry)) {
    const tip = nth(entries, 0).id;
    let row = repository.row(tip);
    assert.equal(
      tip,
      (ref.startsWith("tag:") ? repository.tags : repository.branches).get(ref.replace(/^(tag|branch):/, "")),
    );
    for (const entry of entries) {
      assert.equal(history.id(row), entry.id);
      assert.equal(history.message(row), entry.message);
      assert.equal(Math.round(f64(history.times, row) * 1000), Math.round(microseconds(entry.written_at)));
      assert.deepEqual(history.metadata(row), entry.metadata);
      row = i32(history.parent, row);
    }
    assert.equal(row, -1);
  }
  if (expected.spec_version === 1) return;
  assert.deepEqual(
    repository.ops.map(({ kind }) => kind),
    present(expected.ops_log)
      .map(({ kind }) => present(/(?:.*UpdateType\.)?(\w+)/.exec(kind))[1])
      .slice(0, repository.ops.length),
  );
  assert.ok(repository.ops.length > 0);
  assert.deepEqual(repository.metadata, expected.repo_metadata ?? {});
}

function microseconds(iso: string): number {
  const [, seconds, fraction = "0"] = present(/^(.*?)(?:\.(\d+))?(?:\+00:00|Z)$/.exec(iso));
  return Date.parse(`${seconds}Z`) * 1000 + Number(fraction.padEnd(6, "0"));
}

async function checkNode(
  repository: Repository,
  source: FolderSource,
  snapshot: Snapshot,
  wanted: ExpectedNode,
): Promise<boolean> {
  const node = present(snapshot.node(wanted.path));
  assert.equal(node.id, wanted.node_id);
  assert.equal(node.kind, wanted.type);
  assert.deepEqual(node.document, wanted.zarr_json);
  if (wanted.type === "group") return false;
  const { shape, dtype } = node as ArrayNode;
  const table = await snapshot.chunks(wanted.path);
  const chunks = present(wanted.chunks);
  assert.equal(table.length, chunks.length);
  const rank = shape.length;
  const rows = new Map(
    Array.from({ length: table.length }, (_, row) => [
      Array.from(table.coords.subarray(row * rank, (row + 1) * rank)).join(),
      row,
    ]),
  );
  const files = chunks.map(({ chunk_id: id, location }) => id ?? location);
  for (const [i, chunk] of chunks.entries()) {
    const row = present(rows.get(chunk.index.join()));
    const kind = { inline: ChunkKind.Inline, native: ChunkKind.Native, virtual: ChunkKind.Virtual }[
      chunk.kind
    ];
    assert.equal(table.kind[row], kind);
    assert.equal(table.location(row), chunk.chunk_id ?? chunk.location);
    assert.equal(table.size[row], chunk.length ?? present(chunk.inline).length / 2);
    assert.equal(table.offset[row], chunk.offset ?? 0);
    if (i < 100)
      assert.equal(
        table.isPacked(row),
        files[i] !== undefined && files.filter((file) => file === files[i]).length > 1,
      );
    const found = present(await snapshot.chunk(wanted.path, chunk.index));
    assert.deepEqual(found, present(table.reference?.(row)));
    if (chunk.inline !== undefined)
      assert.equal(Buffer.from(present(found.data)).toString("hex"), chunk.inline);
    if (chunk.etag !== undefined) assert.equal(found.checksum, chunk.etag);
    if (chunk.last_modified !== undefined)
      assert.equal(Date.parse(present(found.checksum)), chunk.last_modified * 1000);
  }
  if (rank > 0)
    assert.equal(
      await snapshot.chunk(
        wanted.path,
        shape.map(() => 2 ** 31),
      ),
      undefined,
    );
  const { array } = wanted;
  if (!array || array.error !== undefined) return false;
  const region = await readRegion(repository, source, snapshot, wanted.path, {
    start: shape.map(() => 0),
    stop: shape,
  });
  assert.deepEqual(region.shape, array.shape);
  if (/^fixed|^null_terminated/.test(dtype)) assert.deepEqual(region.raw, array.values);
  else
    assert.deepEqual(
      digest(region.raw, dtype, array.sha256_json !== undefined),
      array.sha256_json !== undefined ? { sha256_json: array.sha256_json } : { sha256: array.sha256 },
    );
  return true;
}

for (const { folder, virtual } of goldenFolders()) {
  test(`golden: ${basename(dirname(folder))}/${basename(folder)}`, async () => {
    const expected = readJson<Expected>(folder, "expected.json");
    const source = new Listed(folder, virtual, expected);
    const repository = await openRepository(source);
    checkHistory(repository, expected);
    let arrays = 0;
    for (const [id, { nodes }] of Object.entries(expected.snapshots)) {
      const snapshot = await repository.snapshot(id);
      assert.deepEqual(
        snapshot.nodes.map(({ path }) => path).toSorted(),
        nodes.map(({ path }) => path).toSorted(),
      );
      for (const node of nodes) if (await checkNode(repository, source, snapshot, node)) arrays++;
    }
    assert.ok(arrays > 0 || /order|meta/.test(folder));
    for (const [id, log] of Object.entries(expected.tx_logs)) {
      const changes = present(await repository.changes(id));
      assert.deepEqual(changes.newGroups, log.new_groups ?? []);
      assert.deepEqual(changes.newArrays, log.new_arrays ?? []);
      assert.deepEqual(
        changes.moves,
        (log.moved_nodes ?? []).map(({ from, to }) => ({ from, to })),
      );
      assert.deepEqual(
        changes.updatedChunks.map(({ nodeId, count, coords }) => ({ nodeId, count, coords: [...coords] })),
        (log.updated_chunks ?? []).map(({ node_id: nodeId, chunks }) => ({
          nodeId,
          count: chunks.length,
          coords: chunks.flat(),
        })),
      );
    }
    assert.equal(await repository.changes("00000000000000000000"), undefined);
  });
}

test("paths are in the order of a tree", async () => {
  const { folder, virtual } = present(goldenFolders().find(({ folder }) => basename(folder) === "story"));
  const repository = await openRepository(new FolderSource(join(folder, "repo"), virtual));
  const { nodes } = await repository.snapshot(present(repository.branches.get("main")));
  const paths = nodes.map(({ path }) => path);
  assert.ok(paths.indexOf("/g/temp") < paths.indexOf("/g-b"));
});

test("what is not there is an error with a kind", async () => {
  const { folder, virtual } = present(goldenFolders().find(({ folder }) => basename(folder) === "story"));
  const source = new FolderSource(join(folder, "repo"), virtual);
  const repository = await openRepository(source);
  const snapshot = await repository.snapshot(present(repository.branches.get("main")));
  await assert.rejects(openRepository(new FolderSource(join(folder, "nothing"))), { kind: "not-found" });
  await assert.rejects(repository.snapshot("00000000000000000000"), { kind: "not-found" });
  await assert.rejects(snapshot.chunks("/nothing"), { kind: "not-found" });
  await assert.rejects(readRegion(repository, source, snapshot, "/g", { start: [], stop: [] }), {
    kind: "not-found",
  });
  await assert.rejects(
    readRegion(repository, source, snapshot, "/g/temp", { start: [0, 0], stop: [99, 1] }),
    {
      kind: "unsupported",
    },
  );
});
