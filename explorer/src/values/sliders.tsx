/** Places on the dimensions that no axis shows: slider, typed value, play. */

import type { ComponentChildren, VNode } from "preact";
import type { Coordinate } from "../array/axes";
import { dimensionName } from "../array/nodes";
import { parseSlice, type Slice, sliceQuery, typedIndex } from "../array/slices";
import { nth } from "../base/lists";
import type { ArrayNode } from "../format/types";
import { Choice, Entry, Sign } from "../page/parts";
import { route, setQuery } from "../page/state";
import { count } from "../page/text";

interface FixedProps {
  readonly node: ArrayNode;
  readonly shape: readonly number[];
  readonly slice: Slice;
  readonly what: string;
  readonly coordinates?: ReadonlyMap<number, Coordinate>;
  /** The coordinates are not there yet: nobody can type one. */
  readonly waiting?: boolean;
  readonly playing?: number;
  onIndex(index: number[]): void;
  onPlay?(dimension: number): void;
}

export function Fixed({
  node,
  shape,
  slice,
  what,
  coordinates,
  waiting = false,
  playing,
  onIndex,
  onPlay,
}: FixedProps): VNode | null {
  const others = shape
    .map((_, dimension) => dimension)
    .filter((dimension) => dimension !== slice.x && dimension !== slice.y && nth(shape, dimension) > 1);
  if (!others.length) return null;
  const set = (dimension: number, at: number): void =>
    onIndex(slice.index.map((old, other) => (other === dimension ? at : old)));
  return (
    <div class="sliders">
      {others.map((dimension) => {
        const at = nth(slice.index, dimension);
        const decoded = coordinates?.get(dimension);
        const name = dimensionName(node, dimension);
        const shown = decoded ? decoded.label(at) : String(at);
        return (
          <Slider
            key={dimension}
            name={name}
            along={name}
            label={`${what} along ${name}`}
            text={shown}
            at={at}
            length={nth(shape, dimension)}
            isPlaying={playing === dimension}
            {...(onPlay ? { onPlay: () => onPlay(playing === dimension ? -1 : dimension) } : {})}
            onPlace={(index) => set(dimension, index)}
          >
            <Typed
              key={`${at} ${shown}`}
              name={name}
              disabled={waiting}
              shown={shown}
              index={at}
              length={nth(shape, dimension)}
              labels={decoded}
              onIndex={(index) => set(dimension, index)}
            />
            <span class="quiet">
              {decoded && !decoded.isTime && decoded.units !== "1" && decoded.units} {what} {count(at)} of{" "}
              {count(nth(shape, dimension))}
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

export const Slider = ({
  name,
  along,
  label,
  text,
  at,
  length,
  isPlaying,
  onPlay,
  onPlace,
  children,
}: SliderProps): VNode => (
  <div class="slider">
    <span>{name}</span>
    {onPlay && (
      <button
        aria-pressed={isPlaying}
        aria-label={`${isPlaying ? "Stop" : "Play"} along ${along}`}
        onClick={onPlay}
      >
        <Sign>{isPlaying ? "■" : "▶"}</Sign>
      </button>
    )}
    <input
      type="range"
      min={0}
      max={length - 1}
      value={at}
      aria-label={label}
      aria-valuetext={text}
      onInput={(event) => onPlace(Number(event.currentTarget.value))}
    />
    {children}
  </div>
);

interface TypedProps {
  readonly name: string;
  readonly shown: string;
  readonly index: number;
  readonly length: number;
  readonly labels: Coordinate | undefined;
  readonly disabled: boolean;
  onIndex(index: number): void;
}

function Typed({ name, shown, index, length, labels, disabled, onIndex }: TypedProps): VNode {
  const hint = labels ? `${labels.isTime ? "A date" : "A value"}, or # and an index` : "An index";
  const enter = (text: string): string | void => {
    const at = text === shown ? index : typedIndex(text, length, name, labels);
    if (typeof at === "string") return `${at} Shown: ${shown}.`;
    onIndex(at);
  };
  const entry = { value: shown, size: 14, disabled, title: hint, onEnter: enter };
  return <Entry label={`${name}: ${hint}`} isUnlabelled isEager {...entry} />;
}

export function Axes({
  node,
  grid,
  line = false,
}: {
  node: ArrayNode;
  grid: readonly number[];
  line?: boolean;
}): VNode {
  const slice = parseSlice(grid, route.value.query);
  const options = grid.map(
    (length, dimension) =>
      [String(dimension), `${dimensionName(node, dimension)} (${count(length)})`] as const,
  );
  const select = (change: { x?: number; y?: number }): void => {
    const next = { ...slice, ...change };
    // Choosing the dimension of the other axis exchanges both
    if (next.x === next.y) Object.assign(next, change.x !== undefined ? { y: slice.x } : { x: slice.y });
    setQuery(sliceQuery(grid, next), false);
  };
  return (
    <>
      <Choice
        label="Across"
        value={String(slice.x)}
        options={options}
        onSelect={(value) => select({ x: Number(value) })}
      />
      <Choice
        label="Down"
        value={String(slice.y)}
        options={line || slice.y < 0 ? [["-1", "none (line)"], ...options] : options}
        onSelect={(value) => select({ y: Number(value) })}
      />
    </>
  );
}
