/** Repositories of the spec versions 1 and 2: refs, history, operations. */

import TinyQueue from "tinyqueue";
import { notFound, wrongFormat } from "../base/errors";
import { f64, firstWhere, i32, nth, type Properties, record, u32, wide } from "../base/lists";
import { pool } from "../codecs/pool";
import { type Body, Cache, readFile, reading, readJson } from "./files";
import type { Flat } from "./flatbuffer";
import type { Manifest } from "./manifest";
import { MANIFEST_BYTES, snapshotHead, type SnapshotHead, SnapshotView } from "./snapshot";
import type { Changes, History, OpsEntry, Repository, Snapshot, Source } from "./types";
import { flexbuffer, properties } from "./values";

const SNAPSHOTS_KEPT = 24;
/** Spec version 1 needs a request for each ancestor. */
const HISTORY_LIMIT = 1000;
const STATUS = ["online", "read-only", "offline"];
type Field = "text" | "id" | "u8" | "u16" | "flag" | "status";
/** Kinds of operations with their fields, by number. */
export const OPERATIONS: [string, ...[string, Field][]][] = [
  ["None"],
  ["RepoInitialized"],
  ["RepoMigrated", ["from_version", "u8"], ["to_version", "u8"]],
  ["ConfigChanged"],
  ["MetadataChanged"],
  ["TagCreated", ["name", "text"]],
  ["TagDeleted", ["name", "text"], ["previous_snap_id", "id"]],
  ["BranchCreated", ["name", "text"]],
  ["BranchDeleted", ["name", "text"], ["previous_snap_id", "id"]],
  ["BranchReset", ["name", "text"], ["previous_snap_id", "id"]],
  ["NewCommit", ["branch", "text"], ["new_snap_id", "id"]],
  ["CommitAmended", ["branch", "text"], ["previous_snap_id", "id"], ["new_snap_id", "id"]],
  ["NewDetachedSnapshot", ["new_snap_id", "id"]],
  ["GCRan"],
  ["ExpirationRan"],
  ["FeatureFlagChanged", ["id", "u16"], ["new_value", "flag"], ["is_set", "flag"]],
  ["RepoStatusChanged", ["status", "status"]],
];

const READERS: Record<Field, (flat: Flat, table: number, slot: number) => unknown> = {
  text: (flat, table, slot) => flat.text(table, slot),
  id: (flat, table, slot) => flat.optionalId(table, slot, 12),
  u8: (flat, table, slot) => flat.u8(table, slot),
  u16: (flat, table, slot) => flat.u16(table, slot),
  flag: (flat, table, slot) => flat.u8(table, slot) !== 0,
  status: (flat, table, slot) => statusOf(flat, flat.table(table, slot)),
};

function statusOf(flat: Flat, table: number): Properties {
  return table === 0
    ? {}
    : {
        availability: STATUS[flat.u8(table, 0)] ?? "unknown",
        set_at: flat.u64(table, 1) / 1000,
        reason: flat.text(table, 2),
      };
}

function operationsOf(flat: Flat): OpsEntry[] {
  return flat.tables(flat.root(), 7).map((table) => {
    const [kind, ...fields] = OPERATIONS[flat.u8(table, 0)] ?? [`Update ${flat.u8(table, 0)}`];
    const update = flat.table(table, 1);
    const details = Object.fromEntries(
      fields.map(([name, field], slot) => [name, READERS[field](flat, update, slot)]),
    );
    return { kind, time: flat.u64(table, 2) / 1000, details };
  });
}

/**
 * Order of the rows: by time, and a child after its parent also where clocks were wrong. `parent` has a position in the
 * file or -1. Of the snapshots whose children have their places, the newest one gets the last free place.
 */
function oldestFirst(parent: Int32Array, times: Float64Array): Uint32Array {
  const count = parent.length;
  const children = new Uint32Array(count);
  for (const above of parent) if (above >= 0) children[above] = u32(children, above) + 1;
  // One position for each line of the history, the newest one first
  const queue = new TinyQueue<number>([], (one, other) => f64(times, other) - f64(times, one) || other - one);
  for (let at = 0; at < count; at++) if (children[at] === 0) queue.push(at);
  const order = new Uint32Array(count);
  for (let row = count - 1; row >= 0; row--) {
    const at = queue.pop();
    if (at === undefined) throw new RangeError("a snapshot is its own ancestor");
    order[row] = at;
    const above = i32(parent, at);
    if (above < 0) continue;
    children[above] = u32(children, above) - 1;
    if (children[above] === 0) queue.push(above);
  }
  return order;
}

