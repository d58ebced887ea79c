/**
 * Which commit wrote each chunk of an array last. The records of commits are read from a version backwards, until
 * each chunk has its commit. Where a record is missing, the references of the version and of its parent say what
 * changed. Chunks that remain are older than the commits that were read.
 */

import { changedReferences, rowFinder } from "./chunks";
import type { ArrayNode, Changes, ChunkTable, Repository, Snapshot } from "./format/types";
import { isArray } from "./nodes";
import { idOf } from "./search";

const AHEAD = 8; // records that are read at the same time
export const FARTHEST = 1000; // commits
const TURN = 12; // milliseconds before the page gets a turn

export interface Commit {
  /** Row of the history. */
  readonly row: number;
  readonly id: string;
  readonly changes: Changes | undefined;
}

/** The commits from a version backwards with their records. */
export async function* commitsBack(repository: Repository, version: string, most = FARTHEST): AsyncGenerator<Commit> {
  const { history } = repository;
  const waiting: { row: number; id: string; changes: Promise<Changes | undefined> }[] = [];
  let next = repository.row(version);
  for (let step = 0; step < most; step++) {
    for (; next >= 0 && waiting.length < Math.min(AHEAD, step + 1, most - step); next = history.parent[next]!) {
      const id = idOf(history, next);
      const changes = repository.changes(id);
      changes.catch(() => undefined); // awaited below, perhaps after the failure of another one
      waiting.push({ row: next, id, changes });
    }
    const first = waiting.shift();
    if (!first) return;
    yield { ...first, changes: await first.changes };
  }
}

/** A compaction moves bytes and writes no data. */
const isCompaction = ({ history }: Repository, row: number): boolean => (history.metadata(row)["__frazil"] as Record<string, unknown> | undefined)?.["compaction"] === true;

/** Coordinates that a commit without a record changed, by the references of two versions; undefined if they cannot say. */
async function changedByReferences(repository: Repository, { row, id }: Commit, node: string, rank: number): Promise<Uint32Array | undefined> {
  const parent = repository.history.parent[row]!;
  if (parent < 0) return undefined;
  const tableOf = async (version: string): Promise<ChunkTable | undefined> => {
    const snapshot = await repository.snapshot(version).catch((): Snapshot | undefined => undefined); // it can have expired
    const array = snapshot?.nodes.find((each) => each.id === node);
    return isArray(array) && array.shape.length === rank ? snapshot!.chunks(array.path) : undefined;
  };
  const [before, after] = await Promise.all([tableOf(idOf(repository.history, parent)), tableOf(id)]);
  return before && after && changedReferences(before, after, rank);
}

export interface Writers {
  /** Row of the table -> row of the history; -1: older than the commits that were read. */
  readonly rows: Int32Array;
  /** Row of the table -> place in `commits`, or -1. */
  readonly places: Int32Array;
  /** Commits, newest first, with the number of their chunks. */
  readonly commits: readonly { readonly row: number; readonly count: number }[];
  readonly older: number;
  /** Number of commits that were read. */
  readonly read: number;
}

export async function chunkWriters(
  repository: Repository,
  version: string,
  node: ArrayNode,
  table: ChunkTable,
  progress?: (done: number, total: number) => void,
  signal?: AbortSignal,
  most = FARTHEST,
): Promise<Writers> {
  const rank = node.shape.length;
  const rows = new Int32Array(table.length).fill(-1);
  const rowOf = rowFinder(table, rank);
  const commits: { row: number; count: number }[] = [];
  let [left, read, turn] = [table.length, 0, performance.now()];
  const assign = (commit: number, coords: Uint32Array | undefined): void => {
    const before = left;
    const count = !coords ? table.length : rank === 0 ? table.length : coords.length / rank;
    for (let at = 0; at < count; at++) {
      const row = coords && rank > 0 ? rowOf(coords, at) : at;
      if (row < 0 || rows[row] !== -1) continue;
      rows[row] = commit;
      left--;
    }
    if (left < before) commits.push({ row: commit, count: before - left });
  };
  if (left > 0) {
    for await (const commit of commitsBack(repository, version, most)) {
      signal?.throwIfAborted();
      const { row, changes } = commit;
      if (changes) {
        const written = changes.updatedChunks.find((item) => item.nodeId === node.id)?.coords;
        if (written && !isCompaction(repository, row)) assign(row, written);
        if (changes.newArrays.includes(node.id)) assign(row, undefined);
      } else {
        const written = await changedByReferences(repository, commit, node.id, rank);
        if (!written) break;
        assign(row, written);
      }
      read++;
      progress?.(table.length - left, table.length);
      if (left === 0) break;
      if (performance.now() - turn > TURN) {
        await new Promise((resume) => setTimeout(resume));
        turn = performance.now();
      }
    }
  }
  const placeOf = new Map(commits.map(({ row }, place) => [row, place]));
  return { rows, places: rows.map((row) => placeOf.get(row) ?? -1), commits, older: left, read };
}

/** The newest commit up to `version` that wrote a chunk or made its array; undefined if that is not on record. */
export async function lastWriter(repository: Repository, version: string, node: string, coords: readonly number[], progress?: (done: number, total: number) => void): Promise<string | undefined> {
  let step = 0;
  for await (const { row, id, changes } of commitsBack(repository, version)) {
    if (!changes) return undefined;
    const written = changes.updatedChunks.find((item) => item.nodeId === node)?.coords;
    if ((written && includes(written, coords) && !isCompaction(repository, row)) || changes.newArrays.includes(node)) return id;
    progress?.(++step, FARTHEST);
  }
  return undefined;
}

function includes(all: Uint32Array, coords: readonly number[]): boolean {
  const rank = coords.length;
  if (rank === 0) return true;
  for (let at = 0; at < all.length; at += rank) if (coords.every((place, dimension) => all[at + dimension] === place)) return true;
  return false;
}
