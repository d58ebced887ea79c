/** Projections, coastlines, and the lines of maps. Loaded with the first map. */

import {
  geoAzimuthalEqualArea,
  geoEqualEarth,
  geoEquirectangular,
  geoGraticule,
  geoNaturalEarth1,
  geoOrthographic,
  geoPath,
  type GeoPermissibleObjects,
  type GeoProjection,
} from "d3-geo";
import { clamp, entryOf, nth, RADIANS, type Shape } from "../base/lists";
import type { Place } from "./crs";
import type { Geolocation } from "./geolocation";
import { FONT, number } from "../page/text";
import land from "world-atlas/land-110m.json";

export { geoPath };
export const PROJECTIONS = {
  natural: geoNaturalEarth1,
  equal: geoEqualEarth,
  plate: geoEquirectangular,
  globe: geoOrthographic,
  local: geoAzimuthalEqualArea,
} satisfies Record<string, () => GeoProjection>;
const METRES = 6_371_009; // the mean radius of the Earth

/** Lines of longitude and latitude around a place, with a step of degrees. */
function graticule(step: number, { centre: [east, north], span }: View): GeoPermissibleObjects {
  const pole = Math.min(85, Math.abs(north) + span / 2);
  const far = span > 100 ? 180 : Math.min(180, span / Math.cos(pole * RADIANS));
  const snap = (value: number): number => Math.round(value / step) * step;
  const first: [number, number] = [snap(east - far), span > 100 ? -90 : snap(Math.max(-90, north - span))];
  const end = [first[0] + Math.min(360, snap(2 * far)), span > 100 ? 90 : snap(Math.min(90, north + span))];
  const after = end.map((each) => each + step / 1e3) as [number, number];
  return geoGraticule()
    .step([step, step])
    .precision(Math.min(2.5, step / 4))
    .extent([first, after])();
}

/** Coastlines by Natural Earth: each arc holds steps in units of a grid. */
function coastlines(): GeoPermissibleObjects {
  const [[width = 1, height = 1], [left = 0, bottom = 0]] = [land.transform.scale, land.transform.translate];
  const coordinates = land.arcs.map((arc) => {
    let [east, north] = [0, 0];
    return arc.map(([right = 0, up = 0]) => {
      east += right;
      north += up;
      return [east * width + left, north * height + bottom];
    });
  });
  return { type: "MultiLineString", coordinates };
}

const COAST = coastlines();

const WIDE = 130; // degrees
const ROOM = 0.25; // degrees
const COASTS = 0.4; // degrees: a narrower view has none, because they are not exact

/** What a map shows: its centre, and the degrees of a great circle across it. */
export type View = { readonly centre: Place; readonly span: number };

/** Projections that turn in both directions. */
const isRound = (name: string): boolean => name === "globe" || name === "local";
export const SPHERE = { type: "Sphere" } as const;
export const STEPS = Array.from({ length: 21 }, (_, at) => at / 20);

/** The places of all cells. */
export const placesOf = ({ width, height, place }: Geolocation): Place[] =>
  Array.from({ length: width * height }, (_, at) => place(at % width, Math.floor(at / width)));

