/** View of the values of an array, or of the difference between two versions of it. */

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { aspect, axisOf, earthReference, goesNorth, useCoordinates, type Coordinate, type EarthReference } from "./axes";
import { Axes, statistics } from "./chunkmap";
import { categoryTable, diverging, MAPS, robust, spread, symmetric, table, type Limits } from "./colour";
import { periodOf, type Clock } from "./format/calendar";
import { withoutLost } from "./format/cf";
import { product } from "./format/elements";
import { Cache } from "./format/files";
import type { ArrayNode, Decoded, Lost, Snapshot } from "./format/types";
import type { Geolocation, Located } from "./geolocation";
import { Globe } from "./globe";
import type { Reader } from "./home";
import { Image, type Mark } from "./image";
import { Lines, ValueTable } from "./lines";
import { coarserLevels, costOf, dimensionName, title } from "./nodes";
import { Choice, css, Failure, Losses, Sign, Wait } from "./parts";
import { aheadOf, limitsOver, MEMORY, nodeOf, NOTHING, samplePlaces, useStop, useVersions, VERSIONS } from "./play";
import { addPoint, pointColour, Points } from "./points";
import { differenceScale, full, meanOf, NUMBERS, scaleOf, type Scale, type Tick } from "./scale";
import { box, boxShape, parsePoints, parseSlice, plane, sliceQuery, typedIndex, type Box, type Point, type Slice } from "./slices";
import { Fixed, Slider } from "./sliders";
import { address, route, setQuery, useLoad, type Load } from "./state";
import { bytes, count, firstLine, ordinal, plural, when } from "./text";

const MOST = { line: 50_000, image: 1_500, sample: 200 }; // values along an axis
const ASK = 200e6; // bytes to decode before the view asks
const PAUSE = 120; // milliseconds between pictures

interface Plane {
  readonly values: Float64Array | string[];
  readonly box: Box;
  readonly slice: Slice;
  readonly scale: Scale;
  /** What cannot be read, and why. */
  readonly lost: readonly string[];
}

interface Target {
  readonly snapshot: Snapshot;
  readonly node: ArrayNode;
}

interface DataProps extends Target {
  readonly reader: Reader;
  /** The older version to subtract. */
  readonly base?: Target | undefined;
}

