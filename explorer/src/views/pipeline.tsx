/** The pipelines of a version, each as a graph. */

import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { isArray } from "../array/nodes";
import { reasonOf } from "../base/errors";
import { f64, i32, list, type Properties, record, records } from "../base/lists";
import { parallel } from "../codecs/pool";
import type { Repository, Snapshot } from "../format/types";
import { type Box, Graph } from "../page/graph";
import { type Reader, type SnapshotProps, valuesOf } from "../page/home";
import { Failure } from "../page/parts";
import { nodeAddress, useLoad } from "../page/state";
import { count, minute, parent, plural } from "../page/text";
import { derivedStates, type Result, ruleText, type State } from "../versions/derived";

export function Pipelines({ of, ...props }: SnapshotProps & { of: readonly Properties[] }): VNode {
  const { reader, snapshot } = props;
  const facts = useLoad((signal) => factsOf(of, reader, snapshot, signal), [reader, snapshot]);
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Pipelines">
      <Failure of={facts} />
      {of.map((each, at) => (
        <Pipeline key={at} {...props} of={each} facts={facts.value} />
      ))}
      <p class="quiet">
        The states of derived arrays follow from the changes of commits. <code>frazil derived</code> compares
        digests.
      </p>
    </div>
  );
}

type PipelineProps = SnapshotProps & { of: Properties; facts: Facts | undefined };

function Pipeline({ of, facts, reader, snapshot, version }: PipelineProps): VNode {
  const keys = [of, facts, reader, snapshot, version] as const;
  const boxes = useMemo(() => boxesOf(...keys), keys);
  const [name, owners] = [String(of["name"]), texts(of["owners"])];
  return (
    <>
      <h3>
        {name} {owners.length > 0 && <span class="quiet">of {owners.join(", ")}</span>}
      </h3>
      <Graph label={`Pipeline ${name}`} boxes={boxes} />
    </>
  );
}

const FARTHEST = 1000; // commits
const NAMED = 5; // files

const texts = (value: unknown): string[] => list(value).map(String);

const filesOf = (pipeline: Properties): { files: string; groups: string[] }[] =>
  records(pipeline["ingest"]).map(({ files, groups }) => ({
    files: texts(files).join(", "),
    groups: texts(groups),
  }));

const derivedOf = (pipeline: Properties): { operation: string; sources: string[]; to: string }[] =>
  records(pipeline["derived"]).map(({ operation, sources, to }) => ({
    operation: String(operation),
    sources: texts(sources),
    to: String(to),
  }));

type Audit = NonNullable<ReturnType<typeof auditOf>>;

/** What the rules of a pipeline found in the commit of a row of the history. */
function auditOf({ history }: Repository, row: number, name: string) {
  const { id, ok, rows } = record(history.metadata(row)["frazil_audit"]);
  const isOwn = String(id).startsWith(`${name}-`) && String(id).length === name.length + 25; // and a hash
  return isOwn ? { row, isPassed: ok === true, rows: records(rows) } : undefined;
}

/** The newest check of a pipeline at or before a row of the history. */
function lastAudit(repository: Repository, row: number, name: string): Audit | undefined {
  for (let steps = 0; row >= 0 && steps < FARTHEST; steps++, row = i32(repository.history.parent, row)) {
    const found = auditOf(repository, row, name);
    if (found) return found;
  }
  return undefined;
}

/** The branch and the check of a later run whose rules failed: a run after the same check. */
function failedLater(repository: Repository, name: string, audit: Audit): [string, Audit] | undefined {
  for (const [branch, id] of repository.branches) {
    const row = repository.row(id);
    const failed = row > audit.row ? auditOf(repository, row, name) : undefined;
    const before = failed && lastAudit(repository, i32(repository.history.parent, row), name);
    if (failed?.isPassed === false && before?.row === audit.row) return [branch, failed];
  }
  return undefined;
}

type Text = Partial<Pick<Box, "kind" | "notes" | "tone" | "more">>;

function stateText(states: ReadonlyMap<Result, State>, to: string): Text {
  const found = [...states].filter(([{ target }]) => target === to || target === `${to}/`);
  const of = (state: State): number => found.filter(([, each]) => each === state).length;
  const worst = (["broken", "edited", "behind", "not known", "current"] as const).find(of);
  if (!worst) return { notes: ["not computed"] };
  const share = of(worst) < found.length ? `${count(of(worst))} of ` : "";
  return {
    notes: [`${share}${plural(found.length, "array")}: ${worst}`],
    tone: worst === "current" ? "good" : worst === "not known" ? "" : "bad",
    more: found.map(([{ node }, state]) => `${node.path}: ${state}`),
  };
}

