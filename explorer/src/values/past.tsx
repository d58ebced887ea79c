/** What happened to a part of an array: the commits that wrote it, and its value after each. */

import type { VNode } from "preact";
import { axisOf, withUnit, scaleOf } from "../array/axes";
import { costOf, dimensionName } from "../array/nodes";
import { unsupported } from "../base/errors";
import { f64, i32, nth, product } from "../base/lists";
import type { Decoded } from "../cf/cf";
import { parallel } from "../codecs/pool";
import type { Changes, Progress, Selection } from "../format/types";
import { css } from "../page/canvas";
import { type ArrayProps, valuesOf } from "../page/home";
import { CommitLink, Table, Wait } from "../page/parts";
import { change, diffAddress, useLoad } from "../page/state";
import { bytes, firstLine, minute, plural, short } from "../page/text";
import { Lines } from "./lines";
import { statistics } from "./numbers";
import { nodeOf } from "./play";
import { ASK } from "./points";
import { author } from "../versions/search";
import { changeOf, commitsBack, commitsOfMerge, FARTHEST, isCompaction } from "../versions/writers";

const MOST = 200; // commits that are shown

/** A commit that wrote the part, the kind of its change, and the value after it. */
type Event = { readonly row: number; kind: string; text: string; value: number };

/** The events of a part, newest first, and how its history ends. */
export async function pastOf(
  { reader, snapshot, node }: ArrayProps,
  part: Selection,
  progress: Progress,
  signal: AbortSignal,
): Promise<{ events: Event[]; end: string }> {
  const { repository } = reader;
  const { history } = repository;
  const chunkAt = (at: number, d: number): number => {
    let rest = at;
    const irregular = node.edges?.[d]?.findIndex((edge) => (rest -= edge) < 0);
    return irregular ?? Math.floor(at / nth(node.chunkShape, d));
  };
  const low = part.start.map(chunkAt);
  const high = part.stop.map((at, d) => chunkAt(at - 1, d));
  const isAt = (place: Uint32Array): boolean =>
    place.every((at, d) => at >= nth(low, d) && at <= nth(high, d));
  const kindOf = (changes: Changes): string => {
    const kind = changeOf(changes, node.id);
    if (kind !== "written") return kind;
    const { coords, count = 0 } = changes.updatedChunks.find(({ nodeId }) => nodeId === node.id) ?? {};
    for (let at = 0; coords && at < count; at++)
      if (isAt(coords.subarray(at * low.length, (at + 1) * low.length))) return kind;
    return changeOf({ ...changes, updatedChunks: [] }, node.id);
  };
  const isExpired = history.isCut || repository.ops.some(({ kind }) => kind === "ExpirationRan");
  const events: Event[] = [];
  const add = (row: number, kind: string): void => {
    if (kind && events.every((each) => each.row !== row)) events.push({ row, kind, text: "", value: NaN });
  };
  let isLinear = true;
  let [end, oldest] = [`Commits before the last ${FARTHEST} were not read.`, -1];
  for await (const { row, changes } of commitsBack(repository, snapshot.id)) {
    signal.throwIfAborted();
    if (i32(history.parent, row) < 0)
      end = `The history begins here.${isExpired ? " Older versions have expired." : ""}`;
    else if (!changes) end = `The commit ${short(history.id(row))} has no record: older ones are not known.`;
    if (!changes) break;
    oldest = row;
    if (isCompaction(repository, row)) continue;
    const kind = kindOf(changes);
    add(row, kind);
    const merged = kind ? await commitsOfMerge(repository, row, FARTHEST) : [];
    for (const each of merged ?? []) add(each.row, kindOf(each.changes));
    isLinear &&= merged?.length === 0;
    if (kind === "new array") end = "The array begins here.";
    else if (events.length >= MOST) end = "Older commits that wrote it are not shown.";
    else continue;
    oldest = -1;
    break;
  }
  if (oldest >= 0) add(oldest, "before");
  events.sort((one, other) => other.row - one.row);
  const cost = costOf({ snapshot, node }, { ...part, step: part.start.map(() => 1) }).bytes * events.length;
  if (cost > ASK)
    throw unsupported(`The values need ${bytes(cost)} in ${plural(events.length, "version")}: zoom in.`);
  const decoded = new Map<string, Promise<Decoded>>(); // by the reference of the chunk: most versions share it
  let done = 0;
  await parallel(events, async (event) => {
    const found = nodeOf(await repository.snapshot(history.id(event.row)), node);
    const isInside = found && part.stop.every((at, d) => at <= (found.node.shape[d] ?? -1));
    if (!isInside) return void (event.text = "outside of the array");
    const chunk = low.join() === high.join() && (await found.snapshot.chunk(found.node.path, low));
    const reference = chunk === false ? event.row : { ...chunk, data: chunk?.data?.join() };
    const key = JSON.stringify([reference, found.node.document]);
    const read = decoded.get(key) ?? valuesOf({ reader, ...found }, part, signal);
    decoded.set(key, read);
    const { values, label, ...rest } = await read;
    event.value = values instanceof Float64Array ? statistics(values).mean : NaN;
    event.text = values.length === 1 ? label(0) : withUnit(scaleOf(rest), event.value);
    progress(++done, events.length);
  });
  events.forEach((event, at) => {
    if (isLinear && event.kind === "written" && event.text === events[at + 1]?.text) event.kind = "unchanged";
  });
  return { events, end };
}

