/** View of the values of an array, or of the difference between two versions of it. */

import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Axes, statistics } from "./chunkmap";
import { diverging, MAPS, robust, spread, symmetric, type Limits } from "./colour";
import type { ArrayNode, Decoded, Snapshot } from "./format/types";
import type { Reader } from "./home";
import { Image, type Axis } from "./image";
import { coordinate, dimensionName, itemSize, product, title } from "./nodes";
import { Choice, css, Failure, useSize, Wait } from "./parts";
import type { GlobeProps } from "./globe";
import { box, boxShape, chunksOf, parseSlice, plane, sliceQuery, type Box, type Slice } from "./slices";
import { Fixed } from "./sliders";
import { route, setQuery, useLoad } from "./state";
import { bytes, count, number, plural } from "./text";

const MOST = { line: 50_000, image: 1_500 }; // values along an axis
const ASK = 200e6; // bytes to decode before the view asks
const PAUSE = 120; // milliseconds between pictures
const LONGEST = 500_000; // values of a coordinate

interface Plane {
  readonly values: Float64Array | string[];
  readonly box: Box;
  readonly slice: Slice;
  readonly label: (value: number) => string;
}

interface DataProps {
  readonly reader: Reader;
  readonly snapshot: Snapshot;
  readonly node: ArrayNode;
  /** The older version to subtract. */
  readonly base?: { readonly snapshot: Snapshot; readonly node: ArrayNode } | undefined;
}

