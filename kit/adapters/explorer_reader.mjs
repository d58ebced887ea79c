/** The adapter of the reader in Frazil's explorer: `node kit/adapters/explorer_reader.mjs`, after `npm install` in explorer/. */

import { createRequire } from "node:module";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";

const explorer = fileURLToPath(new URL("../../explorer/", import.meta.url));
const { build } = createRequire(join(explorer, "package.json"))("esbuild");
const contents = 'export { openRepository } from "./src/format/index"; export { readBytes } from "./src/format/remote";';
const stdin = { contents, resolveDir: explorer, loader: "ts" };
const bundle = await build({ stdin, bundle: true, format: "esm", platform: "node", target: "es2022", write: false });
const folder = await mkdtemp(join(tmpdir(), "explorer-reader-"));
const file = join(folder, "reader.mjs");
await writeFile(file, bundle.outputFiles[0].contents);
const { openRepository, readBytes } = await import(pathToFileURL(file));
await rm(folder, { recursive: true });

/** Reads a part of a file; undefined if there is no file. */
async function part(path, start = 0, end) {
  try {
    return new Uint8Array((await readFile(path)).subarray(start, end));
  } catch (error) {
    if (error.code === "ENOENT" || error.code === "ENOTDIR") return undefined;
    throw error;
  }
}

/** The list of branches and tags that the export of the page writes for version 1. */
async function index(folder) {
  const names = { branches: {}, tags: {} };
  for (const entry of await readdir(join(folder, "refs")).catch(() => [])) {
    const [kind, name] = [entry.startsWith("tag.") ? "tags" : "branches", entry.slice(entry.indexOf(".") + 1)];
    const file = join(folder, "refs", entry, "ref.json");
    if (kind === "tags" && (await part(`${file}.deleted`))) continue;
    const data = await part(file);
    if (data) names[kind][name] = JSON.parse(Buffer.from(data).toString()).snapshot;
  }
  return Object.keys(names.branches).length ? Buffer.from(JSON.stringify(names)) : undefined;
}

function sourceOf(location) {
  // A page does not read virtual chunks in local files: the server of the page does, in Python
  if (!location.path || location.containers) throw new Error("unsupported");
  return {
    label: location.path,
    get: (key, start, end) => (key === "index.json" ? index(location.path) : part(join(location.path, key), start, end)),
  };
}

function idOf(repository, ref) {
  const id = ref.snapshot_id ?? (ref.tag === undefined ? repository.branches.get(ref.branch) : repository.tags.get(ref.tag));
  if (id === undefined || repository.row(id) < 0) throw Object.assign(new Error("no such version"), { kind: "not-found" });
  return id;
}

async function snapshotOf({ location, ref }) {
  const source = sourceOf(location);
  const repository = await openRepository(source);
  return { source, repository, snapshot: await repository.snapshot(idOf(repository, ref)) };
}

async function nodeOf(request) {
  const view = await snapshotOf(request);
  const node = view.snapshot.node(request.path);
  if (!node) throw Object.assign(new Error(`no node ${request.path}`), { kind: "not-found" });
  return { ...view, node };
}

const operations = {
  async refs({ location }) {
    const { branches, tags } = await openRepository(sourceOf(location));
    return { branches: Object.fromEntries(branches), tags: Object.fromEntries(tags) };
  },
  async log({ location, ref }) {
    const repository = await openRepository(sourceOf(location));
    const { history } = repository;
    const rows = [];
    for (let row = repository.row(idOf(repository, ref)); row >= 0; row = history.parent[row]) rows.push(row);
    return rows.map((row) => ({ id: history.id(row), message: history.message(row), time: Math.round(history.times[row] * 1000) }));
  },
  async properties({ location, ref }) {
    const repository = await openRepository(sourceOf(location));
    return repository.history.metadata(repository.row(idOf(repository, ref)));
  },
  async list(request) {
    const { snapshot } = await snapshotOf(request);
    return snapshot.nodes.map(({ path, kind }) => ({ path, type: kind })).sort((a, b) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path)));
  },
  metadata: async (request) => (await nodeOf(request)).node.document,
  count: async (request) => (await nodeOf(request)).snapshot.chunks(request.path).then(({ length }) => length),
  async read(request) {
    const { source, repository, snapshot } = await nodeOf(request);
    const values = [];
    for (const index of request.chunks) {
      const ref = await snapshot.chunk(request.path, index);
      values.push(ref ? Buffer.from(await readBytes(source, repository.configuration ?? {}, ref)).toString("hex") : null);
    }
    return values;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { op, ...request } = JSON.parse(line);
  let answer = { unsupported: true };
  try {
    if (operations[op]) answer = { value: await operations[op](request) };
  } catch (error) {
    if (error.message !== "unsupported") answer = { error: { kind: error.kind ?? "other", message: String(error.message).slice(0, 1000) } };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