export function Data({ reader, base, ...top }: DataProps): VNode {
  const { query } = route.value;
  const versions = useVersions(reader.repository, top.snapshot, top.node);
  const { snapshot, node } = versions;
  const shapeOf = (of: ArrayNode): number[] => (base ? of.shape.map((length, at) => Math.min(length, base.node.shape[at]!)) : [...of.shape]);
  const shape = shapeOf(node);
  const slice = parseSlice(shape, query);
  const most = slice.y < 0 ? MOST.line : MOST.image;
  const part = box(shape, slice, most);
  const costs = [{ snapshot, node }, ...(base ? [base] : [])].map((target) => costOf(target.snapshot, target.node, part));
  const cost = costs.reduce((sum, each) => sum + each.bytes, 0);
  const [permit, setPermit] = useState("");
  const key = JSON.stringify([part, slice.x, slice.y]);
  const ask = cost > ASK && permit !== `${node.path} ${slice.x} ${slice.y}`;
  const { coordinates, waiting } = useCoordinates(reader, snapshot, node);
  const [playing, setPlaying] = useState(NOTHING);
  const isPlaying = playing !== NOTHING;
  useStop(isPlaying, () => setPlaying(NOTHING));
  const frames = useRef(new Cache<Plane>(MEMORY));

  const load = async (target: Target, { index }: Slice, longest: number, signal?: AbortSignal): Promise<Plane> => {
    const own = parseSlice(shapeOf(target.node), { ...query, i: index.join(",") });
    const region = box(shapeOf(target.node), own, longest);
    const read = async (of: Target): Promise<Decoded & { lost: readonly Lost[] }> => {
      const found = await reader.read(of.snapshot, of.node.path, region.start, region.stop, region.step, signal);
      return { ...reader.decode(of.snapshot, of.node, found), lost: found.lost ?? [] };
    };
    const [decoded, before] = await Promise.all([read(target), base && read(base)]);
    const { values, shape: size, lost } = decoded;
    const reasons = [...lost, ...(before?.lost ?? [])].map(({ message }) => message);
    const common = { box: region, slice: own, lost: reasons };
    if (!(values instanceof Float64Array)) return { ...common, values, scale: NUMBERS };
    if (!(before?.values instanceof Float64Array)) return { ...common, values: plane(values, size, own.x, own.y), scale: scaleOf(decoded) };
    const old = before.values;
    // Two places without a value are equal, unless a chunk of them is damaged
    const changes = values.map((value, at) => (Number.isNaN(value) && Number.isNaN(old[at]) ? 0 : value - old[at]));
    withoutLost(changes, { shape: size, lost: [...lost, ...before.lost] });
    return { ...common, values: plane(changes, size, own.x, own.y), scale: differenceScale(decoded) };
  };
  /** What plays, so many frames on: its version and its index. */
  const length = playing === VERSIONS ? (versions.ids?.length ?? 1) : isPlaying ? shape[playing]! : 1;
  const at = playing === VERSIONS ? versions.at : isPlaying ? slice.index[playing]! : 0;
  const targetAt = async (place: number): Promise<Target> => (playing === VERSIONS ? nodeOf(await reader.repository.snapshot(versions.ids![place]!), node) : undefined) ?? { snapshot, node };
  const sliceAt = (place: number): Slice => ({ ...slice, index: slice.index.map((old, dimension) => (dimension === playing ? place : old)) });
  const ahead = aheadOf(product(boxShape(part)));
  // What a frame depends on besides its place
  const others = JSON.stringify([playing, slice.x, slice.y, slice.from, slice.to, sliceAt(0).index]);
  const frameAt = (place: number): Promise<Plane> => frames.current.get(`${place} ${others}`, async () => load(await targetAt(place), sliceAt(place), most), ({ values }) => 8 * values.length);

  const picture = useLoad<Plane | undefined>(
    async (signal) => {
      if (ask) return undefined;
      if (!isPlaying) {
        frames.current = new Cache(MEMORY);
        return load({ snapshot, node }, slice, most, signal);
      }
      const frame = await frameAt(at);
      for (let step = 1; step <= ahead && step < length; step++) frameAt((at + step) % length).catch(() => undefined);
      return frame;
    },
    [snapshot, node.path, key, ask, base?.snapshot],
    true,
  );
  const range = useLoad<{ limits: Limits; size: number } | undefined>(
    async (signal) => {
      if (!isPlaying || ask) return undefined;
      const places = samplePlaces(length, Math.max(1, Math.floor(ASK / cost)));
      const planes = await Promise.all(places.map(async (place) => (await load(await targetAt(place), sliceAt(place), MOST.sample, signal)).values));
      return { limits: limitsOver(planes.filter((values) => values instanceof Float64Array)), size: places.length };
    },
    [playing, ask],
  );

  const move = (place: number): void => setQuery(playing === VERSIONS ? { ver: versions.ids![place]! } : sliceQuery(shape, sliceAt(place)));
  useEffect(() => {
    if (!isPlaying || picture.busy || range.busy || versions.busy || picture.error) return;
    const timer = setTimeout(() => move((at + 1) % length), PAUSE);
    return () => clearTimeout(timer);
  }, [playing, picture.busy, range.busy, versions.busy, key, versions.at]);

  const reference = useMemo(() => earthReference(snapshot, node, slice.x, slice.y), [snapshot, node.path, slice.x, slice.y]);
  const located = useLocated(reader, snapshot, node, reference, coordinates, waiting, part, slice);
  const earth = located.value;
  const places = earth && "places" in earth ? earth.places : undefined;
  // The places of the cells of a curvilinear grid say where north is
  const isPlaced = !reference?.cells || !located.busy || earth !== undefined;
  const axes = useMemo(() => [slice.x, slice.y].map((dimension) => axisOf(node, coordinates, part, dimension)), [node, coordinates, key]);
  const isZoomed = slice.from.some((from, dimension) => from > 0 || slice.to[dimension]! < shape[dimension]!);
  const steps = [slice.x, slice.y].filter((dimension) => dimension >= 0 && part.step[dimension]! > 1);
  return (
    <div class="column fill">
      <div class="bar">
        {shape.length > 1 && <Axes node={node} grid={shape} line />}
        {slice.y >= 0 && <ColourSettings clock={picture.value?.scale.clock} />}
        {places && <Choice label="Map" value={query["proj"] ?? ""} options={PROJECTIONS} onSelect={(proj) => setQuery({ proj })} />}
        {axes.some((axis) => axis.isUneven) && (
          <Choice
            label="Cells"
            value={query["cells"] ?? ""}
            options={[["", "by coordinates"], ["index", "by index"]]}
            onSelect={(cells) => setQuery({ cells })}
          />
        )}
        <Choice
          label="Show"
          value={query["show"] ?? "picture"}
          options={[
            ["picture", slice.y < 0 ? "line" : "image"],
            ["table", "table"],
          ]}
          onSelect={(value) => setQuery({ show: value === "picture" ? "" : value })}
        />
        {isZoomed && <button onClick={() => setQuery(sliceQuery(shape, { ...slice, from: shape.map(() => 0), to: [...shape] }), false)}>Whole extent</button>}
        {!base && !query["ver"] && <button onClick={() => setQuery({ ver: snapshot.id }, false)}>Versions</button>}
      </div>
      <Fixed
        node={node}
        shape={shape}
        slice={slice}
        what="index"
        coordinates={coordinates}
        waiting={waiting}
        playing={playing}
        onPlay={setPlaying}
        onIndex={(index) => setQuery(sliceQuery(shape, { ...slice, index }))}
      />
      {!base && query["ver"] && (
        <Wait of={{ ...versions.load, value: versions.ids }} what="the versions of this array">
          {(ids) => (
            <Slider
              name="version"
              along="the versions"
              label="version of the array"
              text={versionText(reader, ids[versions.at]!)}
              at={versions.at}
              length={ids.length}
              isPlaying={playing === VERSIONS}
              onPlay={() => setPlaying(playing === VERSIONS ? NOTHING : VERSIONS)}
              onPlace={(place) => setQuery({ ver: ids[place]! })}
            >
              <output class="text">{versionText(reader, ids[versions.at]!)}</output>
              <span class="quiet">
                {count(versions.at + 1)} of {count(ids.length)} that changed this array
              </span>
              <button aria-label="Only this version" onClick={() => (setPlaying(NOTHING), setQuery({ ver: "" }, false))}>
                <Sign>×</Sign>
              </button>
            </Slider>
          )}
        </Wait>
      )}
      {ask ? (
        <p class="failure">
          This view needs {plural(costs.reduce((sum, { chunks }) => sum + chunks, 0), "chunk")} ({bytes(cost)} of values).{" "}
          <button onClick={() => setPermit(`${node.path} ${slice.x} ${slice.y}`)}>Read them</button>{" "}
          {!base && <Coarser snapshot={snapshot} node={node} slice={slice} />}
        </p>
      ) : (
        <>
          <Failure of={picture} />
          {picture.value && <Losses of={picture.value.lost} />}
          {picture.value && isPlaced ? (
            <Picture
              reader={reader}
              snapshot={snapshot}
              plane={picture.value}
              shape={shape}
              node={node}
              coordinates={coordinates}
              range={range.value?.limits}
              difference={base !== undefined}
              places={places}
              reference={reference}
            />
          ) : (
            !picture.error && (
              <p class="wait" role="status">
                Loading values
              </p>
            )
          )}
          <p class="quiet foot" aria-busy={picture.busy}>
            {earth && "unknown" in earth && `This page does not know the coordinate reference system ${earth.unknown}: the picture has its own x and y. `}
            {range.value && `The colours stay while it plays: 2 to 98 percent of the values of ${plural(range.value.size, "frame")}. `}
            {steps.length > 0 && `Every ${steps.map((dimension) => `${ordinal(part.step[dimension])} value of ${dimensionName(node, dimension)}`).join(", ")}: zoom in for all. `}
            {picture.busy && picture.value && !isPlaying ? "Loading…" : ""}
          </p>
        </>
      )}
    </div>
  );
}

