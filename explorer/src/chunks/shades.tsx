/** The colours of the map of chunks: what each stands for, and its legend. */

import type { ComponentChildren, VNode } from "preact";
import { scaleOf } from "../array/axes";
import { CATEGORIES, cssColour, pixel, table as colourTable } from "../array/colour";
import { KINDS, kinds, summary } from "../array/references";
import { f64, i32, nth, u8 } from "../base/lists";
import type { Decoded } from "../cf/cf";
import type { Shade } from "./cells";
import type { ChunkTable, Repository } from "../format/types";
import { css } from "../page/canvas";
import { CommitLink } from "../page/parts";
import { bytes, count, firstLine, minute, number, plural, short, when } from "../page/text";
import { statistics } from "../values/numbers";
import { type Statistics, STATISTICS } from "../values/summary";
import { author } from "../versions/search";
import type { Writers } from "../versions/writers";

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
    const notes = of.notes.map((note) => (
      <span class="quiet" key={note}>
        {note}. The file is ignored.
      </span>
    ));
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
