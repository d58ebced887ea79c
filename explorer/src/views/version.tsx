/** A version: its nodes as a tree, and the view of one node. */

import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import {
  type Branch,
  type Change,
  changedPaths,
  isArray,
  isHidden,
  listed,
  rows,
  shapeText,
  tree,
} from "../array/nodes";
import { f64, nth } from "../base/lists";
import type { Node } from "../format/types";
import type { Reader, SnapshotProps } from "../page/home";
import { List } from "../page/list";
import { CommitLink, Entry, onDemand, Tabs, type Titles, Wait } from "../page/parts";
import { resolve } from "../page/route";
import { diffAddress, go, nodeAddress, route, setQuery, snapshotOf, useLater, useLoad } from "../page/state";
import { count, firstLine, last, minute, parent, plural } from "../page/text";
import { Data } from "../values/data";
import { pipelines } from "../versions/derived";

export const Chunks = onDemand(() => import("../chunks/chunkmap"), "Chunks");
const Overview = onDemand(() => import("./overview"), "Overview");
const Pipelines = onDemand(() => import("./pipeline"), "Pipelines");

export function VersionView({ reader: of }: { reader: Reader }): VNode {
  const { repository } = of;
  const { version } = route.value;
  const id = resolve(repository, version);
  const snapshot = useLoad(() => snapshotOf(repository, version), [repository, id]);
  const row = repository.row(id);
  const above = repository.history.parent[row] ?? -1;
  const base = above < 0 ? "" : repository.history.id(above);
  const toParent = base && diffAddress(base, version, route.value.path);
  return (
    <div class="column fill">
      <div class="bar">
        <Version reader={of} label="Version" name="version" />
        {row >= 0 && (
          <>
            <time class="quiet">{minute(f64(repository.history.times, row))}</time>
            <CommitLink id={id}>In the history</CommitLink>
            {toParent && <a href={toParent}>Differences from its parent</a>}
          </>
        )}
      </div>
      <Wait of={snapshot} what="the version">
        {(value) => <NodeView key={id} reader={of} snapshot={value} version={version} />}
      </Wait>
    </div>
  );
}

/** A version of the address as a typed name, with the message of its commit. */
type VersionProps = { reader: Reader; label: string; name: "base" | "version" };

export function Version({ reader: { repository }, label, name }: VersionProps): VNode {
  const value = route.value[name];
  const row = repository.row(resolve(repository, value));
  const message = row >= 0 ? firstLine(repository.history.message(row)) : "not in the history";
  const after = <span class="quiet message">{message}</span>;
  const enter = (text: string): string | void =>
    text === "" ? "Write a branch, a tag or an id." : go({ [name]: text });
  const entry = { label, value, list: "versions", size: 14, after, onEnter: enter };
  return <Entry key={value} isEager {...entry} />;
}

const ALL_OPEN = 1000; // nodes up to which all groups are open at first

const MARKS: Record<Change, readonly [string, string]> = {
  added: ["+", "new in this commit"],
  changed: ["~", "changed by this commit"],
  data: ["•", "data changed by this commit"],
};

