/** View of the chunks of an array. */

import type { VNode } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { scaleOf } from "../array/axes";
import { pixel } from "../array/colour";
import { gridShape, itemSize } from "../array/nodes";
import { changedRows, chunkBox, KINDS, kinds, MOST_VALUES } from "../array/references";
import { parseSlice, sliceQuery } from "../array/slices";
import { clamp, entryOf, f64, i32, nth, product, type Shape, u8 } from "../base/lists";
import type { Decoded } from "../cf/cf";
import { type Cells, cellsOf, paintCells, type ShadeData, SHADES } from "./shades";
import { ChunkKind, type ChunkTable } from "../format/types";
import { arrowOf, Canvas, canvasOf, css, Frame, usePointer, useSize, useWheel } from "../page/canvas";
import { type ArrayProps, valuesOf } from "../page/home";
import { Choice, Facts, OnRequest, Wait, ZoomButtons } from "../page/parts";
import { route, setQuery, useLoad } from "../page/state";
import { bytes, count, number, plural } from "../page/text";
import { ValueTable } from "../values/lines";
import { Numbers } from "../values/numbers";
import { Past } from "../values/points";
import { Axes, Fixed } from "../values/sliders";
import { statisticsOf } from "../values/summary";
import { chunkWriters } from "../versions/writers";

interface ChunksProps extends ArrayProps {
  /** Coordinates of chunks that changed between two versions; without, those of the snapshot's own commit. */
  readonly changed?: Uint32Array;
}

export function Chunks(props: ChunksProps): VNode {
  const { snapshot, node } = props;
  const table = useLoad((_, progress) => snapshot.chunks(node.path, progress), [snapshot, node.path]);
  return (
    <Wait of={table} what="the references of the chunks">
      {(value) => <ChunkView key={node.path} {...props} table={value} />}
    </Wait>
  );
}

const WAITS = { writers: "the records of commits", statistics: "the statistics of the chunks" };

function ChunkView({ table, changed: difference, ...array }: ChunksProps & { table: ChunkTable }): VNode {
  const { reader, snapshot, node } = array;
  const { repository } = reader;
  const grid = gridShape(node);
  const { query } = route.value;
  const slice = parseSlice(grid, query);
  const colour = query.colour ?? (difference ? "change" : "kind");
  const { needs, show } = entryOf(SHADES, colour) ?? SHADES.kind;
  const source = needs ?? (colour === "change" && colour);
  const facts = useLoad(
    async (signal, progress): Promise<Pick<ShadeData, "changed" | "writers" | "statistics">> => {
      if (source === "writers")
        return { writers: await chunkWriters(repository, snapshot.id, node, table, progress, signal) };
      if (source === "statistics") return { statistics: await statisticsOf(array, table, signal) };
      if (source !== "change") return {};
      const own = difference ? undefined : await repository.changes(snapshot.id);
      const coords = difference ?? own?.updatedChunks.find(({ nodeId }) => nodeId === node.id)?.coords;
      return coords ? { changed: changedRows(table, grid.length, coords) } : {};
    },
    [difference, snapshot.id, source, table],
  );
  const cells = useMemo(
    () => cellsOf(table, grid, slice.x, slice.y, slice.index),
    [table, slice.x, slice.y, slice.index.join()],
  );
  const memory = product(node.shape) * (itemSize(node.dtype) ?? 0);
  const size = useMemo(() => table.size.reduce((sum, each) => sum + each, 0), [table]);
  const shown = useMemo(
    () => show({ repository, table, places: product(grid), ...facts.value }),
    [colour, table, facts.value, css("page")],
  );
  const image = useMemo(() => {
    const pixels = paintCells(cells, shown, pixel(css("missing")), pixel(css("plain")));
    return canvasOf(pixels, cells.width, cells.height);
  }, [cells, shown]);
  const choice = parseCell(query.cell, grid);
  const describe = (cell: number): string => {
    const row = i32(cells.rows, cell) - 1;
    const kind =
      row < 0 ? "missing" : `${nth(KINDS, u8(kinds(table), row)).name}, ${bytes(f64(table.size, row))}`;
    const place = `${cells.coords(cell).join(", ")}: ${kind}`;
    return [place, row >= 0 && shown.describe?.(row)].filter(Boolean).join("; ");
  };
  if (product(grid) === 0) return <p class="quiet">This array has no values, so it has no chunks.</p>;
  const options = Object.entries(SHADES).map(
    ([name, { label, labelBetween }]) => [name, (difference && labelBetween) || label] as const,
  );
  return (
    <div class="column fill">
      <div class="bar">
        {grid.length > 2 && <Axes node={node} grid={grid} slice={slice} />}
        <Choice
          label="Colour"
          value={colour}
          options={options}
          onSelect={(value) => setQuery({ colour: value })}
        />
      </div>
      <Fixed
        node={node}
        shape={grid}
        slice={slice}
        what="chunk"
        onIndex={(index) => setQuery(sliceQuery(grid, { ...slice, index }))}
      />
      <div class="legend">
        {needs ? (
          <Wait of={facts} what={WAITS[needs]}>
            {() => shown.legend}
          </Wait>
        ) : (
          shown.legend
        )}
        <span class="quiet">
          {plural(table.length, "chunk")}, {bytes(size)}
          {memory > 0 && size > 0 && `, ${number(Number((memory / size).toPrecision(3)))} : 1`}
          {Math.max(...cells.factor) > 1 && `; a cell is ${cells.factor.map(count).join(" × ")} chunks`}
        </span>
      </div>
      <div class="split fill">
        <ChunkMap
          cells={cells}
          image={image}
          choice={choice && cells.cell(choice)}
          describe={describe}
          onChoose={(cell) => setQuery({ cell: cells.coords(cell).join(",") })}
        />
        {choice && (
          <section class="pane detail" aria-label="Chunk" tabIndex={0}>
            <Chunk
              key={choice.join()}
              {...array}
              coords={choice}
              kind={kinds(table)[i32(cells.rows, cells.cell(choice)) - 1] ?? 0}
            />
          </section>
        )}
      </div>
    </div>
  );
}

