/** The values of arrays before and after a commit, from the chunks that it wrote. */

import type { VNode } from "preact";
import { scaleOf } from "../array/axes";
import { isArray, isHidden, itemSize, title } from "../array/nodes";
import { chunkBox, MOST_VALUES } from "../array/references";
import { cellFinder } from "../array/slices";
import { f64, nth, product, type Shape } from "../base/lists";
import type { Changes } from "../format/types";
import type { ArrayProps, Target } from "../page/home";
import { Grid, More, OnRequest, Wait } from "../page/parts";
import { useLater } from "../page/state";
import { count } from "../page/text";
import { allCategories, statistics } from "../values/numbers";
import { nodeOf, together } from "../values/play";

const [MOST_ARRAYS, MOST_CHUNKS, BINS, SMALL] = [8, 8, 12, 500_000]; // SMALL: values that are read unasked

/** The ends of even bins over all values, and how many values of each list lie in them: as in numpy. Or categories. */
export function histogram(lists: readonly Float64Array[], categories?: Shape) {
  const { low, high, count: known } = statistics(together(lists).filter(Number.isFinite));
  const [first, last] = low < high ? [low, high] : [low - 0.5, high + 0.5];
  const end = (at: number): number => (at === BINS ? last : at * ((last - first) / BINS) + first);
  const ends = Float64Array.from({ length: BINS + 1 }, (_, at) => end(at));
  const place = categories ? (value: number) => categories.indexOf(value) : cellFinder(ends);
  const counts = lists.map((list) => {
    const sizes = new Uint32Array(categories?.length ?? (known && BINS));
    for (const at of list.map(place)) if (at >= 0) sizes[at] = nth(sizes, at) + 1;
    return sizes;
  });
  return { ends, counts };
}

/** An array, coordinates of chunks that the commit wrote, and the id of the version before. */
type WrittenProps = ArrayProps & { readonly chunks: readonly number[][]; readonly base: string };

/** The values of the chunks in a version, and how many of them are stored as NaN. */
async function valuesIn({ reader, node, chunks }: WrittenProps, of: Target | undefined, signal: AbortSignal) {
  const { chunkShape, edges } = node;
  const read = async (coords: number[], { snapshot, node: own }: Target) => {
    const box = chunkBox(coords, { shape: own.shape, chunkShape, edges });
    const region = await reader.read(snapshot, own.path, box, signal);
    const stored = own.dtype.startsWith("float") ? Array.from(region.raw, Number) : [];
    return { ...reader.decode(snapshot, own, region), nan: stored.filter(Number.isNaN).length };
  };
  const isKnown = of?.node.shape.length === node.shape.length;
  const parts = await Promise.all(isKnown ? chunks.map((coords) => read(coords, of)) : []);
  const values = together(parts.map((part) => part.values).filter((each) => each instanceof Float64Array));
  const nan = parts.reduce((sum, part) => sum + part.nan, 0);
  const missing = values.length - statistics(values).count - nan;
  return { values, nan, missing, scale: scaleOf(parts[0] ?? {}) };
}

const shade = (share: number): string => `linear-gradient(to right, var(--plain) ${100 * share}%, #0000 0)`;

function Written(props: WrittenProps): VNode {
  const { reader, snapshot, node, base } = props;
  const read = async (signal: AbortSignal) => {
    const former = base ? await reader.repository.snapshot(base).catch(() => undefined) : undefined; // expired
    return Promise.all([former && nodeOf(former, node), props].map((of) => valuesIn(props, of, signal)));
  };
  const load = useLater(read, [snapshot, node.path]);
  return (
    <Wait of={load} what="the values of chunks">
      {(sides) => {
        const lists = sides.map(({ values }) => values);
        const { text, units, hasMean, categories } = nth(sides, 1).scale;
        const known = hasMean ? undefined : allCategories(together(lists), categories ?? []);
        const { ends, counts } = histogram(lists, known);
        const most = Math.max(...counts.flatMap((each) => [...each]));
        const bar = (size: number): VNode => (
          <div style={{ background: shade(size / most) }}>{count(size)}</div>
        );
        const range = (at: number): string => `${text(f64(ends, at))} to ${text(f64(ends, at + 1))}`;
        const rows = Array.from({ length: counts[0]?.length ?? 0 }, (_, at) => [
          known ? text(nth(known, at)) : range(at),
          ...counts.map((each) => bar(nth(each, at))),
        ]);
        rows.push(["missing", ...sides.map(({ missing }) => count(missing))]);
        rows.push(["NaN", ...sides.map(({ nan }) => count(nan))]);
        return <Grid class="values bins" heads={[units || "values", "before", "after"]} rows={rows} />;
      }}
    </Wait>
  );
}

type HistogramsProps = Omit<WrittenProps, "node" | "chunks"> & { readonly changes: Changes };

/** A histogram for each array of numbers that a commit wrote. */
export function Histograms({ changes, ...version }: HistogramsProps): VNode {
  const items = new Map(changes.updatedChunks.map((item) => [item.nodeId, item]));
  const arrays = version.snapshot.nodes.filter(isArray).filter(({ path }) => !isHidden(path));
  const written = arrays.filter(({ id, dtype }) => items.has(id) && itemSize(dtype));
  return (
    <>
      {written.length > 0 && <h3>Values before and after</h3>}
      {written.slice(0, MOST_ARRAYS).map((node) => {
        const [rank, size] = [node.shape.length, product(node.chunkShape)];
        const { count: total = 0, coords = new Uint32Array() } = items.get(node.id) ?? {};
        const shown = Math.min(total, MOST_CHUNKS, Math.max(1, Math.floor(MOST_VALUES / size)));
        const rows = Array.from({ length: shown }, (_, at) => rank * Math.floor((at * total) / shown));
        const chunks = rows.map((at) => [...coords.subarray(at, at + rank)]);
        return (
          <section key={node.id} aria-label={`Values of ${node.path}`}>
            {title(node)} <span class="quiet">{node.path}</span>
            {shown < total && ` (${count(shown)} of the ${count(total)} chunks that the commit wrote)`}
            <OnRequest title="Read the values" isAsked={shown * size <= SMALL}>
              <Written {...version} node={node} chunks={chunks} />
            </OnRequest>
          </section>
        );
      })}
      <More of={written.length} most={MOST_ARRAYS} />
    </>
  );
}
