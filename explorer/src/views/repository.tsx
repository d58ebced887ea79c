/** The repository as a whole: names, state, settings, updates, and slow answers of a server. */

import type { ComponentChildren, VNode } from "preact";
import { useMemo } from "preact/hooks";
import { f64, list, type Properties, record, records } from "../base/lists";
import type { Repository } from "../format/types";
import type { Reader } from "../page/home";
import { CommitLink, Facts, OnRequest, Table, Wait } from "../page/parts";
import { change, ID, nodeAddress, useLoad } from "../page/state";
import { count, firstLine, minute, short, when } from "../page/text";
import { Value } from "./overview";

/** Title and name of the answers that only a server has. */
export const SLOW = [
  ["Sizes of all versions", "statistics"],
  ["Verify metadata", "verify"],
  ["Open jobs", "jobs"],
  ["Leases of running work", "status"],
] as const;
/** The item of the metadata of a repository with the rules of branches. */
const RULES = "frazil.protection";
/** Items of the metadata that Frazil writes for itself. */
const isOwn = (key: string): boolean => key.startsWith("frazil.");
const valueRow = ([key, value]: [string, unknown]): readonly [string, VNode] => [key, <Value of={value} />];

export function RepositoryView({ reader }: { reader: Reader }): VNode {
  const { repository, ask } = reader;
  const metadata = Object.entries(repository.metadata ?? {}).filter(([key]) => key !== RULES);
  const own = metadata.filter(([key]) => isOwn(key));
  return (
    <div class="scroll fill" tabIndex={0} role="group" aria-label="Repository">
      <h2 class="text">{reader.label}</h2>
      <Facts
        rows={[
          ["Format", `version ${repository.specVersion}`],
          ["State", [repository.status, repository.statusReason].filter(Boolean).join(": ")],
          ["Commits", count(repository.history.parent.length)],
          ...metadata.filter(([key]) => !isOwn(key)).map(valueRow),
        ]}
      />
      {ask ? (
        SLOW.map(([title, name]) => (
          <OnRequest key={name} title={title}>
            <Slow title={title} name={name} ask={ask} />
          </OnRequest>
        ))
      ) : (
        <p class="quiet">
          {SLOW.map(([title]) => title).join(", ")}: only on a server. Run <code>frazil ui</code>.
        </p>
      )}
      <Rules of={repository.metadata?.[RULES]} />
      <Names title="Branches" kind="branch" names={repository.branches} repository={repository} />
      <Names title="Tags" kind="tag" names={repository.tags} repository={repository} />
      <OnRequest title="Lineage: what jobs read and wrote">
        <Lineage repository={repository} />
      </OnRequest>
      {repository.ops.length > 0 && (
        <>
          <h3>Updates, newest first</h3>
          {reader.change && (
            <p class="actions">
              <button onClick={() => (change.value = { action: "undo", id: "" })}>
                Undo the last update…
              </button>
            </p>
          )}
          <Table
            heads={["Time (UTC)", "Update", "Details"]}
            rows={repository.ops.map(({ time, kind, details }) => [
              <time>{when(time)}</time>,
              kind,
              Object.entries(details)
                .map(([key, value]) => `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`)
                .join(", "),
            ])}
          />
        </>
      )}
      {Object.keys(repository.configuration ?? {}).length > 0 && (
        <>
          <h3>Saved configuration</h3>
          <Value of={repository.configuration} />
        </>
      )}
      {own.length > 0 && (
        <details>
          <summary>Records that Frazil writes for itself</summary>
          <Facts rows={own.map(valueRow)} />
        </details>
      )}
    </div>
  );
}

type NamesProps = { title: string; kind: string; names: ReadonlyMap<string, string>; repository: Repository };

