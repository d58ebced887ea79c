/** Changes of the repository: a dialog that asks for the plan of a change, shows it, and applies it. */

import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { reasonOf } from "../base/errors";
import { i32, list, type Properties } from "../base/lists";
import type { Repository } from "../format/types";
import type { Reader } from "../page/home";
import { Choice, More } from "../page/parts";
import { type Action, type Change, change, ID, notice, opening, setQuery } from "../page/state";
import { firstLine, plural, short } from "../page/text";

/** The kinds of errors that say that the plan is old. */
export const MOVED = ["branch-update-conflict", "repo-info-updated"];

const TITLES: Record<Action, string> = {
  branch: "New branch",
  tag: "New tag",
  merge: "Merge",
  revert: "Revert a commit",
  undo: "Undo the last update of the repository",
};

type ButtonsProps = { repository: Repository; id: string; names: readonly string[] };

export function ChangeButtons({ repository, id, names }: ButtonsProps): VNode {
  const own = names.find((name) => name.startsWith("branch."))?.slice("branch.".length);
  const button = (action: Action, text: string): VNode => (
    <button onClick={() => (change.value = { action, id, ...(own ? { name: own } : {}) })}>{text}</button>
  );
  return (
    <p class="actions" role="group" aria-label="Changes">
      {button("branch", "New branch…")}
      {button("tag", "New tag…")}
      {repository.branches.size > 1 && button("merge", "Merge…")}
      {(repository.history.parent[repository.row(id)] ?? -1) >= 0 && button("revert", "Revert…")}
    </p>
  );
}

interface Answer extends Partial<Rehearsal> {
  readonly error?: { readonly kind: string; readonly message: string };
  readonly plan?: Rehearsal;
  readonly apply?: Record<string, string>;
}

const MOST = 200; // lines of a plan

type Hints = Partial<Pick<HTMLInputElement, "placeholder" | "required">>;
type FieldProps = Hints & { label: string; value: string; onText: (text: string) => void };

const Field = ({ label, onText, ...rest }: FieldProps): VNode => (
  <label class="field">
    <span>{label}</span>
    <input class="wide" {...rest} onInput={(event) => onText(event.currentTarget.value)} />
  </label>
);

export function ChangeDialog({ reader, of }: { reader: Reader; of: Change }): VNode {
  const { repository } = reader;
  const dialog = useRef<HTMLDialogElement>(null);
  const apply = useRef<HTMLButtonElement>(null);
  const makesCommit = of.action === "merge" || of.action === "revert";
  const targets = [...repository.branches.keys()].filter((name) => of.action !== "merge" || name !== of.name);
  const [name, setName] = useState("");
  const [branch, setBranch] = useState(() =>
    of.action === "revert"
      ? branchOf(repository, of.id)
      : (targets.find((each) => each === "main") ?? targets[0] ?? ""),
  );
  const [message, setMessage] = useState("");
  const [conflicts, setConflicts] = useState("elements");
  const [busy, setBusy] = useState("");
  const [answer, setAnswer] = useState<Answer & { moved?: boolean }>({});
  const goal = makesCommit ? branch : of.action === "undo" ? "The repository" : name;

  useEffect(() => {
    dialog.current?.showModal();
    if (of.action === "undo") void plan();
  }, []);
  useEffect(() => {
    if (answer.apply) apply.current?.focus();
  }, [answer]);

  const send = async (step: "plan" | "apply", body: Record<string, string>): Promise<Answer> => {
    setBusy(step === "plan" ? "Making the plan" : "Applying the plan");
    try {
      return (await reader.change?.(step, body)) as Answer;
    } catch (cause) {
      const lost = step === "apply" ? " Reload the page to see whether the change was made." : "";
      const message = `No answer from the server: ${reasonOf(cause)}.${lost}`;
      return { error: { kind: "network", message } };
    } finally {
      setBusy("");
    }
  };
  const plan = async (moved = false): Promise<void> => {
    if (busy && !moved) return;
    const version = of.action === "merge" && of.name ? of.name : of.id;
    const body: Record<string, string> = makesCommit
      ? { version, branch, conflicts, ...(message.trim() ? { message } : {}) }
      : of.action === "undo"
        ? {}
        : { version, name: name.trim() };
    setAnswer({ ...(await send("plan", { action: of.action, ...body })), moved });
  };
  const confirm = async (): Promise<void> => {
    if (busy || !answer.apply) return;
    const result = await send("apply", answer.apply);
    if (result.error && MOVED.includes(result.error.kind)) {
      opening.value++; // the page shows an old state
      return plan(true);
    }
    if (result.error) return setAnswer(result);
    notice.value = `${TITLES[of.action]}: done. ${result.id ? `${goal} is at ${short(result.id)}` : ""}`;
    opening.value++;
    if (makesCommit && result.id) setQuery({ q: "", at: result.id });
    dialog.current?.close();
    document.querySelector<HTMLElement>("[role=listbox]")?.focus(); // the button may be gone
  };
  const set = (setter: (value: string) => void) => (value: string) => {
    setter(value);
    setAnswer({});
  };
  const lines = answer.plan ? planLines(of, goal, answer.plan) : [];
  const { history } = repository;
  const row = repository.row(of.id);
  return (
    <dialog ref={dialog} aria-labelledby="change-title" onClose={() => (change.value = undefined)}>
      <form class="column" onSubmit={(event) => (event.preventDefault(), void plan())}>
        <h2 id="change-title">{TITLES[of.action]}</h2>
        {of.id && (
          <p class="text">
            {of.action === "merge" && of.name ? `Branch ${of.name}, ` : ""}
            commit <code>{row >= 0 ? short(history.id(row)) : of.id}</code>{" "}
            {row >= 0 && firstLine(history.message(row))}
          </p>
        )}
        {makesCommit ? (
          <>
            <Choice
              label={of.action === "merge" ? "Into the branch" : "On the branch"}
              value={branch}
              options={targets.map((each) => [each, each] as const)}
              onSelect={set(setBranch)}
            />
            <Field label="Message" value={message} placeholder="usual text" onText={set(setMessage)} />
            <Choice
              label="If both changed a value"
              value={conflicts}
              options={[
                ["elements", "stop"],
                ["source", of.action === "merge" ? "take the merged one" : "revert it anyway"],
                ["branch", "leave that of the branch"],
              ]}
              onSelect={set(setConflicts)}
            />
          </>
        ) : (
          of.action !== "undo" && <Field label="Name" value={name} required onText={set(setName)} />
        )}
        <div role="status">
          {busy && <p class="wait">{busy}…</p>}
          {answer.moved && (
            <p>
              {goal} has changed since the plan was made. Nothing was changed. This is the plan for its
              present state.
            </p>
          )}
          {answer.plan && (
            <>
              <h3>Plan</h3>
              {lines.length ? (
                <ul class="changes" tabIndex={0} aria-label="Plan">
                  {lines.slice(0, MOST).map(([style, text], at) => (
                    <li key={at} class={style}>
                      {text}
                    </li>
                  ))}
                  <More of={lines.length} most={MOST} />
                </ul>
              ) : (
                <p>Nothing to do: {goal} has these changes already.</p>
              )}
            </>
          )}
        </div>
        {answer.error && (
          <div class="failure" role="alert">
            <strong>{answer.error.message}</strong> <code>{answer.error.kind}</code>
            {answer.error.kind === "rebase-failed" && (
              <p>Choose above which values stay where both changed one, and plan again.</p>
            )}
          </div>
        )}
        <p class="actions">
          {lines.length > 0 && (
            <button type="button" class="main" ref={apply} aria-disabled={busy !== ""} onClick={confirm}>
              Apply
            </button>
          )}
          <button aria-disabled={busy !== ""}>{answer.plan ? "Plan again" : "Show the plan"}</button>
          <button type="button" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
        </p>
      </form>
    </dialog>
  );
}

