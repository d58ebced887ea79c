/** A plane of values as an image with axes and a colour bar. */

import type { VNode } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import type { Axis } from "../array/axes";
import { cssColour, type Limits, paint } from "../array/colour";
import { NUMBERS, type Tick } from "../array/scale";
import { f64, i32, nth, u32 } from "../base/lists";
import { Canvas, canvasOf, css, Frame, pointerIn, useSize } from "../page/canvas";
import { fitted } from "../page/text";

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
const DIGIT = 8; // pixels, in the widest of the usual fonts
// What lies beside the texts of an axis and of a colour bar: ticks and title
const AXIS_SIDES = 26;
const BAR_SIDES = 52;

export function Image(props: ImageProps): VNode {
  const {
    values,
    x,
    y,
    limits,
    colours,
    ticks: barTicks,
    title,
    aspect,
    marks,
    onPlace,
    onChoose,
    onZoom,
  } = props;
  const [element, size] = useSize<HTMLDivElement>();
  const [cursor, setCursor] = useState<{ column: number; row: number } | undefined>(undefined);
  const [drag, setDrag] = useState<{ x: number; y: number; toX: number; toY: number } | undefined>(undefined);
  const moved = useRef(false);
  const left = marginOf(y);
  const right = barWidth(barTicks, limits);
  const room = {
    width: Math.max(10, size.width - left - right),
    height: Math.max(10, size.height - MARGIN.top - MARGIN.bottom),
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
  const fractions = (event: PointerEvent): { x: number; y: number } => {
    const { x, y } = pointerIn(element, event);
    return { x: (x - left) / room.width, y: (y - MARGIN.top) / room.height };
  };
  const place = (column: number, row: number): void => {
    setCursor({ column, row });
    onPlace(column, row);
  };
  const key = (event: KeyboardEvent): void => {
    if ((event.key === "Enter" || event.key === " ") && cursor) {
      event.preventDefault();
      return onChoose(cursor.column, cursor.row);
    }
    const [right, down] =
      { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [];
    if (right === undefined || down === undefined) return;
    event.preventDefault();
    const { column, row } = cursor ?? { column: 0, row: 0 };
    const step = event.shiftKey ? 10 : 1;
    const limit = (value: number, length: number): number => Math.min(Math.max(value, 0), length - 1);
    place(limit(column + right * step * way(x), x.length), limit(row + down * step * way(y), y.length));
  };

  const draw = (context: CanvasRenderingContext2D): void => {
    const { top } = MARGIN;
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
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "top";
    let edge = -Infinity;
    for (const { place, text } of labels(x, room.width / 90)) {
      const where = left + place * room.width;
      const half = context.measureText(text).width / 2;
      if (where - half < edge + 8) continue;
      edge = where + half;
      context.fillRect(where, top + room.height, 1, 5);
      context.fillText(text, where, top + room.height + 8);
    }
    const fit = (text: string, width: number): string =>
      fitted(text, width, (part) => context.measureText(part).width);
    context.fillText(fit(x.title, room.width), left + room.width / 2, top + room.height + 28);
    context.textAlign = "right";
    context.textBaseline = "middle";
    edge = -Infinity;
    for (const { place, text } of labels(y, room.height / 40)) {
      const where = top + place * room.height;
      if (where < edge + 14) continue;
      edge = where;
      context.fillRect(left - 5, where, 5, 1);
      context.fillText(fit(text, left - AXIS_SIDES), left - 8, where);
    }
    context.save();
    context.translate(10, top + room.height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(fit(y.title, room.height), 0, 0);
    context.restore();
    drawBar(context, { colours, limits, title, ticks: barTicks }, left + room.width + 16, top, room.height);
    for (const mark of marks)
      drawMark(
        context,
        mark,
        left + x.centre(mark.column) * room.width,
        top + y.centre(mark.row) * room.height,
      );
  };
  /** What follows the pointer lies before the canvas, which is not drawn again. */
  const before = (): VNode | false => {
    const at = (across: number, down: number): [number, number] => [
      left + across * room.width,
      MARGIN.top + down * room.height,
    ];
    if (drag && moved.current) {
      const [[x, y], width, height] = [
        at(Math.min(drag.x, drag.toX), Math.min(drag.y, drag.toY)),
        Math.abs(drag.toX - drag.x) * room.width,
        Math.abs(drag.toY - drag.y) * room.height,
      ];
      return <Frame kind="drag" x={x} y={y} width={width} height={height} />;
    }
    if (!cursor || cursor.column >= x.length || cursor.row >= y.length) return false;
    const [[west, east], [upper, lower]] = [x.sides(cursor.column), y.sides(cursor.row)];
    const [width, height] = [
      Math.max((east - west) * room.width, 6),
      Math.max((lower - upper) * room.height, 6),
    ];
    const [across, down] = at((west + east) / 2, (upper + lower) / 2);
    return <Frame kind="chosen" x={across - width / 2} y={down - height / 2} width={width} height={height} />;
  };
  return (
    <div
      ref={element}
      class="image"
      role="application"
      aria-label={`Image of ${title}. Arrow keys move the place whose value is shown; with Shift by ten. Enter or a click adds a point. Drag zooms.`}
      tabIndex={0}
      onKeyDown={key}
      onPointerDown={(event) => {
        const at = fractions(event);
        if (at.x < 0 || at.y < 0 || at.x > 1 || at.y > 1) return;
        moved.current = false;
        setDrag({ ...at, toX: at.x, toY: at.y });
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        const at = fractions(event);
        if (drag) {
          moved.current ||= Math.hypot((at.x - drag.x) * room.width, (at.y - drag.y) * room.height) > 6;
          setDrag({ ...drag, toX: Math.min(Math.max(at.x, 0), 1), toY: Math.min(Math.max(at.y, 0), 1) });
        }
        if (at.x >= 0 && at.y >= 0 && at.x <= 1 && at.y <= 1) place(x.cell(at.x), y.cell(at.y));
      }}
      onPointerUp={() => {
        if (drag && moved.current) {
          const range = (axis: Axis, one: number, other: number): readonly [number, number] => {
            const ends = [axis.cell(one), axis.cell(other)].sort((a, b) => a - b);
            return [nth(ends, 0), nth(ends, 1) + 1];
          };
          onZoom(range(x, drag.x, drag.toX), range(y, drag.y, drag.toY));
        } else if (drag) onChoose(x.cell(drag.x), y.cell(drag.y));
        setDrag(undefined);
      }}
      onPointerCancel={() => setDrag(undefined)}
    >
      <Canvas
        width={size.width}
        height={size.height}
        draw={draw}
        keys={[
          image,
          room.width,
          room.height,
          title,
          marks.map(({ column, row, text }) => `${column} ${row} ${text}`).join(),
        ]}
        aria-hidden="true"
      />
      {before()}
    </div>
  );
}

/** The room that a colour bar needs: more if its texts are no numbers. */
export function barWidth(ticks: PlaneProps["ticks"], limits: Limits): number {
  const longest = Math.max(
    0,
    ...[4, 8].flatMap((most) => ticks(limits, most)).map(({ text }) => text.length),
  );
  return Math.min(Math.max(MARGIN.right, BAR_SIDES + longest * DIGIT), 220);
}

type Bar = Pick<PlaneProps, "colours" | "limits" | "title" | "ticks">;

/** The colour bar: 14 pixels, then numbers and title. */
export function drawBar(
  context: CanvasRenderingContext2D,
  bar: Bar,
  left: number,
  top: number,
  height: number,
): void {
  const { colours, limits, title, ticks } = bar;
  const width = barWidth(ticks, limits);
  for (let at = 0; at < 128; at++) {
    context.fillStyle = cssColour(u32(colours, 255 - at * 2));
    context.fillRect(left, top + (at / 128) * height, 14, height / 128 + 1);
  }
  context.strokeStyle = css("quiet");
  context.strokeRect(left - 0.5, top - 0.5, 15, height + 1);
  context.fillStyle = css("text");
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "left";
  context.textBaseline = "middle";
  const fit = (text: string, room: number): string =>
    fitted(text, room, (part) => context.measureText(part).width);
  let edge = Infinity;
  for (const { value, text } of ticks(limits, Math.min(8, height / 36))) {
    const where = top + height * (1 - (value - limits[0]) / (limits[1] - limits[0]));
    if (where > edge - 13) continue;
    edge = where;
    context.fillText(
      fit(text, width - BAR_SIDES),
      left + 20,
      Math.min(Math.max(where, top + 6), top + height - 6),
    );
  }
  context.save();
  context.translate(left + width - 24, top + height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(fit(title, height), 0, 0);
  context.restore();
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
export function drawMark(
  context: CanvasRenderingContext2D,
  { colour, text }: Mark,
  x: number,
  y: number,
): void {
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
  context.font = "bold 12px system-ui, sans-serif";
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
  const longest = Math.max(
    0,
    ...[4, 10].flatMap((most) => labels(axis, most)).map(({ text }) => text.length),
  );
  return Math.min(Math.max(MARGIN.left, AXIS_SIDES + longest * DIGIT), 160);
}

/** Places on an axis with their texts: round numbers where the axis has some, else even steps of the index. */
function labels(axis: Axis, most: number): { place: number; text: string }[] {
  const { edges, length } = axis;
  const values = axis.times?.values ?? axis.values;
  if (values && edges && length > 1) {
    const limits: Limits = [
      Math.min(f64(values, 0), f64(values, length - 1)),
      Math.max(f64(values, 0), f64(values, length - 1)),
    ];
    const { ticks } = axis.times?.scale ?? NUMBERS;
    const places = ticks(limits, most).map(({ value, text }) => ({ place: axis.place(value), text }));
    return places.sort((a, b) => a.place - b.place);
  }
  const step = Math.max(1, Math.ceil(length / Math.max(1, most)));
  return Array.from({ length: Math.ceil(length / step) }, (_, at) => ({
    place: axis.centre(at * step),
    text: axis.label(at * step),
  })).sort((a, b) => a.place - b.place);
}
