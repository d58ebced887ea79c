/** The drawing of a graph: a list of boxes at their places. Narrow screens get the list. */

import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { clamp, nth } from "../base/lists";
import { useSize } from "./canvas";

export interface Box extends Linked {
  /** What it is, or what makes it. */
  readonly kind: string;
  readonly title: string;
  readonly href?: string | undefined;
  /** Short lines. The first one has the tone. */
  readonly notes?: readonly string[];
  readonly tone?: "good" | "bad" | "";
  /** Lines for which the drawing has no place: the list and the tooltip show them. */
  readonly more?: readonly string[];
}

const SIZE = { least: 132, most: 208, title: 46, line: 18, across: 24, down: 14, edge: 4 } as const; // pixels

type GraphProps = { label: string; boxes: readonly Box[] };

export function Graph({ label, boxes }: GraphProps): VNode {
  const { items, lines } = useMemo(() => layered(boxes), [boxes]);
  const [element, room] = useSize<HTMLDivElement>();
  const end = (of: "column" | "row"): number => Math.max(...items.map((each) => each[of])) + 1;
  const share = (room.width - 2 * SIZE.edge + SIZE.across) / end("column") - SIZE.across;
  const width = clamp(Math.floor(share), SIZE.least, SIZE.most);
  const height = SIZE.title + SIZE.line * Math.max(...boxes.map(({ notes = [] }) => notes.length));
  const x = (column: number): number => SIZE.edge + column * (width + SIZE.across);
  const y = (row: number): number => SIZE.edge + Math.round(row * (height + SIZE.down));
  const middle = ({ row }: Item): number => y(row) + height / 2 + 0.5; // a sharp line
  const part = (to: Item, at: number, line: readonly Item[]): string => {
    const from = line[at - 1];
    if (!from) return `M${x(to.column) + width},${middle(to)}`;
    const half = x(to.column) - SIZE.across / 2;
    const curve = `C${half},${middle(from)} ${half},${middle(to)} ${x(to.column)},${middle(to)}`;
    return to.id === undefined ? `${curve}h${width}` : curve;
  };
  const all = {
    width: x(end("column")) - SIZE.across + SIZE.edge,
    height: y(end("row")) - SIZE.down + SIZE.edge,
  };
  const byId = new Map(boxes.map((each) => [each.id, each]));
  const pixels = (sizes: Record<string, number>): Record<string, string> =>
    Object.fromEntries(Object.entries(sizes).map(([name, size]) => [`--${name}`, `${size}px`]));
  return (
    <div ref={element} class="items" tabIndex={0} role="group" aria-label={label}>
      <div class="drawn" style={pixels({ ...all, box: width, tall: height })}>
        <svg aria-hidden="true" {...all}>
          {lines.map((line, at) => (
            <path key={at} d={line.map(part).join("")} />
          ))}
        </svg>
        <ol class="plain">
          {items.map(({ id = "", column, row }) => {
            const box = byId.get(id);
            if (!box) return null;
            const { kind, title, href, notes = [], tone = "", sources, more = [] } = box;
            const from = sources.map((each) => byId.get(each)?.title ?? each).join(", ");
            return (
              <li
                key={id}
                class={`box ${tone}`}
                title={more.join("\n")}
                style={pixels({ x: x(column), y: y(row) })}
              >
                <span class="quiet">{kind}</span>
                {href ? <a {...{ href, title }}>{title}</a> : <strong title={title}>{title}</strong>}
                {notes.map((note, at) => (
                  <span key={at} class={at ? "" : "state"} title={note}>
                    {note}
                  </span>
                ))}
                <div class="extra">
                  {[...(from ? [`from ${from}`] : []), ...more].map((line, at) => (
                    <div key={at}>{line}</div>
                  ))}
                </div>
              </li>
            );
          })}
        </ol>
      </div>
    </div>
  );
}

export type Linked = { readonly id: string; readonly sources: readonly string[] };

/** A node, or without an id a place where a line passes a column. Rows of one column are at least 1 apart. */
export interface Item {
  readonly id?: string;
  readonly column: number;
  row: number;
  readonly former: Item[];
  readonly next: Item[];
}

const SWEEPS = 4;

/** The items in the order of reading, and for each source of each node the items of its line, one in each column. */
export function layered(nodes: readonly Linked[]): { items: Item[]; lines: Item[][] } {
  const sourcesOf = new Map(nodes.map(({ id, sources }) => [id, sources]));
  const columns = new Map<string, number>();
  const columnOf = (id: string): number => {
    const found = columns.get(id);
    if (found !== undefined) return found;
    columns.set(id, 0); // while its sources are looked for, which may be a circle
    const known = (sourcesOf.get(id) ?? []).filter((each) => sourcesOf.has(each));
    columns.set(id, Math.max(-1, ...known.map(columnOf)) + 1);
    return columnOf(id);
  };
  const last = Math.max(0, ...nodes.map(({ id }) => columnOf(id)));
  const layers = Array.from({ length: last + 1 }, (): Item[] => []);
  const add = (column: number, named: { id?: string } = {}): Item => {
    const item = { ...named, column, row: nth(layers, column).length, former: [], next: [] };
    nth(layers, column).push(item);
    return item;
  };
  const items = new Map(nodes.map(({ id }) => [id, add(columnOf(id), { id })]));
  const lines = nodes.flatMap(({ id, sources }) =>
    [...new Set(sources)].flatMap((name) => {
      const [from, to] = [items.get(name), items.get(id)];
      if (!from || !to || from.column >= to.column) return []; // a circle
      const line = [from];
      while (line.length < to.column - from.column) line.push(add(from.column + line.length));
      line.push(to);
      line.slice(1).forEach((item, at) => {
        item.former.push(nth(line, at));
        nth(line, at).next.push(item);
      });
      return [line];
    }),
  );
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (const layer of layers) settle(layer, "former");
    for (const layer of layers.toReversed()) settle(layer, "next");
  }
  const all = layers.flat();
  const top = Math.min(...all.map(({ row }) => row));
  for (const item of all) item.row -= top;
  return { items: all, lines };
}

/** Sorts a column by the means of the neighbours on one side. The items lie around these means. */
function settle(layer: Item[], side: "former" | "next"): void {
  const wanted = (item: Item): number =>
    item[side].length ? item[side].reduce((sum, { row }) => sum + row, 0) / item[side].length : item.row;
  const means = new Map(layer.map((item) => [item, wanted(item)]));
  layer.sort((one, other) => (means.get(one) ?? 0) - (means.get(other) ?? 0));
  let [free, moved] = [-Infinity, 0];
  for (const item of layer) {
    item.row = Math.max(free, means.get(item) ?? 0);
    moved += item.row - (means.get(item) ?? 0);
    free = item.row + 1;
  }
  for (const item of layer) item.row -= moved / layer.length;
}
