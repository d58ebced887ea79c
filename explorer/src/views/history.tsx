/** The graph of commits, and what a commit changed, with the values before and after it. */

import type { VNode } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { type Scale, scaleOf } from "../array/axes";
import { arrays, itemSize, title } from "../array/nodes";
import { chunkBox, MOST_VALUES } from "../array/references";
import { cellFinder } from "../array/slices";
import { f64, firstWhere, i32, nth, product, record, records, type Shape } from "../base/lists";
import type { Changes, Repository } from "../format/types";
import { Canvas, css } from "../page/canvas";
import type { ArrayProps, Reader, Target } from "../page/home";
import { List } from "../page/list";
import { CommitLink, Entry, Facts, Grid, More, OnRequest, Wait } from "../page/parts";
import { mainBranch } from "../page/route";
import { diffAddress, go, nodeAddress, notice, route, setQuery, useLater, useLoad } from "../page/state";
import { count, firstLine, minute, plural, short, when } from "../page/text";
import { allCategories, statistics } from "../values/numbers";
import { nodeOf, together } from "../values/play";
import { ruleText } from "../versions/derived";
import { author, search } from "../versions/search";
import { ChangeButtons } from "./change";
import { ChangeList, Value } from "./overview";

const ROW = 30;
const STEP = 16; // pixels between lanes
const MOST_LANES = 14;

/** Row of the history -> names that point to it. */
function namesOf(repository: Repository): Map<number, string[]> {
  const names = new Map<number, string[]>();
  for (const [kind, refs] of Object.entries({ branch: repository.branches, tag: repository.tags }))
    for (const [name, id] of refs) {
      const row = repository.row(id);
      if (row >= 0) names.set(row, [...(names.get(row) ?? []), `${kind}.${name}`]);
    }
  return names;
}

const Name = ({ of }: { of: string }): VNode => {
  const [kind, name] = [of.slice(0, of.indexOf(".")), of.slice(of.indexOf(".") + 1)];
  return (
    <span class={`name ${kind}`}>
      <span class="hidden">{kind} </span>
      {name}
    </span>
  );
};

export function History({ reader }: { reader: Reader }): VNode {
  const { repository } = reader;
  const { history } = repository;
  const names = useMemo(() => namesOf(repository), [repository]);
  const lanes = useMemo(() => {
    const main = repository.branches.get(mainBranch(repository) ?? "");
    return layLanes(history.parent, main ? repository.row(main) : -1, names.keys());
  }, [repository]);
  const { q = "", at = "" } = route.value.query;
  const places = useMemo(() => (q.trim() ? search(history, q, names) : undefined), [lanes, q]);
  const total = places ? places.length : lanes.length;
  const rowAt = (index: number): number => lanes.turn(places ? i32(places, index) : index);
  const row = repository.row(at || repository.branches.get("main") || "");
  const place = row >= 0 ? lanes.turn(row) : -1;
  const active = places ? places.indexOf(place) : place;
  const shownLanes = Math.min(lanes.members.length, MOST_LANES);
  const width = places ? 20 : shownLanes * STEP + 8;
  useEffect(() => void (places && (notice.value = `${plural(total, "commit")} found`)), [places]);

  const select = (index: number): void => setQuery({ at: history.id(rowAt(index)) });
  return (
    <div class="split history">
      <section class="pane fill" aria-label="Commits">
        <div class="bar">
          <input
            type="search"
            class="wide"
            value={q}
            placeholder="Search message, id, author:name, after:2024-01, before:2024-02"
            aria-label="Search commits"
            onInput={(event) => setQuery({ q: event.currentTarget.value })}
          />
          <span class="quiet">
            {places && `${count(total)} of `}
            {plural(lanes.length, "commit")}
          </span>
        </div>
        {history.isCut && <p class="quiet foot">Older commits exist that were not read.</p>}
        <List
          label="Commits, newest first"
          role="listbox"
          class="commits"
          count={total}
          rowHeight={ROW}
          active={active}
          onActive={select}
          onOpen={(index) => go({ page: "node", version: history.id(rowAt(index)), path: "/", query: {} })}
          gutter={(first, shown) => (
            <Graph lanes={lanes} places={places} first={first} shown={shown} width={width} active={active} />
          )}
          indent={() => width + 8}
          row={(index) => {
            const commit = rowAt(index);
            const by = author(history.metadata(commit));
            return (
              <>
                {names.get(commit)?.map((name) => (
                  <Name key={name} of={name} />
                ))}
                <span class="message">{firstLine(history.message(commit)) || "(no message)"}</span>
                {by && <span class="author">{by}</span>}
                <time>{minute(f64(history.times, commit))}</time>
                <code class="id">{short(history.id(commit))}</code>
              </>
            );
          }}
        />
      </section>
      <section class="pane detail" aria-label="Commit" tabIndex={0}>
        {row >= 0 ? (
          <Commit key={row} {...{ reader, row }} names={names.get(row)} isNamed={lanes.named[place] === 1} />
        ) : (
          <p class="quiet">Select a commit.</p>
        )}
      </section>
    </div>
  );
}

