import assert from "node:assert/strict";
import { test } from "node:test";
import type { Changes, Node, Repository, Snapshot } from "../../src/format/types";
import { type Box, layered } from "../../src/page/graph";
import type { Reader } from "../../src/page/home";
import { derivedStates, pipelines } from "../../src/versions/derived";
import { boxesOf, factsOf } from "../../src/views/pipeline";
import { present } from "../present";

const group = (path: string, attributes = {}): Node => ({
  path,
  id: `id of ${path}`,
  kind: "group",
  document: { attributes },
});

const array = (path: string, attributes = {}): Node =>
  ({
    ...group(path, attributes),
    kind: "array",
    shape: [3],
    chunkShape: [3],
    dimensions: [null],
    dtype: "f4",
  }) as Node;

const table = (of: string, target: string, ...sources: string[]): Node =>
  array(`/.frazil/derived/id of ${of}`, {
    operation: "coarsen",
    target,
    sources: sources.map((path) => ({ node: `id of ${path}`, path })),
  });

const DEFINITION = {
  version: 1,
  name: "feed",
  branch: "main",
  owners: ["Ada"],
  ingest: [
    { files: ["a_*.nc", "b_*.nc"], groups: ["/weather"] },
    { files: ["rain_*.nc"], groups: ["/rain", "/rain/daily"] },
  ],
  derived: [
    { operation: "coarsen", sources: ["/weather/t"], to: "/daily" },
    { operation: "mean", sources: ["/daily/weather/t", "/mask", "/rain/daily/r"], to: "/mean" },
  ],
  rules: [{ rule: "Exists" }],
};

const NODES = [
  group("/weather"),
  array("/weather/t"),
  array("/daily/t"),
  array("/mean/t"),
  group("/weather/.frazil/pipeline", DEFINITION),
  array("/weather/.frazil/url"),
  array("/weather/.frazil/quarantined"),
  table("/daily/t", "/daily", "/weather/t"),
  table("/mean/t", "/mean/", "/daily/t"),
];

const snapshotOf = (...nodes: Node[]): Snapshot => {
  const paths = new Map(nodes.map((node) => [node.path, node]));
  return { id: "c3", nodes, node: (path: string) => paths.get(path) } as unknown as Snapshot;
};

type Commit = { metadata?: Record<string, unknown>; chunks?: string[]; arrays?: string[]; lost?: boolean };

/** A history of a line of commits, whose ids are c0, c1 and so on; the branch `late` leaves it at `fork`. */
function repositoryOf(
  commits: Commit[],
  branches: Record<string, number>,
  fork = commits.length,
): Repository {
  const row = (id: string): number => (/^c\d+$/.test(id) ? Number(id.slice(1)) : -1);
  const at = (id: string): Commit => present(commits[row(id)]);
  return {
    branches: new Map(Object.entries(branches).map(([name, each]) => [name, `c${each}`])),
    tags: new Map([["v1", "c1"]]),
    history: {
      parent: Int32Array.from(commits, (_, each) => (each === fork ? 1 : each - 1)),
      times: Float64Array.from(commits, (_, each) => Date.UTC(2026, 0, 1 + each)),
      id: (each: number) => `c${each}`,
      metadata: (each: number) => commits[each]?.metadata ?? {},
    },
    row,
    async changes(id: string) {
      const { chunks = [], arrays = [], lost } = at(id);
      const updatedChunks = chunks.map((path) => ({ nodeId: `id of ${path}`, count: 1 }));
      return lost ? undefined : { newArrays: [], updatedArrays: arrays, updatedChunks };
    },
  } as unknown as Repository & { changes: Promise<Changes> };
}

const audit = (ok: boolean, name = "feed"): Commit => ({
  metadata: {
    frazil_audit: {
      id: `${name}-${"0".repeat(24)}`,
      ok,
      rows: [{ ok, rule: "Exists", path: "/t", found: "nothing", expected: "an array" }],
    },
  },
});

const readerOf = (repository: Repository, marks = [0, 0, 1]): Reader =>
  ({
    repository,
    read: async (_: unknown, path: string, { start }: { start: number[] }) => ({ path, start }),
    decode: (_: unknown, __: unknown, { path, start }: { path: string; start: number[] }) => ({
      values: path.endsWith("url") ? [`a_${start[0]}.nc (${"0".repeat(16)})`] : Float64Array.from(marks),
    }),
  }) as unknown as Reader;

const PUBLISHED = [{}, audit(true), {}, {}];
const { signal } = new AbortController();
const textOf = ({ kind, title, notes = [], tone }: Box): string =>
  [kind, title, ...notes, tone].filter(Boolean).join("; ");

async function boxesIn(
  snapshot: Snapshot,
  repository: Repository,
  marks?: number[],
): Promise<Map<string, Box>> {
  const reader = readerOf(repository, marks);
  const found = pipelines(snapshot);
  const facts = await factsOf(found, reader, snapshot, signal);
  const boxes = boxesOf(present(found[0]), facts, reader, snapshot, "main");
  const before = boxesOf(present(found[0]), undefined, reader, snapshot, "main");
  assert.deepEqual(layered(before), layered(boxes)); // nothing moves when the facts come
  return new Map(boxes.map((each) => [each.id, each]));
}

