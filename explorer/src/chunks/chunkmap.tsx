/** View of the chunks of an array. */

import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { pixel } from "../array/colour";
import { gridShape } from "../array/nodes";
import { changedRows, chunkBox, kinds, KINDS } from "../array/references";
import { full, meanOf, scaleOf } from "../array/scale";
import { parseSlice, sliceQuery } from "../array/slices";
import { entryOf } from "../base/json";
import { f64, i32, nth, product, u8 } from "../base/lists";
import { type Decoded } from "../cf/cf";
import { type ArrayNode, ChunkKind, type ChunkTable, type Snapshot } from "../format/types";
import { Canvas, canvasOf, css, Frame, pointerIn, useSize } from "../page/canvas";
import type { Reader } from "../page/home";
import { Choice, Entry, Facts, OnRequest, Sign, Wait } from "../page/parts";
import { address, route, setQuery, useLoad } from "../page/state";
import { bytes, count, firstLine, plural } from "../page/text";
import { ValueTable } from "../values/lines";
import { statistics } from "../values/numbers";
import { Axes, Fixed } from "../values/sliders";
import { chunkWriters } from "../versions/writers";
import { type Cells, cellsOf, paintCells } from "./cells";
import { needsStatistics, needsWriters, SHADES, statisticsOf } from "./shades";

interface ChunksProps {
  readonly reader: Reader;
  readonly snapshot: Snapshot;
  readonly node: ArrayNode;
  /** Coordinates of changed chunks; usually those of the snapshot's own commit. */
  readonly changed?: Uint32Array;
}

export function Chunks({ reader, snapshot, node, changed }: ChunksProps): VNode {
  const table = useLoad((_, progress) => snapshot.chunks(node.path, progress), [snapshot, node.path]);
  return (
    <Wait of={table} what="the references of the chunks">
      {(value) => (
        <ChunkView
          key={node.path}
          reader={reader}
          snapshot={snapshot}
          node={node}
          table={value}
          changed={changed}
        />
      )}
    </Wait>
  );
}

const MOST_FILES = 250_000; // references for which the colour of files is worth its time