type GraphNumber = "first" | "shown" | "width" | "active";
type GraphProps = { lanes: Lanes; places: Int32Array | undefined } & Record<GraphNumber, number>;

function Graph({ lanes, places, first, shown, width, active }: GraphProps): VNode {
  const x = (lane: number): number => 12 + Math.min(lane, MOST_LANES - 1) * STEP;
  const y = (place: number): number => (place - first + 0.5) * ROW;
  const draw = (context: CanvasRenderingContext2D): void => {
    const colours = Array.from({ length: 7 }, (_, lane) => css(`lane${lane}`));
    const [page, quiet] = [css("page"), css("quiet")];
    context.lineWidth = 2;
    for (const child of places ? [] : linesBetween(lanes, first, first + shown, lanes.members.length)) {
      const above = i32(lanes.parent, child);
      const [own, other] = [i32(lanes.lane, child), i32(lanes.lane, above)];
      // Points far outside the canvas cost time and precision
      const [from, to] = [Math.max(y(child), -ROW), Math.min(y(above), (shown + 1) * ROW)];
      context.strokeStyle = lanes.named[child] ? nth(colours, own % 7) : quiet;
      context.setLineDash(lanes.named[child] ? [] : [3, 3]);
      context.beginPath();
      context.moveTo(x(own), from);
      if (own === other || to < y(above)) context.lineTo(x(own), to);
      else {
        context.lineTo(x(own), Math.max(from, to - ROW));
        context.bezierCurveTo(x(own), to - ROW * 0.3, x(other), to - ROW * 0.7, x(other), to);
      }
      context.stroke();
    }
    context.setLineDash([]);
    for (let index = first; index < first + shown; index++) {
      const place = places ? i32(places, index) : index;
      const lane = places ? 0 : i32(lanes.lane, place);
      context.beginPath();
      context.arc(x(lane), y(index), index === active ? 6 : 4, 0, 2 * Math.PI);
      context.fillStyle = lanes.named[place] ? nth(colours, i32(lanes.lane, place) % 7) : quiet;
      context.fill();
      context.lineWidth = 2;
      context.strokeStyle = page;
      context.stroke();
    }
  };
  return <Canvas class="gutter" aria-hidden="true" width={width} height={shown * ROW} draw={draw} />;
}

type CommitProps = { reader: Reader; row: number; names: readonly string[] | undefined; isNamed: boolean };