/** The finest level of a pyramid that needs no question. */
function Coarser({ snapshot, node, slice }: { snapshot: Snapshot; node: ArrayNode; slice: Slice }): VNode | null {
  const level = coarserLevels(snapshot, node).find((each) => {
    const part = box(each.shape, parseSlice(each.shape, { x: String(slice.x), y: String(slice.y) }), MOST.image);
    return costOf(snapshot, each, part).bytes <= ASK;
  });
  if (!level) return null;
  return (
    <a class="button main" href={address({ path: level.path, query: { view: "data" } })}>
      Show the coarser level {level.path}, {level.shape.map(count).join(" × ")}
    </a>
  );
}

function versionText({ repository }: Reader, id: string): string {
  const row = repository.row(id);
  return `${id.slice(0, 6)} ${row < 0 ? "" : `${when(repository.history.times[row]!).slice(0, 16)} ${firstLine(repository.history.message(row))}`}`;
}

/** Where the cells of the plane are on Earth. */
function useLocated(reader: Reader, snapshot: Snapshot, node: ArrayNode, reference: EarthReference | undefined, coordinates: ReadonlyMap<number, Coordinate>, waiting: boolean, part: Box, { x, y }: Slice): Load<Located> {
  const region = [x, y].map((dimension) => [part.start[dimension], part.stop[dimension], part.step[dimension]] as [number, number, number]);
  return useLoad<Located>(
    async (signal) => {
      if (!reference || waiting) return undefined;
      const { locate } = await import("./geolocation");
      const read = async (which: 0 | 1): Promise<Float64Array> => {
        const array = reference.cells![which];
        const own = [x, y].map((dimension) => array.dimensions.indexOf(node.dimensions[dimension]!));
        const ranges = array.shape.map((_, dimension) => region[own.indexOf(dimension)]!);
        const [start, stop, step] = [0, 1, 2].map((which) => ranges.map((range) => range[which]!)) as [number[], number[], number[]];
        const decoded = reader.decode(snapshot, array, await reader.read(snapshot, array.path, start, stop, step, signal));
        return plane(decoded.values as Float64Array, decoded.shape, own[0]!, own[1]!);
      };
      return locate(reference, axisOf(node, coordinates, part, x), axisOf(node, coordinates, part, y), read);
    },
    [reference, coordinates, waiting, JSON.stringify(region)],
    true,
  );
}