export function Data({ reader, snapshot, node, base }: DataProps): VNode {
  const { query } = route.value;
  const shape = base ? node.shape.map((length, at) => Math.min(length, base.node.shape[at]!)) : node.shape;
  const slice = parseSlice(shape, query);
  const part = box(shape, slice, slice.y < 0 ? MOST.line : MOST.image);
  const cost = chunksOf(part, node.chunkShape) * product(node.chunkShape) * (itemSize(node.dtype) ?? 8) * (base ? 2 : 1);
  const [allowed, setAllowed] = useState("");
  const key = JSON.stringify([part, slice.x, slice.y]);
  const ask = cost > ASK && allowed !== `${node.path} ${slice.x} ${slice.y}`;
  const { coordinates, waiting } = useCoordinates(reader, snapshot, node);
  const [playing, setPlaying] = useState(-1);

  const loaded = useLoad<Plane | undefined>(
    async (signal) => {
      if (ask) return undefined;
      const [start, stop, step] = [part.start, part.stop, part.step] as const;
      const read = async (from: Snapshot, of: ArrayNode): Promise<Decoded> => reader.decode(of, await reader.read(from, of.path, start, stop, step, signal));
      const [decoded, before] = await Promise.all([read(snapshot, node), base && read(base.snapshot, base.node)]);
      if (!(decoded.values instanceof Float64Array)) return { values: decoded.values, box: part, slice, label: String };
      const values = plane(decoded.values, boxShape(part), slice.x, slice.y);
      if (before?.values instanceof Float64Array) {
        const old = plane(before.values, boxShape(part), slice.x, slice.y);
        // Two places without a value are equal
        values.forEach((value, at) => (values[at] = Number.isNaN(value) && Number.isNaN(old[at]!) ? 0 : value - old[at]!));
      }
      return { values, box: part, slice, label: decoded.isTime && !base ? timeLabel : number };
    },
    [snapshot, node.path, key, ask, base?.snapshot],
    true,
  );

  useEffect(() => {
    if (playing < 0 || loaded.busy || loaded.error) return;
    const timer = setTimeout(() => {
      const index = slice.index.map((at, dimension) => (dimension === playing ? (at + 1) % shape[dimension]! : at));
      setQuery(sliceQuery(shape, { ...slice, index }));
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [playing, loaded.busy, key]);

  const zoomed = slice.from.some((from, at) => from > 0 || slice.to[at]! < shape[at]!);
  const steps = [slice.x, slice.y].filter((dimension) => dimension >= 0 && part.step[dimension]! > 1);
  return (
    <div class="column fill">
      <div class="bar">
        {shape.length > 1 && <Axes node={node} grid={shape} line />}
        {slice.y >= 0 && <ColourSettings />}
        {slice.y >= 0 && EAST_NAME.test(dimensionName(node, slice.x)) && NORTH_NAME.test(dimensionName(node, slice.y)) && (
          <Choice label="Map" value={query["proj"] ?? ""} options={PROJECTIONS} onSelect={(proj) => setQuery({ proj })} />
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
        {zoomed && <button onClick={() => setQuery(sliceQuery(shape, { ...slice, from: shape.map(() => 0), to: [...shape] }), false)}>Whole extent</button>}
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
      {ask ? (
        <p class="failure">
          This view needs {plural(chunksOf(part, node.chunkShape), "chunk")} ({bytes(cost)} of values). <button onClick={() => setAllowed(`${node.path} ${slice.x} ${slice.y}`)}>Read them</button>
        </p>
      ) : (
        <>
          <Failure of={loaded} />
          {loaded.value ? (
            <Picture plane={loaded.value} shape={shape} node={node} coordinates={coordinates} hold={playing >= 0} difference={base !== undefined} />
          ) : (
            !loaded.error && (
              <p class="wait" role="status">
                Loading values
              </p>
            )
          )}
          <p class="quiet foot" aria-busy={loaded.busy}>
            {steps.length > 0 && `Every ${steps.map((dimension) => `${part.step[dimension]}th value of ${dimensionName(node, dimension)}`).join(", ")}: zoom in for all. `}
            {loaded.busy && loaded.value ? "Loading…" : ""}
          </p>
        </>
      )}
    </div>
  );
}

const timeLabel = (value: number): string => (Number.isNaN(value) ? "no value" : new Date(value).toISOString().slice(0, 19).replace("T", " "));

/** Coordinates of all dimensions that have them. A coordinate that cannot be read leaves the index. */
function useCoordinates(reader: Reader, snapshot: Snapshot, node: ArrayNode): { coordinates: ReadonlyMap<number, Decoded>; waiting: boolean } {
  const loaded = useLoad(async (signal) => {
    const found = new Map<number, Decoded>();
    await Promise.all(
      node.shape.map(async (length, dimension) => {
        const array = coordinate(snapshot, node, dimension);
        if (!array || length > LONGEST || array.path === node.path) return;
        try {
          found.set(dimension, reader.decode(array, await reader.read(snapshot, array.path, [0], [length], undefined, signal)));
        } catch (cause) {
          console.warn(`coordinate ${array.path}:`, cause);
        }
      }),
    );
    return found;
  }, [snapshot, node.path]);
  return { coordinates: loaded.value ?? EMPTY, waiting: loaded.busy };
}

const EMPTY: ReadonlyMap<number, Decoded> = new Map();

function ColourSettings(): VNode {
  const { query } = route.value;
  const limit = (name: string, title: string): VNode => (
    <label class="field">
      <span>{title}</span>
      <input key={query[name] ?? ""} value={query[name] ?? ""} size={6} placeholder="auto" inputMode="decimal" onChange={(event) => setQuery({ [name]: Number.isNaN(Number(event.currentTarget.value)) ? "" : event.currentTarget.value.trim() })} />
    </label>
  );
  return (
    <>
      <Choice label="Colours" value={query["map"] ?? ""} options={[["", "automatic"], ...MAPS.map((name) => [name, name] as const)]} onSelect={(map) => setQuery({ map })} />
      {limit("lo", "from")}
      {limit("hi", "to")}
    </>
  );
}

interface PictureProps {
  readonly plane: Plane;
  readonly shape: readonly number[];
  readonly node: ArrayNode;
  readonly coordinates: ReadonlyMap<number, Decoded>;
  readonly hold: boolean;
  readonly difference: boolean;
}

function Picture({ plane: { values, box: part, slice, label }, shape, node, coordinates, hold, difference }: PictureProps): VNode {
  const { query } = route.value;
  const [place, setPlace] = useState<readonly [number, number] | undefined>(undefined);
  const lengths = boxShape(part);
  const width = slice.x < 0 ? 1 : lengths[slice.x]!;
  const height = slice.y < 0 ? 1 : lengths[slice.y]!;
  const axes = useMemo(() => [axisOf(node, coordinates, part, slice.x), axisOf(node, coordinates, part, slice.y)] as const, [node, coordinates, part]);
  const [x, y] = axes;
  // Most values of a difference are zero and say nothing about its size
  const automatic = useMemo(() => (values instanceof Float64Array ? robust(difference ? values.filter((value) => value !== 0) : values) : ([0, 1] as Limits)), [values, difference]);
  const held = useRef(automatic);
  if (!hold) held.current = automatic;
  const name = difference ? `difference of ${title(node)}` : title(node);
  if (!(values instanceof Float64Array)) return <Table text={(at) => values[at] ?? ""} width={slice.y < 0 ? 1 : width} height={slice.y < 0 ? width : height} x={slice.y < 0 ? undefined : x} y={slice.y < 0 ? x : y} />;
  if (values.length === 0) return <p class="quiet">No values in this part.</p>;
  const [low, high] = query["lo"] || query["hi"] ? held.current : difference || (diverging(held.current) && !query["map"]) ? symmetric(held.current) : held.current;
  const limits = spread([query["lo"] ? Number(query["lo"]) : low, query["hi"] ? Number(query["hi"]) : high]);
  const map = query["map"] || (difference || diverging(limits) ? "balance" : "viridis");
  const at = place && place[0] < width && place[1] < height ? place : undefined;
  const readout = at
    ? `${[slice.x >= 0 && `${dimensionName(node, slice.x)} ${x.label(at[0])}`, slice.y >= 0 && `${dimensionName(node, slice.y)} ${y.label(at[1])}`].filter(Boolean).join(", ")}: ${label(values[at[1] * width + at[0]]!)}`
    : "";
  const zoom = (columns: readonly [number, number], rows?: readonly [number, number]): void => {
    const [from, to] = [[...slice.from], [...slice.to]];
    for (const [dimension, range] of [[slice.x, columns], [slice.y, rows]] as const) {
      if (dimension < 0 || !range) continue;
      from[dimension] = part.start[dimension]! + range[0] * part.step[dimension]!;
      to[dimension] = Math.min(part.stop[dimension]!, part.start[dimension]! + range[1] * part.step[dimension]!);
    }
    setQuery(sliceQuery(shape, { ...slice, from, to }), false);
  };
  return (
    <>
      {query["show"] === "table" || slice.x < 0 ? (
        <Table text={(index) => label(values[index]!)} width={slice.y < 0 ? 1 : width} height={slice.y < 0 ? width : height} x={slice.y < 0 ? undefined : x} y={slice.y < 0 ? x : y} />
      ) : slice.y < 0 ? (
        <Line x={x} values={values} title={name} onPlace={(index) => setPlace(index === null ? undefined : [index, 0])} />
      ) : (
        query["proj"] && isMap(node, slice, x, y) ? (
          <LazyGlobe values={values} x={x} y={y} limits={limits} map={map} title={name} projection={query["proj"]} onPlace={(column, row) => setPlace([column, row])} />
        ) : (
        <Image values={values} x={x} y={y} limits={limits} map={map} title={name} aspect={aspect(node, slice, x, y)} onPlace={(column, row) => setPlace([column, row])} onZoom={zoom} />
        )
      )}
      <output class="readout" aria-live="polite">
        {readout || `Point at a place for its value; drag to ${query["proj"] ? "turn the map" : "zoom"}.`}
      </output>
      <Numbers values={values} label={label} difference={difference} />
    </>
  );
}

function Numbers({ values, label, difference }: { values: Float64Array; label: (value: number) => string; difference: boolean }): VNode {
  const found = useMemo(() => {
    const all = statistics(values);
    return { ...all, different: difference ? values.reduce((sum, value) => sum + (value !== 0 ? 1 : 0), 0) : 0 };
  }, [values, difference]);
  if (!found.count) return <p class="quiet foot">All values of this part are missing.</p>;
  const largest = Math.max(Math.abs(values[found.lowAt]!), Math.abs(values[found.highAt]!));
  return (
    <p class="quiet foot">
      {difference
        ? `${count(found.different)} of ${plural(values.length, "value")} differ; mean ${number(found.mean)}, largest ${number(largest)}.`
        : `${plural(found.count, "value")}: ${label(values[found.lowAt]!)} to ${label(values[found.highAt]!)}, mean ${label(found.mean)}${found.count < values.length ? `, ${count(values.length - found.count)} missing` : ""}.`}
    </p>
  );
}

const NORTH = /^(lat|latitude|y|northing|projection_y_coordinate|grid_latitude|rlat)$/i;

function axisOf(node: ArrayNode, coordinates: ReadonlyMap<number, Decoded>, part: Box, dimension: number): Axis {
  if (dimension < 0) return { title: "", length: 1, reverse: false, label: String };
  const decoded = coordinates.get(dimension);
  const [start, step] = [part.start[dimension]!, part.step[dimension]!];
  const length = boxShape(part)[dimension]!;
  const numbers = decoded?.values instanceof Float64Array ? Float64Array.from({ length }, (_, at) => (decoded.values as Float64Array)[start + at * step]!) : undefined;
  const name = dimensionName(node, dimension);
  return {
    title: decoded?.units && !decoded.isTime ? `${name} (${decoded.units})` : name,
    length,
    reverse: NORTH.test(name) && numbers !== undefined && numbers[length - 1]! > numbers[0]!,
    values: decoded?.isTime ? undefined : numbers,
    times: decoded?.isTime && STANDARD.test(decoded.calendar ?? "") ? numbers : undefined,
    label: (at) => (decoded ? decoded.label(start + Math.round(at) * step) : String(start + Math.round(at) * step)),
  };
}

/** Calendars whose times the plot can draw. */
const STANDARD = /^(standard|gregorian|proleptic_gregorian|)$/;

/** Cells of a map keep their shape if both axes are places in one unit. */
function aspect(node: ArrayNode, slice: Slice, x: Axis, y: Axis): number | undefined {
  const step = (axis: Axis): number | undefined => (axis.values && axis.length > 1 ? Math.abs((axis.values[axis.length - 1]! - axis.values[0]!) / (axis.length - 1)) : undefined);
  if (!NORTH.test(dimensionName(node, slice.y))) return undefined;
  const [across, down] = [step(x), step(y)];
  const ratio = across && down ? across / down : undefined;
  return ratio && ratio > 0.05 && ratio < 20 ? ratio : undefined;
}

const PROJECTIONS = [
  ["", "grid"],
  ["natural", "natural Earth"],
  ["equal", "equal areas"],
  ["plate", "degrees"],
  ["globe", "globe"],
] as const;

const EAST_NAME = /^(lon|longitude)$/i;
const NORTH_NAME = /^(lat|latitude)$/i;

/** Whether the axes are longitude and latitude. */
const isMap = (node: ArrayNode, slice: Slice, x: Axis, y: Axis): boolean =>
  x.values !== undefined && y.values !== undefined && EAST_NAME.test(dimensionName(node, slice.x)) && NORTH_NAME.test(dimensionName(node, slice.y));

function LazyGlobe(props: GlobeProps): VNode {
  const module = useLoad(() => import("./globe"), []);
  return <Wait of={module} what="the map">{({ Globe }) => <Globe {...props} />}</Wait>;
}

function Line({ x, values, title: name, onPlace }: { x: Axis; values: Float64Array; title: string; onPlace: (index: number | null) => void }): VNode {
  const [element, size] = useSize<HTMLDivElement>();
  const plot = useLoad(() => import("./plot"), []);
  useEffect(() => {
    const target = element.current;
    if (!plot.value || !target || size.width < 50) return;
    const index = Float64Array.from({ length: values.length }, (_, at) => at);
    const places = [x.times, x.values].find((axis) => axis && axis.length === values.length && rises(axis)) ?? index;
    return plot.value.line(target, {
      width: size.width,
      height: Math.max(160, size.height),
      x: places,
      y: values,
      isTime: places === x.times,
      xTitle: x.title,
      yTitle: name,
      colours: { line: css("accent"), text: css("text"), grid: css("line") },
      ...(places === index ? { label: x.label } : {}),
      onPlace,
    });
  }, [plot.value, values, size.width, size.height, x, css("page")]);
  return (
    <>
      <Failure of={plot} />
      <div ref={element} class="plot" role="img" aria-label={`Line of ${name} along ${x.title}. The table shows the values.`} />
    </>
  );
}

/** uPlot draws only along rising numbers. */
const rises = (values: Float64Array): boolean => values.every((value, at) => at === 0 || value > values[at - 1]!);

const TABLE = { rows: 200, columns: 30 };

function Table({ text, width, height, x, y }: { text: (index: number) => string; width: number; height: number; x: Axis | undefined; y: Axis | undefined }): VNode {
  const columns = Math.min(width, TABLE.columns);
  const rows = Math.min(height, TABLE.rows);
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Values">
      <table class="values">
        {x && (
          <thead>
            <tr>
              <td />
              {Array.from({ length: columns }, (_, column) => (
                <th key={column} scope="col">
                  {x.label(column)}
                </th>
              ))}
            </tr>
          </thead>
        )}
        <tbody>
          {Array.from({ length: rows }, (_, row) => (
            <tr key={row}>
              {y && <th scope="row">{y.label(row)}</th>}
              {Array.from({ length: columns }, (_, column) => (
                <td key={column}>{text(row * width + column)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {(rows < height || columns < width) && (
        <p class="quiet">
          {count(rows)} of {plural(height, "row")}, {count(columns)} of {plural(width, "column")}: zoom in for others.
        </p>
      )}
    </div>
  );
}

