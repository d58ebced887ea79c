/** The first page of a repository: its data, its last commits, its size, and what is behind. */

import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { isLatitude, isLongitude } from "../array/axes";
import { arrays, attributesOr, costOf, isSlow, itemSize, levelFor, levelsFrom, title } from "../array/nodes";
import { box, parseSlice } from "../array/slices";
import { f64, i32, nth, product, record, u32 } from "../base/lists";
import { earthReference, sliceOf } from "../earth/reference";
import type { ArrayNode, History, Repository, Snapshot } from "../format/types";
import type { Reader, SnapshotProps } from "../page/home";
import { CommitLink, Facts, More, Wait } from "../page/parts";
import { mainBranch, resolve } from "../page/route";
import { nodeAddress, route, snapshotOf, useLater, useLoad } from "../page/state";
import { bytes, count, firstLine, isolated, last, minute, plural } from "../page/text";
import { Data } from "../values/data";
import { derivedStates } from "../versions/derived";
import { author } from "../versions/search";

const MOST = 5; // commits, and derived arrays that are behind

export function Home({ reader }: { reader: Reader }): VNode {
  const { repository } = reader;
  const version = reader.version ?? mainBranch(repository) ?? "";
  const id = resolve(repository, version);
  const versions = `${count(repository.history.times.length)}${repository.history.isCut ? " or more" : ""}`;
  const snapshot = useLoad(() => snapshotOf(repository, version), [repository, id]);
  return (
    <div class="split home">
      <Wait of={snapshot} what="the version">
        {(value) => <First key={id} reader={reader} snapshot={value} version={version} />}
      </Wait>
      <section class="pane detail" aria-label="Repository" tabIndex={0}>
        <h2>{isolated(reader.label)}</h2>
        {snapshot.value && (
          <Facts
            rows={[
              ["Versions", versions],
              ["Data", sizeText(snapshot.value)],
            ]}
          />
        )}
        <h3>Last commits of {isolated(version)}</h3>
        <LastCommits repository={repository} id={id} />
        {snapshot.value && <Behind reader={reader} snapshot={snapshot.value} version={version} />}
      </section>
    </div>
  );
}

function First({ reader, snapshot, version }: SnapshotProps): VNode {
  const first = useMemo(() => firstVariable(snapshot), [snapshot]);
  if (!first) return <p class="pane fill">This version has no array with data.</p>;
  const { node, start } = first;
  const query = { i: start, ...route.value.query, view: "data" };
  const href = nodeAddress(version, node.path, query);
  return (
    <section class="pane fill" aria-label="Data">
      <div class="bar">
        <h2>
          <a href={href}>{title(node)}</a>
        </h2>
        <span class="quiet">{isolated(node.path)}</span>
        <a class="button" href={href}>
          Look closer
        </a>
      </div>
      <Data key={node.path} reader={reader} snapshot={snapshot} node={node} start={start} isBrief />
    </section>
  );
}

/** The number of arrays, and the size of their values. */
export function sizeText(snapshot: Snapshot): string {
  const all = arrays(snapshot);
  const size = all.reduce((sum, { shape, dtype }) => sum + product(shape) * (itemSize(dtype) ?? 0), 0);
  return `${plural(all.length, "array")}, ${bytes(size)} of values`;
}

/** Author and time of a commit. */
export const CommitFacts = ({ history, row }: { history: History; row: number }): VNode => (
  <span class="quiet">
    <bdi>{author(history.metadata(row))}</bdi> {minute(f64(history.times, row))}
  </span>
);

function LastCommits({ repository, id }: { repository: Repository; id: string }): VNode {
  const { history } = repository;
  const rows: number[] = [];
  for (let row = repository.row(id); row >= 0 && rows.length < MOST; row = i32(history.parent, row))
    rows.push(row);
  return (
    <ol class="plain">
      {rows.map((row) => (
        <li key={row} class="box">
          <CommitLink id={history.id(row)}>
            <bdi>{firstLine(history.message(row)) || "(no message)"}</bdi>
          </CommitLink>
          <CommitFacts history={history} row={row} />
        </li>
      ))}
    </ol>
  );
}