/** The events as a line and as a table, with the differences of neighbours and the revert of each. */
export function Past({ part, ...array }: ArrayProps & { part: Selection }): VNode {
  const { reader, snapshot, node } = array;
  const { history } = reader.repository;
  const keys = [snapshot, node.path, JSON.stringify(part)];
  const past = useLoad((signal, progress) => pastOf(array, part, progress, signal), keys);
  const isCell = product(part.stop.map((at, d) => at - nth(part.start, d))) === 1;
  const ends = part.start.map((at, d) => (isCell ? at : `${at}:${part.stop[d]}`));
  const places = ends.map((each, d) => `${dimensionName(node, d)} ${each}`);
  return (
    <section class="column" aria-label="What happened here">
      <h3>What happened at {`${places.join(", ") || "this value"}${isCell ? "" : ": means"}`}</h3>
      <Wait of={past} what="the records of commits">
        {({ events, end }) => {
          const shown = events.toReversed().filter(({ text }) => text);
          const values = Float64Array.from(shown, ({ value }) => value);
          const label = (at: number): string => minute(f64(history.times, nth(shown, at).row));
          const plain = axisOf(node, new Map(), { start: [], stop: [], step: [] }, -1);
          const x = { ...plain, title: "version", length: shown.length, label };
          const series = [{ title: node.path, colour: css("accent"), values }];
          return (
            <>
              {values.filter(Number.isFinite).length > 1 && (
                <Lines x={x} series={series} title="value" scale={scaleOf({})} />
              )}
              <Table
                heads={["Time (UTC)", "Commit", "Change", "Value", "Author", "Message", "Links"]}
                rows={events.map(({ row, kind, text }) => {
                  const [id, above] = [history.id(row), i32(history.parent, row)];
                  const query = { view: "data", i: part.start.join() };
                  return [
                    <time>{minute(f64(history.times, row))}</time>,
                    <CommitLink id={id} />,
                    kind,
                    text,
                    author(history.metadata(row)),
                    firstLine(history.message(row)),
                    <>
                      {above >= 0 && (
                        <a href={diffAddress(history.id(above), id, node.path, query)}>Differences</a>
                      )}{" "}
                      {above >= 0 && reader.change && (
                        <button onClick={() => (change.value = { action: "revert", id })}>Revert…</button>
                      )}
                    </>,
                  ];
                })}
              />
              <p class="quiet">{end}</p>
            </>
          );
        }}
      </Wait>
    </section>
  );
}
