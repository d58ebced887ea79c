/** A plane of values as an image with axes and a colour bar. */

import type { VNode } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Axis } from "../array/axes";
import { paint } from "../array/colour";
import { clamp, f64, i32 } from "../base/lists";
import type { Place } from "../earth/crs";
import { arrowOf, Canvas, css, enlarged, Frame, usePointer, useSize } from "../page/canvas";
import { Divider, drawAxes, drawBar, drawMark, drawSides, type PlaneProps, roomOf } from "./drawing";

interface ImageProps extends PlaneProps {
  readonly x: Axis;
  readonly y: Axis;
  /** Width by height of one cell, if both axes are places. */
  readonly aspect: number | undefined;
  onZoom(columns: readonly [number, number], rows: readonly [number, number]): void;
}

export function Image(props: ImageProps): VNode {
  const { values, x, y, limits, colours, title, aspect, marks, swipe, onChoose, onZoom } = props;
  const { cell } = props.sight;
  const [element, size] = useSize<HTMLDivElement>();
  const [drag, setDrag] = useState<{ x: number; y: number; toX: number; toY: number } | undefined>(undefined);
  const { bar, ...room } = roomOf(props, y, size, aspect && (x.length / y.length) * aspect);
  const { left, top } = room;
  // Cells of one width are drawn as pixels that the canvas enlarges; others at the size of the screen
  const isDrawn = (x.edges && x.isUneven) || (y.edges && y.isUneven);
  const [columns, rows] = isDrawn ? [Math.round(room.width), Math.round(room.height)] : [x.length, y.length];
  const imageOf = (of: Float64Array): HTMLCanvasElement => {
    const pixels = paint(isDrawn ? onScreen(of, x, y, columns, rows) : of, limits, colours);
    return enlarged(pixels, columns, rows, room);
  };
  const keys = [x, y, limits[0], limits[1], colours, columns, rows, room.width, room.height];
  const image = useMemo(() => imageOf(values), [values, ...keys]);
  const other = useMemo(() => swipe && imageOf(swipe.values), [swipe?.values, ...keys]);
  const place = (column: number, row: number): number => (cell.value = row * x.length + column);
  const [column, row] = [cell.value % x.length, Math.floor(cell.value / x.length)];
  const isChosen = cell.value >= 0 && row < y.length;
  useEffect(() => () => void (cell.value = -1), [x.length, y.length]); // it is another one in another part
  const key = (event: KeyboardEvent): void => {
    if ((event.key === "Enter" || event.key === " ") && isChosen) {
      event.preventDefault();
      return onChoose(cell.value);
    }
    const arrow = arrowOf(event);
    if (!arrow) return;
    event.preventDefault();
    const [right, down] = arrow;
    const step = event.shiftKey ? 10 : 1;
    const moved = (axis: Axis, at: number, by: number): number =>
      clamp(at + by * step * way(axis), 0, axis.length - 1);
    place(moved(x, isChosen ? column : 0, right), moved(y, isChosen ? row : 0, down));
  };

  const draw = (context: CanvasRenderingContext2D): void => {
    context.fillStyle = css("missing");
    context.fillRect(left, top, room.width, room.height);
    drawSides(context, [image, other], swipe?.share ?? 1, room, (side) => {
      const [turnX, turnY] = isDrawn ? [1, 1] : [way(x), way(y)];
      context.translate(left + (turnX < 0 ? room.width : 0), top + (turnY < 0 ? room.height : 0));
      context.scale(turnX, turnY);
      context.drawImage(side, 0, 0, room.width, room.height);
    });
    drawAxes(context, x, y, room);
    drawBar(context, props, { left: left + room.width + 16, top, width: bar, height: room.height });
    for (const mark of marks) {
      const [across, down] = [x.centre(mark.cell % x.length), y.centre(Math.floor(mark.cell / x.length))];
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
    return isChosen && frame("chosen", [...x.sides(column), ...y.sides(row)], 6);
  };
  /** The place of the pointer, from 0 to 1 within the picture. */
  const fractions = ([across, down]: Place): { x: number; y: number } => {
    return { x: (across - left) / room.width, y: (down - top) / room.height };
  };
  const inside = (spot: Place): { x: number; y: number } | undefined => {
    const at = fractions(spot);
    return at.x >= 0 && at.y >= 0 && at.x <= 1 && at.y <= 1 ? at : undefined;
  };
  const hover = (spot: Place): void => {
    const at = inside(spot);
    if (at) place(x.cell(at.x), y.cell(at.y));
  };
  const pointer = usePointer({
    start: inside,
    drag: (from, _right, _down, spot) => {
      const to = fractions(spot);
      setDrag({ ...from, toX: clamp(to.x, 0, 1), toY: clamp(to.y, 0, 1) });
      hover(spot);
    },
    drop: () => drag && onZoom(cellsBetween(x, drag.x, drag.toX), cellsBetween(y, drag.y, drag.toY)),
    end: () => setDrag(undefined),
    click: (spot) => {
      const at = fractions(spot);
      onChoose(place(x.cell(at.x), y.cell(at.y)));
    },
    hover,
  });
  const keysText = "Arrow keys move the place whose value is shown; with Shift by ten";
  const shown = marks.map(({ cell: at, text }) => `${at} ${text}`).join();
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
      {swipe && <Divider {...swipe} {...room} />}
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
