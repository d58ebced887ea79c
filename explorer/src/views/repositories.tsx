/** The repositories of a folder: what is in each one, its newest commit, and where and when its data are. */

import type { VNode } from "preact";
import { coordinate, dimensionName } from "../array/nodes";
import type { Snapshot } from "../format/types";
import { type Folder, type Reader, valuesOf } from "../page/home";
import { mainBranch, resolve } from "../page/route";
import { snapshotOf, useLoad } from "../page/state";
import { firstLine, isolated } from "../page/text";
import { CommitFacts, firstVariable, sizeText } from "./home";

export const Repositories = ({ of }: { of: Folder }): VNode => (
  <section class="pane fill" aria-label="Repositories">
    <h2>
      {isolated(of.label)}:{" "}
      {of.repositories.length === 1 ? "1 repository" : `${of.repositories.length} repositories`}
    </h2>
    <ul class="plain">
      {of.repositories.map((name) => (
        <Repository key={name} of={of} name={name} />
      ))}
    </ul>
  </section>
);

function Repository({ of, name }: { of: Folder; name: string }): VNode {
  const { value, error } = useLoad(async () => summary(await of.open(name)), [of, name]);
  return (
    <li class="box">
      <a href={of.address(name)}>{isolated(name)}</a> {error && <span class="problem">{error.message}</span>}
      {!value && !error && <span class="quiet">…</span>}
      {value && (
        <>
          <span class="quiet">{[value.size, ...value.extent].join(" · ")}</span>
          {value.row >= 0 && (
            <>
              <br />
              <bdi>{firstLine(value.history.message(value.row)) || "(no message)"}</bdi>{" "}
              <CommitFacts {...value} />
            </>
          )}
        </>
      )}
    </li>
  );
}

/** What the files of a repository say at once: `repo`, the snapshot, and the ends of the first coordinates. */
async function summary(reader: Reader) {
  const { repository } = reader;
  const version = mainBranch(repository) ?? "";
  const snapshot = await snapshotOf(repository, version);
  const extent = await extentOf(reader, snapshot);
  const { history } = repository;
  return { size: sizeText(snapshot), extent, history, row: repository.row(resolve(repository, version)) };
}

/** The first and the last label of each axis of the variable that people see first. */
async function extentOf(reader: Reader, snapshot: Snapshot): Promise<string[]> {
  const { node } = firstVariable(snapshot) ?? {};
  const axes = node?.shape.map(async (length, d) => {
    const array = coordinate(snapshot, node, d);
    if (!array) return [];
    const part = { start: [0], stop: [length], step: [Math.max(1, length - 1)] };
    const decoded = await valuesOf({ reader, snapshot, node: array }, part).catch(() => undefined);
    if (!decoded) return []; // of a codec that no page knows
    const [first, last] = [decoded.label(0), decoded.label(decoded.values.length - 1)];
    const units = decoded.units && !decoded.clock ? ` ${decoded.units}` : "";
    const name = dimensionName(node, d);
    return [`${name} ${first === last ? first : `${first} to ${last}`}${units}`];
  });
  return (await Promise.all(axes ?? [])).flat();
}