function Commit({ reader, row, names = [], isNamed }: CommitProps): VNode {
  const { repository } = reader;
  const { history } = repository;
  const id = history.id(row);
  const above = i32(history.parent, row);
  const base = above >= 0 ? history.id(above) : "";
  const metadata = history.metadata(row);
  const rules = records(record(metadata["frazil_audit"]).rows);
  const changes = useLoad(async () => {
    const own = await repository.changes(id);
    if (!own) return {};
    const deletes = own.deletedArrays.length + own.deletedGroups.length > 0 && above >= 0;
    const [snapshot, former] = await Promise.all([
      repository.snapshot(id),
      deletes ? repository.snapshot(base) : undefined,
    ]);
    return { own, snapshot, former };
  }, [id]);
  const compare = (base: string): string | void =>
    base === ""
      ? "Write a branch, a tag or an id."
      : go({ page: "diff", base, version: id, path: "/", query: {} });
  return (
    <>
      <h2 class="text">{history.message(row) || "(no message)"}</h2>
      <p class="actions">
        <a class="button main" href={nodeAddress(id)}>
          Open this version
        </a>
        {above >= 0 && (
          <a class="button" href={diffAddress(base, id)}>
            Differences from its parent
          </a>
        )}
      </p>
      {reader.change && <ChangeButtons repository={repository} id={id} names={names} />}
      <Entry
        label="Version to compare with"
        isUnlabelled
        list="versions"
        placeholder="Branch, tag or id"
        onEnter={compare}
        after={<button>Compare</button>}
      />
      <Facts
        rows={[
          ["Id", <code>{id}</code>],
          ["Time", `${when(f64(history.times, row))} UTC`],
          names.length > 0 && ["Names", names.map((name) => <Name key={name} of={name} />)],
          above >= 0 && [
            "Parent",
            <CommitLink id={history.id(above)}>
              {short(history.id(above))} {firstLine(history.message(above))}
            </CommitLink>,
          ],
          rules.length > 0 && [
            "Rules",
            rules.map((rule, at) => (
              <div key={at} class={rule["ok"] === true ? "" : "problem"}>
                {rule["ok"] === true ? "✓" : "✗"} {ruleText(rule)}
              </div>
            )),
          ],
          !isNamed && ["Reach", "No branch or tag leads to this commit."],
        ]}
      />
      <h3>Changes of this commit</h3>
      <Wait of={changes} what="the changes">
        {({ own, snapshot, former }) =>
          own ? (
            <>
              <ChangeList changes={own} snapshot={snapshot} former={former} version={id} />
              <Histograms reader={reader} snapshot={snapshot} changes={own} base={base} />
            </>
          ) : (
            <p class="quiet">There is no record of changes for this commit.</p>
          )
        }
      </Wait>
      {Object.keys(metadata).length > 0 && <h3>Metadata</h3>}
      <Facts rows={Object.entries(metadata).map(([key, value]) => [key, <Value of={value} />] as const)} />
    </>
  );
}

export type Lanes = ReturnType<typeof layLanes>;

/**
 * `rows` are the parents of rows, which come earlier. The line of `first` gets lane 0; `tips` are rows with names.
 * A place on the graph (0 is the newest) has a lane, the place of its parent (-1 for a root), and 1 in `named` if a
 * branch or tag leads to it. `members` are the places of each lane. `turn`: from a place to its row, and back.
 */
export function layLanes(rows: Int32Array, first: number, tips: Iterable<number>) {
  const length = rows.length;
  const turn = (at: number): number => length - 1 - at;
  const parent = rows.toReversed().map((row, at) => (row >= 0 && row < turn(at) ? turn(row) : -1));
  const main = new Uint8Array(length);
  for (let at = first >= 0 ? turn(first) : -1; at >= 0; at = i32(parent, at)) main[at] = 1;
  const named = new Uint8Array(length);
  for (const tip of tips)
    for (let at = tip >= 0 ? turn(tip) : -1; at >= 0 && !named[at]; at = i32(parent, at)) named[at] = 1;

  const lane = new Int32Array(length).fill(-1);
  const ends: number[] = []; // lane -> place up to which a line occupies it
  for (let at = 0; at < length; at++) {
    // The leftmost child of a commit gave it a lane already
    let own = main[at] ? 0 : i32(lane, at);
    if (own < 0) for (own = first >= 0 ? 1 : 0; own < ends.length && nth(ends, own) > at;) own++;
    lane[at] = own;
    while (ends.length <= own) ends.push(-1);
    const above = i32(parent, at);
    ends[own] = Math.max(nth(ends, own), above >= 0 ? above : at);
    if (above >= 0 && !main[above] && (i32(lane, above) < 0 || own < i32(lane, above))) lane[above] = own;
  }
  const members = ends.map((): number[] => []);
  lane.forEach((own, at) => nth(members, own).push(at));
  return { length, lane, parent, members, named, turn };
}

