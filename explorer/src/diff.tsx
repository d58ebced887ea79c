/** Differences between two versions. */

import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { Chunks } from "./chunkmap";
import { compareTables } from "./chunks";
import { changedData, compareLines, compareNodes, type NodeChange } from "./compare";
import { Data } from "./data";
import type { ArrayNode, Snapshot } from "./format/types";
import type { Reader } from "./home";
import { isArray } from "./nodes";
import { Facts, List, Tabs, Wait } from "./parts";
import { resolve } from "./route";
import { messageOf } from "./search";
import { go, route, setQuery, useLoad } from "./state";
import { count, firstLine, json, plural } from "./text";

const WORDS: Record<NodeChange, string> = { added: "new", removed: "gone", changed: "changed", data: "data", unknown: "data?" };

interface Pair {
  readonly before: Snapshot;
  readonly after: Snapshot;
}

export function Diff({ reader }: { reader: Reader }): VNode {
  const { repository } = reader;
  const { base, version } = route.value;
  const [old, now] = [resolve(repository, base), resolve(repository, version)];
  const pair = useLoad(async () => {
    const [before, after, data] = await Promise.all([repository.snapshot(old), repository.snapshot(now), changedData(repository, old, now)]);
    return { before, after, found: compareNodes(before, after, data) };
  }, [repository, old, now]);
  return (
    <div class="column fill">
      <div class="bar">
        <Version reader={reader} label="Older version" name={base} onSelect={(value) => go({ base: value })} />
        <button aria-label="Exchange the versions" onClick={() => go({ base: version, version: base })}>
          ⇄
        </button>
        <Version reader={reader} label="Newer version" name={version} onSelect={(value) => go({ version: value })} />
      </div>
      <Wait of={pair} what="both versions">
        {({ before, after, found }) => <Differences key={`${old} ${now}`} reader={reader} pair={{ before, after }} found={found} />}
      </Wait>
    </div>
  );
}

/** A version as a typed name, with the message of its commit. */
export function Version({ reader, label, name, onSelect }: { reader: Reader; label: string; name: string; onSelect: (value: string) => void }): VNode {
  const { repository } = reader;
  const row = repository.row(resolve(repository, name));
  return (
    <form
      class="field"
      onSubmit={(event) => {
        event.preventDefault();
        const value = new FormData(event.currentTarget).get("version");
        if (typeof value === "string" && value.trim()) onSelect(value.trim());
      }}
    >
      <label>
        <span>{label}</span>
        <input key={name} name="version" defaultValue={name} list="versions" size={14} onChange={(event) => event.currentTarget.value.trim() && onSelect(event.currentTarget.value.trim())} />
      </label>
      <span class="quiet message">{row >= 0 ? firstLine(messageOf(repository.history, row)) : "not in the history"}</span>
    </form>
  );
}

function Differences({ reader, pair, found }: { reader: Reader; pair: Pair; found: ReturnType<typeof compareNodes> }): VNode {
  const { path } = route.value;
  const active = found.findIndex((item) => item.path === path);
  if (!found.length) return <p class="quiet">The versions are equal.</p>;
  const sure = found.filter((item) => item.change !== "unknown");
  return (
    <div class="split fill">
      <section class="pane side" aria-label="Nodes that differ">
        <p class="quiet">{plural(sure.length, "node")} differ{sure.length < found.length && `; ${plural(found.length - sure.length, "array")} to compare`}</p>
        <List
          label="Nodes that differ"
          role="listbox"
          count={found.length}
          rowHeight={28}
          active={active}
          onActive={(index) => go({ path: found[index]!.path }, true)}
          onOpen={() => undefined}
          row={(index) => (
            <>
              <span class={`mark ${found[index]!.change}`}>{WORDS[found[index]!.change]}</span>
              <span class="message">{found[index]!.path}</span>
            </>
          )}
        />
      </section>
      <section class="pane fill" aria-label="Difference">
        {active >= 0 ? <NodeDiff key={path} reader={reader} pair={pair} path={path} /> : <p class="quiet">Select a node.</p>}
      </section>
    </div>
  );
}

function NodeDiff({ reader, pair: { before, after }, path }: { reader: Reader; pair: Pair; path: string }): VNode {
  const [old, now] = [before.node(path), after.node(path)];
  const lines = useMemo(() => compareLines(old ? json(old.document) : "", now ? json(now.document) : ""), [old, now]);
  const both = isArray(old) && isArray(now);
  const equalRank = both && old.shape.length === now.shape.length;
  const view = route.value.query["view"] ?? (equalRank && lines.every((line) => line.sign === " ") ? "data" : "text");
  return (
    <div class="column fill">
      <h2 class="text">{path}</h2>
      {both && (
        <Tabs
          label="Views of the difference"
          tabs={[["text", "Description"], ["chunks", "Chunks"], ...(equalRank ? [["data", "Values"] as const] : [])]}
          active={view}
          onSelect={(name) => setQuery({ view: name })}
        />
      )}
      {both && view === "chunks" ? (
        <ChunkDiff reader={reader} before={before} after={after} old={old} now={now} />
      ) : equalRank && view === "data" ? (
        <Data reader={reader} snapshot={after} node={now} base={{ snapshot: before, node: old }} />
      ) : (
        <pre class="lines">
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

const MOST_INLINE = 500; // inline chunks whose bytes are compared

function ChunkDiff({ reader, before, after, old, now }: { reader: Reader; before: Snapshot; after: Snapshot; old: ArrayNode; now: ArrayNode }): VNode {
  const rank = now.shape.length;
  const found = useLoad(async () => {
    if (old.shape.length !== rank) return undefined;
    const [one, other] = await Promise.all([before.chunks(old.path), after.chunks(now.path)]);
    const difference = compareTables(one, other, rank);
    const inline = await Promise.all(
      difference.unsure.slice(0, MOST_INLINE).map(async (row) => {
        const coords = [...other.coords.subarray(row * rank, (row + 1) * rank)];
        const [left, right] = await Promise.all([before.chunk(old.path, coords), after.chunk(now.path, coords)]);
        return String(left?.data) === String(right?.data) ? [] : coords;
      }),
    );
    const extra = inline.flat();
    const coords = new Uint32Array(difference.coords.length + extra.length);
    coords.set(difference.coords);
    coords.set(extra, difference.coords.length);
    return { ...difference, changed: difference.changed + inline.filter((item) => item.length).length, coords, unsure: Math.max(0, difference.unsure.length - MOST_INLINE) };
  }, [before, after, old.path]);
  return (
    <Wait of={found} what="the references of both versions">
      {(value) =>
        value ? (
          <>
            <Facts rows={[["Chunks", `${count(value.added)} new, ${count(value.changed)} changed, ${count(value.removed)} gone${value.unsure ? `, ${count(value.unsure)} inline not compared` : ""}`]]} />
            <Chunks reader={reader} snapshot={after} node={now} changed={value.coords} />
          </>
        ) : (
          <p class="quiet">The number of dimensions changed: there is no common grid of chunks.</p>
        )
      }
    </Wait>
  );
}
