/** A plane of values as an image with axes and a colour bar. */

import type { VNode } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { paint, table, ticks, type Limits } from "./colour";
import { Canvas, css, useSize } from "./parts";
import { number } from "./text";

export interface Axis {
  readonly title: string;
  readonly length: number;
  /** Turned round on the screen: north is up. */
  readonly reverse: boolean;
  /** Values of an even axis, for round numbers beside it. */
  readonly values?: Float64Array | undefined;
  /** Times of a standard calendar. */
  readonly times?: Float64Array | undefined;
  label(index: number): string;
}

interface ImageProps {
  readonly values: Float64Array;
  readonly x: Axis;
  readonly y: Axis;
  readonly limits: Limits;
  readonly map: string;
  readonly title: string;
  /** Width by height of one cell, if both axes are places. */
  readonly aspect?: number | undefined;
  onPlace(column: number, row: number): void;
  onZoom(columns: readonly [number, number], rows: readonly [number, number]): void;
}

export const MARGIN = { left: 78, top: 8, bottom: 46, right: 92 };

export function Image({ values, x, y, limits, map, title, aspect, onPlace, onZoom }: ImageProps): VNode {
  const [element, size] = useSize<HTMLDivElement>();
  const [cursor, setCursor] = useState<{ column: number; row: number } | undefined>(undefined);
  const [drag, setDrag] = useState<{ x: number; y: number; toX: number; toY: number } | undefined>(undefined);
  const moved = useRef(false);
  const colours = useMemo(() => table(map), [map]);
  const image = useMemo(() => {
    const pixels = new Uint32Array(x.length * y.length);
    paint(values, limits, colours, pixels);
    const canvas = document.createElement("canvas");
    canvas.width = x.length;
    canvas.height = y.length;
    canvas.getContext("2d")?.putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), x.length, y.length), 0, 0);
    return canvas;
  }, [values, limits[0], limits[1], colours]);

  const room = { width: Math.max(10, size.width - MARGIN.left - MARGIN.right), height: Math.max(10, size.height - MARGIN.top - MARGIN.bottom) };
  if (aspect) {
    const wanted = (x.length / y.length) * aspect;
    if (room.width / room.height > wanted) room.width = Math.max(40, room.height * wanted);
    else room.height = Math.max(40, room.width / wanted);
  }
  const cell = (axis: Axis, fraction: number): number => {
    const at = Math.min(Math.max(Math.floor(fraction * axis.length), 0), axis.length - 1);
    return axis.reverse ? axis.length - 1 - at : at;
  };
  const centre = (axis: Axis, index: number): number => ((axis.reverse ? axis.length - 1 - index : index) + 0.5) / axis.length;
  const fractions = (event: PointerEvent): { x: number; y: number } => {
    const box = element.current!.getBoundingClientRect();
    return { x: (event.clientX - box.left - MARGIN.left) / room.width, y: (event.clientY - box.top - MARGIN.top) / room.height };
  };
  const place = (column: number, row: number): void => {
    setCursor({ column, row });
    onPlace(column, row);
  };
  const key = (event: KeyboardEvent): void => {
    const [right, down] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [];
    if (right === undefined || down === undefined) return;
    event.preventDefault();
    const { column, row } = cursor ?? { column: 0, row: 0 };
    const step = event.shiftKey ? 10 : 1;
    const limit = (value: number, length: number): number => Math.min(Math.max(value, 0), length - 1);
    place(limit(column + right * step * (x.reverse ? -1 : 1), x.length), limit(row + down * step * (y.reverse ? -1 : 1), y.length));
  };

  const draw = (context: CanvasRenderingContext2D): void => {
    const { left, top } = MARGIN;
    context.imageSmoothingEnabled = false;
    context.fillStyle = css("missing");
    context.fillRect(left, top, room.width, room.height);
    context.save();
    context.translate(left + (x.reverse ? room.width : 0), top + (y.reverse ? room.height : 0));
    context.scale(x.reverse ? -1 : 1, y.reverse ? -1 : 1);
    if (x.length > room.width * 2) context.imageSmoothingEnabled = true;
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
    for (const { at, text } of labels(x, room.width / 90)) {
      const where = left + centre(x, at) * room.width;
      const half = context.measureText(text).width / 2;
      if (where - half < edge + 8) continue;
      edge = where + half;
      context.fillRect(where, top + room.height, 1, 5);
      context.fillText(text, where, top + room.height + 8);
    }
    context.fillText(x.title, left + room.width / 2, top + room.height + 28, room.width);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const { at, text } of labels(y, room.height / 40)) {
      const where = top + centre(y, at) * room.height;
      context.fillRect(left - 5, where, 5, 1);
      context.fillText(text, left - 8, where, MARGIN.left - 26);
    }
    context.save();
    context.translate(10, top + room.height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(y.title, 0, 0, room.height);
    context.restore();
    drawBar(context, colours, limits, title, left + room.width + 16, top, room.height);
    if (cursor) {
      context.strokeStyle = css("text");
      const [width, height] = [room.width / x.length, room.height / y.length];
      const [column, row] = [left + centre(x, cursor.column) * room.width, top + centre(y, cursor.row) * room.height];
      context.strokeRect(column - Math.max(width, 6) / 2, row - Math.max(height, 6) / 2, Math.max(width, 6), Math.max(height, 6));
    }
    if (drag && moved.current) {
      context.strokeStyle = css("text");
      context.setLineDash([4, 3]);
      context.strokeRect(left + drag.x * room.width, top + drag.y * room.height, (drag.toX - drag.x) * room.width, (drag.toY - drag.y) * room.height);
      context.setLineDash([]);
    }
  };
  return (
    <div
      ref={element}
      class="image"
      role="application"
      aria-label={`Image of ${title}. Arrow keys move the place whose value is shown; with Shift by ten. Drag zooms.`}
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
        if (at.x >= 0 && at.y >= 0 && at.x <= 1 && at.y <= 1) place(cell(x, at.x), cell(y, at.y));
      }}
      onPointerUp={() => {
        if (drag && moved.current) {
          const range = (axis: Axis, one: number, other: number): readonly [number, number] => {
            const ends = [cell(axis, one), cell(axis, other)].sort((a, b) => a - b);
            return [ends[0]!, ends[1]! + 1];
          };
          onZoom(range(x, drag.x, drag.toX), range(y, drag.y, drag.toY));
        }
        setDrag(undefined);
      }}
    >
      <Canvas width={size.width} height={size.height} draw={draw} aria-hidden="true" />
    </div>
  );
}

