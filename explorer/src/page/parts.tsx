/** Small parts that all views use. */

import { Component, type ComponentChildren, h, type JSX, type VNode } from "preact";
import { useId, useState } from "preact/hooks";
import { reasonOf } from "../base/errors";
import { entryOf, nth } from "../base/lists";
import { address, type Load, route, setQuery, useLoad } from "./state";
import { count, plural, short } from "./text";

const ADVICE: Record<string, string> = {
  "not-found": "The address may be old, or the version may have expired.",
  network: "Check the connection and try again.",
  format: "The file may be damaged. `frazil verify` says more.",
  codec: "The other views of this array still work.",
};

export function Failure({ of: { error, retry } }: { of: Load<unknown> }): VNode | null {
  if (!error) return null;
  const advice = entryOf(ADVICE, error.kind);
  return (
    <div class="failure" role="alert">
      <strong>{error.message}</strong>
      {advice && <p>{advice.split("`").map((part, at) => (at % 2 ? <code>{part}</code> : part))}</p>}
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
        <More of={of.length} most={MOST_LOSSES} />
      </ul>
      <p>
        <code>frazil verify</code> says more.
      </p>
    </div>
  );
}

type BoundaryProps = { place: string; children: ComponentChildren };

/** Keeps a failure of one view away from the rest of the page. Another address is another attempt. */
export class Boundary extends Component<BoundaryProps, { error?: unknown; place?: string }> {
  override componentDidCatch(error: unknown): void {
    console.error(error);
    this.setState({ error, place: this.props.place });
  }

  override render(): ComponentChildren {
    const { error, place } = this.state;
    if (error === undefined || place !== this.props.place) return this.props.children;
    return (
      <div class="failure" role="alert">
        <strong>This view failed: {reasonOf(error)}</strong>
        <p>The other views still work.</p>
        <button onClick={() => this.setState({ place: "" })}>Try again</button>
      </div>
    );
  }
}

type LoadingProps = { what: string; progress?: number | undefined };

export const Loading = ({ what, progress }: LoadingProps): VNode => (
  <p class="wait" role="status">
    Loading {what}
    {progress !== undefined && <progress value={progress} aria-label={`Loading ${what}`} />}
  </p>
);

type WaitProps<T> = { of: Load<T>; what: string; children: (value: T) => ComponentChildren };

/** What `children` makes of a value; before that the progress or the failure. */
export function Wait<T>({ of, what, children }: WaitProps<T>): VNode {
  if (of.error) return <Failure of={of} />;
  if (of.value === undefined && of.busy) return <Loading what={what} progress={of.progress} />;
  return <>{children(of.value as T)}</>;
}

/** A view whose code comes when it is first shown. */
export const onDemand =
  <K extends string, M extends Record<K, (props: never) => VNode | null>>(load: () => Promise<M>, name: K) =>
  (props: Parameters<M[K]>[0]): VNode => (
    <Wait of={useLoad(load, [])} what="this view">
      {(views) => h(views[name] as unknown as (props: object) => VNode, props)}
    </Wait>
  );

/** Names with the titles that people see. */
export type Titles = readonly (readonly [name: string, title: string])[];
type TabsProps = { label: string; tabs: Titles; active: string; onSelect: (name: string) => void };

export function Tabs({ label, tabs, active, onSelect }: TabsProps): VNode {
  const step = (event: KeyboardEvent): void => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const at = (tabs.findIndex(([name]) => name === active) + move + tabs.length) % tabs.length;
    onSelect(nth(tabs, at)[0]);
    ((event.currentTarget as HTMLElement).children[at] as HTMLElement).focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={step}>
      {tabs.map(([name, title]) => (
        <button
          key={name}
          role="tab"
          aria-selected={name === active}
          tabIndex={name === active ? 0 : -1}
          onClick={() => onSelect(name)}
        >
          {title}
        </button>
      ))}
    </div>
  );
}

/** A link to a commit in the history. */
export const CommitLink = ({ id, children }: { id: string; children?: ComponentChildren }): VNode => (
  <a href={address({ page: "history", query: { at: id } })}>{children ?? short(id)}</a>
);

