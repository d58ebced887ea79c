/** A plane of values as an image with axes and a colour bar. */

import type { Tick } from "../cf/calendar";
import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Axis } from "../array/axes";
import { cssColour, type Limits, paint } from "../array/colour";
import { clamp, f64, i32, u32 } from "../base/lists";
import { arrowOf, Canvas, canvasOf, css, Frame, pointerIn, usePointer, useSize } from "../page/canvas";
import { fitted, FONT } from "../page/text";

/** A point that a person chose. */
export interface Mark {
  readonly column: number;
  readonly row: number;
  readonly colour: string;
  readonly text: string;
}

/** A plane of values on the screen, and what a person does with it. */
export interface PlaneProps {
  readonly values: Float64Array;
  readonly limits: Limits;
  readonly colours: Uint32Array;
  /** Round values for the colour bar. */
  ticks(limits: Limits, most: number): Tick[];
  readonly title: string;
  readonly marks: readonly Mark[];
  onPlace(column: number, row: number): void;
  /** A click or Enter. */
  onChoose(column: number, row: number): void;
}

interface ImageProps extends PlaneProps {
  readonly x: Axis;
  readonly y: Axis;
  /** Width by height of one cell, if both axes are places. */
  readonly aspect: number | undefined;
  onZoom(columns: readonly [number, number], rows: readonly [number, number]): void;
}

export const MARGIN = { left: 78, top: 8, bottom: 46, right: 92 };
type Context = CanvasRenderingContext2D;
const DIGIT = 8; // pixels, in the widest of the usual fonts
// What an axis and a colour bar have besides their texts: ticks and title
const AXIS_SIDES = 26;
const BAR_SIDES = 52;

