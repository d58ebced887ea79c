/** A plane or a line of values, with its readout, its numbers and the points of a person. */

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { aspect, axisOf, type Coordinate } from "../array/axes";
import { categoryTable, diverging, type Limits, robust, spread, symmetric, table } from "../array/colour";
import { dimensionName, title } from "../array/nodes";
import { full, type Scale } from "../array/scale";
import type { Box, Point, Slice } from "../array/slices";
import { boxShape, parsePoints, sliceQuery, typedIndex } from "../array/slices";
import { f64, nth, type Shape } from "../base/lists";
import { type Clock, periodOf, type Tick } from "../cf/calendar";
import { goesNorth } from "../earth/geolocation";
import type { Geolocation } from "../earth/geolocation";
import type { EarthReference } from "../earth/reference";
import type { ArrayNode, Snapshot } from "../format/types";
import { css } from "../page/canvas";
import type { ArrayProps } from "../page/home";
import { route, setQuery } from "../page/state";
import type { Mark } from "./drawing";
import { Globe } from "./globe";
import { Image } from "./image";
import { Lines, ValueTable } from "./lines";
import { allCategories, Numbers } from "./numbers";
import { addPoint, pointColour, Points } from "./points";

export type Target = { readonly snapshot: Snapshot; readonly node: ArrayNode };

export interface Plane {
  readonly values: Float64Array | string[];
  readonly box: Box;
  readonly slice: Slice;
  readonly scale: Scale;
  /** What cannot be read, and why. */
  readonly lost: readonly string[];
}

/** A limit of the colours as a person types it: a number, or a date. */
export function limitOf(text: string | undefined, clock: Clock | undefined): number | undefined {
  if (!text) return undefined;
  const period = clock && periodOf(text, clock.calendar);
  const value = typeof period === "object" ? period.start : Number(text);
  return Number.isFinite(value) ? value : undefined;
}

interface PictureProps extends ArrayProps {
  readonly plane: Plane;
  readonly shape: Shape;
  readonly coordinates: ReadonlyMap<number, Coordinate>;
  /** Limits of the colours that stay while frames play. */
  readonly range: Limits | undefined;
  readonly difference: boolean;
  readonly places: Geolocation | undefined;
  readonly reference: EarthReference | undefined;
}

const degrees = (value: number, signs: string): string =>
  `${Math.abs(value).toFixed(3)}°${signs[value < 0 ? 1 : 0]}`;

