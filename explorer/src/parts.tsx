/** Small parts that all views use. */

import { Component, type ComponentChildren, type JSX, type VNode } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import type { Load } from "./state";
import { count, plural } from "./text";

const ADVICE: Record<string, string> = {
  "not-found": "The address may be old, or the version may have expired.",
  network: "Check the connection and try again.",
  format: "The file may be damaged. `frazil verify` says more.",
  codec: "The other views of this array still work.",
};

export function Failure({ of: { error, retry } }: { of: Load<unknown> }): VNode | null {
  if (!error) return null;
  return (
    <div class="failure" role="alert">
      <strong>{error.message}</strong>
      {ADVICE[error.kind] && <p>{ADVICE[error.kind]!.split("`").map((part, at) => (at % 2 ? <code>{part}</code> : part))}</p>}
      <p>
        <button onClick={retry}>Try again</button>
      </p>
    </div>
  );
}

const MOST_LOSSES = 5; // that are shown

/** Chunks that cannot be read: the others are shown. */
export function Losses({ of }: { of: readonly string[] }): VNode | null {
  if (!of.length) return null;
  return (
    <div class="failure" role="alert">
      <strong>{plural(of.length, "chunk")} cannot be read. The places of these values are empty.</strong>
      <ul class="plain">
        {of.slice(0, MOST_LOSSES).map((reason) => (
          <li key={reason}>{reason}</li>
        ))}
        {of.length > MOST_LOSSES && <li>and {count(of.length - MOST_LOSSES)} more</li>}
      </ul>
      <p>
        <code>frazil verify</code> says more.
      </p>
    </div>
  );
}

/** Keeps a failure of one view away from the rest of the page. Another address is another attempt. */
export class Boundary extends Component<{ place: string; children: ComponentChildren }, { error?: unknown; place?: string }> {
  override componentDidCatch(error: unknown): void {
    console.error(error);
    this.setState({ error, place: this.props.place });
  }

  override render(): ComponentChildren {
    const { error, place } = this.state;
    if (error === undefined || place !== this.props.place) return this.props.children;
    return (
      <div class="failure" role="alert">
        <strong>This view failed: {error instanceof Error ? error.message : String(error)}</strong>
        <p>The other views still work.</p>
        <button onClick={() => this.setState({ place: "" })}>Try again</button>
      </div>
    );
  }
}

/** What `children` makes of a value; before that the progress or the failure. */
export function Wait<T>({ of, what, children }: { of: Load<T>; what: string; children: (value: T) => ComponentChildren }): VNode {
  if (of.error) return <Failure of={of} />;
  if (of.value === undefined && of.busy) {
    return (
      <p class="wait" role="status">
        Loading {what}
        {of.progress !== undefined && <progress value={of.progress} aria-label={`Loading ${what}`} />}
      </p>
    );
  }
  return <>{children(of.value as T)}</>;
}

export function Tabs({ label, tabs, active, onSelect }: { label: string; tabs: readonly (readonly [string, string])[]; active: string; onSelect: (name: string) => void }): VNode {
  const step = (event: KeyboardEvent): void => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const at = (tabs.findIndex(([name]) => name === active) + move + tabs.length) % tabs.length;
    onSelect(tabs[at]![0]);
    ((event.currentTarget as HTMLElement).children[at] as HTMLElement).focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={step}>
      {tabs.map(([name, title]) => (
        <button key={name} role="tab" aria-selected={name === active} tabIndex={name === active ? 0 : -1} onClick={() => onSelect(name)}>
          {title}
        </button>
      ))}
    </div>
  );
}

/** A sign that has no meaning for screen readers: its button has a label. */
export const Sign = ({ children }: { children: string }): VNode => <span aria-hidden="true">{children}</span>;

export const Facts = ({ rows }: { rows: readonly (readonly [string, ComponentChildren] | undefined | false)[] }): VNode => (
  <dl class="facts">
    {rows.map((row) => row && [<dt key={row[0]}>{row[0]}</dt>, <dd key={`${row[0]} value`}>{row[1]}</dd>])}
  </dl>
);

