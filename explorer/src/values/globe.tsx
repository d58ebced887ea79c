/** A plane whose cells have places on Earth as a map with coastlines. */

import type { GeoPermissibleObjects, GeoProjection } from "d3-geo";
import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import { paint } from "../array/colour";
import { entryOf } from "../base/json";
import { clamp, f64, type Shape } from "../base/lists";
import type { Geolocation } from "../earth/geolocation";
import type * as Earth from "../earth/projections";
import { arrowOf, Canvas, canvasOf, css, pointerIn, theme, usePointer, useSize } from "../page/canvas";
import { Wait } from "../page/parts";
import { useLoad } from "../page/state";
import { barWidth, drawBar, drawMark } from "./drawing";
import type { PlaneProps } from "./image";

type GlobeProps = PlaneProps & { readonly places: Geolocation; readonly projection: string };

/** Projections that turn in both directions. */
const isRound = (name: string): boolean => name === "globe" || name === "local";
const SPHERE = { type: "Sphere" } as const;
const STEPS = Array.from({ length: 21 }, (_, at) => at / 20);

/** The frame of a plane as a line, and its centre; without a line if it is most of the world. */
function frame({ width, height, place }: Geolocation): {
  line?: GeoPermissibleObjects;
  centre: [number, number];
} {
  const at = (across: number, down: number): [number, number] => {
    const [east, north] = place(Math.round(across * (width - 1)), Math.round(down * (height - 1)));
    return [east, clamp(north, -89, 89)];
  };
  const isPlace = (pair: Shape): boolean => pair.every(Number.isFinite);
  const inside = STEPS.flatMap((across) => STEPS.map((down) => at(across, down))).filter(isPlace);
  let [x, y, z] = [0, 0, 0];
  for (const [east, north] of inside) {
    const [longitude, latitude] = [(east * Math.PI) / 180, (north * Math.PI) / 180];
    x += (Math.cos(latitude) * Math.cos(longitude)) / inside.length;
    y += (Math.cos(latitude) * Math.sin(longitude)) / inside.length;
    z += Math.sin(latitude) / inside.length;
  }
  // Around a pole, the picture keeps the direction of the grid
  const [down] = at(0.5, z > 0 ? 1 : 0);
  const centre: [number, number] = [
    Math.hypot(x, y) > 0.1 ? (Math.atan2(y, x) * 180) / Math.PI : down || 0,
    (Math.atan2(z, Math.hypot(x, y)) * 180) / Math.PI,
  ];
  if (Math.hypot(x, y, z) < 0.6 || width < 2 || height < 2) return { centre: [centre[0], 0] };
  const along = (place: (step: number) => [number, number]): [number, number][] => STEPS.map(place);
  const sides = [0, 1].flatMap((end) => [along((step) => at(step, end)), along((step) => at(end, step))]);
  const lines = sides.map((side) => side.filter(isPlace)).filter((side) => side.length > 1);
  if (!lines.length) return { line: { type: "MultiPoint", coordinates: inside }, centre };
  return { line: { type: "MultiLineString", coordinates: lines }, centre };
}

export function Globe(props: GlobeProps): VNode {
  const earth = useLoad(() => import("../earth/projections"), []);
  return (
    <Wait of={earth} what="the map">
      {(value) => <Sight {...props} earth={value} />}
    </Wait>
  );
}

