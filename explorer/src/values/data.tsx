/** View of the values of an array, or of the difference between two versions of it. */

import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { axisOf, type Coordinates, differenceScale, NUMBERS, scaleOf, useCoordinates } from "../array/axes";
import { bandDimension, costOf, dimensionName, isSlow, levelFor, levelsFrom } from "../array/nodes";
import {
  type Box,
  box,
  coarserSlice,
  finerSlice,
  parsePoints,
  parseSlice,
  plane,
  type Slice,
  sliceQuery,
} from "../array/slices";
import { notFound } from "../base/errors";
import { f64, nth } from "../base/lists";
import { type Decoded, difference, withoutLost } from "../cf/cf";
import type { Located } from "../earth/geolocation";
import { type EarthReference, earthReference, samplingOf, sliceOf } from "../earth/reference";
import { Cache } from "../format/files";
import type { ArrayNode } from "../format/types";
import { type ArrayProps, type Reader, type Target, valuesOf } from "../page/home";
import { Choice, Failure, Loading, Losses, onDemand, OnRequest, Setting, Wait } from "../page/parts";
import { resolve } from "../page/route";
import { type Load, route, setQuery, snapshotOf, useLater, useLoad } from "../page/state";
import { bytes, count, firstLine, minute, plural, short } from "../page/text";
import { chooseMap, mapName, PROJECTIONS } from "./globe";
import { Picture, type PictureSet, type Plane } from "./picture";
import { aheadOf, limitsOf, MEMORY, nodeOf, NOTHING, useStop, useVersions, VERSIONS } from "./play";
import { ASK, Past } from "./points";
import { Bands, ColourSettings, CompareWith } from "./settings";
import { Axes, Fixed, Slider, useValidTime } from "./sliders";
import { summaryOf } from "./summary";
import { derivedStates } from "../versions/derived";

const Copies = onDemand(() => import("./copy"), "Copies");

const MOST = { line: 50_000, image: 1_500, sample: 200 }; // values along an axis
const SCREEN = 1_000; // pixels along the longer axis of a picture, about
const PAUSE = 120; // milliseconds between pictures

interface DataProps extends Target {
  readonly reader: Reader;
  /** The older version to subtract. */
  readonly base?: Target | undefined;
  /** The first place, where the address has none. */
  readonly start?: string;
  /** Only the picture, without settings. */
  readonly isBrief?: boolean;
}

