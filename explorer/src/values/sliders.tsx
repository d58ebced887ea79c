/** Places on the dimensions that no axis shows: slider, typed value, play. */

import type { VNode } from "preact";
import type { Coordinate } from "../array/axes";
import { dimensionName } from "../array/nodes";
import { parseSlice, type Slice, sliceQuery, typedIndex } from "../array/slices";
import { nth, type Shape } from "../base/lists";
import type { ArrayNode } from "../format/types";
import { Choice, Entry, Sign, type Titles } from "../page/parts";
import { route, setQuery } from "../page/state";
import { count } from "../page/text";
import { NOTHING } from "./play";

interface FixedProps {
  readonly node: ArrayNode;
  readonly shape: Shape;
  readonly slice: Slice;
  readonly what: string;
  readonly coordinates?: ReadonlyMap<number, Coordinate>;
  /** The coordinates are not there yet: nobody can type one. */
  readonly waiting?: boolean;
  readonly playing?: number;
  onIndex(index: number[]): void;
  onPlay?(d: number): void;
}

export function Fixed(props: FixedProps): VNode | null {
  const { node, shape, slice, what, coordinates, waiting = false, playing, onIndex, onPlay } = props;
  const others = shape.map((_, d) => d).filter((d) => d !== slice.x && d !== slice.y && nth(shape, d) > 1);
  if (!others.length) return null;
  const set = (d: number, at: number): void =>
    onIndex(slice.index.map((old, other) => (other === d ? at : old)));
  return (
    <div class="sliders">
      {others.map((d) => {
        const at = nth(slice.index, d);
        const length = nth(shape, d);
        const decoded = coordinates?.get(d);
        const name = dimensionName(node, d);
        const shown = decoded ? decoded.label(at) : String(at);
        const isPlaying = playing === d;
        const hint = decoded ? `${decoded.clock ? "A date" : "A value"}, or # and an index` : "An index";
        const enter = (text: string): string | void => {
          const index = text === shown ? at : typedIndex(text, length, name, decoded);
          if (typeof index === "string") return `${index} Shown: ${shown}.`;
          set(d, index);
        };
        const label = `${name}: ${hint}`;
        const entry = { label, value: shown, size: 14, disabled: waiting, title: hint, onEnter: enter };
        return (
          <div key={d} class="slider">
            <span>{name}</span>
            {onPlay && (
              <button
                aria-pressed={isPlaying}
                aria-label={`${isPlaying ? "Stop" : "Play"} along ${name}`}
                onClick={() => onPlay(isPlaying ? NOTHING : d)}
              >
                <Sign>{isPlaying ? "■" : "▶"}</Sign>
              </button>
            )}
            <input
              type="range"
              min={0}
              max={length - 1}
              value={at}
              aria-label={`${what} along ${name}`}
              aria-valuetext={shown}
              onInput={(event) => set(d, Number(event.currentTarget.value))}
            />
            <Entry key={`${at} ${shown}`} isUnlabelled isEager {...entry} />
            <span class="quiet">
              {decoded && !decoded.clock && decoded.units !== "1" && decoded.units} {what} {count(at)} of{" "}
              {count(length)}
            </span>
          </div>
        );
      })}
    </div>
  );
}

type AxesProps = { readonly node: ArrayNode; readonly grid: Shape; readonly line?: boolean };

/** The dimensions of a plane. */
export function Axes({ node, grid, line = false }: AxesProps): VNode {
  const slice = parseSlice(grid, route.value.query);
  const options = grid.map(
    (length, d) => [String(d), `${dimensionName(node, d)} (${count(length)})`] as const,
  );
  const select = (change: { x?: number; y?: number }): void => {
    const next = { ...slice, ...change };
    // Choosing the dimension of the other axis exchanges both
    if (next.x === next.y) Object.assign(next, change.x !== undefined ? { y: slice.x } : { x: slice.y });
    setQuery(sliceQuery(grid, next), false);
  };
  const choice = (label: string, axis: "x" | "y", more: Titles = []): VNode => (
    <Choice
      label={label}
      value={String(slice[axis])}
      options={[...more, ...options]}
      onSelect={(value) => select({ [axis]: Number(value) })}
    />
  );
  return (
    <>
      {choice("Across", "x")}
      {choice("Down", "y", line || slice.y < 0 ? [["-1", "none (line)"]] : [])}
    </>
  );
}