/** Places of a plane that a map frames, and its centre; without places if it is most of the world. */
export function frame(geolocation: Geolocation): {
  line?: GeoPermissibleObjects;
  centre: [number, number];
  isDisc: boolean;
} {
  const { name, width, height, place, samples } = geolocation;
  const at = (across: number, down: number): Place =>
    place(Math.round(across * (width - 1)), Math.round(down * (height - 1)));
  const isPlace = (pair: Shape): boolean => pair.every(Number.isFinite);
  const all = samples
    ? placesOf(geolocation)
    : STEPS.flatMap((across) => STEPS.map((down) => at(across, down)));
  const inside = all.filter(isPlace).map(([east, north]): Place => [east, clamp(north, -89, 89)]);
  let [x, y, z] = [0, 0, 0];
  for (const [east, north] of inside) {
    const [longitude, latitude] = [east * RADIANS, north * RADIANS];
    x += (Math.cos(latitude) * Math.cos(longitude)) / inside.length;
    y += (Math.cos(latitude) * Math.sin(longitude)) / inside.length;
    z += Math.sin(latitude) / inside.length;
  }
  // Around a pole, the picture keeps the direction of the grid
  const [down] = at(0.5, z > 0 ? 1 : 0);
  const centre: [number, number] = [
    Math.hypot(x, y) > 0.1 ? Math.atan2(y, x) / RADIANS : down || 0,
    Math.atan2(z, Math.hypot(x, y)) / RADIANS,
  ];
  // The corners of a picture of the whole Earth are in space
  const isDisc =
    name === "geostationary" && [0, 1].every((end) => !isPlace(at(end, end)) && !isPlace(at(end, 1 - end)));
  if (isDisc) return { centre, isDisc };
  const isLine = !samples && (width < 2 || height < 2);
  if (Math.hypot(x, y, z) < 0.6 || isLine) return { centre: [centre[0], 0], isDisc };
  const room = samples ? [-ROOM, ROOM] : [0]; // around a single station
  const coordinates = inside.flatMap(([east, north]) => room.map((more) => [east + more, north + more]));
  return { line: { type: "MultiPoint", coordinates }, centre, isDisc };
}

type Size = { readonly width: number; readonly height: number };

const shape = (name: string): GeoProjection =>
  (entryOf<() => GeoProjection>(PROJECTIONS, name) ?? geoNaturalEarth1)();
/** A projection that is turned to a place. */
const turned = (name: string, [east, north]: Place): GeoProjection =>
  shape(name).rotate([-east, isRound(name) ? -north : 0]);

/** A projection with a place in the middle of the screen. */
export function aim(name: string, { centre, span }: View, size: Size): GeoProjection {
  const { width, height } = size;
  const aimed = turned(name, centre)
    .scale(width / (span * RADIANS))
    .translate([width / 2, height / 2]);
  const [x, y] = aimed([...centre]) ?? [width / 2, height / 2];
  const corner: [number, number] = [-9, -9];
  return aimed.translate([width - x, height - y]).clipExtent([corner, [width + 9, height + 9]]);
}

/** The view of all of a part of the Earth. */
export function fitting(name: string, part: ReturnType<typeof frame>, size: Size): View {
  const { width, height } = size;
  const fitted = turned(name, part.centre).fitSize([width, height], part.line ?? SPHERE);
  const span = (1.03 * width) / fitted.scale() / RADIANS;
  return { centre: fitted.invert?.([width / 2, height / 2]) ?? part.centre, span };
}

/** Places on the screen; NaN for those behind the Earth or outside. */
export function spotsOf(projection: GeoProjection, places: readonly Place[]): Place[] {
  let spot: Place = [NaN, NaN];
  const nothing = (): void => undefined;
  const ends = { lineStart: nothing, lineEnd: nothing, polygonStart: nothing, polygonEnd: nothing };
  const stream = projection.stream({ ...ends, point: (x, y) => void (spot = [x, y]) });
  return places.map(([east, north]) => {
    spot = [NaN, NaN];
    if (Number.isFinite(east + north)) stream.point(east, north);
    return spot;
  });
}

const BLOCK = 8; // pixels
const between = (one: number, other: number, share: number): number => one + (other - one) * share;
const mix = ([a, b]: Place, [c, d]: Place, at: number): Place => [between(a, c, at), between(b, d, at)];

/**
 * Calls `use` with the place of each pixel. Within a block of pixels, places lie between those of its
 * corners, if the place in its middle does so up to a quarter of a pixel.
 */
