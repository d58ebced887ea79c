/** Points of a plane that a person chose, and their values along another dimension as lines. */

import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { axisOf, type Coordinate, NUMBERS, scaleOf } from "../array/axes";
import { costOf, dimensionName, title } from "../array/nodes";
import { boxShape, lineDimension, MOST_POINTS, type Point, type Slice } from "../array/slices";
import { f64, nth, type Shape } from "../base/lists";
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

export function addPoint(points: readonly Point[], point: Point): void {
  if (points.some((each) => each.join() === point.join())) return;
  if (points.length >= MOST_POINTS) notice.value = `There are ${MOST_POINTS} points. Remove one first.`;
  else write([...points, point]);
}

interface PointsProps extends ArrayProps {
  readonly shape: Shape;
  readonly slice: Slice;
  readonly coordinates: ReadonlyMap<number, Coordinate>;
  readonly points: readonly Point[];
  nameOf(point: Point): string;
  /** A typed place as a point, or a sentence why there is none. */
  typed(text: string): Point | string;
  readonly hint: string;
}

export function Points(props: PointsProps): VNode {
  const { snapshot, node, shape, slice, coordinates, points, nameOf, typed, hint } = props;
  const add = (text: string): string | void => {
    const point = text === "" ? `Write ${hint}; or # and an index for each.` : typed(text);
    if (typeof point === "string") return point;
    addPoint(points, point);
  };
  const along = lineDimension(
    shape,
    slice,
    (dimension) => coordinates.get(dimension)?.clock !== undefined,
    route.value.query["along"],
  );
  const step = Math.max(1, Math.ceil(nth(shape, along) / LONGEST));
  // On the dimensions that the plane does not show, the sliders decide for all points
  const places = points.map((point) =>
    point
      .map((at, dimension) =>
        dimension === slice.x || dimension === slice.y ? at : nth(slice.index, dimension),
      )
      .with(along, 0),
  );
  const boxes = places.map((place) => ({
    start: place,
    stop: place.map((at) => at + 1).with(along, nth(shape, along)),
    step: place.map(() => 1).with(along, step),
  }));
  const cost = boxes.reduce((sum, box) => sum + costOf(snapshot, node, box).bytes, 0);
  const [permit, setPermit] = useState(0);
  const isAsked = cost > ASK && cost > permit;
  const lines = useLoad(
    async (signal) => {
      if (isAsked || !boxes.length) return undefined;
      const decoded = await Promise.all(boxes.map((box) => valuesOf(props, box, signal)));
      const first = nth(decoded, 0);
      return {
        scale: first.values instanceof Float64Array ? scaleOf(first) : NUMBERS,
        lost: [...new Set(decoded.flatMap(({ lost }) => lost.map(({ message }) => message)))],
        lines: decoded.map(({ values }) =>
          values instanceof Float64Array ? values : new Float64Array(values.length).fill(NaN),
        ),
      };
    },
    [snapshot, node.path, JSON.stringify(boxes), isAsked],
    true,
  );
  const box = boxes[0] ?? { start: [], stop: [], step: [] };
  const x = axisOf(node, coordinates, box, boxes.length ? along : -1);
  const scale = lines.value?.scale ?? NUMBERS;
  const series: Series[] = (lines.value?.lines ?? [])
    .slice(0, points.length)
    .map((values, at) => ({ values, colour: pointColour(at), title: nameOf(nth(points, at)) }));
  const length = boxShape(box)[along] ?? 0;
  const isReady = series.length === points.length && series.every(({ values }) => values.length === length);
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
        {points.length > 0 && (
          <Choice
            label="Lines along"
            value={String(along)}
            options={shape.flatMap((size, dimension) =>
              size > 1 ? [[String(dimension), dimensionName(node, dimension)] as const] : [],
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
      </div>
      {isAsked ? (
        <p class="failure">
          These lines need {bytes(cost)} of values. <button onClick={() => setPermit(cost)}>Read them</button>
        </p>
      ) : (
        points.length > 0 && (
          <Wait of={lines} what="the lines">
            {() =>
              isReady && (
                <>
                  <Losses of={lines.value?.lost ?? []} />
                  <Lines x={x} series={series} title={title(node)} scale={scale} />
                  <details>
                    <summary>Values of {plural(points.length, "point")}</summary>
                    <ValueTable
                      x={{ label: (at) => nth(series, at).title }}
                      y={x}
                      width={series.length}
                      height={length}
                      text={(at) =>
                        scale.text(
                          f64(nth(series, at % series.length).values, Math.floor(at / series.length)),
                        )
                      }
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
