/** Differences between two versions. */

import type { VNode } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { isArray, listed } from "../array/nodes";
import { chunkBox, compareTables, MOST_VALUES } from "../array/references";
import { nth, placesOf, product, type Shape } from "../base/lists";
import { difference } from "../cf/cf";
import type { ArrayNode, Node, Repository, Snapshot } from "../format/types";
import { type Reader, valuesOf } from "../page/home";
import { List } from "../page/list";
import { Facts, Sign, Tabs, Wait } from "../page/parts";
import { resolve } from "../page/route";
import { go, route, setQuery, snapshotOf, useLoad } from "../page/state";
import { count, json, plural } from "../page/text";
import { Data } from "../values/data";
import { Chunks, Version } from "./version";
import { commitsBack } from "../versions/writers";
import { diffArrays } from "diff";

const WORDS: Record<NodeChange, string> = {
  added: "new",
  removed: "gone",
  changed: "changed",
  data: "data",
  unknown: "data?",
};

/** Two versions. */
type Pair = { readonly reader: Reader; readonly before: Snapshot; readonly after: Snapshot };

export function Diff({ reader }: { reader: Reader }): VNode {
  const { repository } = reader;
  const { base, version } = route.value;
  const [old, now] = [resolve(repository, base), resolve(repository, version)];
  const pair = useLoad(async () => {
    const [before, after, data] = await Promise.all([
      snapshotOf(repository, base),
      snapshotOf(repository, version),
      changedData(repository, old, now),
    ]);
    return { before, after, differences: compareNodes(before, after, data) };
  }, [repository, old, now]);
  return (
    <div class="column fill">
      <div class="bar">
        <Version reader={reader} label="Older version" name="base" />
        <button aria-label="Exchange the versions" onClick={() => go({ base: version, version: base })}>
          <Sign>⇄</Sign>
        </button>
        <Version reader={reader} label="Newer version" name="version" />
      </div>
      <Wait of={pair} what="both versions">
        {({ before, after, differences }) => (
          <Differences key={`${old} ${now}`} {...{ reader, before, after }} all={differences} />
        )}
      </Wait>
    </div>
  );
}

function Differences({ all, ...versions }: Pair & { all: ReturnType<typeof compareNodes> }): VNode {
  const { path } = route.value;
  const differences = listed(all, path);
  const active = differences.findIndex((item) => item.path === path);
  if (!differences.length) {
    return (
      <p class="quiet">
        {all.length ? "Only records that Frazil writes for itself differ." : "The versions are equal."}
      </p>
    );
  }
  const sure = differences.filter((item) => item.change !== "unknown");
  return (
    <div class="split fill">
      <section class="pane side" aria-label="Nodes that differ">
        <p class="quiet">
          {plural(sure.length, "node")} differ
          {sure.length < differences.length &&
            `; ${plural(differences.length - sure.length, "array")} to compare`}
        </p>
        <List
          label="Nodes that differ"
          role="listbox"
          count={differences.length}
          rowHeight={28}
          active={active}
          onActive={(index) => go({ path: nth(differences, index).path }, true)}
          indent={() => 6}
          row={(index) => {
            const { change, path: own } = nth(differences, index);
            return (
              <>
                <span class={`mark ${change}`}>{WORDS[change]}</span>
                <span class="message">{own}</span>
              </>
            );
          }}
        />
      </section>
      <section class="pane fill" aria-label="Difference">
        {active >= 0 ? (
          <NodeDiff key={path} {...versions} path={path} />
        ) : (
          <p class="quiet">Select a node.</p>
        )}
      </section>
    </div>
  );
}

function NodeDiff({ path, ...versions }: Pair & { path: string }): VNode {
  const { reader, before, after } = versions;
  const [old, now] = [before.node(path), after.node(path)];
  const lines = useMemo(
    () => compareLines(old ? json(old.document) : "", now ? json(now.document) : ""),
    [old, now],
  );
  const both = isArray(old) && isArray(now);
  const equalRank = both && old.shape.length === now.shape.length;
  const changes = useLoad(async () => {
    if (!equalRank) return undefined;
    const tables = await Promise.all([before.chunks(old.path), after.chunks(now.path)]);
    return compareTables(...tables, now.shape.length);
  }, [before, after, path]);
  const view =
    route.value.query["view"] ?? (equalRank && lines.every((line) => line.sign === " ") ? "data" : "text");
  return (
    <div class="column fill">
      <h2 class="text">{path}</h2>
      {both && (
        <Tabs
          label="Views of the difference"
          tabs={[
            ["text", "Description"],
            ...(equalRank ? [["chunks", "Chunks"] as const, ["data", "Values"] as const] : []),
          ]}
          active={view}
          onSelect={(name) => setQuery({ view: name })}
        />
      )}
      {equalRank && view !== "text" ? (
        <Wait of={changes} what="the references of both versions">
          {(differences) => {
            if (!differences) return null;
            if (view === "data") return <ValueDiff {...versions} old={old} now={now} changes={differences} />;
            const { added, changed, removed } = differences;
            const text = `${count(added)} new, ${count(changed)} changed, ${count(removed)} gone`;
            return (
              <>
                <Facts rows={[["Chunks", text]]} />
                <Chunks reader={reader} snapshot={after} node={now} changed={differences.coords} />
              </>
            );
          }}
        </Wait>
      ) : (
        <pre class="lines" tabIndex={0} role="group" aria-label="Lines that differ">
          {lines.map((line, at) => (
            <span key={at} class={{ "+": "added", "-": "removed", " ": "" }[line.sign]}>
              {line.sign} {line.text}
              {"\n"}
            </span>
          ))}
        </pre>
      )}
    </div>
  );
}