/** A limit of the colours as a person types it: a number, or a date. */
function limitOf(text: string | undefined, clock: Clock | undefined): number | undefined {
  if (!text) return undefined;
  const period = clock && periodOf(text, clock.calendar);
  const value = typeof period === "object" ? period.start : Number(text);
  return Number.isFinite(value) ? value : undefined;
}

function ColourSettings({ clock }: { clock: Clock | undefined }): VNode {
  const { query } = route.value;
  const limit = (name: string, title: string): VNode => {
    const enter = (text: string): void => setQuery({ [name]: limitOf(text, clock) === undefined ? "" : text });
    const value = query[name] ?? "";
    return (
      <label class="field">
        <span>{title}</span>
        <input
          key={value}
          value={value}
          size={clock ? 10 : 6}
          placeholder="auto"
          {...(clock ? {} : { inputMode: "decimal" })}
          onChange={(event) => enter(event.currentTarget.value.trim())}
        />
      </label>
    );
  };
  return (
    <>
      <Choice label="Colours" value={query["map"] ?? ""} options={[["", "automatic"], ...MAPS.map((name) => [name, name] as const)]} onSelect={(map) => setQuery({ map })} />
      {limit("lo", "from")}
      {limit("hi", "to")}
    </>
  );
}

interface PictureProps extends Target {
  readonly reader: Reader;
  readonly plane: Plane;
  readonly shape: readonly number[];
  readonly coordinates: ReadonlyMap<number, Coordinate>;
  /** Limits of the colours that stay while frames play. */
  readonly range: Limits | undefined;
  readonly difference: boolean;
  readonly places: Geolocation | undefined;
  readonly reference: EarthReference | undefined;
}

