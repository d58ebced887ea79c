/** The drawing of a graph: a list of boxes at their places. Narrow screens, and whoever asks for it, get the list. */

import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { type Item, layered, type Linked } from "../base/layers";
import { clamp } from "../base/lists";
import { useSize } from "./canvas";

export interface Box extends Linked {
  /** What it is, or what makes it. */
  readonly kind: string;
  readonly title: string;
  readonly href?: string | undefined;
  /** Short lines. The first one has the tone. */
  readonly notes?: readonly string[];
  readonly tone?: "good" | "bad" | "";
  /** Lines for which the drawing has no place: only the list shows them. */
  readonly more?: readonly string[];
}

const SIZE = { least: 132, most: 208, title: 46, line: 18, across: 24, down: 14, edge: 4 } as const; // pixels

type GraphProps = { label: string; boxes: readonly Box[]; isList?: boolean };

export function Graph({ label, boxes, isList = false }: GraphProps): VNode {
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
      <div class={isList ? "graph" : "graph drawn"} style={pixels({ ...all, box: width, tall: height })}>
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
              <li key={id} class={`box ${tone}`} style={pixels({ x: x(column), y: y(row) })}>
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