type ArrayDiffProps = Pair & { readonly old: ArrayNode; readonly now: ArrayNode };

const MOST_CHUNKS = 32; // that a search compares: a writer may write chunks again with the same values

/** The first cell of a chunk that differs; its corner, if it has too many values; undefined if none differs. */
async function firstDifference({ reader, before, after, old, now }: ArrayDiffProps, coords: Shape) {
  const part = chunkBox(coords, now);
  const { start, stop } = part;
  const shape = stop.map((high, d) => high - nth(start, d));
  if (product(shape) > MOST_VALUES || stop.some((high, d) => high > nth(old.shape, d))) return start;
  const [one, other] = await Promise.all([
    valuesOf({ reader, snapshot: before, node: old }, part),
    valuesOf({ reader, snapshot: after, node: now }, part),
  ]);
  const { length } = one.values;
  let at = 0;
  while (at < length && Object.is(one.values[at], other.values[at]) && !difference(one, other, at)) at++;
  return at === length ? undefined : placesOf(at, shape).map((place, d) => place + nth(start, d));
}

/** The values; first those of a chunk that changed. */
function ValueDiff({
  changes,
  ...pair
}: ArrayDiffProps & { changes: ReturnType<typeof compareTables> }): VNode {
  const { reader, before, after, old, now } = pair;
  const rank = now.shape.length;
  const total = rank ? changes.coords.length / rank : 0;
  const [at, setAt] = useState(0);
  const coordsOf = (which: number): number[] => [
    ...changes.coords.subarray(which * rank, (which + 1) * rank),
  ];
  const show = async (next: number, step = 1): Promise<void> => {
    const { page, path } = route.value;
    let cell = await firstDifference(pair, coordsOf(next));
    for (let look = 1; !cell && look < MOST_CHUNKS; look++) {
      next = (next + step + total) % total;
      cell = await firstDifference(pair, coordsOf(next));
    }
    setAt(next);
    if (route.value.page === page && route.value.path === path)
      setQuery({ i: (cell ?? chunkBox(coordsOf(next), now).start).join(",") });
  };
  useEffect(() => {
    if (total && route.value.query["i"] === undefined) void show(0);
  }, []);
  return (
    <>
      {total > 1 && (
        <div class="bar">
          <button onClick={() => show((at + total - 1) % total, -1)}>Former change</button>
          <button onClick={() => show((at + 1) % total)}>Next change</button>
          <span class="quiet">
            chunk {coordsOf(at).join(", ")}; {count(at + 1)} of {count(total)} that changed
          </span>
        </div>
      )}
      <Data reader={reader} snapshot={after} node={now} base={{ snapshot: before, node: old }} />
    </>
  );
}

export type NodeChange = "added" | "removed" | "changed" | "data" | "unknown";
/** `data` has the ids of arrays whose chunks changed; without a record it is undefined, and all may have changed. */
export function compareNodes(before: Snapshot, after: Snapshot, data?: ReadonlySet<string>) {
  const differences: { path: string; change: NodeChange }[] = [];
  for (const node of after.nodes) {
    const change = changeOf(before.node(node.path), node, data);
    if (change) differences.push({ path: node.path, change });
  }
  for (const node of before.nodes)
    if (!after.node(node.path)) differences.push({ path: node.path, change: "removed" });
  return differences.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function changeOf(old: Node | undefined, now: Node, data?: ReadonlySet<string>): NodeChange | undefined {
  if (!old) return "added";
  if (describe(old) !== describe(now)) return "changed";
  if (now.kind === "group") return undefined;
  if (!data) return "unknown";
  return data.has(now.id) || old.id !== now.id ? "data" : undefined;
}

const describe = (node: Node): string =>
  JSON.stringify(node.document, (_, value: unknown) =>
    value && typeof value === "object" && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)))
      : value,
  );

const MOST_COMMITS = 200;

/** Ids of the arrays whose chunks changed between `base` and its descendant; undefined if that is not on record. */
export async function changedData(repository: Repository, base: string, version: string) {
  const oldest = repository.row(base);
  const arrays = new Set<string>();
  for await (const { row, changes } of commitsBack(repository, version, MOST_COMMITS)) {
    if (row === oldest) return arrays;
    if (!changes) return undefined;
    for (const item of changes.updatedChunks) arrays.add(item.nodeId);
  }
  return undefined;
}

type LineDifference = { readonly sign: " " | "+" | "-"; readonly text: string };

const MOST_EDITS = 1000; // the time of a comparison grows with their square

/** Lines of two texts side by side: common, removed, added. Texts with very many edits have no common lines. */
export function compareLines(before: string, after: string): LineDifference[] {
  const [old, now] = [before.split("\n"), after.split("\n")];
  const parts = diffArrays(old, now, { maxEditLength: MOST_EDITS }) ?? [
    { value: old, removed: true, added: false },
    { value: now, removed: false, added: true },
  ];
  return parts.flatMap(({ value, added, removed }) =>
    value.map((text) => ({ sign: added ? "+" : removed ? "-" : " ", text }) as const),
  );
}
