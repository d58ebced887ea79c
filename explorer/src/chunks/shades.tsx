/** The map of the chunks of an array as cells, their colours, what each stands for, and its legend. */

import type { ComponentChildren, VNode } from "preact";
import { scaleOf } from "../array/axes";
import { CATEGORIES, cssColour, pixel, table as colourTable } from "../array/colour";
import { KINDS, kinds, summary } from "../array/references";
import { f64, i32, nth, type Shape, u32, u8 } from "../base/lists";
import type { Decoded } from "../cf/cf";
import type { ChunkTable, Repository } from "../format/types";
import { css } from "../page/canvas";
import { CommitLink } from "../page/parts";
import { bytes, count, firstLine, minute, number, plural, short, when } from "../page/text";
import { statistics } from "../values/numbers";
import { type Statistics, STATISTICS } from "../values/summary";
import { author } from "../versions/search";
import type { Writers } from "../versions/writers";

const MOST_CELLS = 4_000_000;
const LONGEST = 16_000; // pixels of a canvas in every browser

/** A plane of the grid of chunks. A cell stands for `factor` chunks, across and down, if the plane is very large. */
export type Cells = ReturnType<typeof cellsOf>;

/**
 * The plane of dimensions `x` and `y`; the others are fixed at `index`. With `y` = -1 the line is wrapped, and its last
 * row can be shorter: `length` cells have a place in the grid. `rows`: cell -> row of the table + 1; 0 is missing.
 */
export function cellsOf(table: ChunkTable, grid: Shape, x: number, y: number, index: Shape) {
  const rank = grid.length;
  const across = x < 0 ? 1 : nth(grid, x);
  const wrapped = y < 0;
  const down = wrapped ? 1 : nth(grid, y);
  const both = Math.max(
    1,
    wrapped ? Math.ceil(across / MOST_CELLS) : Math.ceil(Math.sqrt((across * down) / MOST_CELLS)),
  );
  const [right, below] = wrapped
    ? [both, 1]
    : [Math.max(both, Math.ceil(across / LONGEST)), Math.max(both, Math.ceil(down / LONGEST))];
  const line = Math.ceil(across / right);
  const width = wrapped && line > 64 ? Math.ceil(Math.sqrt(line * 2)) : Math.max(1, line);
  const height = wrapped ? Math.ceil(line / width) : Math.ceil(down / below);
  const rows = new Int32Array(width * height);
  const cell = (across: number, down: number): number =>
    Math.floor(down / below) * width + Math.floor(across / right);
  const others = index.map((_, d) => d).filter((d) => d !== x && d !== y);
  const { coords } = table;
  scan: for (let row = 0, at = 0; row < table.length; row++, at += rank) {
    for (const d of others) if (coords[at + d] !== index[d]) continue scan;
    const [column, place] = [x < 0 ? 0 : u32(coords, at + x), wrapped ? 0 : u32(coords, at + y)];
    if (column < across && place < down) rows[cell(column, place)] = row + 1; // others lie outside a smaller new shape
  }
  return {
    width,
    height,
    factor: [right, below] as const,
    rows,
    length: wrapped ? line : width * height,
    coords: (at: number): number[] =>
      index.map((fixed, d) => {
        if (d === x) return (wrapped ? at : at % width) * right;
        return d === y ? Math.floor(at / width) * below : fixed;
      }),
    cell: (place: Shape): number => cell(x < 0 ? 0 : nth(place, x), wrapped ? 0 : nth(place, y)),
  };
}

/** The colours of cells as pixels. `plain` is the colour of chunks of which nothing is known. */
export function paintCells({ rows, length }: Cells, of: Shade, missing: number, plain: number) {
  return Uint32Array.from(rows, (row, cell) => {
    const at = row ? of.shade(row - 1) : -1;
    return cell >= length ? 0 : !row ? missing : at < 0 ? plain : u32(of.colours, at);
  });
}

