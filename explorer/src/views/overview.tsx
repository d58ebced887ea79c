/** What a node is: attributes, codecs, sizes, and what its commit changed. */

import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import {
  attributes,
  type Branch,
  changedPaths,
  codecs,
  gridShape,
  isArray,
  itemSize,
  listed,
  shapeText,
  title,
} from "../array/nodes";
import { product } from "../base/lists";
import { numberOf } from "../cf/cf";
import type { ArrayNode, Changes, Node, Snapshot } from "../format/types";
import { Graph } from "../page/graph";
import { Facts, More, Table } from "../page/parts";
import { nodeAddress } from "../page/state";
import { bytes, count, json, last, plural } from "../page/text";
import { derivations } from "../versions/derived";

/** A number with all of its digits; of 32 bits with those that tell it from others. */
function exact(value: number, dtype?: string): string {
  const digits = [1, 2, 3, 4, 5, 6, 7, 8, 9].find(
    (each) => Math.fround(Number(value.toPrecision(each))) === value,
  );
  const shown = dtype === "float32" && digits ? Number(value.toPrecision(digits)) : value;
  return Math.abs(shown) >= 1e15 && Number.isFinite(shown) ? shown.toExponential() : String(shown);
}

/** A value from the repository, always as text. */
export function Value({ of, dtype }: { of: unknown; dtype?: string | undefined }): VNode {
  if (typeof of === "string") return <span class="text">{of}</span>;
  if (typeof of === "number") return <span>{exact(of, dtype)}</span>;
  const text = json(of) ?? String(of);
  return text.length < 60 ? <code>{text.replace(/\s+/g, " ")}</code> : <pre>{text}</pre>;
}

/** An attribute. Fill values may be stored as the base64 text of a float. */
function Attribute({ name, of, dtype }: { name: string; of: unknown; dtype: string | undefined }): VNode {
  const isFill = name === "_FillValue" || name === "missing_value";
  const value =
    isFill && typeof of === "string" && !/^(string|bytes)/.test(dtype ?? "") ? numberOf(of) : undefined;
  if (value === undefined) return <Value of={of} dtype={isFill ? dtype : undefined} />;
  return (
    <>
      {exact(value, dtype)} <span class="quiet">stored as {String(of)}</span>
    </>
  );
}

const MOST = 200; // lines of a list of changes

type ChangeListProps = {
  changes: Changes;
  snapshot: Snapshot;
  former: Snapshot | undefined;
  version: string;
};

export function ChangeList({ changes, snapshot, former, version }: ChangeListProps): VNode {
  const paths = changedPaths(snapshot, changes);
  const chunks = new Map(changes.updatedChunks.map((item) => [item.nodeId, item.count]));
  const gone = new Set([...changes.deletedArrays, ...changes.deletedGroups]);
  const deleted = former?.nodes.filter((node) => gone.has(node.id)) ?? [];
  const names = listed(deleted, "/").slice(0, MOST);
  const unnamed = gone.size - (deleted.length - listed(deleted, "/").length) - names.length;
  const all = [...paths].map(([path, change]) => ({
    path,
    change,
    chunks: chunks.get(snapshot.node(path)?.id ?? ""),
  }));
  const lines = [...listed(all, "/")].sort((one, other) => (one.path < other.path ? -1 : 1));
  const moved = changes.moves.map((move) => ({ ...move, path: move.to }));
  const moves = listed(moved, "/");
  if (!lines.length && !names.length && unnamed <= 0 && !moves.length) {
    return <p class="quiet">Nothing but the commit itself, or records that Frazil writes for itself.</p>;
  }
  return (
    <ul class="changes">
      {moves.map((move) => (
        <li key={move.to} class="changed">
          moved <code>{move.from}</code> to <code>{move.to}</code>
        </li>
      ))}
      {lines.slice(0, MOST).map((line) => (
        <li key={line.path} class={line.change}>
          {{ added: "new", changed: "changed", data: "data" }[line.change]}{" "}
          <a href={nodeAddress(version, line.path, line.chunks ? { view: "chunks", colour: "change" } : {})}>
            {line.path}
          </a>
          {line.chunks !== undefined && <span class="quiet"> {plural(line.chunks, "chunk")}</span>}
        </li>
      ))}
      <More of={lines.length} most={MOST} />
      {names.map((node) => (
        <li key={node.path} class="removed">
          deleted <a href={nodeAddress(former?.id ?? "", node.path)}>{node.path}</a>
        </li>
      ))}
      {unnamed > 0 && <li class="removed">deleted {plural(unnamed, "other node")}</li>}
    </ul>
  );
}

