/** A plane over longitude and latitude as a map with coastlines. Loaded when somebody chooses a projection. */

import { geoEqualEarth, geoEquirectangular, geoGraticule10, geoNaturalEarth1, geoOrthographic, geoPath, type GeoPermissibleObjects, type GeoProjection } from "d3-geo";
import type { VNode } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import land from "world-atlas/land-110m.json";
import { paint, table, type Limits } from "./colour";
import { drawBar, MARGIN, type Axis } from "./image";
import { Canvas, css, theme, useSize } from "./parts";
import { cellFinder } from "./slices";

export interface GlobeProps {
  readonly values: Float64Array;
  readonly x: Axis;
  readonly y: Axis;
  readonly limits: Limits;
  readonly map: string;
  readonly title: string;
  readonly projection: string;
  onPlace(column: number, row: number): void;
}

const PROJECTIONS: Record<string, () => GeoProjection> = { natural: geoNaturalEarth1, equal: geoEqualEarth, plate: geoEquirectangular, globe: geoOrthographic };
const GRATICULE = geoGraticule10();
const SPHERE = { type: "Sphere" } as const;

/** Coastlines by Natural Earth: each arc holds steps in units of a grid. */
function coastlines(): GeoPermissibleObjects {
  const { scale, translate } = land.transform as { scale: [number, number]; translate: [number, number] };
  const coordinates = (land.arcs as number[][][]).map((arc) => {
    let [east, north] = [0, 0];
    return arc.map(([right, up]) => {
      east += right!;
      north += up!;
      return [east * scale[0] + translate[0], north * scale[1] + translate[1]];
    });
  });
  return { type: "MultiLineString", coordinates };
}

const COAST = coastlines();

/** Frame of a part of the world as a line; undefined for most of the world. */
function frame(x: Float64Array, y: Float64Array): { line: GeoPermissibleObjects; centre: [number, number] } | undefined {
  const [west, east] = [Math.min(...x), Math.max(...x)];
  const [south, north] = [Math.min(...y), Math.max(...y)].map((value) => Math.min(Math.max(value, -89), 89)) as [number, number];
  if (east - west > 180 || x.length < 2 || y.length < 2) return undefined;
  const steps = Array.from({ length: 21 }, (_, at) => at / 20);
  const across = (latitude: number): number[][] => steps.map((at) => [west + at * (east - west), latitude]);
  const up = (longitude: number): number[][] => steps.map((at) => [longitude, south + at * (north - south)]);
  return { line: { type: "MultiLineString", coordinates: [across(south), across(north), up(west), up(east)] }, centre: [(west + east) / 2, (south + north) / 2] };
}

