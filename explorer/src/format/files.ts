/** The files of a repository: envelope, decompression, errors with the name of the file. */

import { ExplorerError, reasonOf, unsupported, wrongFormat } from "../base/errors";
import { type Properties, text } from "../base/lists";
import { pool } from "../codecs/pool";
import { decompress } from "../codecs/zstd";
import { Flat } from "./flatbuffer";
import type { Source } from "./types";

export const MAGIC = Uint8Array.of(0x49, 0x43, 0x45, 0xf0, 0x9f, 0xa7, 0x8a, 0x43, 0x48, 0x55, 0x4e, 0x4b);
export const HEADER = 39;
/** Compressed files above this size are decompressed in the worker. */
const LARGE = 1 << 15;
const MAX_BODY = 2 ** 30; // more than a page can hold

type FileType = "snapshot" | "manifest" | "transaction log" | "repo info";
/** The types of files by their code. */
export const FILE_TYPES: Readonly<Record<number, FileType>> = {
  1: "snapshot",
  2: "manifest",
  4: "transaction log",
  6: "repo info",
};

export type Body = { readonly flat: Flat; readonly spec: number };

/** Everything that a decoder throws about damaged bytes becomes an error of the kind "format". */
export function formatError(what: string, error: unknown): ExplorerError {
  if (error instanceof ExplorerError) return error;
  return wrongFormat(`${what} is damaged or not a file of this format: ${reasonOf(error)}`);
}

export function reading<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw formatError(what, error);
  }
}

/** What `read` makes of a file; undefined if there is no such file. */
export async function readFile<T>(source: Source, key: string, type: FileType, read: (body: Body) => T) {
  const data = await source.get(key);
  if (!data) return undefined;
  const fail = (what: string): ExplorerError => wrongFormat(`${key}: ${what}`);
  if (data.length < HEADER || MAGIC.some((byte, i) => data[i] !== byte))
    throw fail("expected a file of Icechunk, found other bytes");
  const [spec = 0, code = 0, compression = 0] = data.subarray(HEADER - 3, HEADER);
  const actual = FILE_TYPES[code] ?? `type ${code}`;
  if (actual !== type) throw fail(`expected a ${type}, found ${actual}`);
  if (spec !== 1 && spec !== 2)
    throw unsupported(`${key}: spec version ${spec} is newer than this page. Use a newer explorer`);
  if (compression > 1) throw fail(`unknown compression ${compression}`);
  const payload = data.subarray(HEADER);
  const unpack = (): Uint8Array | Promise<Uint8Array> =>
    payload.length < LARGE ? decompress(payload, MAX_BODY) : pool().zstd(payload);
  try {
    return read({ flat: new Flat(compression === 0 ? payload : await unpack()), spec });
  } catch (error) {
    throw formatError(key, error);
  }
}

export async function readJson(source: Source, key: string): Promise<Properties | undefined> {
  const data = await source.get(key);
  return data && reading(key, () => JSON.parse(text(data)) as Properties);
}

/** Values by key, the most recently used ones up to a total size. */
export class Cache<T> {
  private readonly entries = new Map<string, { value: Promise<T>; size: number }>();
  private total = 0;

  constructor(private readonly limit: number) {}

  get(key: string, load: () => Promise<T>, sizeOf: (value: T) => number = () => 1): Promise<T> {
    const hit = this.entries.get(key);
    if (hit) {
      this.entries.delete(key);
      this.entries.set(key, hit);
      return hit.value;
    }
    const entry = { value: load(), size: 0 };
    this.entries.set(key, entry);
    const settle = async (): Promise<void> => {
      try {
        entry.size = sizeOf(await entry.value);
      } catch {
        this.entries.delete(key);
      }
      this.total += entry.size;
      for (const [name, old] of this.entries) {
        if (this.total <= this.limit || old === entry) break;
        this.entries.delete(name);
        this.total -= old.size;
      }
    };
    void settle();
    return entry.value;
  }
}