function ChunkView({
  reader,
  snapshot,
  node,
  table,
  changed: difference,
}: ChunksProps & { table: ChunkTable; changed: Uint32Array | undefined }): VNode {
  const grid = gridShape(node);
  const { query } = route.value;
  const slice = parseSlice(grid, query);
  const colour = query["colour"] ?? (difference ? "change" : "kind");
  const changes = useLoad(async () => {
    if (colour !== "change") return undefined;
    const coords =
      difference ??
      (await reader.repository.changes(snapshot.id))?.updatedChunks.find((other) => other.nodeId === node.id)
        ?.coords;
    return coords && changedRows(table, grid.length, coords);
  }, [difference, snapshot.id, colour === "change", table]);
  const cells = useMemo(
    () => cellsOf(table, grid, slice.x, slice.y, slice.index),
    [table, slice.x, slice.y, slice.index.join()],
  );
  const theme = css("page");
  const size = useMemo(() => table.size.reduce((sum, each) => sum + each, 0), [table]);
  const writers = useLoad(
    async (signal, progress) =>
      needsWriters(colour)
        ? chunkWriters(reader.repository, snapshot.id, node, table, progress, signal)
        : undefined,
    [needsWriters(colour), table],
  );
  const statistics = useLoad(
    async (signal) =>
      needsStatistics(colour) ? statisticsOf(reader, snapshot, node, table, signal) : undefined,
    [needsStatistics(colour), table],
  );
  const shown = useMemo(
    () =>
      (entryOf(SHADES, colour) ?? SHADES.kind)({
        repository: reader.repository,
        table,
        places: product(grid),
        changed: changes.value,
        writers: writers.value,
        statistics: statistics.value,
      }),
    [colour, table, changes.value, writers.value, statistics.value, theme],
  );
  const image = useMemo(() => {
    const pixels = new Uint32Array(cells.width * cells.height);
    paintCells(cells, shown.shade, shown.colours, pixel(css("missing")), pixel(css("plain")), pixels);
    return canvasOf(pixels, cells.width, cells.height);
  }, [cells, shown]);
  const choice = parseCell(query["cell"], grid);
  const enterCell = (text: string): string | void => {
    if (text === "" || parseCell(text, grid)) setQuery({ cell: text });
    else
      return `The chunks of this array go from ${grid.map(() => 0).join(",")} to ${grid.map((length) => length - 1).join(",")}.`;
  };
  if (product(grid) === 0) return <p class="quiet">This array has no values, so it has no chunks.</p>;
  const options = [
    ["kind", "kind"],
    ["size", "stored size"],
    ...(table.length <= MOST_FILES ? [["file", "file"] as const] : []),
    ["change", difference ? "changed between the versions" : "changed by this commit"],
    ["commit", "commit that wrote it"],
    ["age", "age"],
    ["minimum", "smallest value"],
    ["maximum", "largest value"],
    ["mean", "mean"],
    ["gaps", "share without value"],
  ] as const;
  return (
    <div class="column fill">
      <div class="bar">
        {grid.length > 2 && <Axes node={node} grid={grid} />}
        <Choice
          label="Colour"
          value={colour}
          options={options}
          onSelect={(value) => setQuery({ colour: value })}
        />
        <Entry
          key={query["cell"] ?? ""}
          label="Chunk"
          size={10}
          value={choice?.join(",") ?? ""}
          placeholder={grid.map(() => "0").join(",")}
          onEnter={enterCell}
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
        {needsWriters(colour) ? (
          <Wait of={writers} what="the records of commits">
            {() => shown.legend}
          </Wait>
        ) : needsStatistics(colour) ? (
          <Wait of={statistics} what="the statistics of the chunks">
            {() => shown.legend}
          </Wait>
        ) : (
          shown.legend
        )}
        <span class="quiet">
          {plural(table.length, "chunk")}, {bytes(size)}
          {Math.max(...cells.factor) > 1 && `; a cell is ${cells.factor.map(count).join(" × ")} chunks`}
        </span>
      </div>
      <div class="split fill">
        <Map
          cells={cells}
          image={image}
          choice={choice && cells.cell(choice)}
          describe={(cell) => {
            const coords = cells.coords(cell);
            const row = i32(cells.rows, cell) - 1;
            return [
              `${coords.join(", ")}: ${row < 0 ? "missing" : `${nth(KINDS, u8(kinds(table), row)).name}, ${bytes(f64(table.size, row))}`}`,
              row >= 0 && shown.describe?.(row),
            ]
              .filter(Boolean)
              .join("; ");
          }}
          onChoose={(cell) => setQuery({ cell: cells.coords(cell).join(",") })}
        />
        {choice && (
          <section class="pane detail" aria-label="Chunk" tabIndex={0}>
            <Chunk
              key={choice.join()}
              reader={reader}
              snapshot={snapshot}
              node={node}
              coords={choice}
              packed={kinds(table)[i32(cells.rows, cells.cell(choice)) - 1] === 2}
            />
          </section>
        )}
      </div>
    </div>
  );
}

function parseCell(text: string | undefined, grid: readonly number[]): number[] | undefined {
  if (text === undefined) return undefined;
  const coords = text
    .split(/[,\s]+/)
    .filter(Boolean)
    .map(Number);
  return coords.length === grid.length &&
    coords.every((at, dimension) => Number.isInteger(at) && at >= 0 && at < nth(grid, dimension))
    ? coords
    : undefined;
}

interface MapProps {
  readonly cells: Cells;
  readonly image: HTMLCanvasElement;
  readonly choice: number | undefined;
  describe(cell: number): string;
  onChoose(cell: number): void;
}

const LINES = 8; // pixels of a cell from which lines between cells are drawn

