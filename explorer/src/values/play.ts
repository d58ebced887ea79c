/** Animations: how many frames are read ahead, and what stops them; the same array in another version. */

import { useEffect } from "preact/hooks";
import { isArray } from "../array/nodes";
import type { ArrayNode, Snapshot } from "../format/types";

export const NOTHING = -1; // no dimension plays

/** The same array in another version, perhaps under another name. */
export function nodeOf(
  snapshot: Snapshot,
  { id }: ArrayNode,
): { snapshot: Snapshot; node: ArrayNode } | undefined {
  const node = snapshot.nodes.find((each) => each.id === id);
  return isArray(node) ? { snapshot, node } : undefined;
}

export const MEMORY = 64e6; // bytes of frames
const AHEAD = 3;

/** How many frames are read ahead, by the number of values of one. */
export const aheadOf = (values: number): number =>
  Math.min(AHEAD, Math.max(0, Math.floor(MEMORY / (8 * values)) - 1));

/** The values of planes, one after the other. */
export function together(frames: readonly Float64Array[]): Float64Array {
  const all = new Float64Array(frames.reduce((sum, frame) => sum + frame.length, 0));
  frames.reduce((at, frame) => (all.set(frame, at), at + frame.length), 0);
  return all;
}

/** Escape stops what plays. */
export function useStop(isPlaying: boolean, stop: () => void): void {
  useEffect(() => {
    if (!isPlaying) return;
    const key = (event: KeyboardEvent): void => {
      if (event.key === "Escape") stop();
    };
    document.addEventListener("keydown", key, true);
    return () => document.removeEventListener("keydown", key, true);
  }, [isPlaying]);
}