interface EntryProps extends Pick<JSX.IntrinsicElements["input"], "size" | "placeholder" | "title" | "disabled"> {
  readonly label: string;
  readonly value?: string;
  /** The place of the label is narrow: it is for screen readers alone. */
  readonly isUnlabelled?: boolean;
  /** Whoever leaves the field enters its text. */
  readonly isEager?: boolean;
  /** Takes a text; a sentence if it is wrong. */
  onEnter(text: string): string | void;
  readonly list?: string;
  readonly after?: ComponentChildren;
}

/** A field for a text, and Enter sends it. A wrong text stays in it, with the reason. */
export function Entry({ label, value = "", isUnlabelled, isEager, onEnter, after, ...rest }: EntryProps): VNode {
  const [text, setText] = useState(value);
  const [problem, setProblem] = useState("");
  const id = useId();
  const enter = (): void => {
    const reason = onEnter(text.trim()) || "";
    setProblem(reason);
    if (!reason) setText(value);
  };
  const leave = (): void => (text === value ? setProblem("") : enter());
  return (
    <form class="field" onSubmit={(event) => (event.preventDefault(), enter())}>
      <label>
        <span class={isUnlabelled ? "hidden" : ""}>{label}</span>
        <input
          type="text"
          {...rest}
          value={text}
          aria-invalid={problem !== ""}
          {...(problem ? { "aria-describedby": id } : {})}
          onInput={(event) => setText(event.currentTarget.value)}
          {...(isEager ? { onBlur: leave } : {})}
        />
      </label>
      {after}
      {problem && (
        <span id={id} class="problem" role="alert">
          {problem}
        </span>
      )}
    </form>
  );
}

const MOST = 500; // rows of a table