function Map({ cells, image, choice, describe, onChoose }: MapProps): VNode {
  const [element, size] = useSize<HTMLDivElement>();
  const squeeze = size.width / cells.width / (size.height / cells.height) || 1;
  // Cells are square unless the plane is long and narrow
  const ratio = squeeze > 4 ? Math.min(squeeze, 24) : squeeze < 1 / 4 ? Math.max(squeeze, 1 / 24) : 1;
  const fit =
    Math.min(
      size.width / cells.width / ratio,
      size.height / cells.height,
      ratio > 1 ? 40 / Math.sqrt(ratio) : 40,
    ) || 1; // height of a cell
  const [view, setView] = useState<{ scale: number; left: number; top: number } | undefined>(undefined);
  const [hover, setHover] = useState(-1);
  const drag = useRef<{ x: number; y: number; left: number; top: number; moved: boolean } | undefined>(
    undefined,
  );
  useEffect(() => setView(undefined), [cells.width, cells.height]);
  const { scale, left, top } = view ?? {
    scale: fit,
    left: (size.width - cells.width * fit * ratio) / 2,
    top: (size.height - cells.height * fit) / 2,
  };
  const wide = scale * ratio;

  const cellAt = (event: PointerEvent): number => {
    const { x, y } = pointerIn(element, event);
    const column = Math.floor((x - left) / wide);
    const row = Math.floor((y - top) / scale);
    const cell = row * cells.width + column;
    return column >= 0 && column < cells.width && row >= 0 && row < cells.height && cell < cells.length
      ? cell
      : -1;
  };
  const zoom = (factor: number, x = size.width / 2, y = size.height / 2): void => {
    const next = Math.min(Math.max(scale * factor, fit / 2), 80);
    setView({ scale: next, left: x - ((x - left) * next) / scale, top: y - ((y - top) * next) / scale });
  };
  useEffect(() => {
    // Only a listener that is not passive may keep the page from scrolling
    const wheel = (event: WheelEvent): void => {
      event.preventDefault();
      const { x, y } = pointerIn(element, event);
      zoom(Math.exp(-event.deltaY * 0.002), x, y);
    };
    const target = element.current;
    target?.addEventListener("wheel", wheel, { passive: false });
    return () => target?.removeEventListener("wheel", wheel);
  });
  const key = (event: KeyboardEvent): void => {
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: cells.width, ArrowUp: -cells.width }[event.key];
    if (move !== undefined) {
      const next = (choice ?? -move) + move;
      if (next >= 0 && next < cells.length) {
        onChoose(next);
        const [x, y] = [
          left + ((next % cells.width) + 0.5) * wide,
          top + (Math.floor(next / cells.width) + 0.5) * scale,
        ];
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
    context.drawImage(
      image,
      x,
      y,
      right - x,
      bottom - y,
      left + x * wide,
      top + y * scale,
      (right - x) * wide,
      (bottom - y) * scale,
    );
    if (Math.min(scale, wide) >= LINES) {
      context.strokeStyle = css("page");
      context.lineWidth = 1;
      context.beginPath();
      for (let at = x; at <= right; at++) {
        context.moveTo(Math.round(left + at * wide) + 0.5, top + y * scale);
        context.lineTo(Math.round(left + at * wide) + 0.5, top + bottom * scale);
      }
      for (let at = y; at <= bottom; at++) {
        context.moveTo(left + x * wide, Math.round(top + at * scale) + 0.5);
        context.lineTo(left + right * wide, Math.round(top + at * scale) + 0.5);
      }
      context.stroke();
    }
  };
  const mark = (cell: number, kind: string): VNode | false => {
    const [across, down] = [Math.max(wide, 6) + 2, Math.max(scale, 6) + 2];
    const [x, y] = [
      left + ((cell % cells.width) + 0.5) * wide - across / 2,
      top + (Math.floor(cell / cells.width) + 0.5) * scale - down / 2,
    ];
    return cell >= 0 && <Frame kind={kind} x={x} y={y} width={across} height={down} />;
  };
  return (
    <div class="map-frame">
      <div
        ref={element}
        class="map"
        role="application"
        aria-label="Map of chunks. Arrow keys choose a chunk, plus and minus zoom, zero shows all."
        tabIndex={0}
        onKeyDown={key}
        onPointerDown={(event) => {
          drag.current = { x: event.clientX, y: event.clientY, left, top, moved: false };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => {
          const from = drag.current;
          if (from && (from.moved || Math.hypot(event.clientX - from.x, event.clientY - from.y) > 4)) {
            from.moved = true;
            setView({
              scale,
              left: from.left + event.clientX - from.x,
              top: from.top + event.clientY - from.y,
            });
          } else setHover(cellAt(event));
        }}
        onPointerUp={(event) => {
          const cell = cellAt(event);
          if (drag.current && !drag.current.moved && cell >= 0) onChoose(cell);
          drag.current = undefined;
        }}
        onPointerCancel={() => (drag.current = undefined)}
        onPointerLeave={() => setHover(-1)}
      >
        <Canvas
          width={size.width}
          height={size.height}
          draw={draw}
          keys={[image, scale, left, top]}
          aria-hidden="true"
        />
        {mark(hover, "hover")}
        {mark(choice ?? -1, "chosen")}
      </div>
      <div class="map-foot">
        <button aria-label="Zoom in" onClick={() => zoom(1.5)}>
          <Sign>+</Sign>
        </button>
        <button aria-label="Zoom out" onClick={() => zoom(1 / 1.5)}>
          <Sign>−</Sign>
        </button>
        <button onClick={() => setView(undefined)}>All</button>
        <output aria-live="polite">
          {hover >= 0
            ? describe(hover)
            : choice !== undefined
              ? describe(choice)
              : "Click a cell for its chunk; wheel zooms, drag moves."}
        </output>
      </div>
    </div>
  );
}

export const MOST_VALUES = 4_000_000; // of a chunk that is read whole

function Chunk({
  reader,
  snapshot,
  node,
  coords,
  packed,
}: {
  reader: Reader;
  snapshot: Snapshot;
  node: ArrayNode;
  coords: number[];
  packed: boolean;
}): VNode {
  const reference = useLoad(() => snapshot.chunk(node.path, coords), [snapshot, node.path]);
  const { start, stop } = chunkBox(coords, node.shape, node.chunkShape);
  const extent = stop.map((high, dimension) => high - nth(start, dimension));
  const values = useLoad(
    async (signal) =>
      product(extent) > MOST_VALUES
        ? undefined
        : reader.decode(
            snapshot,
            node,
            await reader.read(snapshot, node.path, start, stop, undefined, signal),
          ),
    [snapshot, node.path],
  );
  return (
    <>
      <h3>Chunk {coords.join(", ") || "of the scalar"}</h3>
      <Wait of={reference} what="the reference">
        {(entry) => (
          <Facts
            rows={[
              [
                "Kind",
                !entry
                  ? "missing: all values are the fill value"
                  : entry.kind === ChunkKind.Inline
                    ? "inline in the manifest"
                    : entry.kind === ChunkKind.Virtual
                      ? "virtual"
                      : packed
                        ? "in a pack"
                        : "own file",
              ],
              entry?.location !== undefined && ["Location", <code class="text">{entry.location}</code>],
              entry && entry.kind !== ChunkKind.Inline && ["Offset", count(entry.offset)],
              entry && ["Size", `${count(entry.size)} bytes`],
              entry?.checksum !== undefined && ["Checksum", <code class="text">{entry.checksum}</code>],
              ["Region", start.map((low, at) => `${low}:${stop[at]}`).join(", ") || "scalar"],
            ]}
          />
        )}
      </Wait>
      {reference.value && (
        <OnRequest title="Which commit wrote it?">
          <Writer reader={reader} snapshot={snapshot} node={node} coords={coords} />
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

function Writer({
  reader: { repository },
  snapshot,
  node,
  coords,
}: {
  reader: Reader;
  snapshot: Snapshot;
  node: ArrayNode;
  coords: number[];
}): VNode {
  const one = { length: 1, coords: Uint32Array.from(coords) };
  const writers = useLoad(
    (signal) => chunkWriters(repository, snapshot.id, node, one, undefined, signal),
    [],
  );
  return (
    <Wait of={writers} what="the records of commits">
      {({ rows: [row = -1], merges }) => {
        if (row < 0) return <p class="quiet">The commits on record did not write it.</p>;
        const id = repository.history.id(row);
        return (
          <p>
            {merges.has(row) ? "Came with merge" : "Written by"}{" "}
            <a href={address({ page: "history", query: { at: id } })}>{id.slice(0, 6)}</a>{" "}
            {firstLine(repository.history.message(row))}
          </p>
        );
      }}
    </Wait>
  );
}

const CORNER = 8;

/** Statistics, and the first rows and columns of the last two dimensions. */
function Values({ decoded, shape }: { decoded: Decoded; shape: readonly number[] }): VNode {
  const { values } = decoded;
  const [rows, columns] = [shape.at(-2) ?? 1, shape.at(-1) ?? 1];
  const scale = scaleOf(decoded);
  const text = (at: number): string =>
    values instanceof Float64Array ? scale.text(f64(values, at)) : decoded.label(at);
  const facts = useMemo(
    () => (values instanceof Float64Array && values.length > 1 ? statistics(values) : undefined),
    [values],
  );
  return (
    <>
      {facts && facts.count > 0 && (
        <Facts
          rows={[
            ["Smallest", full(scale, values[facts.lowAt] as number)],
            ["Largest", full(scale, values[facts.highAt] as number)],
            scale.hasMean && ["Mean", full(scale, meanOf(scale, facts.mean))],
          ]}
        />
      )}
      {facts && <Facts rows={[["Without value", count(values.length - facts.count)]]} />}
      {values.length > 0 && (
        <ValueTable name="First values" text={text} width={columns} height={rows} most={CORNER} />
      )}
    </>
  );
}