/** The children of the lines across the places from `start` to `stop`: one per lane, and those that begin there. */
export function linesBetween(lanes: Lanes, start: number, stop: number, width: number): number[] {
  const children: number[] = [];
  for (let own = 0; own < Math.min(width, lanes.members.length); own++) {
    const members = nth(lanes.members, own);
    const next = firstWhere(members.length, (at) => nth(members, at) >= start);
    for (let at = Math.max(0, next - 1); at < members.length && nth(members, at) < stop; at++)
      if (i32(lanes.parent, nth(members, at)) >= start) children.push(nth(members, at));
  }
  return children;
}

const [MOST_ARRAYS, MOST_CHUNKS, BINS, SMALL] = [8, 8, 12, 500_000]; // SMALL: values that are read unasked

/** The ends of even bins over all values, and how many values of each list lie in them: as in numpy. Or categories. */
function histogram(lists: readonly Float64Array[], categories?: Shape) {
  const { low, high, count: known } = statistics(together(lists).filter(Number.isFinite));
  const [first, last] = low < high ? [low, high] : [low - 0.5, high + 0.5];
  const end = (at: number): number => (at === BINS ? last : at * ((last - first) / BINS) + first);
  const ends = Float64Array.from({ length: BINS + 1 }, (_, at) => end(at));
  const place = categories ? (value: number) => categories.indexOf(value) : cellFinder(ends);
  const counts = lists.map((list) => {
    const sizes = new Uint32Array(categories?.length ?? (known && BINS));
    for (const at of list.map(place)) if (at >= 0) sizes[at] = nth(sizes, at) + 1;
    return sizes;
  });
  return { ends, counts };
}

/** An array, coordinates of chunks that the commit wrote, and the id of the version before. */
type WrittenProps = ArrayProps & { readonly chunks: readonly number[][]; readonly base: string };

/** The values of the chunks in a version, and how many of them have no bin, by the reason. */
async function valuesIn({ reader, node, chunks }: WrittenProps, of: Target | undefined, signal: AbortSignal) {
  const { chunkShape, edges } = node;
  const read = async (coords: number[], { snapshot, node: own }: Target) => {
    const box = chunkBox(coords, { shape: own.shape, chunkShape, edges });
    const region = await reader.read(snapshot, own.path, box, signal);
    const stored = own.dtype.startsWith("float") ? Array.from(region.raw, Number) : [];
    return { ...reader.decode(snapshot, own, region), nan: stored.filter(Number.isNaN).length };
  };
  const isKnown = of?.node.shape.length === node.shape.length;
  const parts = await Promise.all(isKnown ? chunks.map((coords) => read(coords, of)) : []);
  const values = together(parts.map((part) => part.values).filter((each) => each instanceof Float64Array));
  const nan = parts.reduce((sum, part) => sum + part.nan, 0);
  const missing = values.length - statistics(values).count - nan;
  const infinite = values.filter((value) => Math.abs(value) === Infinity).length;
  return { values, others: { missing, NaN: nan, infinite }, scale: scaleOf(parts[0] ?? {}) };
}
type Side = Awaited<ReturnType<typeof valuesIn>>;

/** What numbers mean: a commit can change it. */
const meaning = ({ scale: { units, clock, categories, text } }: Side): string =>
  JSON.stringify([units, clock?.calendar, categories?.map(text)]);

