/** A plane or a line of values, with its readout, its numbers and the points of a person. */

import { signal } from "@preact/signals";
import type { VNode } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { aspect, type Axis, axisOf, type Coordinates, inCelsius, type Scale, withUnit } from "../array/axes";
import {
  categoryTable,
  composite,
  type Limits,
  type Palette,
  paletteOf,
  robust,
  spread,
  symmetric,
  table,
} from "../array/colour";
import { attributes, dimensionName, type Level, title } from "../array/nodes";
import {
  type Box,
  boxShape,
  distinct,
  lineDimension,
  parsePoints,
  type Point,
  type Slice,
  typedIndex,
} from "../array/slices";
import { clamp, f64, nth, type Shape } from "../base/lists";
import { type Clock, periodOf, type Tick } from "../cf/calendar";
import type { Place } from "../earth/crs";
import type { Geolocation } from "../earth/geolocation";
import type { View } from "../earth/projections";
import { type EarthReference, goesNorth } from "../earth/reference";
import type { ArrayNode } from "../format/types";
import { css } from "../page/canvas";
import type { ArrayProps } from "../page/home";
import { route, setQuery } from "../page/state";
import { last } from "../page/text";
import type { Mark, Sight } from "./drawing";
import { Globe, mapName } from "./globe";
import { Image } from "./image";
import { Lines, ValueTable } from "./lines";
import { allCategories, Numbers } from "./numbers";
import { together } from "./play";
import { addPoint, pointColour, Points } from "./points";

export interface Plane {
  readonly node: ArrayNode;
  readonly values: Float64Array | string[];
  readonly box: Box;
  readonly slice: Slice;
  readonly scale: Scale;
  /** The text of a value that a number does not have in full; undefined if numbers have all values. */
  readonly exact?: ((at: number) => string) | undefined;
  /** What cannot be read, and why. */
  readonly lost: readonly string[];
  /** Red, green and blue: `values` are those of the first one. */
  readonly bands?: readonly Float64Array[];
  /** Each value stands for a chunk. */
  readonly isSummary?: boolean;
}

/** A limit of the colours as a person types it: a number, or a date. */
export function limitOf(text: string | undefined, clock: Clock | undefined): number | undefined {
  if (!text) return undefined;
  const period = clock && periodOf(text, clock.calendar);
  const value = typeof period === "object" ? period.start : Number(text);
  return Number.isFinite(value) ? value : undefined;
}

/** What belongs together: the values of a level, and where its cells are. */
export interface PictureSet extends ArrayProps {
  /** The array and its axes. */
  readonly plan: string;
  readonly plane: Plane;
  readonly shape: Shape;
  readonly coordinates: Coordinates;
  readonly places: Geolocation | undefined;
  readonly reference: EarthReference | undefined;
  /** The array of which `node` may be a coarser level. */
  readonly full: ArrayNode;
  readonly level: Level;
  /** A part of it can have more values. */
  readonly isReduced: boolean;
  toQuery(slice: Slice): Record<string, string>;
  /** The same plane of another version: on the right of a divider, or in a picture of its own. */
  readonly other: { readonly name: string; readonly plane: Plane } | undefined;
}

interface PictureProps extends PictureSet {
  /** Limits of the colours that stay while frames play. */
  readonly range: Limits | undefined;
  readonly difference: boolean;
  readonly isBrief: boolean;
}

const COLOURS = ["red", "green", "blue"];
const degrees = (value: number, signs: string): string =>
  `${Math.abs(value).toFixed(3)}°${signs[value < 0 ? 1 : 0]}`;