test("files, groups, derived arrays, rules and the publication", async () => {
  const boxes = await boxesIn(snapshotOf(...NODES), repositoryOf(PUBLISHED, { main: 3 }));
  assert.deepEqual(
    [...boxes.values()].map(({ id, sources }) => `${id} < ${sources.join(" ")}`),
    [
      "files of /weather < ",
      "/weather < files of /weather",
      "files of /rain < ",
      "/rain < files of /rain",
      "/rain/daily < files of /rain",
      "/daily < /weather",
      "/mask < ",
      "/mean < /daily /mask /rain/daily",
      "rules < /rain /mean",
      "publication < rules",
    ],
  );
  assert.deepEqual(
    ["files of /weather", "files of /rain", "/weather", "rules", "publication"].map((id) =>
      textOf(present(boxes.get(id))),
    ),
    [
      "3 files; a_*.nc, b_*.nc; 1 quarantined; last a_1.nc; bad",
      "files; rain_*.nc; no list of files",
      "ingest; /weather; 1 array",
      "rules; 1 rule passed; 2026-01-02 00:00; good",
      "publication; branch main; 2026-01-02 00:00; tag v1",
    ],
  );
  assert.deepEqual(boxes.get("files of /weather")?.more, ["quarantined: a_2.nc"]);
  assert.match(String(boxes.get("/weather")?.href), /#\/v\/main\/weather/);
  assert.equal(boxes.get("/rain")?.href, undefined);
});

test("a later run whose rules fail, and the version that it did not publish", async () => {
  const commits = [{}, audit(true), {}, {}, audit(false)];
  const main = await boxesIn(snapshotOf(...NODES), repositoryOf(commits, { main: 3, late: 4 }, 4));
  assert.equal(
    textOf(present(main.get("rules"))),
    "rules; 1 of 1 rule failed; 2026-01-05 00:00; on late; bad",
  );
  assert.match(String(main.get("rules")?.href), /branch\.late/);
  assert.match(textOf(present(main.get("publication"))), /2026-01-02/);
  const late = { ...snapshotOf(...NODES), id: "c4" };
  const failed = await boxesIn(late, repositoryOf(commits, { main: 3, late: 4 }, 4));
  assert.equal(textOf(present(failed.get("rules"))), "rules; 1 of 1 rule failed; 2026-01-05 00:00; bad");
  assert.equal(textOf(present(failed.get("publication"))), "publication; branch main; not published");
  const others = [{}, audit(true), {}, {}, audit(false, "feed-2")]; // another pipeline
  const own = await boxesIn(snapshotOf(...NODES), repositoryOf(others, { main: 3, late: 4 }, 4));
  assert.match(textOf(present(own.get("rules"))), /1 rule passed/);
});

const states = async (commits: Commit[], nodes = NODES): Promise<string> => {
  const found = await derivedStates(repositoryOf(commits, { main: 3 }), snapshotOf(...nodes));
  return [...found].map(([{ node }, state]) => `${node.path} ${state}`).join(", ");
};

test("states of derived arrays by what commits changed", async () => {
  const tables = ["/.frazil/derived/id of /daily/t", "/.frazil/derived/id of /mean/t"];
  const first = { chunks: ["/weather/t", "/daily/t", "/mean/t", ...tables] };
  const all = (daily: string, mean: string): string => `/daily/t ${daily}, /mean/t ${mean}`;
  assert.equal(await states([{}, first, {}, {}]), all("current", "current"));
  assert.equal(await states([{}, first, { chunks: ["/weather/t"] }, {}]), all("behind", "behind"));
  assert.equal(await states([{}, first, { chunks: ["/daily/t"] }, {}]), all("edited", "behind"));
  const edited = { chunks: ["/daily/t"] };
  assert.equal(await states([{}, first, edited, { chunks: ["/weather/t"] }]), all("edited", "behind"));
  const again = { chunks: ["/daily/t", ...tables.slice(0, 1)] };
  assert.equal(await states([{}, first, { chunks: ["/weather/t"] }, again]), all("current", "behind"));
  const compaction = { chunks: ["/weather/t"], metadata: { __frazil: { compaction: true } } };
  assert.equal(await states([{}, first, compaction, {}]), all("current", "current"));
  const merge = { ...first, metadata: { __frazil: { parents: ["c1", "c0"] } } };
  assert.equal(await states([{}, {}, {}, merge]), all("not known", "not known"));
  assert.equal(await states([{}, first, { lost: true }, {}]), all("not known", "not known"));
  const without = NODES.filter(({ path }) => path !== "/weather/t");
  assert.equal(await states([{}, first, {}, {}], without), "/daily/t broken, /mean/t current");
});

test("definitions that nobody can read", async () => {
  const other = group("/a/.frazil/pipeline", { ...DEFINITION, version: 2 });
  assert.deepEqual(pipelines(snapshotOf(other, group("/b/.frazil/pipeline"))), []);
  const odd = { version: 1, ingest: [3, { files: "x", groups: null }], derived: [{}], rules: 3 };
  const boxes = await boxesIn(
    snapshotOf(group("/a/.frazil/pipeline", odd)),
    repositoryOf(PUBLISHED, { main: 3 }),
  );
  assert.ok(boxes.has("publication"));
  const empty = await boxesIn(snapshotOf(...NODES), repositoryOf(PUBLISHED, { main: 3 }), []);
  assert.equal(textOf(present(empty.get("files of /weather"))), "0 files; a_*.nc, b_*.nc");
});