function parseCell(text: string | undefined, grid: Shape): number[] | undefined {
  const coords = text
    ?.split(/[,\s]+/)
    .filter(Boolean)
    .map(Number);
  const isPlace = coords?.every((at, d) => Number.isInteger(at) && at >= 0 && at < (grid[d] ?? 0));
  return isPlace && coords?.length === grid.length ? coords : undefined;
}

interface MapProps {
  readonly cells: Cells;
  readonly image: HTMLCanvasElement;
  readonly choice: number | undefined;
  describe(cell: number): string;
  onChoose(cell: number): void;
}

const LINES = 8; // pixels of a cell from which lines between cells are drawn

export function ChunkMap({ cells, image, choice, describe, onChoose }: MapProps): VNode {
  const [element, size] = useSize<HTMLDivElement>();
  const squeeze = size.width / cells.width / (size.height / cells.height) || 1;
  // Cells are square unless the plane is long and narrow
  const ratio = squeeze > 4 ? Math.min(squeeze, 24) : squeeze < 1 / 4 ? Math.max(squeeze, 1 / 24) : 1;
  const largest = ratio > 1 ? 40 / Math.sqrt(ratio) : 40;
  const fit = Math.min(size.width / cells.width / ratio, size.height / cells.height, largest) || 1; // height of a cell
  const [view, setView] = useState<{ scale: number; left: number; top: number } | undefined>(undefined);
  const [hover, setHover] = useState(-1);
  useEffect(() => setView(undefined), [cells.width, cells.height]);
  const { scale, left, top } = view ?? {
    scale: fit,
    left: (size.width - cells.width * fit * ratio) / 2,
    top: (size.height - cells.height * fit) / 2,
  };
  const wide = scale * ratio;

  const cellAt = ([x, y]: readonly [number, number]): number => {
    const [column, row] = [Math.floor((x - left) / wide), Math.floor((y - top) / scale)];
    const cell = row * cells.width + column;
    const isInside = column >= 0 && column < cells.width && row >= 0 && row < cells.height;
    return isInside && cell < cells.length ? cell : -1;
  };
  const zoom = (factor: number, x = size.width / 2, y = size.height / 2): void => {
    const next = clamp(scale * factor, fit / 2, 80);
    setView({ scale: next, left: x - ((x - left) * next) / scale, top: y - ((y - top) * next) / scale });
  };
  useWheel(element, zoom);
  const centre = (cell: number): [number, number] => [
    left + ((cell % cells.width) + 0.5) * wide,
    top + (Math.floor(cell / cells.width) + 0.5) * scale,
  ];
  const key = (event: KeyboardEvent): void => {
    const arrow = arrowOf(event);
    if (arrow) {
      const move = arrow[0] + arrow[1] * cells.width;
      const next = (choice ?? -move) + move;
      if (next >= 0 && next < cells.length) {
        onChoose(next);
        const [x, y] = centre(next);
        if (x < 0 || y < 0 || x > size.width || y > size.height)
          setView({ scale, left: left + size.width / 2 - x, top: top + size.height / 2 - y });
      }
    } else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "0") setView(undefined);
    else return;
    event.preventDefault();
  };
  const draw = (context: CanvasRenderingContext2D, width: number, height: number): void => {
    context.imageSmoothingEnabled = Math.min(scale, wide) < 1;
    context.imageSmoothingQuality = Math.min(scale, wide) < 0.5 ? "medium" : "low";
    const [x, y] = [Math.max(0, Math.floor(-left / wide)), Math.max(0, Math.floor(-top / scale))];
    const [right, bottom] = [
      Math.min(cells.width, Math.ceil((width - left) / wide)),
      Math.min(cells.height, Math.ceil((height - top) / scale)),
    ];
    if (right <= x || bottom <= y) return;
    const [from, upper] = [left + x * wide, top + y * scale];
    const [to, lower] = [left + right * wide, top + bottom * scale];
    context.drawImage(image, x, y, right - x, bottom - y, from, upper, to - from, lower - upper);
    if (Math.min(scale, wide) < LINES) return;
    context.strokeStyle = css("page");
    context.lineWidth = 1;
    context.beginPath();
    for (let at = x; at <= right; at++) {
      context.moveTo(Math.round(left + at * wide) + 0.5, upper);
      context.lineTo(Math.round(left + at * wide) + 0.5, lower);
    }
    for (let at = y; at <= bottom; at++) {
      context.moveTo(from, Math.round(top + at * scale) + 0.5);
      context.lineTo(to, Math.round(top + at * scale) + 0.5);
    }
    context.stroke();
  };
  const mark = (cell: number, kind: string): VNode | false => {
    const [across, down] = [Math.max(wide, 6) + 2, Math.max(scale, 6) + 2];
    const [x, y] = centre(cell);
    return (
      cell >= 0 && <Frame kind={kind} x={x - across / 2} y={y - down / 2} width={across} height={down} />
    );
  };
  const pointer = usePointer({
    start: () => ({ left, top }),
    drag: (from, right, down) => setView({ scale, left: from.left + right, top: from.top + down }),
    hover: (at) => setHover(cellAt(at)),
    click: (at) => {
      const cell = cellAt(at);
      if (cell >= 0) onChoose(cell);
    },
  });
  const described = hover >= 0 ? hover : choice;
  return (
    <div class="map-frame">
      <div
        ref={element}
        class="map"
        role="application"
        aria-label="Map of chunks. Arrow keys choose a chunk, plus and minus zoom, zero shows all."
        tabIndex={0}
        onKeyDown={key}
        {...pointer}
        onPointerLeave={() => setHover(-1)}
      >
        <Canvas {...size} draw={draw} keys={[image, scale, left, top]} aria-hidden="true" />
        {mark(hover, "hover")}
        {mark(choice ?? -1, "chosen")}
      </div>
      <div class="map-foot">
        <ZoomButtons zoom={zoom} all={() => setView(undefined)} />
        <output aria-live="polite">
          {described === undefined
            ? "Click a cell for its chunk; wheel zooms, drag moves."
            : describe(described)}
        </output>
      </div>
    </div>
  );
}