/** The number of those that a list does not show. */
export const More = ({ of, most }: { of: number; most: number }): VNode | null =>
  of > most ? <li>and {count(of - most)} more</li> : null;

/** A sign that has no meaning for screen readers: its button has a label. */
export const Sign = ({ children }: { children: string }): VNode => <span aria-hidden="true">{children}</span>;
type ZoomProps = { zoom(factor: number): void; all(): void };

export const ZoomButtons = ({ zoom, all }: ZoomProps): VNode => (
  <>
    {([1.6, 1 / 1.6, 0] as const).map((factor, at) => (
      <button
        key={factor}
        aria-label={nth(["Zoom in", "Zoom out", "Show all"], at)}
        onClick={() => (factor ? zoom(factor) : all())}
      >
        <Sign>{nth(["+", "−", "⤢"], at)}</Sign>
      </button>
    ))}
  </>
);

type Fact = readonly [string, ComponentChildren] | undefined | false;

export const Facts = ({ rows }: { rows: readonly Fact[] }): VNode => (
  <dl class="facts">
    {rows.map((row) => row && [<dt key={row[0]}>{row[0]}</dt>, <dd key={`${row[0]} value`}>{row[1]}</dd>])}
  </dl>
);

type Input = JSX.IntrinsicElements["input"];

interface EntryProps extends Pick<Input, "size" | "placeholder" | "title" | "disabled" | "inputMode"> {
  readonly label: string;
  readonly value?: string;
  /** The place of the label is narrow: only screen readers need it. */
  readonly isUnlabelled?: boolean;
  /** Whoever leaves the field enters its text. */
  readonly isEager?: boolean;
  /** Takes a text; a sentence if it is wrong. */
  onEnter(text: string): string | void;
  readonly list?: string;
  readonly after?: ComponentChildren;
}

/** A field for a text, and Enter sends it. A wrong text stays in it, with the reason. */
export function Entry(props: EntryProps): VNode {
  const { label, value = "", isUnlabelled, isEager, onEnter, after, ...rest } = props;
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

type GridProps = {
  class?: string;
  heads: readonly ComponentChildren[] | undefined;
  rowHeads?: readonly ComponentChildren[] | undefined;
  rows: readonly (readonly ComponentChildren[])[];
};

export const Grid = ({ heads, rowHeads, rows, ...rest }: GridProps): VNode => (
  <table {...rest}>
    {heads && (
      <thead>
        <tr>
          {rowHeads && <td />}
          {heads.map((head, at) => (
            <th key={at} scope="col">
              {head}
            </th>
          ))}
        </tr>
      </thead>
    )}
    <tbody>
      {rows.map((row, at) => (
        <tr key={at}>
          {rowHeads && <th scope="row">{rowHeads[at]}</th>}
          {row.map((cell, column) => (
            <td key={column}>{cell}</td>
          ))}
        </tr>
      ))}
    </tbody>
  </table>
);

const MOST = 500; // rows of a table

export const Table = ({ heads, rows }: GridProps): VNode => (
  <div class="items" tabIndex={0}>
    <Grid heads={heads} rows={rows.slice(0, MOST)} />
    {rows.length > MOST && <p class="quiet">and {count(rows.length - MOST)} more</p>}
  </div>
);

type RequestProps = { title: string; isAsked?: boolean; children: ComponentChildren };

/** A button for what takes time, and then what it shows. */
export function OnRequest({ title, isAsked = false, children }: RequestProps): VNode {
  const [isOpen, setOpen] = useState(isAsked);
  if (isOpen) return <>{children}</>;
  return (
    <p class="actions">
      <button onClick={() => setOpen(true)}>{title}</button>
    </p>
  );
}

type ChoiceProps = { label: string; value: string; options: Titles; onSelect: (value: string) => void };

export const Choice = ({ label, value, options, onSelect }: ChoiceProps): VNode => (
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

type SettingProps = { label: string; name: string; options: Titles };

/** A choice that the address has under a name. */
export const Setting = ({ name, ...rest }: SettingProps): VNode => (
  <Choice {...rest} value={route.value.query[name] ?? ""} onSelect={(value) => setQuery({ [name]: value })} />
);
