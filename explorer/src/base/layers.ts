/** A layered layout of a graph. What is made of others is to the right of them, and no line passes a box. */

import { nth } from "./lists";

export type Linked = { readonly id: string; readonly sources: readonly string[] };

/** A node, or without an id a place where a line passes a column. Rows of one column are at least 1 apart. */
export interface Item {
  readonly id?: string;
  readonly column: number;
  row: number;
  readonly former: Item[];
  readonly next: Item[];
}

const SWEEPS = 4;

/** The items in the order of reading, and for each source of each node the items of its line, one in each column. */
export function layered(nodes: readonly Linked[]): { items: Item[]; lines: Item[][] } {
  const sourcesOf = new Map(nodes.map(({ id, sources }) => [id, sources]));
  const columns = new Map<string, number>();
  const columnOf = (id: string): number => {
    const found = columns.get(id);
    if (found !== undefined) return found;
    columns.set(id, 0); // while its sources are looked for, which may be a circle
    const known = (sourcesOf.get(id) ?? []).filter((each) => sourcesOf.has(each));
    columns.set(id, Math.max(-1, ...known.map(columnOf)) + 1);
    return columnOf(id);
  };
  const last = Math.max(0, ...nodes.map(({ id }) => columnOf(id)));
  const layers = Array.from({ length: last + 1 }, (): Item[] => []);
  const add = (column: number, named: { id?: string } = {}): Item => {
    const item = { ...named, column, row: nth(layers, column).length, former: [], next: [] };
    nth(layers, column).push(item);
    return item;
  };
  const items = new Map(nodes.map(({ id }) => [id, add(columnOf(id), { id })]));
  const lines = nodes.flatMap(({ id, sources }) =>
    [...new Set(sources)].flatMap((name) => {
      const [from, to] = [items.get(name), items.get(id)];
      if (!from || !to || from.column >= to.column) return []; // a circle
      const line = [from];
      while (line.length < to.column - from.column) line.push(add(from.column + line.length));
      line.push(to);
      line.slice(1).forEach((item, at) => {
        item.former.push(nth(line, at));
        nth(line, at).next.push(item);
      });
      return [line];
    }),
  );
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (const layer of layers) settle(layer, "former");
    for (const layer of layers.toReversed()) settle(layer, "next");
  }
  const all = layers.flat();
  const top = Math.min(...all.map(({ row }) => row));
  for (const item of all) item.row -= top;
  return { items: all, lines };
}

/** Sorts a column by the means of the neighbours on one side. Each item moves as near to its mean as possible. */
function settle(layer: Item[], side: "former" | "next"): void {
  const wanted = (item: Item): number =>
    item[side].length ? item[side].reduce((sum, { row }) => sum + row, 0) / item[side].length : item.row;
  const means = new Map(layer.map((item) => [item, wanted(item)]));
  layer.sort((one, other) => (means.get(one) ?? 0) - (means.get(other) ?? 0));
  // Neighbours that want the same place share a block around its mean: the least squares of the moves
  const blocks: [sum: number, count: number][] = [];
  layer.forEach((item, at) => {
    let [sum, count] = [(means.get(item) ?? 0) - at, 1];
    for (let last = blocks.at(-1); last && last[0] / last[1] > sum / count; last = blocks.at(-1)) {
      [sum, count] = [sum + last[0], count + last[1]];
      blocks.pop();
    }
    blocks.push([sum, count]);
  });
  const starts = blocks.flatMap(([sum, count]) => Array<number>(count).fill(sum / count));
  layer.forEach((item, at) => (item.row = nth(starts, at) + at));
}
