/** Canvases, and the colours of the style sheet for them. */

import { signal } from "@preact/signals";
import type { JSX, VNode } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Size of an element, followed as it changes. */
export function useSize<T extends HTMLElement>(): [{ current: T | null }, { width: number; height: number }] {
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

/** The place of the pointer within an element, in pixels. */
export function pointerIn(
  element: { readonly current: Element | null },
  event: MouseEvent,
): { x: number; y: number } {
  const { left = 0, top = 0 } = element.current?.getBoundingClientRect() ?? {};
  return { x: event.clientX - left, y: event.clientY - top };
}

/** A canvas as sharp as the screen. `draw` gets CSS pixels and runs at most once per frame, with `keys` only if one of them changes. */
export function Canvas({
  width,
  height,
  draw,
  keys,
  ...rest
}: {
  width: number;
  height: number;
  keys?: readonly unknown[];
  draw: (context: CanvasRenderingContext2D, width: number, height: number) => void;
} & Omit<JSX.IntrinsicElements["canvas"], "width" | "height" | "ref" | "style">): VNode {
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

/** Pixels as a canvas that another one draws, larger or smaller. */
export function canvasOf(pixels: Uint32Array<ArrayBuffer>, width: number, height: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  canvas
    .getContext("2d")
    ?.putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), width, height), 0, 0);
  return canvas;
}

/** A frame around a part of a canvas: the pointer moves it, and nothing is drawn again. */
export const Frame = ({
  kind,
  x,
  y,
  width,
  height,
}: {
  kind: string;
  x: number;
  y: number;
  width: number;
  height: number;
}): VNode => (
  <div
    class={`frame ${kind}`}
    style={{ transform: `translate(${x}px, ${y}px)`, width: `${width}px`, height: `${height}px` }}
  />
);

const colours = new Map<string, string>();

/** Colours of the style sheet, for canvases. Kept, because the browser computes the styles of the page anew for each question. */
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
