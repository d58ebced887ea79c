/** What the tests use of the reader. */
export * from "../../src/format/types";
export * from "../../src/base/errors";
export { openRepository } from "../../src/format/repository";
export { readRegion, storedChunks } from "../../src/format/arrays";
export { decodeCF } from "../../src/cf/cf";
export { chunkGrid } from "../../src/format/grid";
export { absoluteLocation, httpUrl, readBytes } from "../../src/format/remote";
export { useWorkers } from "../../src/codecs/pool";
