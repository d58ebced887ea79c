/** The worker, which runs the script of the page: decodes chunks and large files, with zstd in WebAssembly where the page may run it. */
import { useZstd } from "./format/codecs";
import { formatError } from "./format/files";
import { runJob, type Job, type Reply } from "./format/pool";
import { decompress, statedSize } from "./format/zstd";

/** Only sizes above this one are worth the copies into the memory of WebAssembly and back. */
const SMALL = 4096;

async function loadZstd(): Promise<void> {
  const { ZSTDDecoder } = await import("./wasm");
  const decoder = new ZSTDDecoder();
  // the decoder fetches its own code from a data URL, which a policy for connections does not allow
  const { fetch } = globalThis;
  globalThis.fetch = async (url) => new Response(Uint8Array.from(atob(String(url).split(",")[1]), (letter) => letter.charCodeAt(0)));
  try {
    await decoder.init();
  } finally {
    globalThis.fetch = fetch;
  }
  useZstd((data, limit) => {
    const size = statedSize(data);
    if (size === undefined || size < SMALL || size > limit) return decompress(data, limit);
    const out = decoder.decode(data, size);
    // damage, or several frames: the other decoder knows
    return out.length === size ? out : decompress(data, limit);
  });
}

/** Answers the jobs of the page. */
export function work(): void {
  const ready = loadZstd().catch(() => undefined);

  self.onmessage = async ({ data }: MessageEvent<{ id: number; job: Job }>) => {
    await ready;
    let reply: Reply;
    try {
      reply = { id: data.id, value: await runJob(data.job) };
    } catch (error) {
      const { kind, message } = formatError("data", error);
      reply = { id: data.id, error: { kind, message } };
    }
    const { value } = reply as { value?: unknown };
    self.postMessage(reply, { transfer: value instanceof Uint8Array && value.length === value.buffer.byteLength ? [value.buffer] : [] });
  };
}