export function Image(props: ImageProps): VNode {
  const { values, x, y, limits, colours, ticks, title, aspect, marks, onPlace, onChoose, onZoom } = props;
  const [element, size] = useSize<HTMLDivElement>();
  const [cursor, setCursor] = useState<{ column: number; row: number } | undefined>(undefined);
  const [drag, setDrag] = useState<{ x: number; y: number; toX: number; toY: number } | undefined>(undefined);
  const { top } = MARGIN;
  const left = marginOf(y);
  const room = {
    width: Math.max(10, size.width - left - barWidth(ticks, limits)),
    height: Math.max(10, size.height - top - MARGIN.bottom),
  };
  if (aspect) {
    const shape = (x.length / y.length) * aspect;
    if (room.width / room.height > shape) room.width = Math.max(40, room.height * shape);
    else room.height = Math.max(40, room.width / shape);
  }
  // Cells of one width are drawn as pixels that the canvas enlarges; others at the size of the screen
  const isDrawn = (x.edges && x.isUneven) || (y.edges && y.isUneven);
  const [columns, rows] = isDrawn ? [Math.round(room.width), Math.round(room.height)] : [x.length, y.length];
  const image = useMemo(() => {
    const pixels = new Uint32Array(columns * rows);
    paint(isDrawn ? onScreen(values, x, y, columns, rows) : values, limits, colours, pixels);
    return canvasOf(pixels, columns, rows);
  }, [values, x, y, limits[0], limits[1], colours, columns, rows]);
  const place = (column: number, row: number): void => {
    setCursor({ column, row });
    onPlace(column, row);
  };
  const key = (event: KeyboardEvent): void => {
    if ((event.key === "Enter" || event.key === " ") && cursor) {
      event.preventDefault();
      return onChoose(cursor.column, cursor.row);
    }
    const arrow = arrowOf(event);
    if (!arrow) return;
    event.preventDefault();
    const [right, down] = arrow;
    const { column, row } = cursor ?? { column: 0, row: 0 };
    const step = event.shiftKey ? 10 : 1;
    const moved = (axis: Axis, at: number, by: number): number =>
      clamp(at + by * step * way(axis), 0, axis.length - 1);
    place(moved(x, column, right), moved(y, row, down));
  };

  const draw = (context: Context): void => {
    context.imageSmoothingEnabled = false;
    context.fillStyle = css("missing");
    context.fillRect(left, top, room.width, room.height);
    context.save();
    const [turnX, turnY] = isDrawn ? [1, 1] : [way(x), way(y)];
    context.translate(left + (turnX < 0 ? room.width : 0), top + (turnY < 0 ? room.height : 0));
    context.scale(turnX, turnY);
    if (!isDrawn && x.length > room.width * 2) context.imageSmoothingEnabled = true;
    context.drawImage(image, 0, 0, room.width, room.height);
    context.restore();
    context.strokeStyle = css("quiet");
    context.lineWidth = 1;
    context.strokeRect(left - 0.5, top - 0.5, room.width + 1, room.height + 1);
    context.fillStyle = css("text");
    context.font = FONT;
    context.textAlign = "center";
    context.textBaseline = "top";
    let edge = -Infinity;
    for (const { place: at, text } of labels(x, room.width / 90)) {
      const where = left + at * room.width;
      const half = context.measureText(text).width / 2;
      if (where - half < edge + 8) continue;
      edge = where + half;
      context.fillRect(where, top + room.height, 1, 5);
      context.fillText(text, where, top + room.height + 8);
    }
    context.fillText(fit(context, x.title, room.width), left + room.width / 2, top + room.height + 28);
    context.textAlign = "right";
    context.textBaseline = "middle";
    edge = -Infinity;
    for (const { place: at, text } of labels(y, room.height / 40)) {
      const where = top + at * room.height;
      if (where < edge + 14) continue;
      edge = where;
      context.fillRect(left - 5, where, 5, 1);
      context.fillText(fit(context, text, left - AXIS_SIDES), left - 8, where);
    }
    upwards(context, y.title, 10, top, room.height);
    drawBar(context, { colours, limits, title, ticks }, left + room.width + 16, top, room.height);
    for (const mark of marks) {
      const [across, down] = [x.centre(mark.column), y.centre(mark.row)];
      drawMark(context, mark, left + across * room.width, top + down * room.height);
    }
  };
  /** What follows the pointer lies before the canvas, which is not drawn again. */
  const before = (): VNode | false => {
    if (drag) {
      const [across, down] = [Math.min(drag.x, drag.toX), Math.min(drag.y, drag.toY)];
      return (
        <Frame
          kind="drag"
          x={left + across * room.width}
          y={top + down * room.height}
          width={Math.abs(drag.toX - drag.x) * room.width}
          height={Math.abs(drag.toY - drag.y) * room.height}
        />
      );
    }
    if (!cursor || cursor.column >= x.length || cursor.row >= y.length) return false;
    const [[west, east], [upper, lower]] = [x.sides(cursor.column), y.sides(cursor.row)];
    const width = Math.max((east - west) * room.width, 6);
    const height = Math.max((lower - upper) * room.height, 6);
    const across = left + ((west + east) / 2) * room.width - width / 2;
    const down = top + ((upper + lower) / 2) * room.height - height / 2;
    return <Frame kind="chosen" x={across} y={down} width={width} height={height} />;
  };
  /** The place of the pointer, from 0 to 1 within the picture. */
  const fractions = (event: PointerEvent): { x: number; y: number } => {
    const { x: across, y: down } = pointerIn(element, event);
    return { x: (across - left) / room.width, y: (down - top) / room.height };
  };
  const inside = (event: PointerEvent): { x: number; y: number } | undefined => {
    const at = fractions(event);
    return at.x >= 0 && at.y >= 0 && at.x <= 1 && at.y <= 1 ? at : undefined;
  };
  const hover = (event: PointerEvent): void => {
    const at = inside(event);
    if (at) place(x.cell(at.x), y.cell(at.y));
  };
  const pointer = usePointer({
    start: inside,
    drag: (from, _right, _down, event) => {
      const to = fractions(event);
      setDrag({ ...from, toX: clamp(to.x, 0, 1), toY: clamp(to.y, 0, 1) });
      hover(event);
    },
    drop: () => drag && onZoom(cellsBetween(x, drag.x, drag.toX), cellsBetween(y, drag.y, drag.toY)),
    end: () => setDrag(undefined),
    click: (event) => {
      const at = fractions(event);
      onChoose(x.cell(at.x), y.cell(at.y));
    },
    hover,
  });
  const shown = marks.map(({ column, row, text }) => `${column} ${row} ${text}`).join();
  return (
    <div
      ref={element}
      class="image"
      role="application"
      aria-label={`Image of ${title}. Arrow keys move the place whose value is shown; with Shift by ten. Enter or a click adds a point. Drag zooms.`}
      tabIndex={0}
      onKeyDown={key}
      {...pointer}
    >
      <Canvas
        {...size}
        draw={draw}
        keys={[image, room.width, room.height, title, shown]}
        aria-hidden="true"
      />
      {before()}
    </div>
  );
}