export const Table = ({ heads, rows }: { heads: readonly string[]; rows: readonly (readonly ComponentChildren[])[] }): VNode => (
  <div class="items" tabIndex={0}>
    <table>
      <thead>
        <tr>
          {heads.map((head) => (
            <th key={head} scope="col">
              {head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.slice(0, MOST).map((row, at) => (
          <tr key={at}>
            {row.map((cell, column) => (
              <td key={column}>{cell}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
    {rows.length > MOST && <p class="quiet">and {count(rows.length - MOST)} more</p>}
  </div>
);

/** A button for what takes time, and then what it shows. */
export function OnRequest({ title, isAsked = false, children }: { title: string; isAsked?: boolean; children: ComponentChildren }): VNode {
  const [isOpen, setOpen] = useState(isAsked);
  if (isOpen) return <>{children}</>;
  return (
    <p class="actions">
      <button onClick={() => setOpen(true)}>{title}</button>
    </p>
  );
}

export const Choice = ({ label, value, options, onSelect }: { label: string; value: string; options: readonly (readonly [string, string])[]; onSelect: (value: string) => void }): VNode => (
  <label class="field">
    <span>{label}</span>
    <select value={value} onChange={(event) => onSelect(event.currentTarget.value)}>
      {options.map(([name, title]) => (
        <option key={name} value={name} selected={name === value}>
          {title}
        </option>
      ))}
    </select>
  </label>
);

/** Size of an element, followed as it changes. */
export function useSize<T extends HTMLElement>(): [{ current: T | null }, { width: number; height: number }] {
  const element = useRef<T>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const target = element.current;
    if (!target) return;
    const measure = (): void => setSize((former) => (former.width === target.clientWidth && former.height === target.clientHeight ? former : { width: target.clientWidth, height: target.clientHeight }));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(target);
    return () => observer.disconnect();
  }, []);
  return [element, size];
}

/** A canvas as sharp as the screen. `draw` gets CSS pixels and runs at most once per frame, with `keys` only if one of them changes. */
export function Canvas({ width, height, draw, keys, ...rest }: { width: number; height: number; keys?: readonly unknown[]; draw: (context: CanvasRenderingContext2D, width: number, height: number) => void } & Omit<JSX.IntrinsicElements["canvas"], "width" | "height" | "ref" | "style">): VNode {
  const element = useRef<HTMLCanvasElement>(null);
  const themes = theme.value;
  useLayoutEffect(() => {
    const canvas = element.current;
    const context = canvas?.getContext("2d");
    if (!canvas || !context || width <= 0 || height <= 0) return;
    const scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  }, keys && [...keys, width, height, themes]);
  return <canvas ref={element} style={{ width: `${width}px`, height: `${height}px` }} {...rest} />;
}

/** Pixels as a canvas that another one draws, larger or smaller. */
export function canvasOf(pixels: Uint32Array<ArrayBuffer>, width: number, height: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d")?.putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), width, height), 0, 0);
  return canvas;
}

/** A frame around a part of a canvas: the pointer moves it, and nothing is drawn again. */
export const Frame = ({ kind, x, y, width, height }: { kind: string; x: number; y: number; width: number; height: number }): VNode => (
  <div class={`frame ${kind}`} style={{ transform: `translate(${x}px, ${y}px)`, width: `${width}px`, height: `${height}px` }} />
);

const colours = new Map<string, string>();

/** Colours of the style sheet, for canvases. Kept, because the browser computes the styles of the page anew for each question. */
export function css(name: string): string {
  let value = colours.get(name);
  if (value === undefined) {
    // The value of a variable is its text, with both colours of light and dark: an element tells which one applies
    const element = document.documentElement.appendChild(document.createElement("i"));
    element.style.color = `var(--${name}, #888888)`;
    const channels = getComputedStyle(element).color.match(/\d+/g) ?? [];
    element.remove();
    value = `#${channels.map((channel) => Number(channel).toString(16).padStart(2, "0")).join("")}`;
    colours.set(name, value);
  }
  return value;
}

/** Counts changes of the colours: whoever draws on a canvas reads it. */
export const theme = signal(0);

export function forgetColours(): void {
  colours.clear();
  theme.value++;
}

interface ListProps {
  readonly label: string;
  readonly role: "listbox" | "tree";
  readonly count: number;
  readonly rowHeight: number;
  readonly active: number;
  row(index: number): VNode;
  /** Attributes of a row, for example `aria-level`. */
  attributes?(index: number): Record<string, unknown>;
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

/** A list that makes elements only for the rows on the screen. */
export function List({ label, role, count, rowHeight, active, row, attributes, onActive, onOpen, onKey, indent, gutter, class: name }: ListProps): VNode {
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
    else if (top + rowHeight > target.scrollTop + size.height) target.scrollTop = top - size.height + 2 * rowHeight;
    follow();
  }, [active, size.height > 0, count]);
  const key = (event: KeyboardEvent): void => {
    const page = Math.max(1, Math.floor(size.height / rowHeight) - 1);
    const at = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: count - 1 }[event.key];
    if (at !== undefined && !event.altKey && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      if (count > 0) onActive(Math.min(Math.max(at, 0), count - 1));
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (active >= 0) onOpen?.(active);
    } else onKey?.(event);
  };
  // Rows that stay on the screen are not compared again, and a jump moves no element
  const cache = useRef<{ row?: unknown; active?: number; most?: number; start: number; rows: Map<number, VNode> }>({ start: 0, rows: new Map() });
  const former = cache.current;
  const isNear = former.most === most && (former.rows.has(first) || former.rows.has(first + shown - 1));
  const start = isNear ? former.start : first % most;
  cache.current = { row, active, most, start, rows: isNear && former.row === row && former.active === active ? former.rows : new Map() };
  const now = new Map<number, VNode>();
  for (let index = first; index < first + shown; index++) {
    const item = cache.current.rows.get(index) ?? (
      <div
        key={(index - start + most) % most} // a row that comes takes over the elements of a row that goes
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
  cache.current.rows = now;
  const visible = active >= first && active < first + shown;
  return (
    <div ref={element} class={`list ${name ?? ""}`} role={role} aria-label={label} tabIndex={0} onScroll={follow} onKeyDown={key} {...(visible ? { "aria-activedescendant": `${id}-${active}` } : {})}>
      <div class="extent" role="presentation" style={{ height: `${count * rowHeight}px` }}>
        <div class="window" role="presentation" style={{ transform: `translateY(${first * rowHeight}px)` }}>
          {gutter?.(first, shown)}
          {[...now.values()]}
        </div>
      </div>
    </div>
  );
}
