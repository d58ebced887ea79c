/** State of the page: the address, the open repository, and values that take time. */

import { signal } from "@preact/signals";
import { useCallback, useLayoutEffect, useState } from "preact/hooks";
import { ExplorerError, notFound, reasonOf, wrongFormat } from "../base/errors";
import type { Progress, Repository, Snapshot } from "../format/types";
import type { Reader } from "./home";
import { HOME, parseRoute, resolve, type Route, writeRoute } from "./route";

export const route = signal<Route>(HOME);
export const reader = signal<Reader | undefined>(undefined);
/** Counts how often the page has opened the repository: one more reads its present state. */
export const opening = signal(0);
export type Action = "branch" | "tag" | "merge" | "revert" | "undo";

/** What a dialog begins with: the id of a commit (except for `undo`), and its name if it is the tip of a branch. */
export type Change = { readonly action: Action; readonly id: string; readonly name?: string };
/** The change that the open dialog is about. */
export const change = signal<Change | undefined>(undefined);
/** Text for screen readers. */
export const notice = signal("");

export function followAddress(): void {
  const read = (): void => void (route.value = parseRoute(location.hash));
  addEventListener("hashchange", read);
  read();
}

/** Shows another view. `replace` leaves no entry in the browser's history: for sliders. */
export function go(change: Partial<Route>, replace = false): void {
  const next = { ...route.value, ...change };
  history[replace ? "replaceState" : "pushState"](null, "", writeRoute(next));
  route.value = next;
}

export const setQuery = (change: Record<string, string>, replace = true): void =>
  go({ query: { ...route.value.query, ...change } }, replace);

export const address = (change: Partial<Route>): string =>
  writeRoute({ ...route.value, query: {}, ...change });
export const nodeAddress = (version: string, path = "/", query: Route["query"] = {}): string =>
  address({ page: "node", version, path, query });
export const diffAddress = (base: string, version: string, path = "/", query: Route["query"] = {}): string =>
  address({ page: "diff", base, version, path, query });

export interface Load<T> {
  /** The newest value; stays while the next one loads. */
  readonly value?: T;
  readonly error?: ExplorerError;
  readonly busy: boolean;
  readonly progress?: number;
  retry(): void;
}

let busy = 0; // loads that somebody waits for
const later: (() => void)[] = [];

/** Whoever leaves waits no longer, although the load may never end: a kernel that runs a cell does not answer. */
export async function first<T>(load: () => Promise<T>, signal: AbortSignal): Promise<T> {
  busy++;
  try {
    return await Promise.race([
      load(),
      new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
    ]);
  } finally {
    if (--busy === 0) for (const start of later.splice(0)) start();
  }
}

const PAUSE = 250; // milliseconds

/** Loads what nobody waits for, after all that somebody waits for: also what begins meanwhile. */
export async function afterwards<T>(load: () => Promise<T>, signal: AbortSignal): Promise<T> {
  do {
    await new Promise<void>((start) => (busy ? later.push(start) : start()));
    // The page first draws what has come. A browser on a busy machine never calls it idle: hence the timeout
    await new Promise((resume) =>
      "requestIdleCallback" in globalThis
        ? requestIdleCallback(resume, { timeout: 4 * PAUSE })
        : setTimeout(resume),
    );
    await new Promise((resume) => setTimeout(resume, PAUSE));
    signal.throwIfAborted();
  } while (busy);
  return load();
}

const asError = (cause: unknown): ExplorerError =>
  cause instanceof ExplorerError || (cause instanceof Error && "kind" in cause)
    ? (cause as ExplorerError)
    : wrongFormat(reasonOf(cause));

export const ID = /^[0-9A-HJKMNP-TV-Z]{20}$/;

/** Loads a value for which nobody waits. */
export const useLater = <T>(load: (signal: AbortSignal) => Promise<T>, keys: unknown[]): Load<T> =>
  useLoad(load, keys, false, afterwards);

/** The snapshot of a branch, a tag or an id. */
export async function snapshotOf(repository: Repository, version: string): Promise<Snapshot> {
  const id = resolve(repository, version);
  if (repository.row(id) < 0 && !ID.test(id)) throw notFound(`There is no branch, tag or commit ${version}.`);
  return repository.snapshot(id);
}

/** Loads a value whenever `keys` change. `keep` keeps the former value on the screen meanwhile. `order` says when. */
export function useLoad<T>(
  load: (signal: AbortSignal, progress: Progress) => Promise<T>,
  keys: unknown[],
  keep = false,
  order = first,
): Load<T> {
  const [{ keys: own, ...state }, setState] = useState<Omit<Load<T>, "retry"> & { keys?: unknown[] }>({
    busy: true,
  });
  const [attempt, setAttempt] = useState(0);
  // Before the page draws: a picture waits for several loads in a row, and drawing takes as long as a request
  useLayoutEffect(() => {
    const control = new AbortController();
    setState((former) => ({
      ...(keep && former.value !== undefined ? { value: former.value } : {}),
      busy: true,
    }));
    const current = (): boolean => !control.signal.aborted;
    const progress: Progress = (done, total) =>
      void (current() && setState((former) => ({ ...former, progress: total ? done / total : 0 })));
    order(() => load(control.signal, progress), control.signal).then(
      (value) => current() && setState({ value, busy: false, keys }),
      (cause) => current() && setState({ error: asError(cause), busy: false, keys }),
    );
    return () => control.abort();
  }, [...keys, attempt]);
  const retry = useCallback(() => setAttempt((former) => former + 1), []);
  // A value of other keys must not be drawn as if it belonged to these
  const stale = !keep && own?.some((item, at) => !Object.is(item, keys[at])) === true;
  return stale ? { busy: true, retry } : { ...state, retry };
}
