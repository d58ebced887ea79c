/** Work outside of the page: decoding in workers, or in place where there are none, and requests at the same time. */

import { ExplorerError } from "../base/errors";
import { nth } from "../base/lists";
import { type ChunkSpec, decodeChunk, decoder } from "./codecs";
import type { Elements } from "./elements";

/** Bytes to decode: those of a chunk, or a file of zstd. */
export type Job = { readonly data: Uint8Array; readonly spec?: ChunkSpec };
export type Reply =
  | { readonly id: number; readonly value: Elements }
  | { readonly id: number; readonly error: Pick<ExplorerError, "kind" | "message"> };

export async function runJob({ data, spec }: Job): Promise<Elements> {
  return spec ? decodeChunk(spec, data) : decoder.zstd(data, 2 ** 30);
}

type Waiting = { resolve(value: Elements): void; reject(error: Error): void };

interface Member {
  readonly worker: Worker;
  readonly waiting: Map<number, Waiting>;
  hasAnswered: boolean;
  rest?: ReturnType<typeof setTimeout>;
}

/** Milliseconds without work after which a worker ends, and with it the memory of its largest file. */
const IDLE = 5000;

class Workers {
  private readonly members: Member[] = [];
  private next = 0;

  constructor(private start?: () => Worker) {}

  /** The worker with the least to do; undefined if the page has none. */
  private member(): Member | undefined {
    const idle = this.members.find(({ waiting }) => waiting.size === 0);
    if (idle) return idle;
    if (this.start && this.members.length < COUNT) {
      const member: Member = { worker: this.start(), waiting: new Map(), hasAnswered: false };
      member.worker.onmessage = ({ data }: MessageEvent<Reply>) => {
        member.hasAnswered = true;
        const waiting = member.waiting.get(data.id);
        member.waiting.delete(data.id);
        if ("error" in data) waiting?.reject(new ExplorerError(data.error.kind, data.error.message));
        else waiting?.resolve(data.value);
        clearTimeout(member.rest);
        member.rest = setTimeout(() => {
          if (member.waiting.size === 0) this.dismiss(member);
        }, IDLE);
      };
      member.worker.onerror = (event) => {
        event.preventDefault();
        // a script that never ran, because of its address or a policy, will not run the next time either
        if (!member.hasAnswered) this.start = undefined;
        this.dismiss(member);
        for (const { reject } of member.waiting.values()) reject(new WorkerFailure(event.message));
      };
      this.members.push(member);
      return member;
    }
    return this.members.length === 0
      ? undefined
      : this.members.reduce((a, b) => (b.waiting.size < a.waiting.size ? b : a));
  }

  private dismiss(member: Member): void {
    member.worker.terminate();
    this.members.splice(this.members.indexOf(member), 1);
  }

  /** Starts a worker before there is work: its script loads together with the first files. */
  warm(): void {
    if (this.members.length === 0) this.member();
  }

  private async run(job: Job): Promise<Elements> {
    const member = this.member();
    if (!member) return runJob(job);
    const id = this.next++;
    // a copy, because what is sent is gone here, and it can be a part of a file that is kept
    const data = job.data.slice();
    try {
      return await new Promise<Elements>((resolve, reject) => {
        member.waiting.set(id, { resolve, reject });
        member.worker.postMessage({ id, job: { ...job, data } }, [data.buffer]);
      });
    } catch (error) {
      if (error instanceof WorkerFailure) return runJob(job);
      throw error;
    }
  }

  async zstd(data: Uint8Array): Promise<Uint8Array> {
    return (await this.run({ data })) as Uint8Array;
  }

  chunk(spec: ChunkSpec, data: Uint8Array): Promise<Elements> {
    return this.run({ spec, data });
  }
}

/** The script of the worker could not run. */
class WorkerFailure extends Error {}

const COUNT = Math.min(4, Math.max(1, (globalThis.navigator?.hardwareConcurrency ?? 2) - 1));
let current = new Workers();

/** Sets how workers start. Without a call, and without `start`, the page decodes in place. */
export function useWorkers(start?: () => Worker): void {
  current = new Workers(start);
}

export const pool = (): Workers => current;
export const PARALLEL = 8; // requests at the same time

/** Works on items, several at the same time. After the first error no other one begins. */
export async function parallel<T>(items: readonly T[], use: (item: T) => Promise<void>): Promise<void> {
  let next = 0;
  let failed = false;
  const run = async (): Promise<void> => {
    while (next < items.length && !failed) {
      try {
        await use(nth(items, next++));
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(PARALLEL, items.length) }, run));
}

/** A function that gives the page a turn after `most` milliseconds of work. */
export function turns(most: number): () => Promise<void> {
  let start = performance.now();
  return async () => {
    if (performance.now() - start <= most) return;
    await new Promise((resume) => setTimeout(resume));
    start = performance.now();
  };
}