/** The colour bar: 14 pixels, then numbers and title. */
export function drawBar(context: CanvasRenderingContext2D, colours: Uint32Array, limits: Limits, title: string, left: number, top: number, height: number): void {
  for (let at = 0; at < 128; at++) {
    const colour = colours[255 - at * 2]!;
    context.fillStyle = `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
    context.fillRect(left, top + (at / 128) * height, 14, height / 128 + 1);
  }
  context.strokeStyle = css("quiet");
  context.strokeRect(left - 0.5, top - 0.5, 15, height + 1);
  context.fillStyle = css("text");
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (const value of ticks(limits, Math.min(8, height / 36))) {
    const where = top + height * (1 - (value - limits[0]) / (limits[1] - limits[0]));
    context.fillText(number(value), left + 20, Math.min(Math.max(where, top + 6), top + height - 6), MARGIN.right - 38);
  }
  context.save();
  context.translate(left + MARGIN.right - 24, top + height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(title, 0, 0, height);
  context.restore();
}

/** Places on an axis: round values if the axis has even numbers, else even steps of the index. */
function labels(axis: Axis, wanted: number): { at: number; text: string }[] {
  const { values, length } = axis;
  if (values && length > 1) {
    const [first, final] = [values[0]!, values[length - 1]!];
    const step = (final - first) / (length - 1);
    const even = step !== 0 && values.every((value, at) => Math.abs(value - first - at * step) < Math.abs(step) * 0.1);
    if (even) return ticks([Math.min(first, final), Math.max(first, final)], wanted).map((value) => ({ at: (value - first) / step, text: number(value) }));
  }
  const step = Math.max(1, Math.ceil(length / Math.max(1, wanted)));
  return Array.from({ length: Math.ceil(length / step) }, (_, at) => ({ at: at * step, text: axis.label(at * step) }));
}
