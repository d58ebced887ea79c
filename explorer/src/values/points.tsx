/** Points of a plane that a person chose, and their values along another dimension as lines. */

import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { axisOf, type Coordinates, NUMBERS, scaleOf } from "../array/axes";
import { costOf, dimensionName, title } from "../array/nodes";
import { box, boxShape, distinct, MOST_POINTS, parseSlice, type Point, type Slice } from "../array/slices";
import { f64, nth, RADIANS, type Shape, strides } from "../base/lists";
import type { ArrayNode } from "../format/types";
import { css } from "../page/canvas";
import { type ArrayProps, valuesOf } from "../page/home";
import { Choice, Entry, Losses, onDemand, Sign, Wait } from "../page/parts";
import { notice, route, setQuery, useLoad } from "../page/state";
import { bytes, plural } from "../page/text";
import { Lines, type Series, ValueTable } from "./lines";

export const Past = onDemand(() => import("./past"), "Past");

const LONGEST = 20_000; // values of a line
export const ASK = 200e6; // bytes to decode before the view asks
export const pointColour = (at: number): string => css(`lane${at % MOST_POINTS}`);

const write = (points: readonly Point[]): void =>
  setQuery({ p: points.map((point) => point.join(".")).join(",") }, false);

/** Adds a point, unless it has the place of another one along some dimensions. */
export function addPoint(points: readonly Point[], point: Point, dimensions: Shape): void {
  const all = distinct([...points, point], dimensions);
  if (all.length === points.length) notice.value = "The line of this point is there already.";
  else if (all.length > MOST_POINTS) notice.value = `There are ${MOST_POINTS} points. Remove one first.`;
  else write(all);
}

/** Means over all dimensions but one, with weights along the dimension `across`. No value has no weight. */
export function meansAlong(
  values: Float64Array,
  shape: Shape,
  along: number,
  weights?: Float64Array,
  across = along,
): Float64Array {
  const steps = strides(shape);
  const place = (at: number, d: number): number => Math.floor(at / nth(steps, d)) % nth(shape, d);
  const sums = new Float64Array(nth(shape, along));
  const sizes = sums.slice();
  values.forEach((value, at) => {
    if (Number.isNaN(value)) return;
    const [step, weight] = [place(at, along), weights ? f64(weights, place(at, across)) : 1];
    sums[step] = f64(sums, step) + weight * value;
    sizes[step] = f64(sizes, step) + weight;
  });
  return sums.map((sum, at) => sum / f64(sizes, at));
}

/** The part that a picture shows, with its name, and the weights of its latitudes where these are known. */
function partOf(node: ArrayNode, coordinates: Coordinates, slice: Slice, along: number) {
  const part = box(node.shape, slice, Infinity);
  const plane = [slice.y, slice.x].filter((d) => d >= 0 && d !== along);
  const across = plane.find((d) => coordinates.get(d)?.isLatitude);
  const latitudes = across === undefined ? undefined : coordinates.get(across)?.values;
  const weights =
    across !== undefined && latitudes instanceof Float64Array
      ? latitudes.slice(part.start[across], part.stop[across]).map((north) => Math.cos(north * RADIANS))
      : undefined;
  const label = (d: number, at: number): string => coordinates.get(d)?.label(at) ?? String(at);
  const ends = plane.map((d) => `${label(d, nth(part.start, d))} to ${label(d, nth(part.stop, d) - 1)}`);
  const name = `mean of ${plane.map((d, at) => `${dimensionName(node, d)} ${ends[at]}`).join(", ")}`;
  return { part, across, weights, name: weights ? `${name}, weighted by the cosine of latitude` : name };
}

interface PointsProps extends ArrayProps {
  readonly slice: Slice;
  readonly coordinates: Coordinates;
  readonly points: readonly Point[];
  /** The dimension of the lines. */
  readonly along: number;
  add(point: Point): void;
  nameOf(point: Point): string;
  /** A typed place as a point, or a sentence why there is none. */
  typed(text: string): Point | string;
  readonly hint: string;
  /** The values are no meanings. */
  readonly hasMean: boolean;
}