/** The branch of a commit: `main`, or the first one that leads to it. */
export function branchOf(repository: Repository, id: string): string {
  const { parent } = repository.history;
  const goal = repository.row(id);
  for (const name of new Set(["main", ...repository.branches.keys()])) {
    let row = repository.row(repository.branches.get(name) ?? "");
    while (row >= 0 && row !== goal) row = i32(parent, row);
    if (row >= 0) return name;
  }
  return "main";
}

/** What `frazil merge --json` and others print; chunks as counts. */
export interface Rehearsal {
  readonly id?: string;
  readonly before?: string;
  readonly source?: string;
  readonly message?: string;
  readonly commits?: number;
  readonly changes?: Properties | readonly Move[];
  readonly discarded?: readonly { path: string; side: string; values: number | null; chunks: number }[];
  readonly updates?: readonly { time: string; update: string }[];
  readonly notes?: readonly string[];
}

const STYLES = { new: "added", updated: "changed", deleted: "removed" };

type Move = { readonly subject: string; readonly before: string | null; readonly after: string | null };
const isList = (changes: Rehearsal["changes"]): changes is readonly Move[] => Array.isArray(changes);

const versionText = (text: string | null | undefined): string =>
  text && ID.test(text) ? short(text) : (text ?? "none");

/** A line of a plan: a class of the style sheet, and a text. */
type Line = readonly [style: string, text: string];

/** The lines of a plan. Empty if nothing would change. */
export function planLines(
  of: Change,
  branch: string,
  { id, before, source, message, commits, changes = {}, discarded = [], updates = [], notes = [] }: Rehearsal,
): Line[] {
  if (of.action === "branch" || of.action === "tag")
    return [["added", `new ${of.action} ${branch} at ${versionText(id)}`]];
  if (isList(changes)) {
    const undos = updates.map(({ update, time }): Line => [
      "",
      `undo ${update} of ${time.slice(0, 19).replace("T", " ")}`,
    ]);
    const moves = changes.map(({ subject, before: from, after: to }): Line => [
      to === null ? "removed" : "changed",
      `${subject}: ${versionText(from)} to ${versionText(to)}`,
    ]);
    return [...undos, ...moves, ...notes.map((note): Line => ["removed", note])];
  }
  if (id === before) return [];
  const tip = id === source ? versionText(id) : `a new commit: ${firstLine(message ?? "")}`;
  const lines: Line[] = [["changed", `${branch} moves from ${versionText(before)} to ${tip}`]];
  if (commits !== undefined) lines.push(["", `brings ${plural(commits, "commit")}`]);
  for (const pair of list(changes["moved_nodes"]))
    lines.push(["changed", `moved ${(pair as string[]).join(" to ")}`]);
  for (const [what, style] of Object.entries(STYLES))
    for (const path of [`${what}_groups`, `${what}_arrays`].flatMap((name) => list(changes[name])))
      lines.push([style, `${what === "updated" ? style : what} ${path}`]);
  for (const [path, chunks] of Object.entries(changes["updated_chunks"] ?? {}))
    lines.push(["data", `data ${path}: ${plural(Number(chunks), "chunk")}`]);
  for (const { path, side, values, chunks } of discarded) {
    const what = values === null ? "values" : plural(values, "value");
    const whose = side === "branch" ? branch : "the other side";
    lines.push([
      "removed",
      `conflict in ${path}: discards ${what} of ${whose} in ${plural(chunks, "chunk")}`,
    ]);
  }
  return lines;
}
