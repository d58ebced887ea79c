/** What the tests use of the reader. */

import { u8 } from "../../src/base/lists";

export * from "../../src/format/types";
export * from "../../src/base/errors";
export { openRepository } from "../../src/format/repository";
export { readRegion, storedChunks } from "../../src/format/arrays";
export { decodeCF, difference } from "../../src/cf/cf";
export { chunkGrid } from "../../src/format/snapshot";
export { absoluteLocation, httpUrl, readBytes } from "../../src/format/remote";
export { useWorkers } from "../../src/codecs/pool";

export function flipBit(data: Uint8Array, at: number, bit: number): void {
  data[at] = u8(data, at) ^ (1 << bit);
}