/** A colour of each chunk: a place among `colours`, or -1 where nothing is known. */
type Shade = { readonly colours: Uint32Array; shade(row: number): number };

/** What the colours can be computed from. A column that comes later, such as statistics, is one more field. */
export interface ShadeData {
  readonly repository: Repository;
  readonly table: ChunkTable;
  readonly places: number;
  readonly changed?: Uint8Array;
  readonly writers?: Writers;
  readonly statistics?: Statistics;
}

interface Shown extends Shade {
  readonly legend: ComponentChildren;
  /** More about a row, for the line below the map. */
  describe?(row: number): string;
}

/** A colour that a person can choose. */
interface ShadeKind {
  readonly label: string;
  /** The label in the view of a difference. */
  readonly labelBetween?: string;
  /** What must be loaded before. */
  readonly needs?: "writers" | "statistics";
  show(data: ShadeData): Shown;
}

const LISTED = 100; // commits in the legend
const NOTHING = { colours: new Uint32Array(1), shade: () => -1, legend: null };
const Swatch = ({ colour }: { colour: string }): VNode => <i class="swatch" style={{ background: colour }} />;

/** The colours of a column of numbers, one for each row of a table, and their scale with the texts of its limits. */
function scaled(values: Float64Array, text: (limit: number) => string): Shown {
  const { count: known, low, high } = statistics(values);
  const colours = colourTable("viridis");
  const scale = 255 / (high - low || 1);
  const shade = (row: number): number => {
    const value = f64(values, row);
    return Number.isNaN(value) ? -1 : ((value - low) * scale) | 0;
  };
  const stops = Array.from(colours, cssColour).join();
  const bar = <i aria-hidden="true" style={{ background: `linear-gradient(to right, ${stops})` }} />;
  const legend = known > 0 && (
    <span class="scale">
      {text(low)}
      {bar}
      {text(high)}
    </span>
  );
  return { colours, shade, legend };
}

type Column = readonly [values: Float64Array, text: (value: number) => string];

/** The colours of a column of statistics. */
const statistic = (label: string, column: (of: Statistics) => Column): ShadeKind => ({
  label,
  needs: "statistics",
  show: ({ statistics: of, table }) => {
    if (!of) return NOTHING;
    const { legend, ...shade } = scaled(...column(of));
    const total = of.gaps.reduce((sum, part) => sum + Number(!Number.isNaN(part)), 0);
    const rest = total < table.length && (
      <span>
        <Swatch colour={css("plain")} /> {plural(table.length - total, "chunk")} without statistics. The
        method <code>upkeep.build_statistics</code> of a repository stores them.
      </span>
    );
    const notes = (
      <span class="quiet">{of.notes.map((note) => `${note}. The file is ignored.`).join(" ")}</span>
    );
    return { ...shade, describe: (row) => describeStatistics(of, row), legend: [legend, rest, notes] };
  },
});

