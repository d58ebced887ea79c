/** The contract between the reader of the format, the views and the homes of the explorer. */

import type { ExplorerError } from "../base/errors";
import type { Properties, Shape } from "../base/lists";
import type { Raw } from "../codecs/elements";

/** Where the files of a repository are: a server of `frazil ui`, a folder on a web server, memory in tests. */
export interface Source {
  /** The bytes of a file or of a part, up to `end`, exclusive. Undefined if there is no such file. */
  get(key: string, start?: number, end?: number): Promise<Uint8Array | undefined>;
  /** Name of the place, for people. */
  readonly label: string;
  /** Part of a file outside of the repository, if the source can read what the browser cannot. */
  external?(url: string, start: number, end: number): Promise<Uint8Array | undefined>;
}

/** All snapshots as columns. Row 0 is the oldest of the file; `parent[row]` is an earlier row or -1. */
export interface History {
  readonly parent: Int32Array;
  readonly times: Float64Array; // milliseconds since 1970
  id(row: number): string; // 20 characters of Crockford's base 32
  message(row: number): string;
  metadata(row: number): Properties;
  /** Whether older snapshots exist that were not read: spec version 1 needs a request for each. */
  readonly isCut?: boolean;
}

export type OpsEntry = { readonly kind: string; readonly time: number; readonly details: Properties };

export interface Repository {
  readonly specVersion: 1 | 2;
  readonly branches: ReadonlyMap<string, string>; // name -> snapshot id
  readonly tags: ReadonlyMap<string, string>;
  readonly history: History;
  readonly ops: OpsEntry[]; // newest first; [] in spec version 1
  readonly status: string; // online, read-only, offline
  readonly statusReason?: string;
  readonly metadata?: Properties; // of the repository; {} in spec version 1
  readonly configuration?: Properties; // as saved; {} if there is none, and in spec version 1
  row(id: string): number; // -1 if unknown
  snapshot(id: string): Promise<Snapshot>; // cached
  /** What a commit changed, from its transaction log; undefined if the log is missing (initial snapshot, expired). */
  changes(id: string): Promise<Changes | undefined>;
}

export interface Node {
  readonly path: string; // "/air/t"
  readonly kind: "group" | "array";
  readonly document: Properties; // zarr.json
  readonly id: string; // node id, as text
}

export interface ArrayNode extends Node {
  readonly kind: "array";
  readonly shape: number[];
  readonly chunkShape: number[]; // of the stored chunks (shards if there are shards)
  readonly dimensions: (string | null)[];
  readonly dtype: string;
  /** Lengths of all chunks along each dimension, where they differ (rectilinear grids). */
  readonly edges?: number[][];
}

export type Progress = (done: number, total: number) => void;

export interface Snapshot {
  readonly id: string;
  readonly nodes: Node[]; // sorted by path
  node(path: string): Node | undefined;
  /** All references of an array as columns. Missing chunks have no row. */
  chunks(path: string, onProgress?: Progress): Promise<ChunkTable>;
  /** What Frazil stored about the chunks of a table of `chunks`, for missing values with the digest `missing`. */
  statistics(path: string, of: ChunkTable, missing?: string, signal?: AbortSignal): Promise<ChunkStatistics>;
  /** The manifests of an array. Without a request. */
  manifests(path: string): readonly ManifestPart[];
  /** One reference, with as few requests as possible. */
  chunk(path: string, coords: number[]): Promise<ChunkRef | undefined>;
}

/** The part of the chunk grid of an array that a manifest covers. */
export interface ManifestPart {
  readonly id: string;
  /** First chunk (inclusive) and last (exclusive) of each dimension, in turn. */
  readonly extents: Uint32Array;
  /** The references of the manifest, perhaps also those of other arrays. */
  readonly count: number;
}

export const enum ChunkKind {
  Inline = 0,
  Native = 1,
  Virtual = 2,
}

export interface ChunkTable {
  readonly length: number;
  readonly coords: Uint32Array; // length * ndim
  readonly kind: Uint8Array; // ChunkKind
  readonly offset: Float64Array;
  readonly size: Float64Array; // bytes
  /** The chunk file (native) or URL (virtual) of a row; undefined for inline. */
  location(row: number): string | undefined;
  /** All that is known about a row, with the bytes of an inline chunk. */
  reference?(row: number): ChunkRef;
  /** Whether other rows share the file of this row: a pack. */
  isPacked(row: number): boolean;
}

/** Shape for each row of a table of chunks, NaN where nothing is known. They leave out gaps: NaN and missing values. */
export interface ChunkStatistics {
  readonly minimum: Float64Array; // as stored
  readonly maximum: Float64Array;
  readonly mean: Float64Array;
  readonly gaps: Float64Array; // share of the elements
  readonly notes: string[]; // about damaged files
}

export interface ChunkRef {
  readonly kind: ChunkKind;
  readonly location?: string;
  readonly offset: number;
  readonly size: number;
  readonly data?: Uint8Array;
  readonly checksum?: string;
}

export interface Changes {
  readonly newGroups: string[];
  readonly newArrays: string[];
  readonly deletedGroups: string[];
  readonly deletedArrays: string[]; // node ids
  readonly updatedGroups: string[];
  readonly updatedArrays: string[];
  readonly updatedChunks: { readonly nodeId: string; readonly count: number; readonly coords: Uint32Array }[];
  readonly moves: { readonly from: string; readonly to: string }[];
}

/** A part of an array: from `start` to `stop` (exclusive), with a step along each dimension. */
export type Selection = { readonly start: number[]; readonly stop: number[]; readonly step?: number[] };

/** A region of an array, decoded: `raw` as stored, row-major. Missing chunks have the fill value. */
export interface Region {
  readonly shape: number[];
  readonly raw: Raw;
  /** Complex numbers: two values for each element. */
  readonly isComplex?: boolean;
  /** Parts without values, because their chunks cannot be read. */
  readonly lost?: readonly Lost[];
}
/** A part of a region whose chunk is missing or damaged, and why. */
export interface Lost {
  readonly start: Shape;
  readonly count: Shape;
  readonly message: string;
  readonly kind: ExplorerError["kind"];
}
