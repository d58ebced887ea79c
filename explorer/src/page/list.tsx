/** A list that makes elements only for the rows on the screen. */

import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { clamp, type Properties } from "../base/lists";
import { useSize } from "./canvas";

interface ListProps {
  readonly label: string;
  readonly role: "listbox" | "tree";
  readonly count: number;
  readonly rowHeight: number;
  readonly active: number;
  row(index: number): VNode;
  /** Attributes of a row, for example `aria-level`. */
  attributes?(index: number): Properties;
  onActive(index: number): void;
  /** Enter or space on the active row. */
  onOpen?(index: number): void;
  onKey?(event: KeyboardEvent): void;
  /** Pixels before a row. */
  indent?(index: number): number;
  /** What lies behind the rows from `first` on: moves with them. */
  gutter?(first: number, shown: number): VNode;
  readonly class?: string;
}

const SPARE = 4; // rows above and below the visible ones
let lists = 0;

export function List(props: ListProps): VNode {
  const { label, role, count, rowHeight, active, row, attributes, onActive, onOpen, onKey, indent, gutter } =
    props;
  const [element, size] = useSize<HTMLDivElement>();
  const [first, setFirst] = useState(0);
  const [id] = useState(() => `list${++lists}`);
  const most = Math.ceil(size.height / rowHeight) + 2 * SPARE;
  const shown = Math.min(count - first, most);
  const follow = (): void => {
    const top = element.current?.scrollTop ?? 0;
    // Steps of half the spare rows: most scroll events then change nothing
    const step = SPARE / 2;
    setFirst(Math.max(0, Math.floor(Math.floor(top / rowHeight) / step) * step - step));
  };
  useEffect(() => {
    const target = element.current;
    if (!target || active < 0 || size.height === 0) return;
    const top = active * rowHeight;
    if (top < target.scrollTop) target.scrollTop = top - rowHeight;
    else if (top + rowHeight > target.scrollTop + size.height)
      target.scrollTop = top - size.height + 2 * rowHeight;
    follow();
  }, [active, size.height > 0, count]);
  const key = (event: KeyboardEvent): void => {
    const page = Math.max(1, Math.floor(size.height / rowHeight) - 1);
    const at = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      PageDown: active + page,
      PageUp: active - page,
      Home: 0,
      End: count - 1,
    }[event.key];
    if (at !== undefined && !event.altKey && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      if (count > 0) onActive(clamp(at, 0, count - 1));
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (active >= 0) onOpen?.(active);
    } else onKey?.(event);
  };
  // Rows that stay on the screen are not compared again
  const cache = useRef<{ keys: unknown[]; rows: Map<number, VNode> }>({ keys: [], rows: new Map() });
  const keys = [row, active, most];
  const former = keys.every((key, at) => key === cache.current.keys[at]) ? cache.current.rows : undefined;
  const now = new Map<number, VNode>();
  for (let index = first; index < first + shown; index++) {
    const item = former?.get(index) ?? (
      <div
        key={index % most} // a row that comes takes over the elements of a row that goes
        id={`${id}-${index}`}
        role={role === "tree" ? "treeitem" : "option"}
        aria-selected={index === active}
        {...(role === "tree" ? {} : { "aria-setsize": count, "aria-posinset": index + 1 })}
        {...attributes?.(index)}
        class={index === active ? "row active" : "row"}
        style={{ height: `${rowHeight}px`, paddingLeft: `${indent?.(index) ?? 0}px` }}
        onClick={() => onActive(index)}
      >
        {row(index)}
      </div>
    );
    now.set(index, item);
  }
  cache.current = { keys, rows: now };
  const visible = active >= first && active < first + shown;
  return (
    <div
      ref={element}
      class={`list ${props.class ?? ""}`}
      role={role}
      aria-label={label}
      tabIndex={0}
      onScroll={follow}
      onKeyDown={key}
      {...(visible ? { "aria-activedescendant": `${id}-${active}` } : {})}
    >
      <div class="extent" role="presentation" style={{ height: `${count * rowHeight}px` }}>
        <div class="window" role="presentation" style={{ transform: `translateY(${first * rowHeight}px)` }}>
          {gutter?.(first, shown)}
          {[...now.values()]}
        </div>
      </div>
    </div>
  );
}
