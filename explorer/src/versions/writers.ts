/**
 * Which commit wrote each chunk of an array last. Chunks of a merge have the commits of the merged branch.
 * The records of commits are read from a version backwards, until each chunk has its commit. Where a record
 * is missing, the references of the version and of its parent say what changed. Chunks that remain are
 * older than the commits that were read.
 */

import { isArray } from "../array/nodes";
import { compareTables, rowFinder } from "../array/references";
import { i32, list, type Properties, record } from "../base/lists";
import { parallel, PARALLEL, turns } from "../codecs/pool";
import type { ArrayNode, Changes, ChunkTable, Progress, Repository, Snapshot } from "../format/types";

export const FARTHEST = 1000; // commits
const TURN = 12; // milliseconds

/** A row of the history with its record. */
type Commit = { readonly row: number; readonly id: string; readonly changes: Changes | undefined };

/** The commits from a version backwards. */
export async function* commitsBack(repository: Repository, version: string, most = FARTHEST) {
  const { history } = repository;
  const waiting: { row: number; id: string; changes: Promise<Changes | undefined> }[] = [];
  let next = repository.row(version);
  for (let step = 0; step < most; step++) {
    for (
      ;
      next >= 0 && waiting.length < Math.min(PARALLEL, step + 1, most - step);
      next = i32(history.parent, next)
    ) {
      const id = history.id(next);
      const changes = repository.changes(id);
      changes.catch(() => undefined); // awaited below, perhaps after the failure of another one
      waiting.push({ row: next, id, changes });
    }
    const first = waiting.shift();
    if (!first) return;
    const commit: Commit = { ...first, changes: await first.changes };
    yield commit;
  }
}

/** What a commit did to an array, with the first answer that holds; empty if nothing. */
export function changeOf({ newArrays, updatedArrays, updatedChunks }: Changes, id: string) {
  if (newArrays.includes(id)) return "new array";
  if (updatedChunks.some(({ nodeId }) => nodeId === id)) return "written";
  return updatedArrays.includes(id) ? "attributes" : "";
}

/** What Frazil says about a commit in its metadata. */
const ownFacts = ({ history }: Repository, row: number): Properties =>
  record(history.metadata(row)["__frazil"]);

/** Whether a commit moved bytes and wrote no data. */
export const isCompaction = (repository: Repository, row: number): boolean =>
  ownFacts(repository, row)["compaction"] === true;

/** Rows of the versions that a commit merged into its branch. */
export const mergedRows = (repository: Repository, row: number): number[] =>
  list(ownFacts(repository, row)["parents"])
    .slice(1)
    .map((id) => repository.row(String(id)))
    .filter((each) => each >= 0);

/** The commits that came with a merge, newest first, other merges last; undefined if one record is missing. */
export async function commitsOfMerge(repository: Repository, merge: number, most: number) {
  const { parent } = repository.history;
  const todo = mergedRows(repository, merge);
  if (!todo.length) return [];
  const reached = new Uint8Array(parent.length);
  for (let row = i32(parent, merge); row >= 0; row = i32(parent, row)) reached[row] = 1;
  const [commits, merges]: [number[], number[]] = [[], []];
  for (let row = todo.pop(); row !== undefined; row = todo.pop()) {
    if (row < 0 || reached[row]) continue;
    reached[row] = 1;
    const others = mergedRows(repository, row);
    (others.length ? merges : commits).push(row);
    if (commits.length + merges.length > most) return undefined;
    todo.push(i32(parent, row), ...others);
  }
  let isWhole = true;
  const rows = [commits, merges].flatMap((each) => each.sort((one, other) => other - one));
  const records: { row: number; changes: Changes }[] = [];
  await parallel([...rows.entries()], async ([at, row]) => {
    const changes = isWhole ? await repository.changes(repository.history.id(row)) : undefined;
    if (changes) records[at] = { row, changes };
    else isWhole = false;
  });
  return isWhole ? records : undefined;
}

