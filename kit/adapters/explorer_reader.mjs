/** The adapter of the reader in Frazil's explorer. It needs `npm install` in explorer/. */

import { createRequire } from "node:module";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";

const explorer = fileURLToPath(new URL("../../explorer/", import.meta.url));
const { build } = createRequire(join(explorer, "package.json"))("esbuild");
const contents = `
export { openRepository } from "./src/format/repository";
export { readBytes } from "./src/format/remote";`;
const stdin = { contents, resolveDir: explorer, loader: "ts" };
const settings = { bundle: true, format: "esm", platform: "node", target: "es2022", write: false };
const bundle = await build({ stdin, ...settings });
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
    const kind = entry.startsWith("tag.") ? "tags" : "branches";
    const file = join(folder, "refs", entry, "ref.json");
    if (kind === "tags" && (await part(`${file}.deleted`))) continue;
    const data = await part(file);
    const name = entry.slice(entry.indexOf(".") + 1);
    if (data) names[kind][name] = JSON.parse(Buffer.from(data).toString()).snapshot;
  }
  return Object.keys(names.branches).length ? Buffer.from(JSON.stringify(names)) : undefined;
}

function sourceOf({ path, containers }) {
  // A page does not read virtual chunks in local files: the server of the page does, in Python
  if (!path || containers) throw new Error("unsupported");
  const get = (key, start, end) => (key === "index.json" ? index(path) : part(join(path, key), start, end));
  return { label: path, get };
}

const missing = (message) => Object.assign(new Error(message), { kind: "not-found" });

/** Opens the repository of a request, and its snapshot if it has a reference. */
async function open({ location, ref }) {
  const source = sourceOf(location);
  const repository = await openRepository(source);
  if (!ref) return { source, repository };
  const named = ref.tag === undefined ? repository.branches.get(ref.branch) : repository.tags.get(ref.tag);
  const row = repository.row(ref.snapshot_id ?? named ?? "");
  if (row < 0) throw missing("no such version");
  return { source, repository, history: repository.history, row };
}

async function snapshotOf(request) {
  const view = await open(request);
  return { ...view, snapshot: await view.repository.snapshot(view.history.id(view.row)) };
}

async function nodeOf(request) {
  const view = await snapshotOf(request);
  const node = view.snapshot.node(request.path);
  if (!node) throw missing(`no node ${request.path}`);
  return { ...view, node };
}

const operations = {
  async refs({ location }) {
    const { branches, tags } = (await open({ location })).repository;
    return { branches: Object.fromEntries(branches), tags: Object.fromEntries(tags) };
  },
  async log(request) {
    const { history, row } = await open(request);
    const rows = [];
    for (let at = row; at >= 0; at = history.parent[at]) {
      const time = Math.round(history.times[at] * 1000);
      rows.push({ id: history.id(at), message: history.message(at), time });
    }
    return rows;
  },
  async properties(request) {
    const { history, row } = await open(request);
    return history.metadata(row);
  },
  async list(request) {
    const { snapshot } = await snapshotOf(request);
    const nodes = snapshot.nodes.map(({ path, kind }) => ({ path, type: kind }));
    return nodes.sort((a, b) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path)));
  },
  metadata: async (request) => (await nodeOf(request)).node.document,
  count: async (request) => (await (await nodeOf(request)).snapshot.chunks(request.path)).length,
  async read(request) {
    const { source, repository, snapshot } = await nodeOf(request);
    const values = [];
    for (const index of request.chunks) {
      const ref = await snapshot.chunk(request.path, index);
      const data = ref && (await readBytes(source, repository.configuration ?? {}, ref));
      values.push(data ? Buffer.from(data).toString("hex") : null);
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
    const [kind, message] = [error.kind ?? "other", String(error.message).slice(0, 1000)];
    if (message !== "unsupported") answer = { error: { kind, message } };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