function Sight(props: GlobeProps & { readonly earth: typeof Earth }): VNode {
  const { earth, values, places, marks, limits, colours, ticks, title, projection: name } = props;
  const { onPlace, onChoose } = props;
  const [element, size] = useSize<HTMLDivElement>();
  const [turn, setTurn] = useState<readonly [number, number] | undefined>(undefined);
  const [isTurning, setTurning] = useState(false);
  const part = useMemo(() => frame(places), [places]);
  const colourTheme = theme.value;
  const [east, north] = turn ?? [part.line ? -part.centre[0] : 0, isRound(name) ? -part.centre[1] : 0];
  const width = Math.max(10, size.width - barWidth(ticks, limits));
  const height = Math.max(10, size.height - 4);

  const projection = useMemo(() => {
    const shape = (
      entryOf<() => GeoProjection>(earth.PROJECTIONS, name) ?? earth.PROJECTIONS.natural
    )().rotate([east, north]);
    const extent: [[number, number], [number, number]] = [
      [4, 4],
      [width - 4, height - 4],
    ];
    return shape.fitExtent(extent, part.line ?? SPHERE);
  }, [name, east, north, width, height, part]);

  const cellAt = (across: number, down: number): number => {
    const place = projection.invert?.([across, down]);
    return place ? places.find(place[0], place[1]) : -1;
  };
  const image = useMemo(() => {
    const coarse = isTurning ? 3 : 1;
    const [columns, rows] = [Math.ceil(width / coarse), Math.ceil(height / coarse)];
    const screen = new Float64Array(columns * rows).fill(NaN);
    for (let down = 0, at = 0; down < rows; down++) {
      for (let across = 0; across < columns; across++, at++) {
        const cell = cellAt((across + 0.5) * coarse, (down + 0.5) * coarse);
        if (cell >= 0) screen[at] = f64(values, cell);
      }
    }
    const pixels = new Uint32Array(columns * rows);
    paint(screen, limits, colours, pixels);
    return canvasOf(pixels, columns, rows);
  }, [projection, places, values, limits[0], limits[1], colours, isTurning]);

  const overlay = useMemo(() => {
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
    const context = canvas.getContext("2d");
    if (!context) return canvas;
    context.scale(devicePixelRatio, devicePixelRatio);
    const path = earth.geoPath(projection, context);
    const stroke = (what: GeoPermissibleObjects, colour: string, thick: number): void => {
      context.beginPath();
      path(what);
      context.strokeStyle = colour;
      context.lineWidth = thick;
      context.stroke();
    };
    context.globalAlpha = 0.35;
    stroke(earth.GRATICULE, css("text"), 0.5);
    context.globalAlpha = 1;
    // Two lines, so that coasts show on dark and on light colours
    stroke(earth.COAST, css("page"), 2.5);
    stroke(earth.COAST, css("text"), 1);
    stroke(SPHERE, css("quiet"), 1);
    return canvas;
  }, [projection, colourTheme]);

  const draw = (context: CanvasRenderingContext2D): void => {
    context.save();
    context.beginPath();
    context.rect(0, 0, width, height);
    context.clip();
    context.beginPath();
    earth.geoPath(projection, context)(SPHERE);
    context.fillStyle = css("missing");
    context.fill();
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, width, height);
    context.restore();
    context.drawImage(overlay, 0, 0, width, height);
    for (const mark of marks) {
      const place = places.place(mark.column, mark.row);
      // A path leaves out what is behind the Earth
      context.beginPath();
      if (place.every(Number.isFinite))
        earth.geoPath(projection, context).pointRadius(1)({ type: "Point", coordinates: [...place] });
      const spot = projection([...place]);
      if (spot && context.isPointInPath(spot[0] * devicePixelRatio, spot[1] * devicePixelRatio))
        drawMark(context, mark, spot[0], spot[1]);
    }
    drawBar(context, props, width + 16, 8, height - 16);
  };
  const turnTo = (longitude: number, latitude: number): void =>
    setTurn([longitude, isRound(name) ? clamp(latitude, -90, 90) : north]);
  const cellUnder = (event: PointerEvent): number => {
    const { x: across, y: down } = pointerIn(element, event);
    // Beyond the edge of the Earth, a projection gives the place of another point
    const back = projection(projection.invert?.([across, down]) ?? [NaN, NaN]);
    return back && Math.hypot(back[0] - across, back[1] - down) < 1 ? cellAt(across, down) : -1;
  };
  const use = (event: PointerEvent, action: PlaneProps["onPlace"]): void => {
    const cell = cellUnder(event);
    if (cell >= 0) action(cell % places.width, Math.floor(cell / places.width));
  };
  const pointer = usePointer({
    start: () => [east, north] as const,
    drag: (from, right, down) => {
      const degrees = isRound(name) ? 90 / projection.scale() : 180 / Math.PI / projection.scale();
      setTurning(true);
      turnTo(from[0] + right * degrees, from[1] - down * degrees);
    },
    end: () => setTurning(false),
    click: (event) => use(event, onChoose),
    hover: (event) => use(event, onPlace),
  });
  const key = (event: KeyboardEvent): void => {
    const arrow = arrowOf(event);
    if (!arrow) return;
    event.preventDefault();
    turnTo(east - 15 * arrow[0], north + 15 * arrow[1]);
  };
  return (
    <div
      ref={element}
      class="image"
      role="application"
      aria-label={`Map of ${title}. Arrow keys turn it; a click adds a point.`}
      tabIndex={0}
      onKeyDown={key}
      {...pointer}
    >
      <Canvas {...size} draw={draw} aria-hidden="true" />
    </div>
  );
}