export function Globe({ values, x, y, limits, map, title, projection: name, onPlace }: GlobeProps): VNode {
  const [element, size] = useSize<HTMLDivElement>();
  const [turn, setTurn] = useState<readonly [number, number] | undefined>(undefined);
  const drag = useRef<{ x: number; y: number; turn: readonly [number, number] } | undefined>(undefined);
  const [dragged, setDragged] = useState(false);
  const part = useMemo(() => frame(x.values!, y.values!), [x, y]);
  const [column, row] = useMemo(() => [cellFinder(x.values!, 360), cellFinder(y.values!)] as const, [x, y]);
  const colours = useMemo(() => table(map), [map]);
  const colourTheme = theme.value;
  const [east, north] = turn ?? [part ? -part.centre[0] : 0, part && name === "globe" ? -part.centre[1] : 0];
  const width = Math.max(10, size.width - MARGIN.right);
  const height = Math.max(10, size.height - 4);

  const projection = useMemo(() => {
    const made = (PROJECTIONS[name] ?? geoNaturalEarth1)().rotate([east, north]);
    return made.fitExtent([[4, 4], [width - 4, height - 4]], part?.line ?? SPHERE);
  }, [name, east, north, width, height, part]);

  const image = useMemo(() => {
    const coarse = dragged ? 3 : 1;
    const [columns, rows] = [Math.ceil(width / coarse), Math.ceil(height / coarse)];
    const found = new Float64Array(columns * rows).fill(NaN);
    for (let down = 0, at = 0; down < rows; down++) {
      for (let across = 0; across < columns; across++, at++) {
        const place = projection.invert?.([(across + 0.5) * coarse, (down + 0.5) * coarse]);
        if (!place) continue;
        const [right, up] = [column(place[0]), row(place[1])];
        if (right >= 0 && up >= 0) found[at] = values[up * x.length + right]!;
      }
    }
    const pixels = new Uint32Array(columns * rows);
    paint(found, limits, colours, pixels);
    const canvas = document.createElement("canvas");
    canvas.width = columns;
    canvas.height = rows;
    canvas.getContext("2d")?.putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), columns, rows), 0, 0);
    return canvas;
  }, [projection, values, limits[0], limits[1], colours, dragged]);

  const overlay = useMemo(() => {
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
    const context = canvas.getContext("2d")!;
    context.scale(devicePixelRatio, devicePixelRatio);
    const path = geoPath(projection, context);
    const stroke = (what: GeoPermissibleObjects, colour: string, thick: number): void => {
      context.beginPath();
      path(what);
      context.strokeStyle = colour;
      context.lineWidth = thick;
      context.stroke();
    };
    context.globalAlpha = 0.35;
    stroke(GRATICULE, css("text"), 0.5);
    context.globalAlpha = 1;
    // Two lines, so that coasts show on dark and on light colours
    stroke(COAST, css("page"), 2.5);
    stroke(COAST, css("text"), 1);
    stroke(SPHERE, css("quiet"), 1);
    return canvas;
  }, [projection, colourTheme]);

  const draw = (context: CanvasRenderingContext2D): void => {
    context.save();
    context.beginPath();
    context.rect(0, 0, width, height);
    context.clip();
    context.beginPath();
    geoPath(projection, context)(SPHERE);
    context.fillStyle = css("missing");
    context.fill();
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, width, height);
    context.restore();
    context.drawImage(overlay, 0, 0, width, height);
    drawBar(context, colours, limits, title, width + 16, 8, height - 16);
  };
  const rotate = (right: number, up: number): void => setTurn([east + right, name === "globe" ? Math.min(Math.max(north + up, -90), 90) : north]);
  return (
    <div
      ref={element}
      class="image"
      role="application"
      aria-label={`Map of ${title}. Arrow keys turn it.`}
      tabIndex={0}
      onKeyDown={(event) => {
        const step = { ArrowRight: [-15, 0], ArrowLeft: [15, 0], ArrowUp: [0, -15], ArrowDown: [0, 15] }[event.key];
        if (!step) return;
        event.preventDefault();
        rotate(step[0]!, step[1]!);
      }}
      onPointerDown={(event) => {
        drag.current = { x: event.clientX, y: event.clientY, turn: [east, north] };
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        const from = drag.current;
        if (from) {
          const degrees = name === "globe" ? 90 / projection.scale() : 180 / Math.PI / projection.scale();
          setDragged(true);
          setTurn([from.turn[0] + (event.clientX - from.x) * degrees, name === "globe" ? Math.min(Math.max(from.turn[1] - (event.clientY - from.y) * degrees, -90), 90) : north]);
          return;
        }
        const box = element.current!.getBoundingClientRect();
        const place = projection.invert?.([event.clientX - box.left, event.clientY - box.top]);
        const [right, up] = place ? [column(place[0]), row(place[1])] : [-1, -1];
        if (right >= 0 && up >= 0) onPlace(right, up);
      }}
      onPointerUp={() => {
        drag.current = undefined;
        setDragged(false);
      }}
    >
      <Canvas width={size.width} height={size.height} draw={draw} aria-hidden="true" />
    </div>
  );
}