const degrees = (value: number, signs: string): string => `${Math.abs(value).toFixed(3)}°${signs[value < 0 ? 1 : 0]}`;

function Picture({ reader, snapshot, plane: shownPlane, shape, node, coordinates, range, difference, places, reference }: PictureProps): VNode {
  const { query } = route.value;
  const { values, box: part, slice, scale } = shownPlane;
  const isDegrees = reference?.isDegrees ?? false;
  const place = useSignal<readonly [number, number] | undefined>(undefined);
  const lengths = boxShape(part);
  const width = slice.x < 0 ? 1 : lengths[slice.x]!;
  const height = slice.y < 0 ? 1 : lengths[slice.y]!;
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
  const automatic = useMemo(() => (values instanceof Float64Array ? robust(difference ? values.filter((value) => value !== 0) : values) : ([0, 1] as Limits)), [values, difference]);
  // Meanings have colours by their place in the list; numbers without a meaning come last
  const categories = useMemo(() => scale.categories && allCategories(values as Float64Array, scale.categories), [values, scale]);
  const painted = useMemo(() => {
    const places = new Map(categories?.map((value, at) => [value, at]));
    return (categories ? (values as Float64Array).map((value) => places.get(value) ?? NaN) : values) as Float64Array;
  }, [values, categories]);
  const own = range ?? automatic;
  const unit = scale.units && !title(node).endsWith(")") ? ` (${scale.units})` : "";
  const name = difference ? `difference of ${title(node)}${unit}` : title(node);
  const series = useMemo(() => [{ title: name, colour: css("accent"), values: values as Float64Array }], [values, name]);
  if (!(values instanceof Float64Array)) return <ValueTable text={(at) => values[at] ?? ""} width={slice.y < 0 ? 1 : width} height={slice.y < 0 ? width : height} x={slice.y < 0 ? undefined : x} y={slice.y < 0 ? x : y} />;
  if (values.length === 0) return <p class="quiet">No values in this part.</p>;
  const isCentred = difference || (diverging(own) && !query["map"] && !scale.clock);
  const [lowest, highest] = [limitOf(query["lo"], scale.clock), limitOf(query["hi"], scale.clock)];
  const isTyped = lowest !== undefined || highest !== undefined;
  const [low, high] = isCentred && !isTyped ? symmetric(own) : own;
  const limits = categories ? ([-0.5, categories.length - 0.5] as const) : spread([lowest ?? low, highest ?? high]);
  const map = query["map"] || (difference || (diverging(limits) && !scale.clock) ? "balance" : "viridis");
  const colours = useMemo(() => (categories ? categoryTable(categories.length) : table(map)), [map, categories]);
  const barTicks = (ends: Limits, most: number): Tick[] =>
    categories ? categories.map((value, at) => ({ value: at, text: scale.text(value) })) : scale.ticks(ends, most);
  const placeText = (column: number, row: number): string => {
    const own = [slice.x >= 0 && `${dimensionName(node, slice.x)} ${x.label(column)}`, slice.y >= 0 && `${dimensionName(node, slice.y)} ${y.label(row)}`].filter(Boolean).join(", ");
    const [east, north] = earth && !isDegrees ? earth.place(column, row) : [NaN, NaN];
    return Number.isFinite(east + north) ? `${own} (${degrees(north, "NS")} ${degrees(east, "EW")})` : own;
  };
  const readout = (): string => {
    const [column, row] = place.value ?? [width, height];
    if (column < width && row < height) return `${placeText(column, row)}: ${full(scale, values[row * width + column])}`;
    if (query["show"] === "table") return "";
    return `Point at a place for its value; ${hasPoints ? "click for its line; " : ""}drag to ${query["proj"] ? "turn the map" : "zoom"}.`;
  };
  const zoom = (columns: readonly [number, number], rows?: readonly [number, number]): void => {
    const [from, to] = [[...slice.from], [...slice.to]];
    for (const [dimension, ends] of [[slice.x, columns], [slice.y, rows]] as const) {
      if (dimension < 0 || !ends) continue;
      from[dimension] = part.start[dimension]! + ends[0] * part.step[dimension]!;
      to[dimension] = Math.min(part.stop[dimension]!, part.start[dimension]! + ends[1] * part.step[dimension]!);
    }
    setQuery(sliceQuery(shape, { ...slice, from, to }), false);
  };
  const hasPoints = slice.y >= 0 && !difference && query["show"] !== "table";
  const points = hasPoints ? parsePoints(query["p"], shape) : [];
  const cellOf = (point: Point, dimension: number): number => Math.round((point[dimension]! - part.start[dimension]!) / part.step[dimension]!);
  const pointOf = (column: number, row: number): Point => slice.index.map((fixed, dimension) => (dimension === slice.x ? part.start[dimension]! + column * part.step[dimension]! : dimension === slice.y ? part.start[dimension]! + row * part.step[dimension]! : fixed));
  const inside = (point: Point): boolean => [[slice.x, width], [slice.y, height]].every(([dimension, length]) => cellOf(point, dimension!) >= 0 && cellOf(point, dimension!) < length!);
  const marks: Mark[] = points.map((point, which) => ({ column: cellOf(point, slice.x), row: cellOf(point, slice.y), colour: pointColour(which), text: String(which + 1), isInside: inside(point) })).filter((mark) => mark.isInside);
  const choose = (column: number, row: number): void => void (hasPoints && addPoint(points, pointOf(column, row)));
  const plane = { values: painted, marks, limits, colours, ticks: barTicks, title: name, onPlace: (column: number, row: number): void => void (place.value = [column, row]), onChoose: choose };
  const typed = (text: string): Point | string => {
    const [one = "", other = ""] = text.split(/\s*[,;]\s*/);
    if (earth && !isDegrees && !text.includes("#")) {
      const cell = earth.find(Number(one), Number(other));
      if (cell >= 0) return pointOf(cell % width, Math.floor(cell / width));
      return `No cell of this part of the grid is at longitude ${one}, latitude ${other}.`;
    }
    const index = [...slice.index];
    for (const [part, dimension] of [[one, slice.x], [other, slice.y]] as const) {
      const at = typedIndex(part, shape[dimension], dimensionName(node, dimension), coordinates.get(dimension));
      if (typeof at === "string") return at;
      index[dimension] = at;
    }
    return index;
  };
  const labelOf = (point: Point, dimension: number): string => `${dimensionName(node, dimension)} ${coordinates.get(dimension)?.label(point[dimension]!) ?? point[dimension]}`;
  return (
    <>
      {query["show"] === "table" || slice.x < 0 ? (
        <ValueTable text={(index) => scale.text(values[index])} width={slice.y < 0 ? 1 : width} height={slice.y < 0 ? width : height} x={slice.y < 0 ? undefined : x} y={slice.y < 0 ? x : y} />
      ) : slice.y < 0 ? (
        <Lines x={x} series={series} title={name} scale={scale} isByIndex={isByIndex} onPlace={(index) => void (place.value = index === null ? undefined : [index, 0])} />
      ) : query["proj"] && earth ? (
        <Globe {...plane} places={earth} projection={query["proj"]} />
      ) : (
        <Image {...plane} x={x} y={y} aspect={isByIndex ? undefined : aspect(node, slice.y, x, y)} onZoom={zoom} />
      )}
      <Readout text={readout} />
      <Numbers values={values} scale={scale} difference={difference} placeOf={(at) => placeText(at % width, Math.floor(at / width))} onChoose={hasPoints ? (at) => choose(at % width, Math.floor(at / width)) : undefined} />
      {hasPoints && (
        <Points
          reader={reader}
          snapshot={snapshot}
          node={node}
          shape={shape}
          slice={slice}
          coordinates={coordinates}
          points={points}
          isByIndex={isByIndex}
          nameOf={(point) => (inside(point) ? placeText(cellOf(point, slice.x), cellOf(point, slice.y)) : `${labelOf(point, slice.x)}, ${labelOf(point, slice.y)}`)}
          typed={typed}
          hint={earth && !isDegrees ? "longitude, latitude" : `${dimensionName(node, slice.x)}, ${dimensionName(node, slice.y)}`}
        />
      )}
    </>
  );
}

