/** A plane of values as an image with axes and a colour bar. */

import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Axis } from "../array/axes";
import { paint } from "../array/colour";
import { clamp, f64, i32 } from "../base/lists";
import {
  arrowOf,
  Canvas,
  canvasOf,
  css,
  enlarged,
  Frame,
  pointerIn,
  usePointer,
  useSize,
} from "../page/canvas";
import {
  Divider,
  drawAxes,
  drawBar,
  drawMark,
  drawSides,
  MARGIN,
  marginOf,
  narrowBar,
  type PlaneProps,
} from "./drawing";

interface ImageProps extends PlaneProps {
  readonly x: Axis;
  readonly y: Axis;
  /** Width by height of one cell, if both axes are places. */
  readonly aspect: number | undefined;
  onZoom(columns: readonly [number, number], rows: readonly [number, number]): void;
}

export function Image(props: ImageProps): VNode {
  const { values, x, y, limits, colours, title, aspect, marks, swipe } = props;
  const { onPlace, onChoose, onZoom } = props;
  const [element, size] = useSize<HTMLDivElement>();
  const [cursor, setCursor] = useState<{ column: number; row: number } | undefined>(undefined);
  const [drag, setDrag] = useState<{ x: number; y: number; toX: number; toY: number } | undefined>(undefined);
  const { top } = MARGIN;
  const left = marginOf(y);
  const bar = narrowBar(props, size.width);
  const room = {
    width: Math.max(10, size.width - left - bar),
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
  const imageOf = (of: Float64Array): HTMLCanvasElement => {
    const pixels = paint(isDrawn ? onScreen(of, x, y, columns, rows) : of, limits, colours);
    return enlarged(canvasOf(pixels, columns, rows), room.width, room.height);
  };
  const keys = [x, y, limits[0], limits[1], colours, columns, rows, room.width, room.height];
  const image = useMemo(() => imageOf(values), [values, ...keys]);
  const other = useMemo(() => swipe && imageOf(swipe.values), [swipe?.values, ...keys]);
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

  const draw = (context: CanvasRenderingContext2D): void => {
    context.fillStyle = css("missing");
    context.fillRect(left, top, room.width, room.height);
    drawSides(context, [image, other], swipe?.share ?? 1, { left, top, ...room }, (side) => {
      const [turnX, turnY] = isDrawn ? [1, 1] : [way(x), way(y)];
      context.translate(left + (turnX < 0 ? room.width : 0), top + (turnY < 0 ? room.height : 0));
      context.scale(turnX, turnY);
      context.drawImage(side, 0, 0, room.width, room.height);
    });
    drawAxes(context, x, y, { left, top, ...room });
    drawBar(context, props, { left: left + room.width + 16, top, width: bar, height: room.height });
    for (const mark of marks) {
      const [across, down] = [x.centre(mark.column), y.centre(mark.row)];
      drawMark(context, mark, left + across * room.width, top + down * room.height);
    }
  };
  /** What follows the pointer lies before the canvas, which is not drawn again. */
  const before = (): VNode | false => {
    const frame = (kind: string, sides: readonly number[], least: number): VNode => {
      const [west = 0, east = 0, upper = 0, lower = 0] = sides;
      const width = Math.max((east - west) * room.width, least);
      const height = Math.max((lower - upper) * room.height, least);
      const across = left + ((west + east) / 2) * room.width - width / 2;
      const down = top + ((upper + lower) / 2) * room.height - height / 2;
      return <Frame kind={kind} x={across} y={down} width={width} height={height} />;
    };
    const sorted = (one: number, other: number): number[] => [Math.min(one, other), Math.max(one, other)];
    if (drag) return frame("drag", [...sorted(drag.x, drag.toX), ...sorted(drag.y, drag.toY)], 0);
    if (!cursor || cursor.column >= x.length || cursor.row >= y.length) return false;
    return frame("chosen", [...x.sides(cursor.column), ...y.sides(cursor.row)], 6);
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
  const keysText = "Arrow keys move the place whose value is shown; with Shift by ten";
  const shown = marks.map(({ column, row, text }) => `${column} ${row} ${text}`).join();
  return (
    <div
      ref={element}
      class="image"
      role="application"
      aria-label={`Image of ${title}. ${keysText}. Enter or a click adds a point. Drag zooms.`}
      tabIndex={0}
      onKeyDown={key}
      {...pointer}
    >
      <Canvas
        {...size}
        draw={draw}
        keys={[image, other, swipe?.share, room.width, room.height, title, shown]}
        aria-hidden="true"
      />
      {before()}
      {swipe && <Divider {...swipe} {...{ left, top, ...room }} />}
    </div>
  );
}

/** The first cell between two places of an axis, and the one after the last. */
function cellsBetween(axis: Axis, one: number, other: number): readonly [number, number] {
  const [from, to] = [axis.cell(one), axis.cell(other)];
  return [Math.min(from, to), Math.max(from, to) + 1];
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