/**
 * A history of snapshots in the order of their ids: `parent`, `times` and the facts of `at` are by their positions.
 * `rowOf` has the row of each position, and `find` gives the row of an id, or -1.
 */
function historyOf(
  parent: Int32Array,
  times: Float64Array,
  at: Pick<History, "id" | "message" | "metadata">,
  isCut = false,
) {
  const order = oldestFirst(parent, times);
  const rowOf = new Uint32Array(order.length);
  order.forEach((position, row) => (rowOf[position] = row));
  return {
    rowOf,
    isCut,
    parent: Int32Array.from(order, (position) => {
      const above = i32(parent, position);
      return above < 0 ? -1 : u32(rowOf, above);
    }),
    times: Float64Array.from(order, (position) => f64(times, position)),
    id: (row: number) => at.id(u32(order, row)),
    message: (row: number) => at.message(u32(order, row)),
    metadata: (row: number) => at.metadata(u32(order, row)),
    find(id: string) {
      const position = firstWhere(rowOf.length, (each) => at.id(each) >= id);
      return position < rowOf.length && at.id(position) === id ? u32(rowOf, position) : -1;
    },
  };
}

/** The history of a repo info file. */
function historyOfFile(flat: Flat) {
  const [start, count] = flat.vector(flat.root(), 4, 4);
  const { view } = flat;
  const tables = new Uint32Array(count);
  const times = new Float64Array(count);
  const parent = new Int32Array(count);
  let former = 0;
  for (let i = 0; i < count; i++) {
    const table = flat.follow(start + 4 * i);
    const [id = 0, above = 0, time = 0] = flat.layout(table);
    if (id === 0) throw new RangeError("a snapshot without an id");
    const lead = view.getUint32(table + id);
    if (lead < former) throw new RangeError("the snapshots are not in the order of their ids");
    former = lead;
    const own = above === 0 ? 0 : view.getInt32(table + above, true);
    if (own < -1 || own >= count) throw new RangeError(`snapshot ${i} has the parent ${own}`);
    if (own === i) throw new RangeError("a snapshot is its own ancestor");
    tables[i] = table;
    times[i] = time === 0 ? 0 : wide(view, table + time) / 1000;
    parent[i] = own;
  }
  return historyOf(parent, times, {
    id: (position) => flat.id(u32(tables, position), 0, 12),
    message: (position) => flat.required(u32(tables, position), 3),
    metadata: (position) => reading("repo", () => properties(flat, u32(tables, position), 4, 2)),
  });
}

/** The history of snapshot files of spec version 1. */
function historyOfHeads(unsorted: Iterable<SnapshotHead>, isCut: boolean) {
  const heads = [...unsorted].sort((one, other) => (one.id < other.id ? -1 : 1));
  const positions = new Map(heads.map(({ id }, position) => [id, position]));
  const parent = Int32Array.from(heads, (head) => positions.get(head.parent ?? "") ?? -1);
  const times = Float64Array.from(heads, ({ time }) => time);
  return historyOf(
    parent,
    times,
    {
      id: (position) => nth(heads, position).id,
      message: (position) => nth(heads, position).message,
      metadata: (position) => nth(heads, position).metadata,
    },
    isCut,
  );
}

/** What the file `repo` says, or the refs of spec version 1. */
type Contents = Omit<Repository, "history" | "ops" | "row" | "snapshot" | "changes"> & {
  readonly history: ReturnType<typeof historyOf>;
};

/** Completes the contents with what is read later. */
function repositoryOf(source: Source, contents: Contents, operations: () => OpsEntry[]): Repository {
  const snapshots = new Cache<Snapshot>(SNAPSHOTS_KEPT);
  const manifests = new Cache<Manifest>(MANIFEST_BYTES);
  let entries: OpsEntry[] | undefined;
  return {
    ...contents,
    get ops() {
      return (entries ??= reading("repo", operations));
    },
    row: (id) => contents.history.find(id),
    snapshot: (id) =>
      snapshots.get(id, async () => {
        const key = `snapshots/${id}`;
        const open = (body: Body): Snapshot => new SnapshotView(id, body, source, manifests);
        const snapshot = await readFile(source, key, "snapshot", open);
        if (!snapshot) throw notFound(`${key} is missing. Perhaps the snapshot expired`);
        return snapshot;
      }),
    changes: (id) => readFile(source, `transactions/${id}`, "transaction log", readChanges),
  };
}