/** The value under the pointer. It alone is drawn again when the pointer moves. */
const Readout = ({ text }: { text: () => string }): VNode => (
  <output class="readout" aria-live="polite">
    {text()}
  </output>
);

interface NumbersProps {
  readonly values: Float64Array;
  readonly scale: Scale;
  readonly difference: boolean;
  placeOf(at: number): string;
  readonly onChoose: ((at: number) => void) | undefined;
}

const signed = (scale: Scale, value: number): string => `${value > 0 ? "+" : ""}${full(scale, value)}`;

/** How many values differ, and the mean of the differences that are not zero, as `frazil diff --values` prints it. */
function differenceText(values: Float64Array, scale: Scale, placeOf: (at: number) => string): string {
  const changes = values.filter((value) => value !== 0);
  const { count: known, mean } = statistics(changes);
  const largest = values.reduce((best, value, at) => (Math.abs(value) > Math.abs(values[best]) || Number.isNaN(values[best]) ? at : best), 0);
  const parts = [`${count(changes.length)} of ${plural(values.length, "value")} differ`];
  if (known) {
    parts.push(`mean of the values that differ ${signed(scale, mean)}`);
    parts.push(`largest ${full(scale, Math.abs(values[largest]))} at ${placeOf(largest)}`);
  }
  if (known < changes.length) parts.push(`${count(changes.length - known)} without a value in one of the versions`);
  return `${parts.join("; ")}.`;
}

