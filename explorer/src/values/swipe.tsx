/** Two versions of a picture, one on each side of a divider. */

import type { VNode } from "preact";
import { clamp } from "../base/lists";
import type { Room } from "./drawing";

/** The version on the right of the divider. */
export interface Swipe {
  readonly name: string;
  readonly values: Float64Array;
  /** The place of the divider, from 0 to 1. */
  readonly share: number;
  onShare(share: number, isAtRest: boolean): void;
}

/** Draws the picture of this version, and on the right of the divider that of the other one, if there is one. */
export function drawSides(
  context: CanvasRenderingContext2D,
  [own, other]: readonly [HTMLCanvasElement, HTMLCanvasElement | undefined],
  share: number,
  { left, top, width, height }: Room,
  draw: (image: HTMLCanvasElement) => void,
): void {
  const side = (image: HTMLCanvasElement, from: number, to: number): void => {
    context.save();
    context.beginPath();
    context.rect(left + from * width, top, (to - from) * width, height);
    context.clip();
    draw(image);
    context.restore();
  };
  side(own, 0, other ? share : 1);
  if (other) side(other, share, 1);
}

const KEYS: Partial<Record<string, number>> = { ArrowLeft: -0.02, ArrowRight: 0.02, Home: -1, End: 1 };

export function Divider({ name, share, onShare, left, top, width, height }: Swipe & Room): VNode {
  const drag = (event: PointerEvent & { currentTarget: HTMLElement }, isAtRest: boolean): void => {
    event.stopPropagation(); // the picture below does not move
    const { currentTarget: own } = event;
    if (event.type === "pointerdown") own.setPointerCapture(event.pointerId);
    if (!own.hasPointerCapture(event.pointerId)) return;
    const start = own.parentElement?.getBoundingClientRect().left ?? 0;
    onShare(clamp((event.clientX - start - left) / width, 0, 1), isAtRest);
  };
  const key = (event: KeyboardEvent): void => {
    const step = KEYS[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    onShare(clamp(share + step * (event.shiftKey ? 5 : 1), 0, 1), true);
  };
  const percent = Math.round(100 * share);
  return (
    <div
      class="divider"
      role="slider"
      tabIndex={0}
      aria-label={`Divider: this version on the left, ${name} on the right`}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={percent}
      aria-valuetext={`${percent} percent of the width for this version`}
      style={{ left: `${left + share * width}px`, top: `${top}px`, height: `${height}px` }}
      onKeyDown={key}
      onPointerDown={(event) => drag(event, false)}
      onPointerMove={(event) => drag(event, false)}
      onPointerUp={(event) => drag(event, true)}
    />
  );
}
