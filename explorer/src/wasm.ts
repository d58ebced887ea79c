/** Zstandard in WebAssembly, which a worker loads with its first large file. */
export { ZSTDDecoder } from "zstddec";