function contentsOf({ flat, spec }: Body): Contents {
  const root = flat.root();
  if (spec !== 2) throw new RangeError(`spec version ${spec} in the header`);
  flat.need(root, 1, 2, 3, 4, 5, 7); // tags, branches, deleted tags, snapshots, status, latest updates
  const history = historyOfFile(flat);
  const refs = (slot: number): Map<string, string> =>
    new Map(
      flat.tables(root, slot).map((table) => {
        const row = history.rowOf[flat.u32(table, 1)];
        if (row === undefined) throw new RangeError("a ref to an unknown snapshot");
        return [flat.required(table, 0), history.id(row)];
      }),
    );
  const status = flat.table(root, 5);
  const configuration = flat.data(root, 9);
  return {
    specVersion: 2,
    tags: refs(1),
    branches: refs(2),
    history,
    status: STATUS[flat.u8(status, 0)] ?? "online",
    statusReason: flat.text(status, 2),
    metadata: properties(flat, root, 6, 2),
    configuration: configuration?.length ? record(flexbuffer(configuration)) : {},
  };
}

function textMap(value: unknown, what: string): Map<string, string> {
  const entries = Object.entries(record(value));
  if (!entries.every(([, id]) => typeof id === "string"))
    throw wrongFormat(`${what}: expected ids of snapshots`);
  return new Map(entries as [string, string][]);
}

async function refsOfVersion1(
  source: Source,
): Promise<[Map<string, string>, Map<string, string>] | undefined> {
  const index = await readJson(source, "index.json");
  if (index) return [textMap(index.branches, "index.json"), textMap(index.tags, "index.json")];
  const main = await readJson(source, "refs/branch.main/ref.json");
  return main && [textMap({ main: main.snapshot }, "refs/branch.main/ref.json"), new Map()];
}

async function openVersion1(source: Source): Promise<Contents> {
  const refs = await refsOfVersion1(source);
  if (!refs) {
    const missing = "neither the file repo nor refs/branch.main/ref.json";
    const advice = "Older formats cannot be shown; import them first";
    throw notFound(`${source.label}: no repository here: ${missing}. ${advice}`);
  }
  const [branches, tags] = refs;
  const heads = new Map<string, SnapshotHead>();
  let next = [...new Set([...branches.values(), ...tags.values()])];
  while (next.length > 0 && heads.size + next.length <= HISTORY_LIMIT) {
    // Undefined for an expired ancestor, or a ref whose snapshot is lost: the rest can be shown
    const level = await Promise.all(
      next.map((id) => readFile(source, `snapshots/${id}`, "snapshot", snapshotHead)),
    );
    for (const head of level) if (head) heads.set(head.id, head);
    const parents = new Set(level.flatMap((head) => head?.parent ?? []));
    next = [...parents].filter((id) => !heads.has(id));
  }
  return {
    specVersion: 1,
    branches,
    tags,
    history: reading("snapshots", () => historyOfHeads(heads.values(), next.length > 0)),
    status: "online",
    metadata: {},
    configuration: {},
  };
}

/** Opens a repository of any kind that the format has: spec versions 1 and 2. */
export async function openRepository(source: Source): Promise<Repository> {
  pool().warm();
  const repository = await readFile(source, "repo", "repo info", (body) =>
    repositoryOf(source, contentsOf(body), () => operationsOf(body.flat)),
  );
  return repository ?? repositoryOf(source, await openVersion1(source), () => []);
}

function readChanges({ flat }: Body): Changes {
  const root = flat.root();
  const ids = (slot: number): string[] => flat.ids(root, slot, 8);
  return {
    newGroups: ids(1),
    newArrays: ids(2),
    deletedGroups: ids(3),
    deletedArrays: ids(4),
    updatedArrays: ids(5),
    updatedGroups: ids(6),
    updatedChunks: flat.tables(root, 7).map((table) => updatedChunks(flat, table)),
    moves: flat
      .tables(root, 8)
      .map((table) => ({ from: flat.text(table, 0) ?? "", to: flat.text(table, 1) ?? "" })),
  };
}

/** The chunks of one array, of which most readers need only the number. */
function updatedChunks(flat: Flat, table: number): Changes["updatedChunks"][number] {
  const [start, count] = flat.vector(table, 1, 4);
  const read = (): Uint32Array => {
    const rank = count === 0 ? 0 : flat.vector(flat.follow(start), 0, 4)[1];
    const coords = new Uint32Array(count * rank);
    for (let i = 0; i < count; i++) {
      const [index, length] = flat.vector(flat.follow(start + 4 * i), 0, 4);
      if (length !== rank) throw new RangeError("chunks of one array with different numbers of dimensions");
      for (let d = 0; d < rank; d++) coords[i * rank + d] = flat.view.getUint32(index + 4 * d, true);
    }
    return coords;
  };
  return {
    nodeId: flat.id(table, 0, 8),
    count,
    get coords() {
      return reading("a transaction log", read);
    },
  };
}
