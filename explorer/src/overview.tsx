/** What a node is: attributes, codecs, sizes, and what its commit changed. */

import type { VNode } from "preact";
import { product } from "./format/elements";
import type { ArrayNode, Changes, Node, Snapshot } from "./format/types";
import type { Branch } from "./nodes";
import { attributes, changedPaths, codecs, gridShape, isArray, itemSize, title } from "./nodes";
import { Facts, OnRequest, Table, Wait } from "./parts";
import { address, useLoad } from "./state";
import { bytes, count, json, last, number, plural } from "./text";
import { summary } from "./chunks";

/** A value from the repository, always as text. */
export function Value({ of }: { of: unknown }): VNode {
  if (typeof of === "string") return <span class="text">{of}</span>;
  if (typeof of === "number") return <span>{number(of)}</span>;
  const text = json(of) ?? String(of);
  return text.length < 60 ? <code>{text.replace(/\s+/g, " ")}</code> : <pre>{text}</pre>;
}

export const shapeText = (node: ArrayNode): string =>
  node.shape.length === 0 ? "scalar" : node.shape.map((length, at) => `${node.dimensions[at] ? `${node.dimensions[at]} ` : ""}${count(length)}`).join(" × ");

const MOST = 200; // lines of a list of changes

export function ChangeList({ changes, snapshot, former, version }: { changes: Changes; snapshot: Snapshot; former: Snapshot | undefined; version: string }): VNode {
  const paths = changedPaths(snapshot, changes);
  const chunks = new Map(changes.updatedChunks.map((item) => [item.nodeId, item.count]));
  const gone = new Set([...changes.deletedArrays, ...changes.deletedGroups]);
  const names = former?.nodes.filter((node) => gone.has(node.id)).slice(0, MOST) ?? [];
  const lines = [...paths].map(([path, change]) => ({ path, change, chunks: chunks.get(snapshot.node(path)?.id ?? "") }));
  if (!lines.length && !gone.size && !changes.moves.length) return <p class="quiet">Nothing but the commit itself.</p>;
  return (
    <ul class="changes">
      {changes.moves.map((move) => (
        <li key={move.to} class="changed">
          moved <code>{move.from}</code> to <code>{move.to}</code>
        </li>
      ))}
      {lines.slice(0, MOST).map((line) => (
        <li key={line.path} class={line.change}>
          {{ added: "new", changed: "changed", data: "data" }[line.change]} <a href={address({ page: "node", version, path: line.path, query: line.chunks ? { view: "chunks", colour: "change" } : {} })}>{line.path}</a>
          {line.chunks !== undefined && <span class="quiet"> {plural(line.chunks, "chunk")}</span>}
        </li>
      ))}
      {lines.length > MOST && <li>and {count(lines.length - MOST)} more</li>}
      {names.map((node) => (
        <li key={node.path} class="removed">
          deleted <a href={address({ page: "node", version: former!.id, path: node.path })}>{node.path}</a>
        </li>
      ))}
      {gone.size > names.length && <li class="removed">deleted {plural(gone.size - names.length, "other node")}</li>}
    </ul>
  );
}

export function Overview({ node, branch, snapshot, version }: { node: Node; branch: Branch | undefined; snapshot: Snapshot; version: string }): VNode {
  const pairs = Object.entries(attributes(node));
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Description">
      {isArray(node) ? <ArrayFacts node={node} snapshot={snapshot} /> : <Members branch={branch} version={version} />}
      <h3>Attributes</h3>
      {pairs.length ? <Facts rows={pairs.map(([key, value]) => [key, <Value of={value} />] as const)} /> : <p class="quiet">No attributes.</p>}
      <details>
        <summary>zarr.json</summary>
        <pre>{json(node.document)}</pre>
      </details>
    </div>
  );
}

const MOST_PLACES = 10_000; // of a grid that is measured at once

function ArrayFacts({ node, snapshot }: { node: ArrayNode; snapshot: Snapshot }): VNode {
  const size = itemSize(node.dtype);
  const grid = gridShape(node);
  const inner = product(node.chunkShape);
  return (
    <>
      <Facts
        rows={[
          ["Shape", shapeText(node)],
          ["Type", node.dtype],
          ["Chunks", node.shape.length ? `${node.chunkShape.map(count).join(" × ")}${size ? `, ${bytes(inner * size)} each` : ""}; grid ${grid.map(count).join(" × ")} = ${plural(product(grid), "place")}` : "one"],
          size !== undefined && ["Size in memory", bytes(product(node.shape) * size)],
          ["Fill value", <Value of={node.document["fill_value"]} />],
          ["Codecs", <ol class="plain">{codecs(node).map((line) => <li key={line}>{line}</li>)}</ol>],
          ["Node id", <code>{node.id}</code>],
        ]}
      />
      <OnRequest key={node.path} title="Measure stored size" isAsked={product(grid) <= MOST_PLACES}>
        <Storage node={node} snapshot={snapshot} />
      </OnRequest>
    </>
  );
}

function Storage({ node, snapshot }: { node: ArrayNode; snapshot: Snapshot }): VNode {
  const table = useLoad((_, progress) => snapshot.chunks(node.path, progress), [node, snapshot]);
  return (
    <Wait of={table} what="the references">
      {(value) => {
        const { kinds, size } = summary(value, product(gridShape(node)));
        const memory = product(node.shape) * (itemSize(node.dtype) ?? 0);
        return (
          <Facts
            rows={[
              ["Stored", `${bytes(size)} in ${plural(value.length, "chunk")}${memory && size ? `, ${number(Number((memory / size).toPrecision(3)))} : 1` : ""}`],
              ["Kinds", kinds.filter((kind) => kind.count).map((kind) => `${count(kind.count)} ${kind.name}`).join(", ")],
            ]}
          />
        );
      }}
    </Wait>
  );
}

function Members({ branch, version }: { branch: Branch | undefined; version: string }): VNode {
  const children = branch?.children ?? [];
  if (!children.length) return <p class="quiet">This group is empty.</p>;
  return (
    <Table
      heads={["Name", "Dimensions", "Type", "Title"]}
      rows={children.map(({ node, children: inner }) => [
        <a href={address({ page: "node", version, path: node.path })}>{last(node.path)}</a>,
        isArray(node) ? shapeText(node) : plural(inner.length, "member"),
        isArray(node) ? node.dtype : "group",
        title(node) === last(node.path) ? "" : title(node),
      ])}
    />
  );
}