/** What the list of the files of a group says. */
async function filesText(
  reader: Reader,
  snapshot: Snapshot,
  group: string,
  signal?: AbortSignal,
): Promise<Text> {
  const [urls, marks] = ["url", "quarantined"].map((name) =>
    snapshot.node(`${group === "/" ? "" : group}/.frazil/${name}`),
  );
  if (!isArray(urls) || !isArray(marks)) return { notes: ["no list of files"] };
  const { values } = await valuesOf({ reader, snapshot, node: marks }, undefined, signal);
  const rows = Array.from(values as ArrayLike<unknown>, Number);
  const left = rows.flatMap((mark, row) => (mark ? [row] : []));
  const nameOf = async (row: number): Promise<string> => {
    const part = { start: [row], stop: [row + 1] };
    const { values: names } = await valuesOf({ reader, snapshot, node: urls }, part, signal);
    return String(names[0]).replace(/ \([0-9a-f]{16}\)$/, ""); // the hash of a folder
  };
  const last = rows.lastIndexOf(0);
  const names = await Promise.all(left.slice(0, NAMED).map(nameOf));
  const more = left.length > NAMED ? [`and ${count(left.length - NAMED)} more`] : [];
  return {
    kind: plural(rows.length, "file"),
    notes: [
      ...(left.length ? [`${count(left.length)} quarantined`] : []),
      ...(last < 0 ? [] : [`last ${await nameOf(last)}`]),
    ],
    tone: left.length ? "bad" : "",
    more: [...names.map((name) => `quarantined: ${name}`), ...more],
  };
}

/** What is read of the repository about the boxes of files and of derived arrays, by their ids. */
export type Facts = ReadonlyMap<string, Text>;

export async function factsOf(
  of: readonly Properties[],
  reader: Reader,
  snapshot: Snapshot,
  signal: AbortSignal,
): Promise<Facts> {
  const facts = new Map<string, Text>();
  await parallel(of.flatMap(filesOf), async ({ groups: [group = "/"] }) => {
    const text = await filesText(reader, snapshot, group, signal).catch((cause: unknown): Text => {
      signal.throwIfAborted();
      return { notes: ["damaged list of files"], tone: "bad", more: [reasonOf(cause)] };
    });
    facts.set(`files of ${group}`, text);
  });
  const states = await derivedStates(reader.repository, snapshot);
  for (const { to } of of.flatMap(derivedOf)) facts.set(to, stateText(states, to));
  return facts;
}

const WAITING: Text = { notes: ["…"] };

/** The boxes of a pipeline. Their number and order are the same before there are facts. */
export function boxesOf(
  pipeline: Properties,
  facts: Facts | undefined,
  { repository }: Reader,
  snapshot: Snapshot,
  version: string,
): Box[] {
  const boxes = new Map<string, Box>();
  const add = (id: string, kind: string, sources: readonly string[], text: Partial<Box> = {}): void => {
    const href = snapshot.node(id) && nodeAddress(version, id);
    boxes.set(id, { id, kind, title: id, href, sources, ...text });
  };
  for (const { files, groups } of filesOf(pipeline)) {
    const source = `files of ${groups[0] ?? "/"}`;
    add(source, "files", [], { title: files, ...(facts?.get(source) ?? WAITING) });
    for (const group of groups) {
      const arrays = snapshot.nodes.filter((node) => isArray(node) && parent(node.path) === group);
      add(group, "ingest", [source], { notes: [plural(arrays.length, "array")] });
    }
  }
  const ends = new Set([...boxes.keys()].filter((id) => id.startsWith("/")));
  for (const { operation, sources, to } of derivedOf(pipeline)) {
    const from = sources.map((path) => groupOf(path, boxes.keys()) ?? path);
    for (const path of from) if (!ends.delete(path) && !boxes.has(path)) add(path, "array", []);
    add(to, operation, from, facts?.get(to) ?? WAITING);
    ends.add(to);
  }
  const [name, branch] = [String(pipeline["name"]), String(pipeline["branch"])];
  const own = lastAudit(repository, repository.row(snapshot.id), name);
  const [failed, audit] = (own && failedLater(repository, name, own)) ?? [undefined, own];
  const timeOf = (of: Audit): string => minute(f64(repository.history.times, of.row));
  const at = (of: string): string => nodeAddress(`branch.${of}`, "/", { view: "pipeline" });
  const wrong = audit?.rows.filter(({ ok }) => ok !== true).length ?? 0;
  const all = plural(audit?.rows.length ?? list(pipeline["rules"]).length, "rule");
  add("rules", "rules", [...ends], {
    title: !audit ? all : audit.isPassed ? `${all} passed` : `${count(wrong)} of ${all} failed`,
    href: failed && at(failed),
    notes: [audit ? timeOf(audit) : "no check found", ...(failed ? [`on ${failed}`] : [])],
    tone: !audit ? "" : audit.isPassed ? "good" : "bad",
    more: (audit?.rows ?? []).map(ruleText),
  });
  const tags = [...repository.tags].filter(([, id]) => own && repository.row(id) === own.row);
  add("publication", "publication", ["rules"], {
    title: `branch ${branch}`,
    href: repository.branches.has(branch) ? at(branch) : undefined,
    notes: [own?.isPassed ? timeOf(own) : "not published", ...tags.map(([tag]) => `tag ${tag}`)],
  });
  return [...boxes.values()];
}

/** The innermost of some groups that has a path. */
const groupOf = (path: string, groups: Iterable<string>): string | undefined =>
  [...groups]
    .filter((each) => `${path}/`.startsWith(each === "/" ? each : `${each}/`))
    .sort((one, other) => other.length - one.length)[0];