export function Points(props: PointsProps): VNode {
  const { snapshot, node, slice, coordinates, points, along, nameOf, typed, hint, hasMean } = props;
  const { shape } = node;
  const { query } = route.value;
  const add = (text: string): string | void => {
    const point = text === "" ? `Write ${hint}; or # and an index for each.` : typed(text);
    if (typeof point === "string") return point;
    props.add(point);
  };
  const step = Math.max(1, Math.ceil(nth(shape, along) / LONGEST));
  // On the dimensions that the plane does not show, the sliders decide for all points
  const places = points.map((point) =>
    point.map((at, d) => (d === slice.x || d === slice.y ? at : nth(slice.index, d))).with(along, 0),
  );
  const mean =
    hasMean && query["mean"] ? partOf(node, coordinates, parseSlice(shape, query), along) : undefined;
  const parts = [
    ...places.map((start) => ({ start, stop: start.map((at) => at + 1) })),
    ...(mean ? [mean.part] : []),
  ];
  const boxes = parts.map(({ start, stop }) => ({
    start: start.with(along, 0),
    stop: stop.with(along, nth(shape, along)),
    step: start.map(() => 1).with(along, step),
  }));
  const cost = boxes.reduce((sum, each) => sum + costOf(props, each).bytes, 0);
  const [permit, setPermit] = useState(0);
  const isAsked = cost > ASK && cost > permit;
  const lines = useLoad(
    async (signal) => {
      if (isAsked || !boxes.length) return undefined;
      const decoded = await Promise.all(boxes.map((each) => valuesOf(props, each, signal)));
      const first = nth(decoded, 0);
      return {
        scale: first.values instanceof Float64Array ? scaleOf(first) : NUMBERS,
        lost: [...new Set(decoded.flatMap(({ lost }) => lost.map(({ message }) => message)))],
        labels: decoded.slice(0, points.length).map(({ exact, label }) => exact && label),
        lines: decoded.map(({ values, shape: size }, at) => {
          if (!(values instanceof Float64Array)) return new Float64Array(values.length).fill(NaN);
          return at < points.length ? values : meansAlong(values, size, along, mean?.weights, mean?.across);
        }),
      };
    },
    [snapshot, node.path, JSON.stringify(boxes), isAsked],
    true,
  );
  const first = boxes[0] ?? { start: [], stop: [], step: [] };
  const x = axisOf(node, coordinates, first, boxes.length ? along : -1);
  const scale = lines.value?.scale ?? NUMBERS;
  const series: Series[] = (lines.value?.lines ?? []).slice(0, boxes.length).map((values, at) => {
    const [point, colour] = [points[at], at < points.length ? pointColour(at) : css("text")];
    return { values, colour, title: point ? nameOf(point) : (mean?.name ?? "") };
  });
  const length = boxShape(first)[along] ?? 0;
  const isReady = series.length === boxes.length && series.every(({ values }) => values.length === length);
  return (
    <section aria-label="Points" class="column">
      <div class="bar">
        <Entry
          label="Add a point"
          size={18}
          placeholder={hint}
          title={`${hint}; or # and an index for each`}
          onEnter={add}
        />
        {hasMean && (
          <button
            aria-pressed={mean !== undefined}
            onClick={() => setQuery({ mean: mean ? "" : "1" }, false)}
          >
            Mean of this part
          </button>
        )}
        {boxes.length > 0 && (
          <Choice
            label="Lines along"
            value={String(along)}
            options={shape.flatMap((size, d) =>
              size > 1 ? [[String(d), dimensionName(node, d)] as const] : [],
            )}
            onSelect={(value) => setQuery({ along: value })}
          />
        )}
        {points.map((point, at) => (
          <span key={point.join()}>
            <i class="swatch" style={{ background: pointColour(at) }} /> {at + 1}: {nameOf(point)}{" "}
            <button onClick={() => setQuery({ past: point.join(".") })}>What happened here?</button>{" "}
            <button
              aria-label={`Remove point ${at + 1}`}
              onClick={() => write(points.filter((each) => each !== point))}
            >
              <Sign>×</Sign>
            </button>
          </span>
        ))}
        {mean && (
          <span>
            <i class="swatch" style={{ background: css("text") }} /> {mean.name}
          </span>
        )}
      </div>
      {isAsked ? (
        <p class="failure">
          These lines need {bytes(cost)} of values. <button onClick={() => setPermit(cost)}>Read them</button>
        </p>
      ) : (
        boxes.length > 0 && (
          <Wait of={lines} what="the lines">
            {() =>
              isReady && (
                <>
                  <Losses of={lines.value?.lost ?? []} />
                  <Lines x={x} series={series} title={title(node)} scale={scale} />
                  <details>
                    <summary>Values of {plural(series.length, mean ? "line" : "point")}</summary>
                    <ValueTable
                      x={{ label: (at) => nth(series, at).title }}
                      y={x}
                      width={series.length}
                      height={length}
                      text={(at) => {
                        const [which, row] = [at % series.length, Math.floor(at / series.length)];
                        const text = lines.value?.labels[which]?.(row);
                        return text ?? scale.text(f64(nth(series, which).values, row));
                      }}
                    />
                  </details>
                </>
              )
            }
          </Wait>
        )
      )}
    </section>
  );
}