/** The first cell between two places of an axis, and the one after the last. */
function cellsBetween(axis: Axis, one: number, other: number): readonly [number, number] {
  const [from, to] = [axis.cell(one), axis.cell(other)];
  return [Math.min(from, to), Math.max(from, to) + 1];
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

/** The number of letters of the longest label. */
const longest = (texts: readonly { readonly text: string }[]): number =>
  Math.max(0, ...texts.map(({ text }) => text.length));

/** The room that a colour bar needs: more if its texts are no numbers. */
export function barWidth(ticks: PlaneProps["ticks"], limits: Limits): number {
  const letters = longest([4, 8].flatMap((most) => ticks(limits, most)));
  return clamp(BAR_SIDES + letters * DIGIT, MARGIN.right, 220);
}

type Bar = Pick<PlaneProps, "colours" | "limits" | "title" | "ticks">;

/** The colour bar: 14 pixels, then numbers and title. */
export function drawBar(
  context: Context,
  { colours, limits, title, ticks }: Bar,
  left: number,
  top: number,
  height: number,
): void {
  const width = barWidth(ticks, limits);
  for (let at = 0; at < 128; at++) {
    context.fillStyle = cssColour(u32(colours, 255 - at * 2));
    context.fillRect(left, top + (at / 128) * height, 14, height / 128 + 1);
  }
  context.strokeStyle = css("quiet");
  context.strokeRect(left - 0.5, top - 0.5, 15, height + 1);
  context.fillStyle = css("text");
  context.font = FONT;
  context.textAlign = "left";
  context.textBaseline = "middle";
  let edge = Infinity;
  for (const { value, text } of ticks(limits, Math.min(8, height / 36))) {
    const where = top + height * (1 - (value - limits[0]) / (limits[1] - limits[0]));
    if (where > edge - 13) continue;
    edge = where;
    context.fillText(
      fit(context, text, width - BAR_SIDES),
      left + 20,
      clamp(where, top + 6, top + height - 6),
    );
  }
  upwards(context, title, left + width - 24, top, height);
}

/** -1 if an axis is turned round on the screen. */
const way = (axis: Axis): number =>
  axis.length > 1 && axis.centre(0) > axis.centre(axis.length - 1) ? -1 : 1;

/** The values of a plane at each pixel. */
function onScreen(values: Float64Array, x: Axis, y: Axis, width: number, height: number): Float64Array {
  const across = Int32Array.from({ length: width }, (_, at) => x.cell((at + 0.5) / width));
  const pixels = new Float64Array(width * height);
  for (let down = 0, at = 0; down < height; down++) {
    const row = y.cell((down + 0.5) / height) * x.length;
    for (let column = 0; column < width; column++, at++) pixels[at] = f64(values, row + i32(across, column));
  }
  return pixels;
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
  context.font = `bold ${FONT}`;
  context.textAlign = "left";
  context.textBaseline = "bottom";
  context.lineWidth = 3;
  context.strokeStyle = css("page");
  context.strokeText(text, x + 7, y - 4);
  context.fillStyle = css("text");
  context.fillText(text, x + 7, y - 4);
  context.restore();
}

/** The room for the texts of a vertical axis. */
function marginOf(axis: Axis): number {
  const letters = longest([4, 10].flatMap((most) => labels(axis, most)));
  return clamp(AXIS_SIDES + letters * DIGIT, MARGIN.left, 160);
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
