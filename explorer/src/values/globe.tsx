/** A plane whose cells have places on Earth as a map with coastlines. */

import type { GeoProjection } from "d3-geo";
import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo } from "preact/hooks";
import { paint } from "../array/colour";
import { clamp, entryOf } from "../base/lists";
import type { Place } from "../earth/crs";
import type { Geolocation } from "../earth/geolocation";
import type { View } from "../earth/projections";
import { arrowOf, Canvas, canvasOf, css, Frame, usePointer, useSize, useWheel } from "../page/canvas";
import { stored } from "../page/home";
import { type Titles, Wait, ZoomButtons } from "../page/parts";
import { setQuery, useLoad } from "../page/state";
import { Divider, drawBar, drawDots, drawMark, drawSides, narrowBar, near, type PlaneProps } from "./drawing";
import type * as Earth from "../earth/projections";

interface GlobeProps extends PlaneProps {
  readonly places: Geolocation;
  /** A name of `PROJECTIONS`, or one that fits. */
  readonly projection: string;
  /** Undefined for all of the plane. */
  readonly view: View | undefined;
  /** A coarser picture around the plane, also of the version on the right of the divider. */
  readonly backdrop:
    (Record<"values" | "other", Float64Array | undefined> & { readonly places: Geolocation }) | undefined;
  /** The view has come to rest. Of maps next to each other, only one says so. */
  onView?(view: View | undefined, shown: readonly Place[]): void;
}

export const PROJECTIONS: Titles = [
  ["", "automatic"],
  ["grid", "grid"],
  ["local", "around its centre"],
  ["natural", "natural Earth"],
  ["equal", "equal areas"],
  ["plate", "degrees"],
  ["globe", "globe"],
];

const REACH = 12; // pixels between the pointer and a station
const REST = 200; // milliseconds after which a view is at rest
const [WIDE, NARROWEST, WIDEST] = [130, 1e-3, 720]; // degrees
const MAP = "frazil-map";

/** The map that the address names, or else the one that a person chose last. */
export const mapName = ({ proj }: Readonly<Record<string, string>>): string =>
  proj ?? stored("localStorage", MAP) ?? "";

export function chooseMap(proj: string): void {
  stored("localStorage", MAP, proj);
  setQuery({ proj, m: "" });
}

export function Globe(props: GlobeProps): VNode {
  const earth = useLoad(() => import("../earth/projections"), []);
  return (
    <Wait of={earth} what="the map">
      {(value) => <World {...props} earth={value} />}
    </Wait>
  );
}

/** A frame around the cell whose value is shown: the map is not drawn again. */
function CellFrame({ sight, spotOf }: Pick<PlaneProps, "sight"> & { spotOf(at: number): Place }) {
  const [x, y] = spotOf(sight.cell.value); // NaN for the cell of another level
  return Number.isFinite(x + y) && <Frame kind="chosen" x={x - 4} y={y - 4} width={8} height={8} />;
}

