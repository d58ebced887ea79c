/** Repositories on disk, for tests. */

import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { present } from "../present";
import type { Region, Source } from "./reader";

export const DATA = present(process.env.FRAZIL_DATA);

export function readJson<T>(...path: string[]): T {
  // Python writes NaN, which JSON does not have
  return JSON.parse(readFileSync(join(...path), "utf8").replace(/([[,:]\s*)NaN\b/g, "$1null")) as T;
}

export class FolderSource implements Source {
  requests: string[] = [];

  constructor(
    readonly label: string,
    private readonly virtual?: string,
  ) {}

  async get(key: string, start?: number, end?: number): Promise<Uint8Array | undefined> {
    this.requests.push(key);
    const path = join(this.label, key);
    if (!existsSync(path)) return undefined;
    return new Uint8Array(readFileSync(path)).subarray(start, end);
  }

  async external(url: string, start: number, end: number): Promise<Uint8Array | undefined> {
    if (!this.virtual || !/^(file|vcc):.*\/data\.bin$/.test(url)) return undefined;
    return new Uint8Array(readFileSync(this.virtual)).subarray(start, end);
  }
}

/** Golden repositories of the project, and others of the same kind if they are there. */
export function goldenFolders(): { folder: string; virtual: string }[] {
  const inside = join(DATA, "golden");
  const out = readdirSync(inside).map((name) => ({
    folder: join(inside, name),
    virtual: join(inside, name, "virtual", "data.bin"),
  }));
  const beside = process.env.FRAZIL_FIXTURES ?? join(DATA, "../../../../../shared/fixtures");
  if (!existsSync(beside)) return out;
  for (const group of readdirSync(beside).filter((name) => /^v[12]-/.test(name))) {
    for (const name of readdirSync(join(beside, group)))
      out.push({ folder: join(beside, group, name), virtual: join(beside, "_virtual", "data.bin") });
  }
  return out;
}

export interface Digest {
  readonly sha256?: string;
  readonly sha256_json?: string;
}

/** The digest of elements as Python writes it: little-endian bytes, or JSON of texts. */
export function digest(raw: Region["raw"], dtype: string, isText: boolean): Digest {
  const hash = createHash("sha256");
  if (isText) return { sha256_json: hash.update(pythonJson(raw as string[])).digest("hex") };
  const bytes = dtype === "float16" ? halves(raw as Float32Array) : (raw as Uint8Array);
  return {
    sha256: hash.update(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)).digest("hex"),
  };
}

function pythonJson(texts: string[]): string {
  return `[${texts.map((text) => JSON.stringify(text)).join(", ")}]`;
}

/** Half precision of values that are exact in it. */
function halves(values: Float32Array): Uint16Array {
  return Uint16Array.from(values, (value) => {
    const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
    const size = Math.abs(value);
    if (Number.isNaN(value)) return 0x7e00;
    if (size === Infinity) return sign | 0x7c00;
    if (size < 2 ** -14) return sign | Math.round(size * 2 ** 24);
    const exponent = Math.floor(Math.log2(size));
    return sign | ((exponent + 15) << 10) | ((size / 2 ** exponent - 1) * 1024);
  });
}
