/** What a picture of a plane has besides its cells: axes, a colour bar, points, and a divider of two versions. */

import type { Signal } from "@preact/signals";
import type { VNode } from "preact";
import type { Axis, Scale } from "../array/axes";
import { cssColour, type Limits } from "../array/colour";
import { clamp, f64, u32 } from "../base/lists";
import type { Place } from "../earth/crs";
import type { View } from "../earth/projections";
import { css } from "../page/canvas";
import { fitted, FONT } from "../page/text";

const MARGIN = { left: 78, top: 8, bottom: 46, right: 92 };
type Context = CanvasRenderingContext2D;
const DIGIT = 8; // pixels, in the widest of the usual fonts
// What an axis and a colour bar have besides their texts: ticks and title
const AXIS_SIDES = 26;
const BAR_SIDES = 52;
const NARROW = 480; // pixels

/** A rectangle of a canvas. */
export type Room = Readonly<Record<"left" | "top" | "width" | "height", number>>;

/** The colours of numbers, the name of the numbers, and round values for a colour bar. */
export interface Bar extends Pick<Scale, "ticks"> {
  readonly limits: Limits;
  /** Undefined if the numbers are pixels, which have no colour bar. */
  readonly colours: Uint32Array | undefined;
  readonly title: string;
}

/** A point that a person chose. */
export interface Mark {
  readonly cell: number;
  readonly colour: string;
  readonly text: string;
}

const fit = (context: Context, text: string, width: number): string =>
  fitted(text, width, (part) => context.measureText(part).width);