function World(props: GlobeProps & { readonly earth: typeof Earth }): VNode {
  const { earth, values, places, marks, limits, colours, title, backdrop, swipe, onChoose, onView } = props;
  const { cell, moved, spot } = props.sight;
  const [element, size] = useSize<HTMLDivElement>();
  const part = useMemo(() => earth.frame(places), [places]);
  const bar = narrowBar(props, size.width);
  const [width, height] = [Math.max(10, size.width - bar), Math.max(10, size.height - 4)];
  const stated = moved.value === "all" ? undefined : (moved.value ?? props.view);
  const isWide = stated ? stated.span > WIDE : !part.line;
  const fitting = part.isDisc ? "globe" : isWide ? "natural" : "local";
  const name = entryOf(earth.PROJECTIONS, props.projection) ? props.projection : fitting;
  const whole = { left: 0, top: 0, width, height };
  const fit = useMemo(() => earth.fitting(name, part, whole), [name, part, width, height]);
  const view = stated ?? fit;
  const keys = [name, ...view.centre, view.span, width, height];
  const projection = useMemo(() => earth.aim(name, view, whole), keys);

  useEffect(() => {
    if (moved.value === undefined || !onView) return;
    const timer = setTimeout(() => {
      const shown = earth.STEPS.flatMap((across) =>
        earth.STEPS.map((down): Place => projection.invert?.([across * width, down * height]) ?? [NaN, NaN]),
      );
      onView(stated, shown);
      moved.value = undefined; // the address has it
    }, REST);
    return () => clearTimeout(timer);
  }, [moved.value]);
  const show = ({ centre: [east, north], span }: View): void => {
    if (Number.isFinite(east + north)) moved.value = { centre: [east, clamp(north, -90, 90)], span };
  };
  /** Moves what is at one place of the screen to another one. */
  const shift = (of: GeoProjection, span: number, right: number, down: number): void =>
    show({ centre: of.invert?.([width / 2 - right, height / 2 - down]) ?? view.centre, span });
  const zoom = (factor: number, x = width / 2, y = height / 2): void => {
    const span = clamp(view.span / factor, NARROWEST, WIDEST);
    const fixed = projection.invert?.([x, y]);
    const next = earth.aim(name, { centre: view.centre, span }, whole);
    const end = fixed && next(fixed);
    if (end?.every(Number.isFinite)) shift(next, span, x - end[0], y - end[1]);
    else show({ centre: view.centre, span });
  };
  useWheel(element, zoom);

  const ratio = typeof moved.value === "object" ? 1 / 3 : Math.min(devicePixelRatio || 1, 2);
  const [columns, rows] = [Math.ceil(width * ratio), Math.ceil(height * ratio)];
  const spots = useMemo(
    () => places.samples && earth.spotsOf(projection, earth.placesOf(places)),
    [projection, places],
  );
  // The cell at each pixel: of the plane; from -2 downwards of the picture around it
  const cells = useMemo(() => {
    const found = new Int32Array(columns * rows);
    if (places.samples) return found.fill(-1);
    earth.eachPlace(projection, { width: columns, height: rows }, ratio, (pixel, longitude, latitude) => {
      const cell = places.find(longitude, latitude);
      found[pixel] = cell < 0 && backdrop ? -2 - backdrop.places.find(longitude, latitude) : cell;
    });
    return found;
  }, [projection, places, backdrop?.places, ratio]);
  const chosen = spots ? cell.value : -1;
  const imageOf = (of: Float64Array, behind: Float64Array | undefined): HTMLCanvasElement => {
    const valueOf = (cell: number): number => (cell >= 0 ? of[cell] : behind?.[-2 - cell]) ?? NaN;
    return canvasOf(paint(Float64Array.from(cells, valueOf), limits, colours), columns, rows);
  };
  const own = [cells, backdrop?.values, limits[0], limits[1], colours];
  const image = useMemo(() => imageOf(values, backdrop?.values), [values, ...own]);
  const other = useMemo(() => swipe && imageOf(swipe.values, backdrop?.other), [swipe?.values, ...own]);

  const spotOf = (at: number): Place => {
    const of = at in values ? [places.place(at % places.width, Math.floor(at / places.width))] : [];
    return earth.spotsOf(projection, of)[0] ?? [NaN, NaN];
  };
  const draw = (context: CanvasRenderingContext2D): void => {
    context.save();
    context.beginPath();
    context.rect(0, 0, width, height);
    context.clip();
    context.save();
    context.beginPath();
    earth.geoPath(projection, context)(earth.SPHERE);
    context.fillStyle = css("missing");
    context.fill();
    context.clip();
    context.imageSmoothingEnabled = false;
    drawSides(context, [image, other], swipe?.share ?? 1, whole, (side) =>
      context.drawImage(side, 0, 0, width, height),
    );
    context.restore();
    earth.drawLines(context, projection, view, { width, height }, css, places.samples?.lines);
    if (spots)
      drawSides(context, [values, swipe?.values], swipe?.share ?? 1, whole, (of) =>
        drawDots(context, spots, paint(of, limits, colours), chosen),
      );
    context.restore();
    for (const mark of marks) drawMark(context, mark, ...spotOf(mark.cell));
    drawBar(context, props, { left: width + 16, top: 8, width: bar, height: height - 16 });
  };
  /** The cell at a place on the screen; -1 if there is none. */
  const cellAt = ([x, y]: Place, reach: number): number => {
    if (spots) return near(spots, [x, y], reach);
    const place = projection.invert?.([x, y]) ?? [NaN, NaN];
    // Beyond the edge of the Earth, a projection gives the place of another point
    const back = projection(place);
    return back && Math.hypot(back[0] - x, back[1] - y) < 1 ? places.find(...place) : -1;
  };
  // Another map has another cell there
  useLayoutEffect(() => void (spot.current && (cell.value = cellAt(...spot.current))), [projection, places]);
  const choose = (at: Place, reach: number): void => {
    const found = cellAt(at, reach);
    if (found >= 0) onChoose(found);
  };
  const pointer = usePointer({
    start: () => projection,
    drag: (from, right, down, at) => {
      spot.current = [at, REACH];
      shift(from, view.span, right, down);
    },
    pinch: (factor, at) => zoom(factor, ...at),
    click: (at) => choose(at, REACH),
    hover: (at) => {
      spot.current = [at, REACH];
      const found = cellAt(...spot.current);
      if (found >= 0) cell.value = found;
    },
  });
  const all = (): void => void (moved.value = "all");
  const key = (event: KeyboardEvent): void => {
    const arrow = arrowOf(event);
    const middle: Place = [width / 2, height / 2];
    if (arrow) shift(projection, view.span, (-arrow[0] * width) / 8, (-arrow[1] * height) / 8);
    else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "0") all();
    else if (event.key === "Enter") choose(middle, Infinity);
    else return;
    event.preventDefault();
    spot.current = [middle, Infinity];
    if (event.key === "Enter") cell.value = cellAt(...spot.current);
  };
  const edge = { right: `${bar + 10}px` };
  const keysText = "Arrow keys move it, plus and minus zoom, zero shows all";
  return (
    <div
      ref={element}
      class="image globe"
      role="application"
      aria-label={`Map of ${title}. ${keysText}; Enter adds a point in the middle, a click where it is.`}
      tabIndex={0}
      onKeyDown={key}
      {...pointer}
    >
      <Canvas {...size} draw={draw} aria-hidden="true" />
      {!spots && <CellFrame sight={props.sight} spotOf={spotOf} />}
      {swipe && <Divider {...swipe} {...whole} />}
      <span class="zoom" style={edge} onPointerDown={(event) => event.stopPropagation()}>
        <ZoomButtons zoom={zoom} all={all} />
      </span>
    </div>
  );
}
