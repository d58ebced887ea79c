/** The first page of a repository: its data, its last commits, its size, and what is behind. */

import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { isArray, isHidden, itemSize, title } from "../array/nodes";
import { f64, i32, product } from "../base/lists";
import type { Repository, Snapshot } from "../format/types";
import type { Reader } from "../page/home";
import { CommitLink, Facts, More, Wait } from "../page/parts";
import { mainBranch, resolve } from "../page/route";
import { address, afterwards, route, snapshotOf, useLoad } from "../page/state";
import { bytes, count, firstLine, isolated, minute, plural } from "../page/text";
import { Data } from "../values/data";
import { derivedStates } from "../versions/derived";
import { firstVariable } from "../versions/first";
import { author } from "../versions/search";

const MOST = 5; // commits, and derived arrays that are behind

export function Home({ reader }: { reader: Reader }): VNode {
  const { repository } = reader;
  const version = reader.version ?? mainBranch(repository) ?? "";
  const id = resolve(repository, version);
  const snapshot = useLoad(() => snapshotOf(repository, version), [repository, id]);
  return (
    <div class="split home">
      <Wait of={snapshot} what="the version">
        {(value) => <First key={id} reader={reader} snapshot={value} version={version} />}
      </Wait>
      <section class="pane detail" aria-label="Repository" tabIndex={0}>
        <h2>{isolated(reader.label)}</h2>
        {snapshot.value && <Sizes repository={repository} snapshot={snapshot.value} />}
        <h3>Last commits of {isolated(version)}</h3>
        <LastCommits repository={repository} id={id} />
        {snapshot.value && <Behind reader={reader} snapshot={snapshot.value} version={version} />}
      </section>
    </div>
  );
}

type Props = { reader: Reader; snapshot: Snapshot; version: string };

function First({ reader, snapshot, version }: Props): VNode {
  const first = useMemo(() => firstVariable(snapshot), [snapshot]);
  if (!first) return <p class="pane fill">This version has no array with data.</p>;
  const { node, start } = first;
  const query = { i: start, ...route.value.query, view: "data" };
  const href = address({ page: "node", version, path: node.path, query });
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

function Sizes({ repository, snapshot }: { repository: Repository; snapshot: Snapshot }): VNode {
  const { history } = repository;
  const arrays = snapshot.nodes.filter(isArray).filter(({ path }) => !isHidden(path));
  const size = arrays.reduce((sum, { shape, dtype }) => sum + product(shape) * (itemSize(dtype) ?? 0), 0);
  return (
    <Facts
      rows={[
        ["Versions", `${count(history.times.length)}${history.isCut ? " or more" : ""}`],
        ["Arrays", `${count(arrays.length)}, ${bytes(size)} of values`],
      ]}
    />
  );
}

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
          <span class="quiet">
            <bdi>{author(history.metadata(row))}</bdi> {minute(f64(history.times, row))}
          </span>
        </li>
      ))}
    </ol>
  );
}

/** The derived arrays that do not have the values of their sources. */
function Behind({ reader, snapshot, version }: Props): VNode | null {
  const states = useLoad(() => derivedStates(reader.repository, snapshot), [snapshot], false, afterwards);
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
            <a href={address({ page: "node", version, path: node.path, query: { view: "about" } })}>
              {node.path}
            </a>{" "}
            <span class="problem">{state}</span>
          </li>
        ))}
        <More of={late.length} most={MOST} />
      </ul>
    </>
  );
}