export function Data({ reader, base, start = "", isBrief = false, ...top }: DataProps): VNode {
  const { query } = route.value;
  const versions = useVersions(reader.repository, top.snapshot, top.node);
  const { snapshot, node: full } = versions;
  const shapeOf = (of: ArrayNode): number[] =>
    base ? of.shape.map((length, at) => Math.min(length, nth(base.node.shape, at))) : [...of.shape];
  const asked = useMemo(
    () => sliceOf(snapshot, full, shapeOf(full), { i: start, ...query }),
    [snapshot, full, base, start, query],
  );
  const isTable = query["show"] === "table";
  const levels = useMemo(() => levelsFrom(snapshot, full), [snapshot, full]);
  const level = base || isTable || asked.y < 0 ? levels[0] : levelFor(levels, asked, SCREEN);
  const { node } = level;
  const array = { reader, snapshot, node };
  const shape = shapeOf(node);
  const slice = node === full ? asked : coarserSlice(asked, level.ratio, shape);
  /** The address of a slice of the level, in the indices of the array. */
  const toQuery = (of: Slice): Record<string, string> => {
    const finer = node === full ? of : finerSlice(of, level.ratio, shape, full.shape);
    return { ...sliceQuery(shapeOf(full), finer), ...(start ? { i: finer.index.join(",") } : {}) };
  };
  const reference = useMemo(
    () => earthReference(snapshot, node, slice),
    [snapshot, node.path, slice.x, slice.y],
  );
  const sides = [slice.x, slice.y].map((d) => shape[d] ?? 1);
  const dots = Math.max(Math.sqrt(MOST.line), MOST.line / Math.min(...sides)); // along both axes of trajectories
  const most = slice.y < 0 ? MOST.line : reference?.sampling ? Math.floor(dots) : MOST.image;
  const part = box(shape, slice, most);
  const band = base || isTable || slice.y < 0 ? -1 : bandDimension(node, slice.x, slice.y);
  const chosen =
    band < 0 ? [] : (query["rgb"] ?? "").split(",").filter((at) => Number(at) < nth(shape, band));
  const bands = chosen.length === 3 ? chosen.map(Number) : [];
  const costs = [{ snapshot, node }, ...(base ? [base] : [])].map((of) => costOf(of, part));
  const cost = costs.reduce((sum, each) => sum + each.bytes, 0) * (bands.length || 1);
  const chunks = costs.reduce((sum, each) => sum + each.chunks, 0);
  const [permit, setPermit] = useState("");
  const key = JSON.stringify([node.path, part, slice.x, slice.y, bands]);
  const isLate = isSlow({ chunks, bytes: cost }); // a picture from statistics comes first
  const ask = (isBrief ? isLate : cost > ASK) && permit !== `${node.path} ${slice.x} ${slice.y}`;
  const { coordinates, waiting } = useCoordinates(array);
  const [playing, setPlaying] = useState(NOTHING);
  const isPlaying = playing !== NOTHING;
  useStop(isPlaying, () => setPlaying(NOTHING));
  const frames = useRef(new Cache<Plane>(MEMORY));

  const loadOne = async (target: Target, { index }: Slice, longest: number, signal?: AbortSignal) => {
    const own = parseSlice(shapeOf(target.node), sliceQuery(shape, { ...slice, index }));
    const region = box(shapeOf(target.node), own, longest);
    const read = (of: Target): ReturnType<typeof valuesOf> => valuesOf({ reader, ...of }, region, signal);
    const [decoded, before] = await Promise.all([read(target), base && read(base)]);
    const { values, shape: size, lost } = decoded;
    const reasons = [...lost, ...(before?.lost ?? [])].map(({ message }) => message);
    const common = { node: target.node, box: region, slice: own, lost: reasons };
    const placesIn = () => plane(undefined, size, own.x, own.y);
    if (!(values instanceof Float64Array))
      return { ...common, values: Array.from(placesIn(), (at) => nth(values, at)), scale: NUMBERS };
    if (!(before?.values instanceof Float64Array)) {
      const places = decoded.exact && placesIn();
      const exact = places && ((at: number): string => decoded.label(f64(places, at)));
      return { ...common, values: plane(values, size, own.x, own.y), scale: scaleOf(decoded), exact };
    }
    const changes = values.map((_, at) => difference(decoded, before, at));
    // Two places without a value are equal, unless a chunk of them is damaged
    withoutLost(changes, { shape: size, lost: [...lost, ...before.lost] });
    return { ...common, values: plane(changes, size, own.x, own.y), scale: differenceScale(decoded) };
  };
  const load = async (target: Target, of: Slice, longest: number, signal?: AbortSignal): Promise<Plane> => {
    if (!bands.length) return loadOne(target, of, longest, signal);
    const one = (at: number) => loadOne(target, { ...of, index: of.index.with(band, at) }, longest, signal);
    const planes = await Promise.all(bands.map(one));
    const colours = planes.map(({ values }) => values as Float64Array);
    return { ...nth(planes, 0), lost: planes.flatMap(({ lost }) => lost), bands: colours };
  };
  /** What plays: the number of frames, and the place of a frame as a version or an index. */
  const length = playing === VERSIONS ? (versions.ids?.length ?? 1) : (shape[playing] ?? 1);
  const at = playing === VERSIONS ? versions.at : (slice.index[playing] ?? 0);
  const targetAt = async (place: number): Promise<Target> =>
    (playing === VERSIONS && versions.ids
      ? nodeOf(await reader.repository.snapshot(nth(versions.ids, place)), node)
      : undefined) ?? { snapshot, node };
  const sliceAt = (place: number): Slice =>
    playing < 0 ? slice : { ...slice, index: slice.index.with(playing, place) };
  const compare = !base && !isBrief && !isTable && slice.y >= 0 ? (query["with"] ?? "") : "";
  const otherTarget = async (): Promise<Target> => {
    const found = nodeOf(await snapshotOf(reader.repository, compare), node);
    if (found?.node.shape.join() !== node.shape.join())
      throw notFound(`The version ${compare} does not have this array with this shape.`);
    return found;
  };
  // What a frame depends on besides its place
  const others = JSON.stringify([playing, slice.x, slice.y, slice.from, slice.to, sliceAt(0).index, bands]);
  const frameAt = (place: number, version = ""): Promise<Plane> =>
    frames.current.get(
      `${version && playing === VERSIONS ? "" : place} ${others} ${version}`,
      async () => load(await (version ? otherTarget() : targetAt(place)), sliceAt(place), most),
      ({ values }) => 8 * values.length,
    );

  const former = useRef<PictureSet | undefined>(undefined);
  const picture = useLoad<Plane | undefined>(
    async (signal) => {
      if (ask) return undefined;
      if (!isPlaying) {
        frames.current = new Cache(MEMORY);
        return load({ snapshot, node }, slice, most, signal);
      }
      const frame = await frameAt(at);
      for (let step = 1; step <= aheadOf(part, compare ? 2 : 1) && step < length; step++)
        for (const version of new Set(["", compare])) frameAt((at + step) % length, version).catch(() => 0);
      return frame;
    },
    [snapshot, node.path, key, ask, base?.snapshot],
    true,
  );
  const other = useLoad(
    async (signal) => {
      if (!compare || ask) return undefined;
      const plane = isPlaying ? frameAt(at, compare) : load(await otherTarget(), slice, most, signal);
      return { name: compare, plane: await plane };
    },
    [node.path, key, ask, compare && resolve(reader.repository, compare)],
    true,
  );
  const isSummed = isLate && !bands.length && !base && !isPlaying && slice.y >= 0 && !reference?.sampling;
  const summary = useLoad(
    async (signal) => (isSummed ? summaryOf(array, slice, signal) : undefined),
    [snapshot, isSummed && key],
  );
  const range = useLoad(
    async (signal) => {
      if (!isPlaying || ask) return undefined;
      const planeAt = async (place: number): Promise<Plane> =>
        load(await targetAt(place), sliceAt(place), MOST.sample, signal);
      return limitsOf(length, ASK / cost, async (place) => (await planeAt(place)).values);
    },
    [playing, ask],
  );

  const move = (place: number): void =>
    setQuery(playing === VERSIONS ? { ver: versions.ids?.[place] ?? "" } : toQuery(sliceAt(place)));
  useEffect(() => {
    if (!isPlaying || picture.busy || other.busy || range.busy || versions.busy || picture.error) return;
    const timer = setTimeout(() => move((at + 1) % length), PAUSE);
    return () => clearTimeout(timer);
  }, [playing, picture.busy, other.busy, range.busy, versions.busy, key, versions.at]);

  const shown = picture.value ?? summary.value;
  const region = shown && shown.node.path === node.path ? shown.box : part;
  const located = useLocated(array, reference, waiting ? undefined : coordinates, region, slice);
  const earth = located.value?.located;
  const note = useMemo(() => samplingOf(snapshot, full)?.note, [snapshot, full]);
  const places = earth && "places" in earth ? earth.places : undefined;
  const whole = { from: shape.map(() => 0), to: [...shape] };
  const states = useLater(
    async () => (level.place ? derivedStates(reader.repository, snapshot) : undefined),
    [snapshot, level.place > 0],
  );
  const isBehind = [...(states.value ?? [])].some(
    ([of, state]) => of.node.id === node.id && state === "behind",
  );
  const behind = isBehind ? ", which is behind its source" : "";
  const valid = useValidTime(array, slice);
  const isZoomed = slice.from.some((from, d) => from > 0 || nth(slice.to, d) < nth(shape, d));
  const steps = [slice.x, slice.y].filter((d) => d >= 0 && nth(part.step, d) > 1);
  const stepText = (d: number): string => `${count(nth(part.step, d))} values of ${dimensionName(node, d)}`;
  // What belongs together: the values of a level, and where its cells are. The former ones stay until the
  // next ones are there
  const plan = JSON.stringify([full.path, slice.x, slice.y]);
  const isReduced = level.place > 0 || steps.length > 0 || isZoomed;
  const facts = { level, places, reference, isReduced, toQuery };
  const pair = compare ? other.value : undefined;
  const next = shown && { ...array, ...facts, plan, plane: shown, full, shape, coordinates, other: pair };
  const isPlaced = !reference || located.error || located.value?.key === JSON.stringify([node.path, region]);
  // Both versions show the same part
  const isPaired = !pair || other.error || JSON.stringify(pair.plane.box) === JSON.stringify(shown?.box);
  if (next && isPlaced && isPaired && shown.node.path === node.path) former.current = next;
  const drawn = former.current?.plan === plan ? former.current : undefined;
  const [cell] = parsePoints(query["past"], full.shape);
  const past = cell ? { start: [...cell], stop: cell.map((at) => at + 1) } : box(full.shape, asked, Infinity);
  return (
    <div class="column fill">
      {!isBrief && (
        <div class="bar settings">
          {shape.length > 1 && <Axes node={full} grid={full.shape} slice={asked} line />}
          {band >= 0 && <Bands of={coordinates.get(band)} length={nth(shape, band)} bands={bands} />}
          {(slice.y >= 0 || places) && !bands.length && <ColourSettings clock={picture.value?.scale.clock} />}
          {places && !isTable && (
            <Choice label="Map" value={mapName(query)} options={PROJECTIONS} onSelect={chooseMap} />
          )}
          <Setting
            label="Show"
            name="show"
            options={[
              ["", places?.samples ? "map" : slice.y >= 0 ? "image" : "line"],
              ["table", "table"],
            ]}
          />
          {!base && !isTable && slice.y >= 0 && <CompareWith reader={reader} />}
          {isZoomed && (
            <button onClick={() => setQuery({ ...toQuery({ ...slice, ...whole }), m: "" }, false)}>
              Whole extent
            </button>
          )}
          {!base && !query["ver"] && (
            <button onClick={() => setQuery({ ver: snapshot.id }, false)}>Versions</button>
          )}
        </div>
      )}
      <Fixed
        {...{ node, slice, coordinates, waiting, playing }}
        shape={bands.length ? shape.with(band, 1) : shape}
        what="index"
        onPlay={setPlaying}
        onIndex={(index) => setQuery(toQuery({ ...slice, index }))}
      />
      {valid && <output class="quiet">{valid}</output>}
      {!base && query["ver"] && (
        <Wait of={{ ...versions.load, value: versions.ids }} what="the versions of this array">
          {(ids) => (
            <Slider
              name="version"
              along="the versions"
              label="version of the array"
              text={versionText(reader, ids[versions.at])}
              at={versions.at}
              length={ids.length}
              isPlaying={playing === VERSIONS}
              onPlay={() => setPlaying(playing === VERSIONS ? NOTHING : VERSIONS)}
              onPlace={(place) => setQuery({ ver: nth(ids, place) })}
            >
              <output class="text">{versionText(reader, ids[versions.at])}</output>
              <span class="quiet">
                {count(versions.at + 1)} of {count(ids.length)} that changed this array
              </span>
              <button
                aria-label="Only this version"
                onClick={() => (setPlaying(NOTHING), setQuery({ ver: "" }, false))}
              >
                ×
              </button>
            </Slider>
          )}
        </Wait>
      )}
      {ask && (
        <p class="failure">
          This view needs {plural(chunks, "chunk")} ({bytes(cost)} of values).{" "}
          <button onClick={() => setPermit(`${node.path} ${slice.x} ${slice.y}`)}>Read them</button>
        </p>
      )}
      <Failure of={picture} />
      {compare && <Failure of={other} />}
      {shown && <Losses of={shown.lost} />}
      {drawn ? (
        <Picture {...drawn} range={range.value?.limits} difference={base !== undefined} isBrief={isBrief} />
      ) : (
        !picture.error && (!ask || summary.busy) && <Loading what="values" />
      )}
      {drawn && !isBrief && (
        <>
          <OnRequest title="Copy as…">
            <Copies {...drawn} base={base} />
          </OnRequest>
          {!base && (
            <OnRequest key={cell?.join()} title="What happened in this part?" isAsked={cell !== undefined}>
              <Past {...array} node={full} part={past} />
            </OnRequest>
          )}
        </>
      )}
      <p class="quiet foot" aria-busy={picture.busy}>
        {earth &&
          "unknown" in earth &&
          `This page does not know the coordinate reference system ${earth.unknown}: the picture has its own x and y. `}
        {note && `${note} `}
        {range.value &&
          `The colours stay while it plays: 2 to 98 percent of the values of ${plural(range.value.size, "frame")}. `}
        {shown?.isSummary && "Each cell is the mean of a chunk, from statistics. "}
        {drawn &&
          drawn.level.place > 0 &&
          `Level ${drawn.level.place}, ${drawn.shape.map(count).join(" × ")}${behind}: zoom in for a finer one. `}
        {steps.length > 0 &&
          !shown?.isSummary &&
          `One of ${steps.map(stepText).join(", ")}: zoom in for all. `}
        {pair && !query["form"] && `Left of the divider: this version; right: ${compare}. `}
        {picture.busy && shown && !isPlaying ? "Loading…" : ""}
      </p>
    </div>
  );
}

