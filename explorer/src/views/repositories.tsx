/** The repositories of a folder: what is in each one, its newest commit, and where and when its data are. */

import type { VNode } from "preact";
import { coordinate, dimensionName, isArray, isHidden, itemSize } from "../array/nodes";
import { f64, product } from "../base/lists";
import type { ArrayNode, Snapshot } from "../format/types";
import type { Folder, Reader } from "../page/home";
import { mainBranch, resolve } from "../page/route";
import { snapshotOf, useLoad } from "../page/state";
import { bytes, firstLine, isolated, minute, plural } from "../page/text";
import { firstVariable } from "../views/home";
import { author } from "../versions/search";

interface Summary {
  readonly size: string;
  readonly commit?: { readonly message: string; readonly by: string; readonly time: number };
  readonly extent: readonly string[];
}

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
          {value.commit && (
            <>
              <br />
              <bdi>{firstLine(value.commit.message) || "(no message)"}</bdi>{" "}
              <span class="quiet">
                <bdi>{value.commit.by}</bdi> {minute(value.commit.time)}
              </span>
            </>
          )}
        </>
      )}
    </li>
  );
}

/** What the files of a repository say at once: `repo`, the snapshot, and the ends of the first coordinates. */
export async function summary(reader: Reader): Promise<Summary> {
  const { repository } = reader;
  const { history } = repository;
  const version = mainBranch(repository) ?? "";
  const row = repository.row(resolve(repository, version));
  const snapshot = await snapshotOf(repository, version);
  const arrays = snapshot.nodes.filter(isArray).filter(({ path }) => !isHidden(path));
  const size = arrays.reduce((sum, { shape, dtype }) => sum + product(shape) * (itemSize(dtype) ?? 0), 0);
  return {
    size: `${plural(arrays.length, "array")}, ${bytes(size)} of values`,
    ...(row < 0
      ? {}
      : {
          commit: {
            message: history.message(row),
            by: author(history.metadata(row)),
            time: f64(history.times, row),
          },
        }),
    extent: await extent(reader, snapshot),
  };
}

/** The first and the last label of each axis of the variable that people see first. */
async function extent(reader: Reader, snapshot: Snapshot): Promise<string[]> {
  const { node } = firstVariable(snapshot) ?? {};
  if (!node) return [];
  const axes = node.shape.map(async (_, dimension) => {
    const array = coordinate(snapshot, node, dimension);
    return array && span(reader, snapshot, array, dimensionName(node, dimension));
  });
  return (await Promise.all(axes)).filter((each) => each !== undefined);
}

async function span(
  reader: Reader,
  snapshot: Snapshot,
  array: ArrayNode,
  name: string,
): Promise<string | undefined> {
  const length = array.shape[0] ?? 0;
  if (array.shape.length !== 1 || !length) return undefined;
  const part = { start: [0], stop: [length], step: [Math.max(1, length - 1)] };
  const decoded = await reader
    .read(snapshot, array.path, part)
    .then((region) => reader.decode(snapshot, array, region))
    .catch(() => undefined); // what a page cannot decode is no reason for no line
  if (!decoded) return undefined;
  const [first, last] = [decoded.label(0), decoded.label(decoded.values.length - 1)];
  return `${name} ${first === last ? first : `${first} to ${last}`}${decoded.units && !decoded.clock ? ` ${decoded.units}` : ""}`;
}