function NodeView(props: SnapshotProps): VNode {
  const { reader: of, snapshot, version } = props;
  const { path, query } = route.value;
  const node = snapshot.node(path);
  const nodes = useMemo(() => listed(snapshot.nodes, path), [snapshot, isHidden(path)]);
  const root = useMemo(() => tree(nodes), [nodes]);
  const [toggles, setToggles] = useState<ReadonlySet<string>>(new Set());
  const [text, setText] = useState("");
  const many = nodes.length > ALL_OPEN;
  // Groups such as `.frazil` hold notes of programs
  const isFolded = (branch: Branch): boolean =>
    (many && branch.depth > 0) || last(branch.node.path).startsWith(".");
  const isOpen = (branch: Branch): boolean =>
    (isFolded(branch) && !`${path}/`.startsWith(`${branch.node.path}/`)) === toggles.has(branch.node.path);
  const lines = useMemo(() => rows(root, isOpen, text), [root, toggles, text, many ? path : ""]);
  const active = lines.findIndex((branch) => branch.node.path === path);
  const changes = useLater(async () => {
    const log = await of.repository.changes(snapshot.id);
    return log ? changedPaths(snapshot, log) : new Map<string, Change>();
  }, [snapshot]);
  const toggle = (branch: Branch): void => {
    const next = new Set(toggles);
    if (!next.delete(branch.node.path)) next.add(branch.node.path);
    setToggles(next);
  };
  const key = (event: KeyboardEvent): void => {
    const branch = lines[active];
    if (!branch) return;
    const open = isOpen(branch);
    if (event.key === "ArrowRight" && branch.children.length && !open) toggle(branch);
    else if (event.key === "ArrowRight" && branch.children.length) select(lines[active + 1] ?? branch);
    else if (event.key === "ArrowLeft" && branch.children.length && open) toggle(branch);
    else if (event.key === "ArrowLeft" && branch.depth > 0)
      go({ path: parent(branch.node.path), query: {} }, true);
    else return;
    event.preventDefault();
  };
  const select = (branch: Branch): void => {
    const view = query["view"];
    if (branch.node.path !== path)
      go({ path: branch.node.path, query: view && isArray(branch.node) ? { view } : {} });
  };
  return (
    <div class="split fill nodes">
      <section class="pane side" aria-label="Nodes">
        <input
          type="search"
          class="wide"
          value={text}
          placeholder={`Search ${plural(nodes.length, "node")}`}
          aria-label="Search nodes"
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <List
          label="Nodes of this version"
          role="tree"
          count={lines.length}
          rowHeight={28}
          active={active}
          onActive={(index) => select(nth(lines, index))}
          onOpen={(index) => toggle(nth(lines, index))}
          onKey={key}
          attributes={(index) => {
            const branch = nth(lines, index);
            return {
              "aria-level": branch.depth + 1,
              ...(branch.children.length ? { "aria-expanded": isOpen(branch) } : {}),
            };
          }}
          indent={(index) => 6 + nth(lines, index).depth * 14 + (nth(lines, index).children.length ? 0 : 19)}
          row={(index) => {
            const branch = nth(lines, index);
            const change = changes.value?.get(branch.node.path);
            const mark = change && MARKS[change];
            return (
              <>
                {branch.children.length > 0 && (
                  <span
                    class="twist"
                    aria-hidden="true"
                    onClick={(event) => (event.stopPropagation(), toggle(branch))}
                  >
                    {isOpen(branch) ? "▾" : "▸"}
                  </span>
                )}
                <span class={`node ${branch.node.kind}`}>{branch.depth ? last(branch.node.path) : "/"}</span>
                {mark && (
                  <span class="mark" role="img" aria-label={mark[1]} title={mark[1]}>
                    {mark[0]}
                  </span>
                )}
                <span class="quiet tree-note">
                  {isArray(branch.node)
                    ? `${branch.node.shape.map(count).join(" × ")} ${branch.node.dtype}`
                    : branch.children.length || ""}
                </span>
              </>
            );
          }}
        />
      </section>
      <section class="pane fill" aria-label="Node">
        <h2 class="path">
          <Crumbs path={path} version={version} />
          {isArray(node) && <span class="quiet"> {shapeText(node)}</span>}
        </h2>
        {node ? (
          <NodeTabs key={path} {...props} node={node} branch={lines[active]} />
        ) : (
          <p class="failure">This version has no node {path}.</p>
        )}
      </section>
    </div>
  );
}

function Crumbs({ path, version }: { path: string; version: string }): VNode {
  const parts = path.split("/").filter(Boolean);
  return (
    <>
      <a href={nodeAddress(version)}>/</a>
      {parts.map((part, at) => (
        <span key={at}>
          {at > 0 && " / "}
          <a href={nodeAddress(version, `/${parts.slice(0, at + 1).join("/")}`)}>{part}</a>
        </span>
      ))}
    </>
  );
}

const TABS: Titles = [
  ["about", "About"],
  ["pipeline", "Pipeline"],
  ["chunks", "Chunks"],
  ["data", "Data"],
];

type NodeTabsProps = SnapshotProps & { node: Node; branch: Branch | undefined };

function NodeTabs({ node, branch, ...props }: NodeTabsProps): VNode {
  const { query } = route.value;
  const found = useMemo(() => (node.path === "/" ? pipelines(props.snapshot) : []), [node, props.snapshot]);
  const others = isArray(node) ? ["chunks", "data"] : found.length ? ["pipeline"] : [];
  const names = ["about", ...others];
  const view = names.find((name) => name === query["view"]) ?? (isArray(node) ? "data" : "about");
  const select = (name: string): void => {
    const change = { view: name, i: query["i"] ?? "" };
    if (!isArray(node) || name === view || ![name, view].includes("chunks")) return setQuery(change, false);
    // The map counts chunks where the picture counts values
    const place = (at: string, d: number): number => {
      const [size, length] = [Math.max(1, node.chunkShape[d] ?? 1), node.shape[d] ?? 1];
      return name === "chunks" ? Math.floor(Number(at) / size) : Math.min(Number(at) * size, length - 1);
    };
    const i = change.i ? change.i.split(",").map(place).join() : "";
    setQuery({ ...change, i, ...Object.fromEntries(node.shape.map((_, d) => [`r${d}`, ""])) }, false);
  };
  return (
    <div class="column fill">
      {others.length > 0 && (
        <Tabs
          label={`Views of the ${isArray(node) ? "array" : "version"}`}
          tabs={TABS.filter(([name]) => names.includes(name))}
          active={view}
          onSelect={select}
        />
      )}
      {view === "about" && <Overview node={node} branch={branch} {...props} />}
      {view === "pipeline" && <Pipelines {...props} of={found} />}
      {view === "chunks" && isArray(node) && <Chunks {...props} node={node} />}
      {view === "data" && isArray(node) && <Data {...props} node={node} />}
    </div>
  );
}