function Names({ title, kind, names, repository }: NamesProps): VNode | null {
  if (!names.size) return null;
  const { history } = repository;
  return (
    <>
      <h3>{title}</h3>
      <Table
        heads={["Name", "Commit", "Time (UTC)", "Message"]}
        rows={[...names].map(([name, id]) => {
          const row = repository.row(id);
          return [
            <a href={nodeAddress(`${kind}.${name}`)}>{name}</a>,
            <Commit id={id} text={id} />,
            row >= 0 && minute(f64(history.times, row)),
            row >= 0 ? firstLine(history.message(row)) : "not in the history",
          ];
        })}
      />
    </>
  );
}

const Commit = ({ id, text = short(id) }: { id: string; text?: string }): VNode => (
  <CommitLink id={id}>
    <code>{text}</code>
  </CommitLink>
);

/** A value of a table. The id of a commit is a link to it. */
const Cell = ({ of }: { of: unknown }): VNode =>
  typeof of === "string" && ID.test(of) ? <Commit id={of} /> : <Value of={of} />;

const Section = ({ title, children }: { title: string; children: ComponentChildren }): VNode => (
  <section aria-label={title}>
    <h3>{title}</h3>
    {children}
  </section>
);

function Slow({ title, name, ask }: { title: string; name: string; ask: NonNullable<Reader["ask"]> }): VNode {
  const answer = useLoad((signal) => ask(name, {}, signal), []);
  return (
    <Section title={title}>
      <Wait of={answer} what="the answer of the server">
        {(value) => {
          const content = name === "status" ? record(value)["leases"] : value;
          const items = Object.entries(record(content));
          if (!items.length) return <Items of={content} />;
          return <Facts rows={items.map(([key, item]) => [words(key), <Items of={item} />])} />;
        }}
      </Wait>
    </Section>
  );
}

const words = (key: string): string => key.replaceAll("_", " ");

/** An answer: a list of objects is a table. */
function Items({ of }: { of: unknown }): VNode {
  if (!Array.isArray(of) || of.some((item) => !item || typeof item !== "object")) return <Value of={of} />;
  if (!of.length) return <span class="quiet">none</span>;
  const items = of.map(record);
  const names = [...new Set(items.flatMap((item) => Object.keys(item)))];
  return (
    <Table
      heads={names.map(words)}
      rows={items.map((item) =>
        names.map((name) => ((item[name] ?? null) === null ? "" : <Cell of={item[name]} />)),
      )}
    />
  );
}

/** The rules of branches, which the metadata of the repository has. */
function Rules({ of }: { of: unknown }): VNode | null {
  const rules = Object.entries(record(of));
  if (!rules.length) return null;
  const rows = rules.map(([branches, item]) => {
    const { principals, fast_forward_only: isForward, rules: checks, since } = record(item);
    return {
      branches,
      moved_by: list(principals).join(", ") || "everybody",
      moves: isForward === false ? "to any version" : "only forward",
      rules_of_data: list(checks).length ? checks : "none",
      since: when(Number(since) / 1000),
    };
  });
  return (
    <Section title="Rules of branches">
      <Items of={rows} />
    </Section>
  );
}

/** The commits that jobs made with what they read and wrote, newest first, by the records in their metadata. */
export function steps({ history }: Repository): Properties[] {
  return [...history.times.keys()].reverse().flatMap((row) => {
    const { name, inputs, outputs } = record(history.metadata(row)["frazil_job"]);
    if (typeof name !== "string") return [];
    const read = records(inputs).map(({ paths, snapshot }) =>
      [list(paths).join(", "), ...(snapshot ? [`of ${String(snapshot)}`] : [])].join(" "),
    );
    const [time, commit] = [minute(f64(history.times, row)), history.id(row)];
    return [{ time, commit, job: name, wrote: list(outputs).join(", "), read: read.join("; ") }];
  });
}

function Lineage({ repository }: { repository: Repository }): VNode {
  const all = useMemo(() => steps(repository), [repository]);
  return (
    <Section title="Lineage: finished jobs, newest first">
      {all.length ? <Items of={all} /> : <p class="quiet">No commit has the record of a job.</p>}
    </Section>
  );
}
