/** Places on the dimensions that no axis shows: slider, typed value, play. */

import type { ComponentChildren, VNode } from "preact";
import type { Coordinates } from "../array/axes";
import { arrayNear, dimensionName } from "../array/nodes";
import { type Slice, sliceQuery, typedIndex } from "../array/slices";
import { nth, type Shape } from "../base/lists";
import type { ArrayNode } from "../format/types";
import { type ArrayProps, valuesOf } from "../page/home";
import { Choice, Entry, Sign, type Titles } from "../page/parts";
import { setQuery, useLoad } from "../page/state";
import { count } from "../page/text";

interface FixedProps {
  readonly node: ArrayNode;
  readonly shape: Shape;
  readonly slice: Pick<Slice, "x" | "y"> & { readonly index: readonly number[] };
  readonly what: string;
  readonly coordinates?: Coordinates;
  /** The coordinates are not there yet: nobody can type one. */
  readonly waiting?: boolean;
  readonly playing?: number;
  onIndex(index: number[]): void;
  onPlay?(dimension: number): void;
}

export function Fixed(props: FixedProps): VNode | null {
  const { node, shape, slice, what, coordinates, waiting = false, playing, onIndex, onPlay } = props;
  const others = [...shape.keys()].filter((d) => d !== slice.x && d !== slice.y && nth(shape, d) > 1);
  if (!others.length) return null;
  return (
    <div class="sliders">
      {others.map((d) => {
        const [at, length] = [nth(slice.index, d), nth(shape, d)];
        const decoded = coordinates?.get(d);
        const name = dimensionName(node, d);
        const set = (index: number): void => onIndex(slice.index.with(d, index));
        const place = { name, at, length, text: decoded ? decoded.label(at) : String(at) };
        const isPlaying = playing === d;
        const hint = decoded ? `${decoded.clock ? "A date" : "A value"}, or # and an index` : "An index";
        const enter = (text: string): string | void => {
          const index = text === place.text ? at : typedIndex(text, length, name, decoded);
          if (typeof index === "string") return `${index} Shown: ${place.text}.`;
          set(index);
        };
        const label = `${name}: ${hint}`;
        const entry = { label, value: place.text, size: 14, disabled: waiting, title: hint, onEnter: enter };
        return (
          <Slider
            key={d}
            {...place}
            along={name}
            label={`${what} along ${name}`}
            isPlaying={isPlaying}
            {...(onPlay ? { onPlay: () => onPlay(isPlaying ? -1 : d) } : {})}
            onPlace={set}
          >
            <Entry key={`${at} ${place.text}`} isUnlabelled isEager {...entry} />
            <span class="quiet">
              {decoded && !decoded.clock && decoded.units !== "1" && decoded.units} {what} {count(at)} of{" "}
              {count(length)}
            </span>
          </Slider>
        );
      })}
    </div>
  );
}

interface SliderProps {
  readonly name: string;
  /** What a person plays. */
  readonly along: string;
  readonly label: string;
  readonly text: string;
  readonly at: number;
  readonly length: number;
  readonly isPlaying: boolean;
  onPlay?(): void;
  onPlace(at: number): void;
  readonly children: ComponentChildren;
}

export const Slider = ({ name, along, label, text, at, length, ...rest }: SliderProps): VNode => (
  <div class="slider">
    <span>{name}</span>
    {rest.onPlay && (
      <button
        aria-pressed={rest.isPlaying}
        aria-label={`${rest.isPlaying ? "Stop" : "Play"} along ${along}`}
        onClick={rest.onPlay}
      >
        <Sign>{rest.isPlaying ? "■" : "▶"}</Sign>
      </button>
    )}
    <input
      type="range"
      min={0}
      max={length - 1}
      value={at}
      aria-label={label}
      aria-valuetext={text}
      onInput={(event) => rest.onPlace(Number(event.currentTarget.value))}
    />
    {rest.children}
  </div>
);

type AxesProps = Pick<FixedProps, "node"> & { readonly slice: Slice; grid: Shape; line?: boolean };

/** The dimensions of a plane. */
export function Axes({ node, grid, slice, line = false }: AxesProps): VNode {
  const options = grid.map((length, d): [string, string] => [
    String(d),
    `${dimensionName(node, d)} (${count(length)})`,
  ]);
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

/** The time for which a forecast is valid, by an array along the dimensions that a slice fixes. */
export function useValidTime(
  { reader, snapshot, node }: ArrayProps,
  { x, y, index }: Slice,
): string | undefined {
  const fixed = node.dimensions.filter((name, d) => d !== x && d !== y && name !== "valid_time");
  const time = arrayNear(snapshot, node, "valid_time", ({ dimensions }) =>
    dimensions.every((name) => fixed.includes(name)),
  );
  const start = time?.dimensions.map((name) => index[node.dimensions.indexOf(name)] ?? 0) ?? [];
  const load = async (signal: AbortSignal): Promise<string | undefined> => {
    if (!time) return undefined;
    const part = { start, stop: start.map((at) => at + 1) };
    return `valid_time ${(await valuesOf({ reader, snapshot, node: time }, part, signal)).label(0)}`;
  };
  return useLoad(load, [snapshot, time?.path, start.join()], true).value;
}