/** How often each value occurs. */
function occurrences(values: Float64Array): Map<number, number> {
  const counts = new Map<number, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}

function allCategories(values: Float64Array, known: readonly number[]): readonly number[] {
  const others = [...occurrences(values).keys()].filter((value) => !Number.isNaN(value) && !known.includes(value));
  return [...known, ...others.sort((a, b) => a - b).slice(0, MOST_MEANINGS)];
}

function meaningText(values: Float64Array, { text }: Scale): string {
  const counts = [...occurrences(values)].sort(([, one], [, other]) => other - one);
  const some = counts.slice(0, MOST_MEANINGS).map(([value, times]) => `${text(value)}: ${count(times)}`);
  if (counts.length > some.length) some.push(plural(counts.length - some.length, "other value"));
  return `${plural(values.length, "value")}. ${some.join("; ")}.`;
}

const MOST_MEANINGS = 12;

/** The extremes can lie outside of the colours: their places are one click away. */
function Numbers({ values, scale, difference, placeOf, onChoose }: NumbersProps): VNode {
  const facts = useMemo(() => statistics(values), [values]);
  if (difference) return <p class="quiet foot">{differenceText(values, scale, placeOf)}</p>;
  if (!facts.count) return <p class="quiet foot">All values of this part are missing.</p>;
  if (!scale.hasMean) return <p class="quiet foot">{meaningText(values, scale)}</p>;
  const extreme = (at: number): VNode | string => {
    const text = full(scale, values[at]);
    return onChoose ? (
      <button class="link" title={`Mark ${placeOf(at)}`} onClick={() => onChoose(at)}>
        {text}
      </button>
    ) : (
      text
    );
  };
  return (
    <p class="quiet foot">
      {plural(facts.count, "value")}: {extreme(facts.lowAt)} to {extreme(facts.highAt)}, mean {full(scale, meanOf(scale, facts.mean))}
      {facts.count < values.length && `, ${count(values.length - facts.count)} missing`}.
    </p>
  );
}

const PROJECTIONS = [
  ["", "grid"],
  ["local", "around its centre"],
  ["natural", "natural Earth"],
  ["equal", "equal areas"],
  ["plate", "degrees"],
  ["globe", "globe"],
] as const;