/** Coordinates that a commit without a record changed, by the references of two versions, if these can say it. */
async function changedByReferences(repository: Repository, { row, id }: Commit, node: string, rank: number) {
  const parent = i32(repository.history.parent, row);
  if (parent < 0) return undefined;
  const tableOf = async (version: string): Promise<ChunkTable | undefined> => {
    const expired = (): Snapshot | undefined => undefined;
    const snapshot = await repository.snapshot(version).catch(expired);
    const array = snapshot?.nodes.find((each) => each.id === node);
    return snapshot && isArray(array) && array.shape.length === rank
      ? snapshot.chunks(array.path)
      : undefined;
  };
  const [before, after] = await Promise.all([tableOf(repository.history.id(parent)), tableOf(id)]);
  return before && after && compareTables(before, after, rank).coords;
}

export type Writers = Awaited<ReturnType<typeof chunkWriters>>;

/**
 * The row of the history for each row of the table (-1: older than the commits that were `read`), its place among
 * `commits`, these with the numbers of their chunks, newest first, and merges that stand for commits without a record.
 */
export async function chunkWriters(
  repository: Repository,
  version: string,
  node: Pick<ArrayNode, "id" | "shape">,
  table: Pick<ChunkTable, "length" | "coords">,
  progress?: Progress,
  signal?: AbortSignal,
  most = FARTHEST,
) {
  const rank = node.shape.length;
  const rows = new Int32Array(table.length).fill(-1);
  const rowOf = rowFinder(table, rank);
  const merges = new Set<number>();
  let [left, read] = [table.length, 0];
  const turn = turns(TURN);
  const all = (): Int32Array => Int32Array.from(rows.keys());
  const rowsAt = (coords: Uint32Array): Int32Array =>
    rank === 0 ? all() : Int32Array.from({ length: coords.length / rank }, (_, at) => rowOf(coords, at));
  /** Rows of the table that a commit wrote. */
  const written = (row: number, changes: Changes): Int32Array => {
    if (changes.newArrays.includes(node.id)) return all();
    const item = changes.updatedChunks.find((each) => each.nodeId === node.id);
    return item && !isCompaction(repository, row) ? rowsAt(item.coords) : new Int32Array();
  };
  const assign = (commit: number, chunks: Int32Array, among?: Uint8Array): void => {
    for (const chunk of chunks) {
      if (chunk < 0 || rows[chunk] !== -1 || (among && !among[chunk])) continue;
      rows[chunk] = commit;
      left--;
    }
  };
  if (left > 0) {
    for await (const commit of commitsBack(repository, version, most)) {
      signal?.throwIfAborted();
      const { row, changes } = commit;
      if (changes) {
        const own = written(row, changes);
        // What a merge changed was written by commits of its branch, or by the merge itself where both sides
        // changed a chunk
        if (mergedRows(repository, row).length && own.some((chunk) => rows[chunk] === -1)) {
          const among = new Uint8Array(table.length);
          for (const chunk of own) among[chunk] = 1;
          const commits = await commitsOfMerge(repository, row, most - read);
          for (const each of commits ?? []) assign(each.row, written(each.row, each.changes), among);
          if (!commits) merges.add(row);
        }
        assign(row, own);
      } else {
        const coords = await changedByReferences(repository, commit, node.id, rank);
        if (!coords) break;
        assign(row, rowsAt(coords));
      }
      read++;
      progress?.(table.length - left, table.length);
      if (left === 0) break;
      await turn();
    }
  }
  const counts = new Map<number, number>();
  for (const row of rows) if (row >= 0) counts.set(row, (counts.get(row) ?? 0) + 1);
  const commits = [...counts]
    .map(([row, count]) => ({ row, count }))
    .sort((one, other) => other.row - one.row);
  const placeOf = new Map(commits.map(({ row }, place) => [row, place]));
  return { rows, places: rows.map((row) => placeOf.get(row) ?? -1), commits, merges, older: left, read };
}