/** A title that goes up, in the middle of a height. */
function upwards(context: Context, title: string, left: number, top: number, height: number): void {
  context.save();
  context.translate(left, top + height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(fit(context, title, height), 0, 0);
  context.restore();
}

/** Sets the colour, the font and the place of the texts that follow. */
const write = (context: Context, textAlign: CanvasTextAlign, textBaseline: CanvasTextBaseline): void =>
  void Object.assign(context, { fillStyle: css("text"), font: FONT, textAlign, textBaseline });

/** The number of letters of the longest label. */
const longest = (texts: readonly { readonly text: string }[]): number =>
  Math.max(0, ...texts.map(({ text }) => text.length));

/** The room that a colour bar needs: more if its texts are no numbers. */
export function barWidth(ticks: Bar["ticks"], limits: Limits): number {
  const letters = longest([4, 8].flatMap((most) => ticks(limits, most)));
  return clamp(BAR_SIDES + letters * DIGIT, MARGIN.right, 220);
}

/** The same on a narrow screen, which has no place for a title. */
export const narrowBar = ({ ticks, limits, colours }: Bar, width: number): number =>
  !colours ? 0 : width < NARROW ? Math.min(barWidth(ticks, limits) - 12, width / 3) : barWidth(ticks, limits);

/** The colour bar: 14 pixels, then numbers and title. */
export function drawBar(context: Context, { colours, limits, title, ticks }: Bar, room: Room): void {
  const { left, top, width, height } = room;
  if (!colours) return;
  const isWide = width >= barWidth(ticks, limits); // the title has a place
  for (let at = 0; at < 128; at++) {
    context.fillStyle = cssColour(u32(colours, 255 - at * 2));
    context.fillRect(left, top + (at / 128) * height, 14, height / 128 + 1);
  }
  context.strokeStyle = css("quiet");
  context.strokeRect(left - 0.5, top - 0.5, 15, height + 1);
  write(context, "left", "middle");
  let edge = Infinity;
  for (const { value, text } of ticks(limits, Math.min(8, height / 36))) {
    const where = top + height * (1 - (value - limits[0]) / (limits[1] - limits[0]));
    if (where > edge - 13) continue;
    edge = where;
    context.fillText(
      fit(context, text, width - (isWide ? BAR_SIDES : 38)),
      left + 20,
      clamp(where, top + 6, top + height - 6),
    );
  }
  if (isWide) upwards(context, title, left + width - 24, top, height);
}

/** A point that a person chose, with two rings, so that it shows on all colours. */
export function drawMark(context: Context, { colour, text }: Mark, x: number, y: number): void {
  context.save();
  for (const [stroke, width] of [
    [css("page"), 5],
    [css("text"), 3],
    [colour, 2],
  ] as const) {
    context.beginPath();
    context.arc(x, y, 5, 0, 2 * Math.PI);
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.stroke();
  }
  write(context, "left", "bottom");
  context.font = `bold ${FONT}`;
  context.lineWidth = 3;
  context.strokeStyle = css("page");
  context.strokeText(text, x + 7, y - 4);
  context.fillText(text, x + 7, y - 4);
  context.restore();
}

const [DOT, SMALL_DOT, MANY] = [5, 3, 2000];

/** Values as dots at places on the screen, the chosen one larger. A dot without a value is hollow. */
export function drawDots(
  context: Context,
  spots: readonly Place[],
  pixels: Uint32Array,
  chosen: number,
): void {
  const radius = spots.length > MANY ? SMALL_DOT : DOT;
  context.lineWidth = 1;
  context.strokeStyle = css("text");
  spots.forEach(([x, y], at) => {
    if (Number.isNaN(x)) return;
    context.beginPath();
    context.arc(x, y, at === chosen ? radius + 3 : radius, 0, 2 * Math.PI);
    context.fillStyle = cssColour(u32(pixels, at));
    if (pixels[at]) context.fill();
    context.stroke();
  });
}

/** The nearest place within `reach` pixels of another one; -1 if there is none. */
export function near(spots: readonly Place[], [x, y]: Place, reach: number): number {
  let [best, least] = [-1, reach];
  spots.forEach(([left, top], at) => {
    const distance = Math.hypot(left - x, top - y);
    if (distance < least) [best, least] = [at, distance];
  });
  return best;
}

/** The room of a picture between the texts of its axes and its colour bar; `shape` is its width by its height. */
export function roomOf(of: Bar, y: Axis, size: Record<"width" | "height", number>, shape?: number) {
  const bar = narrowBar(of, size.width);
  const letters = longest([4, 10].flatMap((most) => labels(y, most)));
  const left = clamp(AXIS_SIDES + letters * DIGIT, MARGIN.left, 160);
  let width = Math.max(10, size.width - left - bar);
  let height = Math.max(10, size.height - MARGIN.top - MARGIN.bottom);
  if (shape && width / height > shape) width = Math.max(40, height * shape);
  else if (shape) height = Math.max(40, width / shape);
  return { bar, left, top: MARGIN.top, width, height };
}

/** Places on an axis with their texts: round numbers where the axis has some, else even steps of the index. */
function labels(axis: Axis, most: number): { place: number; text: string }[] {
  const { edges, length, numbers, scale } = axis;
  const step = Math.max(1, Math.ceil(length / Math.max(1, most)));
  const places =
    numbers && edges && length > 1
      ? scale.ticks(extent(numbers), most).map(({ value, text }) => ({ place: axis.place(value), text }))
      : Array.from({ length: Math.ceil(length / step) }, (_, at) => ({
          place: axis.centre(at * step),
          text: axis.label(at * step),
        }));
  return places.sort((a, b) => a.place - b.place);
}

/** The ends of rising or falling numbers, the lower one first. */
function extent(values: Float64Array): Limits {
  const [first, last] = [f64(values, 0), f64(values, values.length - 1)];
  return [Math.min(first, last), Math.max(first, last)];
}

/** A frame with the labels and the titles of both axes. */
export function drawAxes(context: Context, x: Axis, y: Axis, { left, top, width, height }: Room): void {
  context.strokeStyle = css("quiet");
  context.lineWidth = 1;
  context.strokeRect(left - 0.5, top - 0.5, width + 1, height + 1);
  write(context, "center", "top");
  let edge = -Infinity;
  for (const { place: at, text } of labels(x, width / 90)) {
    const where = left + at * width;
    const half = context.measureText(text).width / 2;
    if (where - half < edge + 8) continue;
    edge = where + half;
    context.fillRect(where, top + height, 1, 5);
    context.fillText(text, where, top + height + 8);
  }
  context.fillText(fit(context, x.title, width), left + width / 2, top + height + 28);
  write(context, "right", "middle");
  edge = -Infinity;
  for (const { place: at, text } of labels(y, height / 40)) {
    const where = top + at * height;
    if (where < edge + 14) continue;
    edge = where;
    context.fillRect(left - 5, where, 5, 1);
    context.fillText(fit(context, text, left - AXIS_SIDES), left - 8, where);
  }
  upwards(context, y.title, 10, top, height);
}

/** The version on the right of the divider. */
export interface Swipe {
  readonly name: string;
  readonly values: Float64Array;
  /** The place of the divider, from 0 to 1. */
  readonly share: number;
  onShare(share: number, isAtRest: boolean): void;
}

/** Draws this version, and on the right of the divider the other one, if there is one. */
export function drawSides<T>(
  context: Context,
  [own, other]: readonly [T, T | undefined],
  share: number,
  { left, top, width, height }: Room,
  draw: (version: T) => void,
): void {
  const side = (version: T, from: number, to: number): void => {
    context.save();
    context.beginPath();
    context.rect(left + from * width, top, (to - from) * width, height);
    context.clip();
    draw(version);
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

/** What pictures next to each other have in common: the cell whose value is shown, or -1, and the view of a map. */
export interface Sight {
  readonly cell: Signal<number>;
  /** A view that is not at rest. */
  readonly moved: Signal<View | "all" | undefined>;
  /** The place on the screen of a map whose value is shown, and how far from it a station may be. */
  readonly spot: { current: readonly [Place, number] | undefined };
}

/** A plane of values on the screen, and what a person does with it. */
export interface PlaneProps extends Bar {
  readonly values: Float64Array;
  readonly marks: readonly Mark[];
  readonly swipe: Swipe | undefined;
  readonly sight: Sight;
  /** A click or Enter. */
  onChoose(cell: number): void;
}
