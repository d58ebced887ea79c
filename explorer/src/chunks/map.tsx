/** The map of the chunks of an array: zoom, drag, choice. */

import type { VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { clamp } from "../base/lists";
import { arrowOf, Canvas, css, Frame, pointerIn, usePointer, useSize, useWheel } from "../page/canvas";
import { ZoomButtons } from "../page/parts";
import type { Cells } from "./cells";

interface MapProps {
  readonly cells: Cells;
  readonly image: HTMLCanvasElement;
  readonly choice: number | undefined;
  describe(cell: number): string;
  onChoose(cell: number): void;
}

const LINES = 8; // pixels of a cell from which lines between cells are drawn

export function ChunkMap({ cells, image, choice, describe, onChoose }: MapProps): VNode {
  const [element, size] = useSize<HTMLDivElement>();
  const squeeze = size.width / cells.width / (size.height / cells.height) || 1;
  // Cells are square unless the plane is long and narrow
  const ratio = squeeze > 4 ? Math.min(squeeze, 24) : squeeze < 1 / 4 ? Math.max(squeeze, 1 / 24) : 1;
  const largest = ratio > 1 ? 40 / Math.sqrt(ratio) : 40;
  const fit = Math.min(size.width / cells.width / ratio, size.height / cells.height, largest) || 1; // height of a cell
  const [view, setView] = useState<{ scale: number; left: number; top: number } | undefined>(undefined);
  const [hover, setHover] = useState(-1);
  useEffect(() => setView(undefined), [cells.width, cells.height]);
  const { scale, left, top } = view ?? {
    scale: fit,
    left: (size.width - cells.width * fit * ratio) / 2,
    top: (size.height - cells.height * fit) / 2,
  };
  const wide = scale * ratio;

  const cellAt = (event: PointerEvent): number => {
    const { x, y } = pointerIn(element, event);
    const [column, row] = [Math.floor((x - left) / wide), Math.floor((y - top) / scale)];
    const cell = row * cells.width + column;
    const isInside = column >= 0 && column < cells.width && row >= 0 && row < cells.height;
    return isInside && cell < cells.length ? cell : -1;
  };
  const zoom = (factor: number, x = size.width / 2, y = size.height / 2): void => {
    const next = clamp(scale * factor, fit / 2, 80);
    setView({ scale: next, left: x - ((x - left) * next) / scale, top: y - ((y - top) * next) / scale });
  };
  useWheel(element, zoom);
  const centre = (cell: number): [number, number] => [
    left + ((cell % cells.width) + 0.5) * wide,
    top + (Math.floor(cell / cells.width) + 0.5) * scale,
  ];
  const key = (event: KeyboardEvent): void => {
    const arrow = arrowOf(event);
    if (arrow) {
      const move = arrow[0] + arrow[1] * cells.width;
      const next = (choice ?? -move) + move;
      if (next >= 0 && next < cells.length) {
        onChoose(next);
        const [x, y] = centre(next);
        if (x < 0 || y < 0 || x > size.width || y > size.height)
          setView({ scale, left: left + size.width / 2 - x, top: top + size.height / 2 - y });
      }
    } else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "0") setView(undefined);
    else return;
    event.preventDefault();
  };
  const draw = (context: CanvasRenderingContext2D, width: number, height: number): void => {
    context.imageSmoothingEnabled = Math.min(scale, wide) < 1;
    context.imageSmoothingQuality = Math.min(scale, wide) < 0.5 ? "medium" : "low";
    const [x, y] = [Math.max(0, Math.floor(-left / wide)), Math.max(0, Math.floor(-top / scale))];
    const [right, bottom] = [
      Math.min(cells.width, Math.ceil((width - left) / wide)),
      Math.min(cells.height, Math.ceil((height - top) / scale)),
    ];
    if (right <= x || bottom <= y) return;
    const [from, upper, to, lower] = [
      left + x * wide,
      top + y * scale,
      left + right * wide,
      top + bottom * scale,
    ];
    context.drawImage(image, x, y, right - x, bottom - y, from, upper, to - from, lower - upper);
    if (Math.min(scale, wide) < LINES) return;
    context.strokeStyle = css("page");
    context.lineWidth = 1;
    context.beginPath();
    for (let at = x; at <= right; at++) {
      context.moveTo(Math.round(left + at * wide) + 0.5, upper);
      context.lineTo(Math.round(left + at * wide) + 0.5, lower);
    }
    for (let at = y; at <= bottom; at++) {
      context.moveTo(from, Math.round(top + at * scale) + 0.5);
      context.lineTo(to, Math.round(top + at * scale) + 0.5);
    }
    context.stroke();
  };
  const mark = (cell: number, kind: string): VNode | false => {
    const [across, down] = [Math.max(wide, 6) + 2, Math.max(scale, 6) + 2];
    const [x, y] = centre(cell);
    return (
      cell >= 0 && <Frame kind={kind} x={x - across / 2} y={y - down / 2} width={across} height={down} />
    );
  };
  const pointer = usePointer({
    start: () => ({ left, top }),
    drag: (from, right, down) => setView({ scale, left: from.left + right, top: from.top + down }),
    hover: (event) => setHover(cellAt(event)),
    click: (event) => {
      const cell = cellAt(event);
      if (cell >= 0) onChoose(cell);
    },
  });
  const described = hover >= 0 ? hover : choice;
  return (
    <div class="map-frame">
      <div
        ref={element}
        class="map"
        role="application"
        aria-label="Map of chunks. Arrow keys choose a chunk, plus and minus zoom, zero shows all."
        tabIndex={0}
        onKeyDown={key}
        {...pointer}
        onPointerLeave={() => setHover(-1)}
      >
        <Canvas {...size} draw={draw} keys={[image, scale, left, top]} aria-hidden="true" />
        {mark(hover, "hover")}
        {mark(choice ?? -1, "chosen")}
      </div>
      <div class="map-foot">
        <ZoomButtons zoom={zoom} all={() => setView(undefined)} />
        <output aria-live="polite">
          {described === undefined
            ? "Click a cell for its chunk; wheel zooms, drag moves."
            : describe(described)}
        </output>
      </div>
    </div>
  );
}