type OverviewProps = { node: Node; branch: Branch | undefined; snapshot: Snapshot; version: string };

export function Overview({ node, branch, snapshot, version }: OverviewProps): VNode {
  const pairs = Object.entries(attributes(node));
  const dtype = isArray(node) ? node.dtype : undefined;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Description">
      {isArray(node) ? <ArrayFacts node={node} /> : <Members branch={branch} version={version} />}
      <Derived path={node.path} snapshot={snapshot} version={version} />
      <h3>Attributes</h3>
      {pairs.length ? (
        <Facts rows={pairs.map(([key, value]) => [key, <Attribute name={key} of={value} dtype={dtype} />])} />
      ) : (
        <p class="quiet">No attributes.</p>
      )}
      <details>
        <summary>zarr.json</summary>
        <pre>{json(node.document)}</pre>
      </details>
    </div>
  );
}

const MOST_DERIVED = 500;

/** The graph of what an array, or the arrays of a group, are made of, and of what is made of them. */
function Derived({ path, snapshot, version }: { path: string; snapshot: Snapshot; version: string }): VNode {
  const drawn = useMemo(
    () =>
      derivations(snapshot, path).map((each) => ({
        id: each.path,
        title: each.path,
        kind: each.operation || "array",
        href: nodeAddress(version, each.path),
        sources: each.sources,
      })),
    [snapshot, path, version],
  );
  if (!drawn.length) return <></>;
  if (drawn.length > MOST_DERIVED) return <p class="quiet">{plural(drawn.length, "derived array")}.</p>;
  return (
    <>
      <h3>Derived arrays</h3>
      <Graph label="Derived arrays" boxes={drawn} />
    </>
  );
}

function ArrayFacts({ node }: { node: ArrayNode }): VNode {
  const size = itemSize(node.dtype);
  const grid = gridShape(node);
  const each = size ? `, ${bytes(product(node.chunkShape) * size)} each` : "";
  const places = `grid ${grid.map(count).join(" × ")} = ${plural(product(grid), "place")}`;
  const chunks = `${node.chunkShape.map(count).join(" × ")}${each}; ${places}`;
  const lines = codecs(node).map((line) => <li key={line}>{line}</li>);
  return (
    <Facts
      rows={[
        ["Shape", shapeText(node)],
        ["Type", node.dtype],
        ["Chunks", node.shape.length ? chunks : "one"],
        size !== undefined && ["Size in memory", bytes(product(node.shape) * size)],
        ["Fill value", <Value of={node.document["fill_value"]} dtype={node.dtype} />],
        ["Codecs", <ol class="plain">{lines}</ol>],
        ["Node id", <code>{node.id}</code>],
      ]}
    />
  );
}

function Members({ branch, version }: { branch: Branch | undefined; version: string }): VNode {
  const children = branch?.children ?? [];
  if (!children.length) return <p class="quiet">This group is empty.</p>;
  return (
    <Table
      heads={["Name", "Dimensions", "Type", "Title"]}
      rows={children.map(({ node, children: inner }) => [
        <a href={nodeAddress(version, node.path)}>{last(node.path)}</a>,
        isArray(node) ? shapeText(node) : plural(inner.length, "member"),
        isArray(node) ? node.dtype : "group",
        title(node) === last(node.path) ? "" : title(node),
      ])}
    />
  );
}
