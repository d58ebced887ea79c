/** Canvases, and the colours of the style sheet for them. */

import { signal } from "@preact/signals";
import type { JSX, VNode } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { entryOf } from "../base/lists";

type Size = Record<"width" | "height", number>;

/** Size of an element, followed as it changes. */
export function useSize<T extends HTMLElement>(): [{ current: T | null }, Size] {
  const element = useRef<T>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const target = element.current;
    if (!target) return;
    const measure = (): void =>
      setSize((former) =>
        former.width === target.clientWidth && former.height === target.clientHeight
          ? former
          : { width: target.clientWidth, height: target.clientHeight },
      );
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(target);
    return () => observer.disconnect();
  }, []);
  return [element, size];
}

/** A place within an element, in pixels. */
type Spot = readonly [x: number, y: number];

/** The place of the pointer within the element whose event it is. */
function spotOf({ clientX, clientY, currentTarget }: MouseEvent): Spot {
  const { left, top } = (currentTarget as Element).getBoundingClientRect();
  return [clientX - left, clientY - top];
}

/** Zooms with the wheel around the place of the pointer. */
export function useWheel(
  element: { current: Element | null },
  zoom: (factor: number, x: number, y: number) => void,
): void {
  useEffect(() => {
    // Only a listener that is not passive may keep the page from scrolling
    const wheel = (event: WheelEvent): void => {
      event.preventDefault();
      zoom(Math.exp(-event.deltaY * 0.002), ...spotOf(event));
    };
    const target = element.current as HTMLElement | null;
    target?.addEventListener("wheel", wheel, { passive: false });
    return () => target?.removeEventListener("wheel", wheel);
  });
}

const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] } as const;

/** The direction of an arrow key, to the right and down. */
export const arrowOf = ({ key }: KeyboardEvent): readonly [right: number, down: number] | undefined =>
  entryOf<readonly [number, number]>(ARROWS, key);

type Handler = (event: PointerEvent & { readonly currentTarget: Element }) => void;

interface Gestures<T> {
  /** What a drag begins with; undefined if none can begin here. */
  start(at: Spot): T | undefined;
  drag(from: T, right: number, down: number, at: Spot): void;
  /** Two fingers move apart by a factor. */
  pinch?(factor: number, at: Spot): void;
  drop?(): void;
  end?(): void;
  click(at: Spot): void;
  hover(at: Spot): void;
}

/** What a pointer does on a canvas: it drags, clicks, or is over a place. */
export function usePointer<T>({ start, drag, pinch, drop, end, click, hover }: Gestures<T>): {
  [name in "onPointerDown" | "onPointerMove" | "onPointerUp" | "onPointerCancel"]: Handler;
} {
  const own = useRef<{ x: number; y: number; from: T; isMoved: boolean } | undefined>(undefined);
  const fingers = useRef(new Map<number, PointerEvent>());
  const apart = (): number => {
    const [one, other] = [...fingers.current.values()];
    return one && other ? Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) : 0;
  };
  const stop: Handler = ({ pointerId }) => {
    fingers.current.delete(pointerId);
    own.current = undefined;
    end?.();
  };
  return {
    onPointerDown: (event) => {
      fingers.current.set(event.pointerId, event);
      const from = start(spotOf(event));
      if (from === undefined) return;
      own.current = { x: event.clientX, y: event.clientY, from, isMoved: false };
      event.currentTarget.setPointerCapture(event.pointerId);
    },
    onPointerMove: (event) => {
      if (pinch && fingers.current.size === 2) {
        const before = apart();
        fingers.current.set(event.pointerId, event);
        own.current = undefined;
        return before && apart() ? pinch(apart() / before, spotOf(event)) : undefined;
      }
      const { current: at } = own;
      const [right, down] = [event.clientX - (at?.x ?? 0), event.clientY - (at?.y ?? 0)];
      if (at) at.isMoved ||= Math.hypot(right, down) > 4;
      if (at?.isMoved) drag(at.from, right, down, spotOf(event));
      else hover(spotOf(event));
    },
    onPointerUp: (event) => {
      if (own.current?.isMoved) drop?.();
      else if (own.current) click(spotOf(event));
      stop(event);
    },
    onPointerCancel: stop,
  };
}

type Draw = (context: CanvasRenderingContext2D, width: number, height: number) => void;
type CanvasAttributes = Omit<JSX.IntrinsicElements["canvas"], "width" | "height" | "ref" | "style">;
type CanvasProps = CanvasAttributes & {
  width: number;
  height: number;
  keys?: readonly unknown[];
  draw: Draw;
};

/** A canvas as sharp as the screen. `draw` gets CSS pixels; with `keys` it runs only if one of them changes. */
export function Canvas({ width, height, draw, keys, ...rest }: CanvasProps): VNode {
  const element = useRef<HTMLCanvasElement>(null);
  const themes = theme.value;
  useLayoutEffect(
    () => {
      const canvas = element.current;
      const context = canvas?.getContext("2d");
      if (!canvas || !context || width <= 0 || height <= 0) return;
      const scale = devicePixelRatio || 1;
      if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
      }
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.clearRect(0, 0, width, height);
      draw(context, width, height);
    },
    keys && [...keys, width, height, themes],
  );
  return <canvas ref={element} style={{ width: `${width}px`, height: `${height}px` }} {...rest} />;
}

type Pixels = Uint32Array<ArrayBuffer>;

/** A canvas that is on no page. */
export const emptyCanvas = (width: number, height: number): HTMLCanvasElement =>
  Object.assign(document.createElement("canvas"), { width, height });

/** Pixels as a canvas that another one draws, larger or smaller. */
export function canvasOf(pixels: Pixels, width: number, height: number): HTMLCanvasElement {
  const canvas = emptyCanvas(width, height);
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer), width, height);
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

/** Pixels in whole multiples: drawn smaller, with smoothing, their rows and columns have one size. */
export function enlarged(pixels: Pixels, columns: number, rows: number, { width, height }: Size) {
  const multiple = (cells: number, size: number): number =>
    cells * Math.ceil((size * devicePixelRatio) / cells);
  const canvas = emptyCanvas(multiple(columns, width), multiple(rows, height));
  const context = canvas.getContext("2d");
  if (context) context.imageSmoothingEnabled = false;
  context?.drawImage(canvasOf(pixels, columns, rows), 0, 0, canvas.width, canvas.height);
  return canvas;
}

type FrameProps = { kind: string; x: number; y: number; width: number; height: number };

/** A frame around a part of a canvas: the pointer moves it, and nothing is drawn again. */
export const Frame = ({ kind, x, y, width, height }: FrameProps): VNode => (
  <div
    class={`frame ${kind}`}
    style={{ transform: `translate(${x}px, ${y}px)`, width: `${width}px`, height: `${height}px` }}
  />
);

const colours = new Map<string, string>();

/** Colours of the style sheet, for canvases. Cached: the browser computes all styles anew for each question. */
export function css(name: string): string {
  let value = colours.get(name);
  if (value === undefined) {
    // The value of a variable is its text, with both colours of light and dark: an element tells which one applies
    const element = document.documentElement.appendChild(document.createElement("i"));
    element.style.color = `var(--${name}, #888888)`;
    const channels = getComputedStyle(element).color.match(/\d+/g) ?? [];
    element.remove();
    value = `#${channels.map((channel) => Number(channel).toString(16).padStart(2, "0")).join("")}`;
    colours.set(name, value);
  }
  return value;
}

/** Counts changes of the colours: whoever draws on a canvas reads it. */
export const theme = signal(0);

export function forgetColours(): void {
  colours.clear();
  theme.value++;
}
