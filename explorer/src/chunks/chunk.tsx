/** A chunk: where it is, which commit wrote it, its values. */

import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { chunkBox } from "../array/references";
import { full, meanOf, scaleOf } from "../array/scale";
import { nth, product, type Shape } from "../base/lists";
import type { Decoded } from "../cf/cf";
import { ChunkKind, type ChunkRef } from "../format/types";
import { type ArrayProps, valuesOf } from "../page/home";
import { CommitLink, Facts, OnRequest, Wait } from "../page/parts";
import { useLoad } from "../page/state";
import { count, firstLine } from "../page/text";
import { ValueTable } from "../values/lines";
import { statistics } from "../values/numbers";
import { chunkWriters } from "../versions/writers";

export const MOST_VALUES = 4_000_000; // of a chunk that is read whole

type ChunkProps = ArrayProps & { readonly coords: number[] };

function kindText(entry: ChunkRef | undefined, isPacked: boolean): string {
  if (!entry) return "missing: all values are the fill value";
  if (entry.kind === ChunkKind.Inline) return "inline in the manifest";
  if (entry.kind === ChunkKind.Virtual) return "virtual";
  return isPacked ? "in a pack" : "own file";
}

export function Chunk({ isPacked, ...props }: ChunkProps & { readonly isPacked: boolean }): VNode {
  const { snapshot, node, coords } = props;
  const reference = useLoad(() => snapshot.chunk(node.path, coords), [snapshot, node.path]);
  const part = chunkBox(coords, node.shape, node.chunkShape);
  const extent = part.stop.map((high, dimension) => high - nth(part.start, dimension));
  const values = useLoad(
    async (signal) => (product(extent) > MOST_VALUES ? undefined : valuesOf(props, part, signal)),
    [snapshot, node.path],
  );
  const region = part.start.map((low, at) => `${low}:${part.stop[at]}`).join(", ");
  return (
    <>
      <h3>Chunk {coords.join(", ") || "of the scalar"}</h3>
      <Wait of={reference} what="the reference">
        {(entry) => (
          <Facts
            rows={[
              ["Kind", kindText(entry, isPacked)],
              entry?.location !== undefined && ["Location", <code class="text">{entry.location}</code>],
              entry && entry.kind !== ChunkKind.Inline && ["Offset", count(entry.offset)],
              entry && ["Size", `${count(entry.size)} bytes`],
              entry?.checksum !== undefined && ["Checksum", <code class="text">{entry.checksum}</code>],
              ["Region", region || "scalar"],
            ]}
          />
        )}
      </Wait>
      {reference.value && (
        <OnRequest title="Which commit wrote it?">
          <Writer {...props} />
        </OnRequest>
      )}
      <h3>Values</h3>
      <Wait of={values} what="the values">
        {(decoded) =>
          decoded ? (
            <Values decoded={decoded} shape={extent} />
          ) : (
            <p class="quiet">This chunk has too many values to show: {count(product(extent))}.</p>
          )
        }
      </Wait>
    </>
  );
}

function Writer({ reader: { repository }, snapshot, node, coords }: ChunkProps): VNode {
  const one = { length: 1, coords: Uint32Array.from(coords) };
  const load = useLoad((signal) => chunkWriters(repository, snapshot.id, node, one, undefined, signal), []);
  return (
    <Wait of={load} what="the records of commits">
      {({ rows: [row = -1], merges }) =>
        row < 0 ? (
          <p class="quiet">The commits on record did not write it.</p>
        ) : (
          <p>
            {merges.has(row) ? "Came with merge" : "Written by"}{" "}
            <CommitLink id={repository.history.id(row)} /> {firstLine(repository.history.message(row))}
          </p>
        )
      }
    </Wait>
  );
}

const CORNER = 8;

/** Statistics, and the first rows and columns of the last two dimensions. */
function Values({ decoded, shape }: { decoded: Decoded; shape: Shape }): VNode {
  const { values } = decoded;
  const scale = scaleOf(decoded);
  const numbers = values instanceof Float64Array ? values : undefined;
  const text = (at: number): string => (numbers ? scale.text(numbers[at] ?? NaN) : decoded.label(at));
  const facts = useMemo(() => numbers && numbers.length > 1 && statistics(numbers), [values]);
  return (
    <>
      {facts && (
        <Facts
          rows={[
            facts.count > 0 && ["Smallest", full(scale, facts.low)],
            facts.count > 0 && ["Largest", full(scale, facts.high)],
            facts.count > 0 && scale.hasMean && ["Mean", full(scale, meanOf(scale, facts.mean))],
            ["Without value", count(values.length - facts.count)],
          ]}
        />
      )}
      {values.length > 0 && (
        <ValueTable
          name="First values"
          text={text}
          width={shape.at(-1) ?? 1}
          height={shape.at(-2) ?? 1}
          most={CORNER}
        />
      )}
    </>
  );
}