/** The colours by their name in the address. */
export const SHADES: Record<string, ShadeKind> & { readonly kind: ShadeKind } = {
  kind: {
    label: "kind",
    show: ({ table, places }) => {
      const own = kinds(table);
      return {
        colours: Uint32Array.from(KINDS, ({ colour }) => (colour ? pixel(colour) : 0)),
        shade: (row) => u8(own, row),
        legend: summary(table, places).map((kind) => (
          <span key={kind.name}>
            <Swatch colour={kind.colour || css("missing")} /> {kind.name} {count(kind.count)}
            {kind.size > 0 && <span class="quiet"> {bytes(kind.size)}</span>}
          </span>
        )),
      };
    },
  },
  size: {
    label: "stored size",
    show: ({ table }) =>
      scaled(Float64Array.from(table.size, Math.log1p), (size) => bytes(Math.round(Math.expm1(size)))),
  },
  change: {
    label: "changed by this commit",
    labelBetween: "changed between the versions",
    show: ({ changed = new Uint8Array() }) => ({
      colours: Uint32Array.of(pixel("#d55e00")),
      shade: (row) => (changed[row] ? 0 : -1),
      legend: (
        <span>
          <Swatch colour="#d55e00" /> changed {count(changed.reduce((sum, one) => sum + one, 0))}
        </span>
      ),
    }),
  },
  commit: {
    label: "commit that wrote it",
    needs: "writers",
    show: ({ repository, writers }) =>
      writers
        ? {
            colours: Uint32Array.from(CATEGORIES, pixel),
            shade: (row) => i32(writers.places, row) % CATEGORIES.length,
            describe: (row) => writerText(repository, writers, row),
            legend: <Commits repository={repository} writers={writers} />,
          }
        : NOTHING,
  },
  age: {
    label: "age",
    needs: "writers",
    show: ({ repository, writers }) => {
      if (!writers) return NOTHING;
      const { times } = repository.history;
      const ages = Float64Array.from(writers.rows, (row) => (row < 0 ? NaN : f64(times, row)));
      const { legend, ...shade } = scaled(ages, when);
      return {
        ...shade,
        describe: (row) => writerText(repository, writers, row),
        legend: [legend, <Older writers={writers} />],
      };
    },
  },
  minimum: statistic("smallest value", ({ minimum }) => columnOf(minimum)),
  maximum: statistic("largest value", ({ maximum }) => columnOf(maximum)),
  mean: statistic("mean", ({ mean }) => columnOf(mean)),
  gaps: statistic("share without value", ({ gaps }) => [gaps, share]),
};

const columnOf = (decoded: Decoded): Column => [decoded.values as Float64Array, scaleOf(decoded).text];
const share = (part: number): string => `${number(100 * part)} %`;

function describeStatistics(of: Statistics, row: number): string {
  const gaps = f64(of.gaps, row);
  if (Number.isNaN(gaps)) return "no statistics";
  const labels = STATISTICS.map((name) => {
    const [values, text] = columnOf(of[name]);
    return `${name} ${text(f64(values, row))}`;
  });
  return [...(gaps < 1 ? labels : []), gaps > 0 && `${share(gaps)} without value`].filter(Boolean).join(", ");
}

function writerText({ history }: Repository, { rows, read, merges }: Writers, at: number): string {
  const row = i32(rows, at);
  if (row < 0) return `older than ${plural(read, "commit")}`;
  const text = `${short(history.id(row))} ${firstLine(history.message(row))}, ${minute(f64(history.times, row))}`;
  return merges.has(row) ? `came with merge ${text}` : text;
}

const Older = ({ writers: { older, read } }: { writers: Writers }): VNode | null =>
  older ? (
    <span>
      <Swatch colour={css("plain")} /> {plural(older, "chunk")} older than{" "}
      {read === 1 ? "the commit" : `the ${plural(read, "commit")}`} on record
    </span>
  ) : null;

function Commits({ repository: { history }, writers }: { repository: Repository; writers: Writers }): VNode {
  const { commits } = writers;
  return (
    <>
      <ol class="plain writers scroll" aria-label="Commits that wrote these chunks" tabIndex={0}>
        {commits.slice(0, LISTED).map(({ row, count: chunks }, place) => (
          <li key={row}>
            <Swatch colour={nth(CATEGORIES, place % CATEGORIES.length)} />{" "}
            {writers.merges.has(row) && "came with merge "}
            <CommitLink id={history.id(row)} /> {firstLine(history.message(row))}{" "}
            <span class="quiet">
              {author(history.metadata(row))} {minute(f64(history.times, row))}, {plural(chunks, "chunk")}
            </span>
          </li>
        ))}
        {commits.length > LISTED && (
          <li class="quiet">and {plural(commits.length - LISTED, "older commit")}</li>
        )}
      </ol>
      {commits.length > CATEGORIES.length && (
        <span class="quiet">Colours repeat after {CATEGORIES.length} commits.</span>
      )}
      <Older writers={writers} />
    </>
  );
}