const shade = (share: number): string => `linear-gradient(to right, var(--plain) ${100 * share}%, #0000 0)`;

/** The rows of versions whose numbers have one meaning: the bins, and the reasons why other values have none. */
function binsOf(sides: readonly Side[], { text, hasMean, categories }: Scale) {
  const lists = sides.map(({ values }) => values);
  const known = hasMean ? undefined : allCategories(together(lists), categories ?? []);
  const { ends, counts } = histogram(lists, known);
  const most = Math.max(...counts.flatMap((each) => [...each]));
  const bar = (size: number): VNode => <div style={{ background: shade(size / most) }}>{count(size)}</div>;
  const bins = Array.from(counts[0] ?? [], (_, at) => [
    known ? text(nth(known, at)) : `${text(f64(ends, at))} to ${text(f64(ends, at + 1))}`,
    ...counts.map((each) => bar(nth(each, at))),
  ]);
  return [...bins, ...REASONS.map((reason) => [reason, ...sides.map((side) => count(side.others[reason]))])];
}

const REASONS = ["missing", "NaN", "infinite"] as const;

function Written(props: WrittenProps): VNode {
  const { reader, snapshot, node, base } = props;
  const read = async (signal: AbortSignal) => {
    const former = base ? await reader.repository.snapshot(base).catch(() => undefined) : undefined; // expired
    return Promise.all([former && nodeOf(former, node), props].map((of) => valuesIn(props, of, signal)));
  };
  const load = useLater(read, [snapshot, node.path]);
  return (
    <Wait of={load} what="the values of chunks">
      {(sides) => {
        const [before, after] = sides as [Side, Side];
        const isOne = !before.values.length || meaning(before) === meaning(after);
        const groups = isOne ? [sides] : [[before], [after]];
        const tables = groups.map((group) => binsOf(group, nth(group, group.length - 1).scale));
        const length = Math.max(...tables.map((table) => table.length));
        const rows = [...Array(length).keys()].map((at) =>
          tables.flatMap((table) => table[at + table.length - length] ?? groups.map(() => "")),
        );
        const [first, unit] = sides.map(({ scale }) => scale.units || "values");
        const heads = isOne ? [unit, "before", "after"] : [first, "before", unit, "after"];
        return <Grid class="values bins" heads={heads} rows={rows} />;
      }}
    </Wait>
  );
}

type HistogramsProps = Omit<WrittenProps, "node" | "chunks"> & { readonly changes: Changes };

/** A histogram for each array of numbers that a commit wrote. */
function Histograms({ changes, ...version }: HistogramsProps): VNode {
  const items = new Map(changes.updatedChunks.map((item) => [item.nodeId, item]));
  const written = arrays(version.snapshot).filter(({ id, dtype }) => items.has(id) && itemSize(dtype));
  return (
    <>
      {written.length > 0 && <h3>Values before and after</h3>}
      {written.slice(0, MOST_ARRAYS).map((node) => {
        const [rank, size] = [node.shape.length, product(node.chunkShape)];
        const { count: total = 0, coords = new Uint32Array() } = items.get(node.id) ?? {};
        const shown = Math.min(total, MOST_CHUNKS, Math.max(1, Math.floor(MOST_VALUES / size)));
        const rows = Array.from({ length: shown }, (_, at) => rank * Math.floor((at * total) / shown));
        const chunks = rows.map((at) => [...coords.subarray(at, at + rank)]);
        return (
          <section key={node.id} aria-label={`Values of ${node.path}`}>
            {title(node)} <span class="quiet">{node.path}</span>
            {shown < total && ` (${count(shown)} of the ${count(total)} chunks that the commit wrote)`}
            <OnRequest title="Read the values" isAsked={shown * size <= SMALL}>
              <Written {...version} node={node} chunks={chunks} />
            </OnRequest>
          </section>
        );
      })}
      <More of={written.length} most={MOST_ARRAYS} />
    </>
  );
}
