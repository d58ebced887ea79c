/** View of the chunks of an array. */

import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { pixel } from "../array/colour";
import { gridShape } from "../array/nodes";
import { changedRows, KINDS, kinds } from "../array/references";
import { parseSlice, sliceQuery } from "../array/slices";
import { entryOf } from "../base/json";
import { f64, i32, nth, product, type Shape, u8 } from "../base/lists";
import type { ChunkTable } from "../format/types";
import { canvasOf, css } from "../page/canvas";
import type { ArrayProps } from "../page/home";
import { Choice, Entry, Wait } from "../page/parts";
import { route, setQuery, useLoad } from "../page/state";
import { bytes, count, plural } from "../page/text";
import { Axes, Fixed } from "../values/sliders";
import { statisticsOf } from "../values/summary";
import { chunkWriters } from "../versions/writers";
import { cellsOf, paintCells } from "./cells";
import { Chunk } from "./chunk";
import { ChunkMap } from "./map";
import { SHADES } from "./shades";

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
  const changes = useLoad(async () => {
    if (colour !== "change") return undefined;
    const own = difference ? undefined : await repository.changes(snapshot.id);
    const coords = difference ?? own?.updatedChunks.find(({ nodeId }) => nodeId === node.id)?.coords;
    return coords && changedRows(table, grid.length, coords);
  }, [difference, snapshot.id, colour === "change", table]);
  const cells = useMemo(
    () => cellsOf(table, grid, slice.x, slice.y, slice.index),
    [table, slice.x, slice.y, slice.index.join()],
  );
  const size = useMemo(() => table.size.reduce((sum, each) => sum + each, 0), [table]);
  const writers = useLoad(
    async (signal, progress) =>
      needs === "writers" ? chunkWriters(repository, snapshot.id, node, table, progress, signal) : undefined,
    [needs === "writers", table],
  );
  const statistics = useLoad(
    async (signal) => (needs === "statistics" ? statisticsOf(array, table, signal) : undefined),
    [needs === "statistics", table],
  );
  const shown = useMemo(
    () =>
      show({
        repository,
        table,
        places: product(grid),
        changed: changes.value,
        writers: writers.value,
        statistics: statistics.value,
      }),
    [colour, table, changes.value, writers.value, statistics.value, css("page")],
  );
  const image = useMemo(() => {
    const pixels = new Uint32Array(cells.width * cells.height);
    paintCells(cells, shown.shade, shown.colours, pixel(css("missing")), pixel(css("plain")), pixels);
    return canvasOf(pixels, cells.width, cells.height);
  }, [cells, shown]);
  const choice = parseCell(query.cell, grid);
  const enterCell = (text: string): string | void => {
    if (text === "" || parseCell(text, grid)) return setQuery({ cell: text });
    const last = grid.map((length) => length - 1);
    return `The chunks of this array go from ${grid.map(() => 0).join(",")} to ${last.join(",")}.`;
  };
  const describe = (cell: number): string => {
    const row = i32(cells.rows, cell) - 1;
    const kind =
      row < 0 ? "missing" : `${nth(KINDS, u8(kinds(table), row)).name}, ${bytes(f64(table.size, row))}`;
    const place = `${cells.coords(cell).join(", ")}: ${kind}`;
    return [place, row >= 0 && shown.describe?.(row)].filter(Boolean).join("; ");
  };
  if (product(grid) === 0) return <p class="quiet">This array has no values, so it has no chunks.</p>;
  const options = Object.entries(SHADES)
    .filter(([, { most = Infinity }]) => table.length <= most)
    .map(([name, { label, labelBetween }]) => [name, (difference && labelBetween) || label] as const);
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
          key={query.cell ?? ""}
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
        {needs ? (
          <Wait<unknown> of={{ writers, statistics }[needs]} what={WAITS[needs]}>
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
              isPacked={kinds(table)[i32(cells.rows, cells.cell(choice)) - 1] === 2}
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