export function eachPlace(
  projection: GeoProjection,
  { width, height }: Size,
  ratio: number,
  use: (pixel: number, east: number, north: number) => void,
): void {
  const near = 1 / (4 * ratio * projection.scale() * RADIANS);
  const at = (x: number, y: number): Place => projection.invert?.([x / ratio, y / ratio]) ?? [NaN, NaN];
  for (let top = 0; top < height; top += BLOCK) {
    let [one, two] = [at(0.5, top + 0.5), at(0.5, top + BLOCK + 0.5)];
    for (let left = 0; left < width; left += BLOCK) {
      const [three, four] = [at(left + BLOCK + 0.5, top + 0.5), at(left + BLOCK + 0.5, top + BLOCK + 0.5)];
      const middle = at(left + BLOCK / 2 + 0.5, top + BLOCK / 2 + 0.5);
      const mean = [0, 1].map((axis) => {
        const corners = [one, two, three, four].map((place) => nth(place, axis));
        const isClose = Math.max(...corners) - Math.min(...corners) < 90;
        return isClose ? corners.reduce((sum, each) => sum + each / 4, 0) : NaN;
      });
      const isBetween = mean.every((each, axis) => Math.abs(each - nth(middle, axis)) < near);
      const [right, bottom] = [Math.min(left + BLOCK, width), Math.min(top + BLOCK, height)];
      for (let y = top; y < bottom; y++) {
        const down = (y - top) / BLOCK;
        const [west, east] = [mix(one, two, down), mix(three, four, down)];
        for (let x = left; x < right; x++) {
          const across = (x - left) / BLOCK;
          use(y * width + x, ...(isBetween ? mix(west, east, across) : at(x + 0.5, y + 0.5)));
        }
      }
      [one, two] = [three, four];
    }
  }
}

/** A round number that is not above another one. */
function roundBelow(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([5, 2, 1].find((factor) => factor * power <= value) ?? 1);
}

/** A longitude (axis 0) or a latitude as text. */
function degrees(value: number, axis: 0 | 1): string {
  const turned = axis ? value : value - 360 * Math.round(value / 360);
  const sign = turned === 0 ? "" : (axis ? "NS" : "EW").charAt(turned < 0 ? 1 : 0);
  return `${number(Number(Math.abs(turned).toFixed(6)))}°${sign}`;
}

/** Coasts, lines of longitude and latitude with their texts, lines of trajectories, and a scale bar. */
export function drawLines(
  context: CanvasRenderingContext2D,
  projection: GeoProjection,
  { centre, span }: View,
  { width, height }: Size,
  css: (name: string) => string,
  lines: readonly Place[][] = [],
): void {
  const path = geoPath(projection, context);
  const stroke = (what: GeoPermissibleObjects, colour: string, thick: number): void => {
    context.beginPath();
    path(what);
    context.strokeStyle = colour;
    context.lineWidth = thick;
    context.stroke();
  };
  const step = Math.min(30, roundBelow(span / 4));
  context.globalAlpha = 0.35;
  stroke(graticule(step, { centre, span }), css("text"), 0.5);
  context.globalAlpha = 1;
  if (span > COASTS) {
    // Two lines, so that coasts show on dark and on light colours
    stroke(COAST, css("page"), 2.5);
    stroke(COAST, css("text"), 1);
  }
  stroke(SPHERE, css("quiet"), 1);
  const coordinates = lines.map((line) => line.map((place) => [...place]));
  stroke({ type: "MultiLineString", coordinates }, css("accent"), 1.5);
  if (span > WIDE) return;
  context.font = FONT;
  context.lineWidth = 3;
  context.strokeStyle = css("page");
  context.fillStyle = css("text");
  const write = (text: string, x: number, y: number): void => {
    context.strokeText(text, x, y);
    context.fillText(text, x, y);
  };
  // A line has its text where it leaves the screen
  for (const axis of [0, 1] as const) {
    for (let along = 30, last = NaN, free = 0; along < (axis ? height - 50 : width - 80); along++) {
      const place = projection.invert?.(axis ? [2, along] : [along, 2])?.[axis] ?? NaN;
      const line = Math.round((last + place) / 2 / step) * step;
      const isCrossed = along > free && (last - line) * (place - line) <= 0 && Math.abs(last - place) < step;
      if (isCrossed) write(degrees(line, axis), axis ? 5 : along + 3, axis ? along - 3 : 14);
      if (isCrossed) free = along + 56;
      last = place;
    }
  }
  const metres = (100 * METRES) / projection.scale();
  const bar = roundBelow(metres);
  const [left, bottom, long] = [12, height - 12, (bar / metres) * 100];
  context.fillStyle = css("page");
  context.fillRect(left - 5, bottom - 22, long + 10, 28);
  context.fillStyle = css("text");
  context.fillRect(left, bottom - 2, long, 2);
  context.fillText(bar < 1000 ? `${number(bar)} m` : `${number(bar / 1000)} km`, left, bottom - 7);
}
