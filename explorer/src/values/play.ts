/** Animations: the versions that can be played, how many frames are read ahead, and colours that stay. */

import { useEffect } from "preact/hooks";
import { robust } from "../array/colour";
import { isArray } from "../array/nodes";
import { type Box, boxShape } from "../array/slices";
import { nth, product } from "../base/lists";
import type { ArrayNode, Progress, Repository, Snapshot } from "../format/types";
import type { Target } from "../page/home";
import { route, useLoad } from "../page/state";
import { changeOf, commitsBack } from "../versions/writers";

/** What plays: a dimension, or one of these. */
export const [NOTHING, VERSIONS] = [-1, -2];
const MOST_COMMITS = 200;

/** Ids of the commits that changed an array up to a version, oldest first. The version stands for its last change. */
export async function versionsOf(repository: Repository, version: string, node: string, progress?: Progress) {
  const ids: string[] = [];
  let step = 0;
  for await (const { id, changes } of commitsBack(repository, version, MOST_COMMITS)) {
    progress?.(++step, MOST_COMMITS);
    const change = changes && changeOf(changes, node);
    if (changes ? change : step === 1) ids.push(id);
    if (!changes || change === "new array") break;
  }
  return (ids.length ? ids : [version]).reverse();
}

/** The version of an array that the address names with `ver`, among those that changed it. */
export function useVersions(repository: Repository, snapshot: Snapshot, node: ArrayNode) {
  const { ver = "" } = route.value.query;
  const load = useLoad(
    async (_, progress) => (ver ? versionsOf(repository, snapshot.id, node.id, progress) : undefined),
    [snapshot, node.path, ver !== ""],
  );
  const ids = load.value; // undefined until a person asks for versions
  const at = ids ? Math.max(0, ids.includes(ver) ? ids.indexOf(ver) : ids.length - 1) : 0;
  const other = useLoad(
    async () => (ids ? nodeOf(await repository.snapshot(nth(ids, at)), node) : undefined),
    [ids?.[at]],
    true,
  );
  const shown = { snapshot, node, ...(ids ? other.value : {}) };
  return { ids, load, at, busy: other.busy, ...shown };
}

/** The same array in another version, perhaps under another name. */
export function nodeOf(snapshot: Snapshot, { id }: ArrayNode): Target | undefined {
  const node = snapshot.nodes.find((each) => each.id === id);
  return isArray(node) ? { snapshot, node } : undefined;
}

export const MEMORY = 64e6; // bytes of frames
const AHEAD = 3;

/** How many frames are read ahead, by the part that one shows, and the number of its versions. */
export const aheadOf = (part: Box, versions: number): number =>
  Math.min(AHEAD, Math.max(0, Math.floor(MEMORY / (8 * versions * product(boxShape(part)))) - 1));

/** The limits of the colours of some of `length` frames, at most of `most`, and how many these are. */
export async function limitsOf(length: number, most: number, valuesAt: (at: number) => Promise<unknown>) {
  const places = samplePlaces(length, Math.max(1, Math.floor(most)));
  const planes = await Promise.all(places.map(valuesAt));
  const values = together(planes.filter((plane) => plane instanceof Float64Array));
  return { limits: robust(values), size: places.length };
}

const SAMPLES = 8; // frames from which the colours come

/** Places of frames that stand for all, first and last among them. */
export const samplePlaces = (length: number, most: number): number[] => {
  const size = Math.max(1, Math.min(length, SAMPLES, most));
  return Array.from({ length: size }, (_, at) => Math.round((at * (length - 1)) / Math.max(1, size - 1)));
};

/** The values of planes, one after the other. */
export function together(frames: readonly Float64Array[]): Float64Array {
  const all = new Float64Array(frames.reduce((sum, frame) => sum + frame.length, 0));
  frames.reduce((at, frame) => (all.set(frame, at), at + frame.length), 0);
  return all;
}

/** Escape and space stop what plays. */
export function useStop(isPlaying: boolean, stop: () => void): void {
  useEffect(() => {
    if (!isPlaying) return;
    const key = (event: KeyboardEvent): void => {
      // Space presses a button, which stops or does something else, and is text in a field
      const isOwn =
        event.target instanceof Element &&
        event.target.closest("button, input:not([type=range]), select, textarea, summary") !== null;
      if (event.key !== "Escape" && (event.key !== " " || isOwn)) return;
      event.preventDefault();
      event.stopPropagation();
      stop();
    };
    document.addEventListener("keydown", key, true);
    return () => document.removeEventListener("keydown", key, true);
  }, [isPlaying]);
}
