/** The repository as a whole: names, state, settings, operations, and slow answers of a server. */

import type { VNode } from "preact";
import { useState } from "preact/hooks";
import type { Repository } from "./format/types";
import type { Reader } from "./home";
import { Value } from "./overview";
import { Facts, Wait } from "./parts";
import { messageOf } from "./search";
import { address, useLoad } from "./state";
import { count, firstLine, plural, when } from "./text";

const MOST = 500; // lines of names and operations

export function RepositoryView({ reader }: { reader: Reader }): VNode {
  const { repository } = reader;
  const size = (value: Record<string, unknown> | undefined): boolean => value !== undefined && Object.keys(value).length > 0;
  return (
    <div class="scroll fill" tabIndex={0} role="group" aria-label="Repository">
      <h2 class="text">{reader.label}</h2>
      <Facts
        rows={[
          ["Format", `version ${repository.specVersion}`],
          ["State", [repository.status, repository.statusReason].filter(Boolean).join(": ")],
          ["Commits", count(repository.history.parent.length)],
          ...Object.entries(repository.metadata ?? {}).map(([key, value]) => [key, <Value of={value} />] as const),
        ]}
      />
      {reader.ask ? (
        <>
          <Slow title="Sizes of all versions" name="statistics" ask={reader.ask} />
          <Slow title="Verify metadata" name="verify" ask={reader.ask} />
        </>
      ) : (
        <p class="quiet">The command "frazil ui" also shows sizes, and verifies the metadata.</p>
      )}
      <Names title="Branches" kind="branch" names={repository.branches} repository={repository} />
      <Names title="Tags" kind="tag" names={repository.tags} repository={repository} />
      {repository.deletedTags && repository.deletedTags.length > 0 && <p class="quiet">Deleted tags: {repository.deletedTags.slice(0, MOST).join(", ")}</p>}
      {repository.ops.length > 0 && (
        <>
          <h3>Operations, newest first</h3>
          <table>
            <tbody>
              {repository.ops.slice(0, MOST).map((entry, at) => (
                <tr key={at}>
                  <td>
                    <time>{when(entry.time)}</time>
                  </td>
                  <td>{entry.kind}</td>
                  <td class="text">
                    {Object.entries(entry.details)
                      .map(([key, value]) => `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`)
                      .join(", ")}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {repository.ops.length > MOST && <p class="quiet">and {plural(repository.ops.length - MOST, "older operation")}</p>}
        </>
      )}
      {size(repository.configuration) && (
        <>
          <h3>Saved configuration</h3>
          <Value of={repository.configuration} />
        </>
      )}
    </div>
  );
}

function Names({ title, kind, names, repository }: { title: string; kind: string; names: ReadonlyMap<string, string>; repository: Repository }): VNode | null {
  if (!names.size) return null;
  return (
    <>
      <h3>{title}</h3>
      <table>
        <tbody>
          {[...names].slice(0, MOST).map(([name, id]) => {
            const row = repository.row(id);
            return (
              <tr key={name}>
                <td>
                  <a href={address({ page: "node", version: `${kind}.${name}`, path: "/" })}>{name}</a>
                </td>
                <td>
                  <a href={address({ page: "history", query: { at: id } })}>
                    <code>{id}</code>
                  </a>
                </td>
                <td>{row >= 0 && <time>{when(repository.history.times[row]!).slice(0, 16)}</time>}</td>
                <td class="text">{row >= 0 ? firstLine(messageOf(repository.history, row)) : "not in the history"}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {names.size > MOST && <p class="quiet">and {count(names.size - MOST)} more</p>}
    </>
  );
}

function Slow({ title, name, ask }: { title: string; name: string; ask: NonNullable<Reader["ask"]> }): VNode {
  const [isOpen, setOpen] = useState(false);
  const answer = useLoad(async (signal) => (isOpen ? { value: await ask(name, {}, signal) } : {}), [isOpen]);
  if (!isOpen) {
    return (
      <p class="actions">
        <button onClick={() => setOpen(true)}>{title}</button>
      </p>
    );
  }
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <Wait of={answer} what="the answer of the server">
        {({ value }) => <Facts rows={Object.entries(value && typeof value === "object" ? value : { answer: value }).map(([key, item]) => [key.replaceAll("_", " "), <Value of={item} />] as const)} />}
      </Wait>
    </section>
  );
}