/** The derived arrays that do not have the values of their sources. */
function Behind({ reader, snapshot, version }: SnapshotProps): VNode | null {
  const states = useLater(() => derivedStates(reader.repository, snapshot), [snapshot]);
  const all = [...(states.value ?? [])];
  const late = all.filter(([, state]) => state !== "current" && state !== "not known");
  if (!all.length) return null;
  return (
    <>
      <h3>Derived arrays</h3>
      {!late.length && <p class="quiet">{plural(all.length, "array")}: none is behind its sources.</p>}
      <ul class="plain">
        {late.slice(0, MOST).map(([{ node }, state]) => (
          <li key={node.path}>
            <a href={nodeAddress(version, node.path, { view: "about" })}>{node.path}</a>{" "}
            <span class="problem">{state}</span>
          </li>
        ))}
        <More of={late.length} most={MOST} />
      </ul>
    </>
  );
}

/** Attributes of CF that name other arrays, which describe this one. */
const NAMING = "coordinates bounds climatology grid_mapping cell_measures ancillary_variables".split(" ");
const ACCESSORY =
  /mask|quality|flag|(^|_)qc|area|weight|uncertain|error|count|(^|_)(bnds|bounds|vertices|spatial_ref|crs)$/i;
const CANDIDATES = 300; // candidates that are looked at
const SIDE = 1500; // elements of a picture

/** `start` is the index of its newest values, as the address has it. */
export function firstVariable(snapshot: Snapshot): { node: ArrayNode; start: string } | undefined {
  const sound = arrays(snapshot).filter(isSound);
  const named = new Set<unknown>(sound.flatMap(({ dimensions }) => dimensions));
  for (const node of sound) {
    const facts = attributesOr(node);
    for (const name of NAMING.map((each) => facts[each]))
      if (typeof name === "string") for (const word of name.split(/[\s:]+/)) named.add(word);
  }
  const isPlace = (node: ArrayNode): boolean =>
    [isLatitude, isLongitude].some((test) => test(last(node.path), attributesOr(node)));
  const data = sound.filter((node) => !named.has(last(node.path)) && !isPlace(node) && product(node.shape));
  const scores = data.slice(0, CANDIDATES).map((node) => ({ node, score: scoreOf(snapshot, node) }));
  const best = scores.sort((one, other) => other.score - one.score)[0]?.node;
  return best && { node: best, start: newest(snapshot, best).join() };
}

function isSound(node: ArrayNode): boolean {
  try {
    return node.chunkShape.length === node.dimensions.length;
  } catch {
    return false; // its description is damaged, or of an extension
  }
}

/** How much an array says: places on Earth, two dimensions, values that are there and quick to read. */
function scoreOf(snapshot: Snapshot, node: ArrayNode): number {
  const facts = attributesOr(node);
  const slice = sliceOf(snapshot, node, node.shape, {});
  const reference = earthReference(snapshot, node, slice);
  const levels = levelsFrom(snapshot, node);
  const shown = levelFor(levels, slice, 1000).node;
  const cost = costOf({ snapshot, node: shown }, box(shown.shape, parseSlice(shown.shape, {}), SIDE));
  const isNumber = itemSize(node.dtype) !== undefined && !/^(datetime|timedelta|r\d)/.test(node.dtype);
  return (
    (isNumber ? 8 : 0) +
    (slice.y >= 0 || reference ? 4 : 0) +
    (reference ? 8 : 0) +
    (snapshot.manifests(node.path).length ? 16 : 0) +
    (facts.flag_values !== undefined || ACCESSORY.test(last(node.path)) ? -3 : 0) +
    (isSlow(cost) ? 0 : 2) +
    (node.shape.filter((length) => length > 1).length > 2 ? 1 : 0) +
    ((facts.units ?? facts.standard_name ?? facts.long_name) ? 1 : 0) -
    6 * nth(levels, 0).place
  );
}

/** The last index along times that has a stored chunk, and the first one along other dimensions. */
function newest(snapshot: Snapshot, node: ArrayNode): number[] {
  const manifests = snapshot.manifests(node.path);
  return node.shape.map((length, d) => {
    const name = node.dimensions[d] ?? "";
    const facts = record(attributesOr(snapshot.node(node.path.replace(/[^/]*$/, name)) ?? node));
    const isTime = /time|^t$|date/i.test(name) || facts.axis === "T" || / since /.test(String(facts.units));
    const end = Math.max(0, ...manifests.map(({ extents }) => u32(extents, 2 * d + 1)));
    return isTime ? Math.max(0, Math.min(length, end * nth(node.chunkShape, d)) - 1) : 0;
  });
}
