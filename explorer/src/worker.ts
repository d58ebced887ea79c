/** The worker, which runs the script of the page: decodes chunks and large files. */
import { formatError } from "./format/files";
import { runJob, type Job, type Reply } from "./format/pool";

/** Answers the jobs of the page. */
export function work(): void {
  self.onmessage = async ({ data }: MessageEvent<{ id: number; job: Job }>) => {
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