export function Picture(props: PictureProps): VNode {
  const { plane: shownPlane, shape, coordinates, range, difference, places, reference, ...array } = props;
  const { node } = array;
  const { query } = route.value;
  const { values, box: part, slice, scale } = shownPlane;
  const isDegrees = reference?.isDegrees ?? false;
  const place = useSignal<readonly [number, number] | undefined>(undefined);
  const lengths = boxShape(part);
  const width = slice.x < 0 ? 1 : nth(lengths, slice.x);
  const height = slice.y < 0 ? 1 : nth(lengths, slice.y);
  const isByIndex = query["cells"] === "index";
  const earth = places?.width === width && places.height === height ? places : undefined;
  const isTurned = useMemo(() => (earth?.isByCell ? goesNorth(earth) : undefined), [earth]);
  const [x, y] = useMemo(
    () => [
      axisOf(node, coordinates, part, slice.x, { isByIndex }),
      axisOf(node, coordinates, part, slice.y, { isByIndex, isVertical: true, isTurned }),
    ],
    [node, coordinates, part, isByIndex, isTurned],
  );
  // Most values of a difference are zero and say nothing about its size
  const automatic = useMemo(
    () =>
      values instanceof Float64Array
        ? robust(difference ? values.filter((value) => value !== 0) : values)
        : ([0, 1] as Limits),
    [values, difference],
  );
  // Meanings have colours by their place in the list; numbers without a meaning come last
  const categories = useMemo(
    () => scale.categories && allCategories(values as Float64Array, scale.categories),
    [values, scale],
  );
  const painted = useMemo(() => {
    const places = new Map(categories?.map((value, at) => [value, at]));
    return (
      categories ? (values as Float64Array).map((value) => places.get(value) ?? NaN) : values
    ) as Float64Array;
  }, [values, categories]);
  const own = range ?? automatic;
  const unit = scale.units && !title(node).endsWith(")") ? ` (${scale.units})` : "";
  const name = difference ? `difference of ${title(node)}${unit}` : title(node);
  const series = useMemo(
    () => [{ title: name, colour: css("accent"), values: values as Float64Array }],
    [values, name],
  );
  const cells = slice.y < 0 ? { width: 1, height: width, y: x } : { width, height, x, y };
  if (!(values instanceof Float64Array)) return <ValueTable text={(at) => values[at] ?? ""} {...cells} />;
  if (values.length === 0) return <p class="quiet">No values in this part.</p>;
  const isCentred = difference || (diverging(own) && !query["map"] && !scale.clock);
  const [lowest, highest] = [limitOf(query["lo"], scale.clock), limitOf(query["hi"], scale.clock)];
  const isTyped = lowest !== undefined || highest !== undefined;
  const [low, high] = isCentred && !isTyped ? symmetric(own) : own;
  const limits = categories
    ? ([-0.5, categories.length - 0.5] as const)
    : spread([lowest ?? low, highest ?? high]);
  const map = query["map"] || (difference || (diverging(limits) && !scale.clock) ? "balance" : "viridis");
  const colours = useMemo(
    () => (categories ? categoryTable(categories.length) : table(map)),
    [map, categories],
  );
  const barTicks = (ends: Limits, most: number): Tick[] =>
    categories
      ? categories.map((value, at) => ({ value: at, text: scale.text(value) }))
      : scale.ticks(ends, most);
  const placeText = (column: number, row: number): string => {
    const own = [
      slice.x >= 0 && `${dimensionName(node, slice.x)} ${x.label(column)}`,
      slice.y >= 0 && `${dimensionName(node, slice.y)} ${y.label(row)}`,
    ]
      .filter(Boolean)
      .join(", ");
    const [east, north] = earth && !isDegrees ? earth.place(column, row) : [NaN, NaN];
    return Number.isFinite(east + north) ? `${own} (${degrees(north, "NS")} ${degrees(east, "EW")})` : own;
  };
  const readout = (): string => {
    const [column, row] = place.value ?? [width, height];
    if (column < width && row < height)
      return `${placeText(column, row)}: ${full(scale, f64(values, row * width + column))}`;
    if (query["show"] === "table") return "";
    return `Point at a place for its value; ${hasPoints ? "click for its line; " : ""}drag to ${query["proj"] ? "turn the map" : "zoom"}.`;
  };
  /** The index of a column or a row. */
  const indexOf = (dimension: number, at: number): number =>
    nth(part.start, dimension) + at * nth(part.step, dimension);
  const zoom = (columns: readonly [number, number], rows?: readonly [number, number]): void => {
    const [from, to] = [[...slice.from], [...slice.to]];
    for (const [dimension, ends] of [
      [slice.x, columns],
      [slice.y, rows],
    ] as const) {
      if (dimension < 0 || !ends) continue;
      from[dimension] = indexOf(dimension, ends[0]);
      to[dimension] = Math.min(nth(part.stop, dimension), indexOf(dimension, ends[1]));
    }
    setQuery(sliceQuery(shape, { ...slice, from, to }), false);
  };
  const hasPoints = slice.y >= 0 && !difference && query["show"] !== "table";
  const points = hasPoints ? parsePoints(query["p"], shape) : [];
  /** The cell of a point; undefined outside of this part. */
  const cellOf = (point: Point): readonly [column: number, row: number] | undefined => {
    const [column, row] = [slice.x, slice.y].map((dimension) =>
      Math.round((nth(point, dimension) - nth(part.start, dimension)) / nth(part.step, dimension)),
    ) as [number, number];
    return column >= 0 && column < width && row >= 0 && row < height ? [column, row] : undefined;
  };
  const pointOf = (column: number, row: number): Point =>
    slice.index.map((fixed, dimension) => {
      if (dimension === slice.x) return indexOf(dimension, column);
      return dimension === slice.y ? indexOf(dimension, row) : fixed;
    });
  const marks: Mark[] = points.flatMap((point, which) => {
    const [column, row] = cellOf(point) ?? [];
    if (column === undefined || row === undefined) return [];
    return [{ column, row, colour: pointColour(which), text: String(which + 1) }];
  });
  const choose = (column: number, row: number): void =>
    void (hasPoints && addPoint(points, pointOf(column, row)));
  const plane = {
    values: painted,
    marks,
    limits,
    colours,
    ticks: barTicks,
    title: name,
    onPlace: (column: number, row: number): void => void (place.value = [column, row]),
    onChoose: choose,
  };
  const typed = (text: string): Point | string => {
    const [one = "", other = ""] = text.split(/\s*[,;]\s*/);
    if (earth && !isDegrees && !text.includes("#")) {
      const cell = earth.find(Number(one), Number(other));
      if (cell >= 0) return pointOf(cell % width, Math.floor(cell / width));
      return `No cell of this part of the grid is at longitude ${one}, latitude ${other}.`;
    }
    const index = [...slice.index];
    for (const [part, dimension] of [
      [one, slice.x],
      [other, slice.y],
    ] as const) {
      const name = dimensionName(node, dimension);
      const at = typedIndex(part, nth(shape, dimension), name, coordinates.get(dimension));
      if (typeof at === "string") return at;
      index[dimension] = at;
    }
    return index;
  };
  const labelOf = (point: Point, dimension: number): string =>
    `${dimensionName(node, dimension)} ${coordinates.get(dimension)?.label(nth(point, dimension)) ?? point[dimension]}`;
  const nameOf = (point: Point): string => {
    const cell = cellOf(point);
    return cell ? placeText(...cell) : `${labelOf(point, slice.x)}, ${labelOf(point, slice.y)}`;
  };
  return (
    <>
      {query["show"] === "table" || slice.x < 0 ? (
        <ValueTable text={(index) => scale.text(f64(values, index))} {...cells} />
      ) : slice.y < 0 ? (
        <Lines
          x={x}
          series={series}
          title={name}
          scale={scale}
          isByIndex={isByIndex}
          onPlace={(index) => void (place.value = index === null ? undefined : [index, 0])}
        />
      ) : query["proj"] && earth ? (
        <Globe {...plane} places={earth} projection={query["proj"]} />
      ) : (
        <Image
          {...plane}
          x={x}
          y={y}
          aspect={isByIndex ? undefined : aspect(node, slice.y, x, y)}
          onZoom={zoom}
        />
      )}
      <Readout text={readout} />
      <Numbers
        values={values}
        scale={scale}
        difference={difference}
        placeOf={(at) => placeText(at % width, Math.floor(at / width))}
        onChoose={hasPoints ? (at) => choose(at % width, Math.floor(at / width)) : undefined}
      />
      {hasPoints && (
        <Points
          {...array}
          shape={shape}
          slice={slice}
          coordinates={coordinates}
          points={points}
          isByIndex={isByIndex}
          nameOf={nameOf}
          typed={typed}
          hint={
            earth && !isDegrees
              ? "longitude, latitude"
              : `${dimensionName(node, slice.x)}, ${dimensionName(node, slice.y)}`
          }
        />
      )}
    </>
  );
}

/** The value under the pointer. Only this part is drawn again when the pointer moves. */
const Readout = ({ text }: { text: () => string }): VNode => (
  <output class="readout" aria-live="polite">
    {text()}
  </output>
);