type ChunkProps = ArrayProps & { readonly coords: number[] };

/** `kind` is the place of its kind among the kinds of chunks. */
function Chunk({ kind, ...props }: ChunkProps & { readonly kind: number }): VNode {
  const { snapshot, node, coords } = props;
  const reference = useLoad(() => snapshot.chunk(node.path, coords), [snapshot, node.path]);
  const part = chunkBox(coords, node);
  const extent = part.stop.map((high, d) => high - nth(part.start, d));
  const values = useLoad(
    async (signal) => (product(extent) > MOST_VALUES ? undefined : valuesOf(props, part, signal)),
    [snapshot, node.path],
  );
  const region = part.start.map((low, at) => `${low}:${part.stop[at]}`).join(", ");
  return (
    <>
      <h3>Chunk {coords.join(", ") || "of the scalar"}</h3>
      <Wait of={reference} what="the reference">
        {(entry) => (
          <Facts
            rows={[
              ["Kind", `${nth(KINDS, kind).name}${kind ? "" : ": all values are the fill value"}`],
              entry?.location !== undefined && ["Location", <code class="text">{entry.location}</code>],
              entry && entry.kind !== ChunkKind.Inline && ["Offset", count(entry.offset)],
              entry && ["Size", `${count(entry.size)} bytes`],
              entry?.checksum !== undefined && ["Checksum", <code class="text">{entry.checksum}</code>],
              ["Region", region || "scalar"],
            ]}
          />
        )}
      </Wait>
      {reference.value && (
        <OnRequest title="What happened here?">
          <Past {...props} part={part} />
        </OnRequest>
      )}
      <h3>Values</h3>
      <Wait of={values} what="the values">
        {(decoded) =>
          decoded ? (
            <Values decoded={decoded} shape={extent} />
          ) : (
            <p class="quiet">This chunk has too many values to show: {count(product(extent))}.</p>
          )
        }
      </Wait>
    </>
  );
}

const CORNER = 8;

/** Statistics, and the first rows and columns of the last two dimensions. */
function Values({ decoded, shape }: { decoded: Decoded; shape: Shape }): VNode {
  const { values } = decoded;
  const scale = scaleOf(decoded);
  const numbers = values instanceof Float64Array ? values : undefined;
  const text = numbers && !decoded.exact ? (at: number) => scale.text(f64(numbers, at)) : decoded.label;
  const none = { difference: false, placeOf: String, onChoose: undefined };
  return (
    <>
      {numbers && numbers.length > 1 && <Numbers values={numbers} scale={scale} {...none} />}
      {values.length > 0 && (
        <ValueTable
          name="First values"
          text={text}
          width={shape.at(-1) ?? 1}
          height={shape.at(-2) ?? 1}
          most={CORNER}
        />
      )}
    </>
  );
}