export function Picture(props: PictureProps): VNode {
  const { plane: shownPlane, shape, coordinates, range, difference, places, reference } = props;
  const { reader, snapshot, full, plan, isBrief, isReduced, toQuery, other } = props;
  const { node, isSummary, bands, exact, values, box: part, slice, scale } = shownPlane;
  const { ratio } = props.level;
  const { query } = route.value;
  const isDegrees = reference?.isDegrees ?? false;
  const sight = useMemo((): Sight => {
    return { cell: signal(-1), moved: signal(undefined), spot: { current: undefined } };
  }, [plan, mapName(query)]);
  const lengths = boxShape(part);
  const width = slice.x < 0 ? 1 : nth(lengths, slice.x);
  const height = slice.y < 0 ? 1 : nth(lengths, slice.y);
  const earth = places?.width === width && places.height === height ? places : undefined;
  const isTurned = useMemo(() => (earth?.isByCell ? goesNorth(earth) : undefined), [earth]);
  const samples = earth?.samples;
  const [x, y] = useMemo(() => {
    const options = { isVertical: true, isTurned };
    return [slice.x, slice.y].map((d, which) => {
      const axis = axisOf(node, coordinates, part, d, which ? options : {});
      return { ...axis, label: (at: number) => samples?.name(at, d) ?? axis.label(at) };
    }) as [Axis, Axis];
  }, [node, coordinates, part, isTurned, samples]);
  const [share, setShare] = useState(Number(query["cut"] ?? 50) / 100);
  const compared = other?.plane.values instanceof Float64Array ? other.plane.values : undefined;
  // Both sides of a divider have the same colours
  const all = useMemo(
    () => (values instanceof Float64Array ? together([values, ...(compared ? [compared] : [])]) : undefined),
    [values, compared],
  );
  const [automatic, categories] = useMemo(() => {
    // Most values of a difference are zero and say nothing about its size
    const limits = robust(all?.filter((value) => !difference || value !== 0) ?? new Float64Array());
    // Meanings have colours by their place in the list; numbers without a meaning come last
    return [limits, scale.categories && all && allCategories(all, scale.categories)] as const;
  }, [all, difference, scale]);
  const [painted, beside] = useMemo(() => {
    if (bands) {
      const own = bands.map((band): Limits => (node.dtype === "uint8" ? [0, 255] : robust(band)));
      const others = other?.plane.bands;
      return [composite(bands, own), others && composite(others, own)] as const;
    }
    const places = new Map(categories?.map((value, at) => [value, at]));
    const paintedOf = (of: Float64Array): Float64Array =>
      categories ? of.map((value) => places.get(value) ?? NaN) : of;
    return [paintedOf(values as Float64Array), compared && paintedOf(compared)];
  }, [values, compared, categories]);
  // All of the plane, around the part that a map shows
  const isWhole = slice.from.every((from, d) => from === 0 && slice.to[d] === shape[d]);
  const version = [snapshot.id, other?.name, ...slice.index.map((at, d) => at * nth(ratio, d))].join();
  const now = earth && { plan, version, values: painted, other: beside, places: earth, part, ratio };
  const whole = useRef<typeof now>(undefined);
  if (isWhole && now) whole.current = now;
  const behind = whole.current?.plan === plan ? whole.current : undefined;
  const own = range ?? automatic;
  const unit = scale.units && !title(node).endsWith(")") ? ` (${scale.units})` : "";
  const name = difference ? `difference of ${title(node)}${unit}` : title(node);
  const series = useMemo(
    () => [{ title: name, colour: css("accent"), values: values as Float64Array }],
    [values, name],
  );
  const cells = slice.y < 0 ? { width: 1, height: width, y: x } : { width, height, x, y };
  if (values.length === 0) return <p class="quiet">No values in this part.</p>;
  if (!(values instanceof Float64Array)) return <ValueTable text={(at) => values[at] ?? ""} {...cells} />;
  const { standard_name, long_name } = attributes(full);
  const names = difference ? "difference" : [last(full.path), standard_name, long_name].join(" ");
  const palette: Palette = scale.clock ? { map: "viridis" } : paletteOf(names, scale.units, own);
  const isCentred = (difference || palette.isCentred) && !query["map"];
  const [lowest, highest] = [limitOf(query["lo"], scale.clock), limitOf(query["hi"], scale.clock)];
  const isTyped = lowest !== undefined || highest !== undefined;
  const [low, high] =
    isCentred && !isTyped ? symmetric(own) : [palette.low ?? own[0], palette.high ?? own[1]];
  const limits = categories
    ? ([-0.5, categories.length - 0.5] as const)
    : spread([lowest ?? low, highest ?? high]);
  const map = query["map"] || palette.map;
  const colours = useMemo(
    () => (categories ? categoryTable(categories.length) : table(map)),
    [map, categories],
  );
  const barTicks = (ends: Limits, most: number): Tick[] =>
    categories
      ? categories.map((value, at) => ({ value: at, text: scale.text(value) }))
      : scale.ticks(ends, most);
  const placeText = (at: number): string => {
    const [column, row] = [at % width, Math.floor(at / width)];
    const own = [
      slice.x >= 0 && `${dimensionName(node, slice.x)} ${x.label(column)}`,
      slice.y >= 0 && `${dimensionName(node, slice.y)} ${y.label(row)}`,
    ]
      .filter(Boolean)
      .join(", ");
    const [east, north] = earth && !isDegrees ? earth.place(column, row) : [NaN, NaN];
    const longitude = east - 360 * Math.round(east / 360);
    return Number.isFinite(east + north)
      ? `${own} (${degrees(north, "NS")} ${degrees(longitude, "EW")})`
      : own;
  };
  const valueText = (of: Plane, at: number): string => {
    const text = (value: number | string | undefined, own?: string): string =>
      withUnit(of.scale, Number(value), own) + (difference ? "" : inCelsius(of.scale, Number(value)));
    if (!of.bands) return text(of.values[at], of.exact?.(at));
    return of.bands.map((band, which) => `${COLOURS[which]} ${text(band[at])}`).join(", ");
  };
  const readout = (): string => {
    const at = sight.cell.value;
    if (at >= 0 && at < values.length) {
      const what = isSummary ? "mean of the chunk " : "";
      const texts = [`${what}${valueText(shownPlane, at)}`];
      if (other) texts.push(`${other.name}: ${valueText(other.plane, at)}`);
      return `${placeText(at)}: ${texts.join("; ")}`;
    }
    if (query["show"] === "table") return "";
    const line = hasPoints ? "click for its line; " : "";
    const drag = isMap ? "drag moves the map, the wheel zooms" : "drag to zoom";
    return `Point at a place for its value; ${line}${drag}.`;
  };
  /** The index of a column or a row. */
  const indexOf = (d: number, at: number): number => nth(part.start, d) + at * nth(part.step, d);
  const zoom = (columns: readonly [number, number], rows?: readonly [number, number]): void => {
    const [from, to] = [[...slice.from], [...slice.to]];
    for (const [d, ends] of [
      [slice.x, columns],
      [slice.y, rows],
    ] as const) {
      if (d < 0 || !ends) continue;
      from[d] = indexOf(d, ends[0]);
      to[d] = Math.min(nth(part.stop, d), indexOf(d, ends[1]));
    }
    setQuery(toQuery({ ...slice, from, to }), false);
  };
  /** Reads the part that a map shows with more of its values, if there are more. */
  const follow = (view: View | undefined, places: readonly Place[]): void => {
    const m = view ? [...view.centre, view.span].map((each) => Number(each.toFixed(6))).join() : "";
    if (!isReduced || samples) return setQuery({ m });
    const cells = view && behind && cellsAt(behind.places, places);
    const [from, to] = [shape.map(() => 0), [...shape]];
    let isInside = cells !== undefined;
    for (const [axis, d] of [slice.x, slice.y].entries()) {
      if (!behind || !cells) continue;
      const index = (cell: number): number =>
        ((nth(behind.part.start, d) + cell * nth(behind.part.step, d)) * nth(behind.ratio, d)) /
        nth(ratio, d);
      const [low, high] = nth(cells, axis).map(index) as [number, number];
      const room = (high - low) / 4;
      // Another part is read when the map leaves this one, or shows less than half of it
      isInside &&=
        low >= nth(slice.from, d) &&
        high <= nth(slice.to, d) &&
        2 * (high - low) > nth(slice.to, d) - nth(slice.from, d);
      from[d] = clamp(Math.floor(low - room), 0, nth(shape, d) - 1);
      to[d] = clamp(Math.ceil(high + room), nth(from, d) + 1, nth(shape, d));
    }
    setQuery({ ...(isInside ? {} : toQuery({ ...slice, from, to })), m });
  };
  const isMap = earth !== undefined && mapName(query) !== "grid";
  const hasLines =
    slice.y >= 0 || (samples && isMap && shape.some((length, d) => length > 1 && d !== slice.x));
  const hasPoints = hasLines && !bands && !difference && query["show"] !== "table" && !isBrief && !isSummary;
  const shownDimensions = [slice.x, slice.y].filter((d) => d >= 0);
  const isTime = (d: number): boolean => coordinates.get(d)?.clock !== undefined;
  const along = lineDimension(full.shape, slice, isTime, query["along"]);
  const ends = shownDimensions.filter((d) => d !== along); // a point has its line by its place along these
  const points = hasPoints ? distinct(parsePoints(query["p"], full.shape), ends) : [];
  const add = (point: Point): void => addPoint(points, point, ends);
  /** The cell of a point; -1 outside of this part. */
  const cellOf = (point: Point): number => {
    const [column = 0, row = 0] = shownDimensions.map((d) =>
      Math.round((Math.floor(nth(point, d) / nth(ratio, d)) - nth(part.start, d)) / nth(part.step, d)),
    );
    return column >= 0 && column < width && row >= 0 && row < height ? row * width + column : -1;
  };
  const pointOf = (at: number): Point =>
    finest(
      slice.index.map((fixed, d) => {
        if (d === slice.x) return indexOf(d, at % width);
        return d === slice.y ? indexOf(d, Math.floor(at / width)) : fixed;
      }),
    );
  /** The element of the array in the middle of those that an element of the level stands for. */
  const finest = (place: Shape): Point =>
    place.map((at, d) =>
      Math.min(at * nth(ratio, d) + Math.floor(nth(ratio, d) / 2), nth(full.shape, d) - 1),
    );
  const marks: Mark[] = points.flatMap((point, which) => {
    const cell = cellOf(point);
    return cell < 0 ? [] : [{ cell, colour: pointColour(which), text: String(which + 1) }];
  });
  const onShare = (next: number, isAtRest: boolean): void => {
    setShare(next);
    if (isAtRest) setQuery({ cut: String(Math.round(100 * next)) });
  };
  const choose = (at: number): void => void (hasPoints && add(pointOf(at)));
  const isPair = beside !== undefined && query["form"] === "pair";
  const hasPlaces = earth !== undefined && !isDegrees && !samples;
  const typed = (text: string): Point | string => {
    const parts = slice.y < 0 ? [text] : text.split(/\s*[,;]\s*(.*)/s);
    const [one, other] = parts;
    if (hasPlaces && !text.includes("#")) {
      const cell = earth.find(Number(one), Number(other));
      if (cell >= 0) return pointOf(cell);
      return `No cell of this part of the grid is at longitude ${one}, latitude ${other}.`;
    }
    const index = [...slice.index];
    for (const [which, d] of shownDimensions.entries()) {
      const [name, { label, length }] = [dimensionName(node, d), which ? y : x];
      const isNamed = samples?.name(0, d) !== undefined;
      const labels = { name, label, values: Array.from({ length }, (_, at) => label(at)) };
      const at = typedIndex(parts[which] ?? "", nth(shape, d), name, isNamed ? labels : coordinates.get(d));
      if (typeof at === "string") return at;
      index[d] = isNamed ? indexOf(d, at) : at;
    }
    return finest(index);
  };
  const labelOf = (point: Point, d: number): string =>
    `${dimensionName(node, d)} ${coordinates.get(d)?.label(Math.floor(nth(point, d) / nth(ratio, d))) ?? point[d]}`;
  const nameOf = (point: Point): string => {
    const cell = cellOf(point);
    return cell < 0 ? shownDimensions.map((d) => labelOf(point, d)).join(", ") : placeText(cell);
  };
  const swipe = beside && other && !isPair ? { name: other.name, values: beside, share, onShare } : undefined;
  /** The picture of a version: with a name one of two that are next to each other. */
  const drawn = (of: Float64Array, caption?: string): VNode => {
    const bar = { limits, ticks: barTicks, colours: bands ? undefined : colours };
    const named = { ...bar, title: caption ? `${name} in ${caption}` : name };
    const own = { ...named, values: of, swipe, marks, sight, onChoose: choose };
    const backdrop = !isWhole && behind?.version === version ? behind : undefined;
    const picture = isMap ? (
      <Globe
        key={`${full.path} ${mapName(query)}`}
        {...own}
        places={earth}
        projection={mapName(query)}
        view={viewOf(query["m"])}
        backdrop={of === beside ? backdrop && { ...backdrop, values: backdrop.other } : backdrop}
        {...(of === painted ? { onView: follow } : {})}
      />
    ) : (
      <Image {...own} x={x} y={y} aspect={aspect(node, slice.y, x, y)} onZoom={zoom} />
    );
    if (!caption) return picture;
    return (
      <figure key={caption} class="column">
        <figcaption class="text">{caption}</figcaption>
        {picture}
      </figure>
    );
  };
  return (
    <>
      {query["show"] === "table" || slice.x < 0 ? (
        <ValueTable text={(index) => exact?.(index) ?? scale.text(f64(values, index))} {...cells} />
      ) : slice.y < 0 && !isMap ? (
        <Lines
          x={x}
          series={series}
          title={name}
          scale={scale}
          onPlace={(index) => void (sight.cell.value = index ?? -1)}
        />
      ) : isPair ? (
        <div class="pair">{[drawn(painted, "this version"), drawn(beside, other?.name)]}</div>
      ) : (
        drawn(painted)
      )}
      <Readout text={readout} />
      {!isBrief && !isSummary && !bands && (
        <Numbers
          values={values}
          scale={scale}
          difference={difference}
          placeOf={placeText}
          onChoose={hasPoints ? choose : undefined}
        />
      )}
      {hasPoints && (
        <Points
          {...{ reader, snapshot, slice, points, along, add, nameOf, typed }}
          node={full}
          coordinates={new Map([...coordinates].filter(([d]) => ratio[d] === 1))}
          hasMean={scale.hasMean}
          hint={
            hasPlaces ? "longitude, latitude" : shownDimensions.map((d) => dimensionName(node, d)).join(", ")
          }
        />
      )}
    </>
  );
}

/** The columns and the rows in which cells are at some places: the first ones, and those after the last ones. */
function cellsAt({ find, width }: Geolocation, places: readonly Place[]): [number, number][] | undefined {
  const cells = places.map((place) => find(...place)).filter((cell) => cell >= 0);
  if (!cells.length) return undefined;
  return [cells.map((cell) => cell % width), cells.map((cell) => Math.floor(cell / width))].map((list) => [
    Math.min(...list),
    Math.max(...list) + 1,
  ]);
}

/** `m=12.5,47,30`: the centre and the degrees of a map. */
function viewOf(text: string | undefined): View | undefined {
  const [east = NaN, north = NaN, span = NaN] = (text || "x").split(",").map(Number);
  return Number.isFinite(east + north) && span > 0
    ? { centre: [east, clamp(north, -90, 90)], span }
    : undefined;
}

/** The value under the pointer. Only this part is drawn again when the pointer moves. */
const Readout = ({ text }: { text: () => string }): VNode => (
  <output class="readout" aria-live="polite">
    {text()}
  </output>
);