function versionText({ repository }: Reader, id = ""): string {
  const row = repository.row(id);
  if (row < 0) return `${short(id)} `;
  return `${short(id)} ${minute(f64(repository.history.times, row))} ${firstLine(repository.history.message(row))}`;
}

/** Where the cells of the plane are on Earth. */
function useLocated(
  array: ArrayProps,
  reference: EarthReference | undefined,
  coordinates: Coordinates | undefined,
  part: Box,
  slice: Slice,
): Load<{ key: string; located: Located } | undefined> {
  const { node } = array;
  const { x, y } = slice;
  const key = JSON.stringify([node.path, part]);
  return useLoad(
    async (signal) => {
      if (!reference || !coordinates) return undefined;
      const { locate, ofSampling } = await import("../earth/geolocation");
      const readAll = (of: ArrayNode): Promise<Decoded> =>
        valuesOf({ ...array, node: of }, undefined, signal);
      const read = async (cells: ArrayNode): Promise<Float64Array> => {
        const [across, down] = [x, y].map((d) => cells.dimensions.indexOf(node.dimensions[d] ?? null));
        const cut = (list: number[]): number[] =>
          cells.dimensions.map((name) => nth(list, node.dimensions.indexOf(name)));
        const box = { start: cut(part.start), stop: cut(part.stop), step: cut(part.step) };
        const { values, shape } = await valuesOf({ ...array, node: cells }, box, signal);
        return plane(values as Float64Array, shape, across ?? -1, down ?? -1);
      };
      const axes = [axisOf(node, coordinates, part, x), axisOf(node, coordinates, part, y)] as const;
      const { sampling } = reference;
      if (!sampling) return { key, located: await locate(reference, ...axes, read) };
      return { key, located: { places: await ofSampling(sampling, axes, part, slice, read, readAll) } };
    },
    [reference, coordinates, key, x, y],
    true,
  );
}
