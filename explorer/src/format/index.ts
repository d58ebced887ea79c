/** What the views and the homes of the explorer use of the reader. */
export * from "./types";
export { openRepository } from "./repository";
export { readRegion } from "./arrays";
export { decodeCF } from "./cf";
export { chunkGrid } from "./grid";
export { absoluteLocation, httpUrl, readBytes } from "./remote";
export { useWorkers } from "./pool";
