/** What statistics say about the values of the chunks of an array. No chunk is read for it. */

import { scaleOf } from "../array/axes";
import { gridShape, withAttributes } from "../array/nodes";
import type { Slice } from "../array/slices";
import { nth, record, u32 } from "../base/lists";
import { type Decoded, missingDigest } from "../cf/cf";
import type { ChunkTable } from "../format/types";
import type { ArrayProps } from "../page/home";

const MOST = 4_000_000; // chunks of a picture

/** Statistics of chunks as values: packing and times applied. */
export type Statistics = Awaited<ReturnType<typeof statisticsOf>>;
export const STATISTICS = ["minimum", "maximum", "mean"] as const;

/** Reads the statistics of the chunks of an array, and decodes them as its elements. */
export async function statisticsOf(
  { reader, snapshot, node }: ArrayProps,
  table: ChunkTable,
  signal: AbortSignal,
) {
  const missing = await missingDigest(node);
  const { gaps, notes, ...stored } = await snapshot.statistics(node.path, table, missing, signal);
  // They leave out fill values, and a mean can be equal to one.
  const { _FillValue, missing_value: _missing, ...attributes } = record(node.document["attributes"]);
  const [plain, shape] = [withAttributes(node, attributes), [table.length]];
  const decoded = (raw: Float64Array): Decoded => reader.decode(snapshot, plain, { shape, raw });
  const [low, high] = [decoded(stored.minimum), decoded(stored.maximum)];
  const [minimum, maximum] = Number(attributes.scale_factor) < 0 ? ([high, low] as const) : [low, high];
  return { minimum, maximum, mean: decoded(stored.mean), gaps, notes };
}

/** A plane with a value for each chunk: the mean of its elements. No chunk is read for it. */
export async function summaryOf(array: ArrayProps, slice: Slice, signal: AbortSignal) {
  const { node, snapshot } = array;
  const { chunkShape, edges } = node;
  if (edges || !snapshot.manifests(node.path).length) return undefined;
  const table = await snapshot.chunks(node.path);
  const { values: means, ...mean } = (await statisticsOf(array, table, signal)).mean;
  const grid = gridShape(node);
  const size = (d: number): number => (d === slice.x || d === slice.y ? nth(grid, d) : 1);
  const chunk = slice.index.map((at, d) => (size(d) > 1 ? -1 : Math.floor(at / nth(chunkShape, d))));
  const [width, height] = [size(slice.x), size(slice.y)];
  if (width * height > MOST) return undefined;
  const values = new Float64Array(width * height).fill(NaN);
  for (let row = 0, at = 0; row < table.length; row++, at += chunk.length)
    if (
      chunk.every((wanted, d) =>
        wanted < 0 ? u32(table.coords, at + d) < nth(grid, d) : wanted === table.coords[at + d],
      )
    )
      values[u32(table.coords, at + slice.y) * width + u32(table.coords, at + slice.x)] = Number(means[row]);
  if (!values.some(Number.isFinite)) return undefined;
  const step = chunkShape.map((length, d) => (d === slice.x || d === slice.y ? length : 1));
  const start = step.map((length, d) => (size(d) > 1 ? Math.floor(length / 2) : nth(slice.index, d)));
  const stop = start.map((at, d) => at + (size(d) - 1) * nth(step, d) + 1);
  const plane = { node, values, box: { start, stop, step }, scale: scaleOf(mean), lost: [], isSummary: true };
  return { ...plane, slice: { ...slice, from: node.shape.map(() => 0), to: node.shape } };
}
