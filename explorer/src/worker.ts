/** The worker, which runs the script of the page: decodes chunks and large files. */

import { ZSTDDecoder } from "zstddec";
import { nth, unbase64 } from "./base/lists";
import { decoder } from "./codecs/codecs";
import { type Job, type Reply, runJob } from "./codecs/pool";
import { decompress, statedSize } from "./codecs/zstd";
import { formatError } from "./format/files";

/** From this size on, WebAssembly decodes so much faster that it is worth its compilation. */
const LARGE = 1 << 15;
let loading: Promise<void> | undefined;

async function loadZstd(): Promise<void> {
  const large = new ZSTDDecoder();
  // it fetches its own code from a data URL, which a policy for connections does not allow
  const { fetch } = globalThis;
  globalThis.fetch = async (url) => new Response(unbase64(nth(String(url).split(","), 1)));
  await large.init().finally(() => (globalThis.fetch = fetch));
  decoder.zstd = (data, limit) => decodeLarge(large, data, limit);
}

/** WebAssembly has no room for a frame without its size: it gets more until the content fits. */
export function decodeLarge(large: ZSTDDecoder, data: Uint8Array, limit: number): Uint8Array {
  const size = statedSize(data);
  const rooms = size === undefined ? [8, 64, 512].map((each) => Math.min(each * data.length, limit)) : [size];
  for (const room of rooms.filter((each) => each > 0 && each <= limit)) {
    const out = large.decode(data, room);
    if (size === undefined ? out.length > 0 : out.length === size) return out;
  }
  return decompress(data, limit); // damage, or several frames
}

/** Answers the jobs of the page. */
export function work(): void {
  self.onmessage = async ({ data }: MessageEvent<{ id: number; job: Job }>) => {
    if (data.job.data.length >= LARGE) await (loading ??= loadZstd().catch(() => undefined)); // a page may not run it
    let reply: Reply;
    try {
      reply = { id: data.id, value: await runJob(data.job) };
    } catch (error) {
      const { kind, message } = formatError("data", error);
      reply = { id: data.id, error: { kind, message } };
    }
    const { value } = reply as { value?: unknown };
    self.postMessage(reply, {
      transfer: value instanceof Uint8Array && value.length === value.buffer.byteLength ? [value.buffer] : [],
    });
  };
}
