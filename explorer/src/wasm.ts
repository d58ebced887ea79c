/** Zstandard in WebAssembly, which a worker loads beside the first file of the repository. */
export { ZSTDDecoder } from "zstddec";
