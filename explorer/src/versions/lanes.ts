/** Order and lanes of the commits on the graph. All columns, for 100,000 commits and more. */

import { firstWhere, i32, nth } from "../base/lists";

export interface Lanes {
  readonly length: number;
  /** Place -> lane. */
  readonly lane: Int32Array;
  /** Place -> place of the parent; -1 for a root. */
  readonly parent: Int32Array;
  /** Lane -> places in it, in rising order. */
  readonly members: Int32Array[];
  /** Place -> 1 if a branch or tag leads to it. */
  readonly named: Uint8Array;
  /** Place on the graph (0 is the newest) -> row of the history, and back. */
  turn(at: number): number;
}

/** `rows` are the parents of the rows of a history, which come before their children. `first` is the row whose line of parents gets lane 0, `tips` are the rows with names. */
export function layLanes(rows: Int32Array, first: number, tips: Iterable<number>): Lanes {
  const length = rows.length;
  const turn = (at: number): number => length - 1 - at;
  const parent = new Int32Array(length).fill(-1);
  for (let at = 0; at < length; at++) {
    const row = length - 1 - at;
    if (i32(rows, row) >= 0 && i32(rows, row) < row) parent[at] = length - 1 - i32(rows, row);
  }
  const main = new Uint8Array(length);
  for (let at = first >= 0 ? turn(first) : -1; at >= 0; at = i32(parent, at)) main[at] = 1;
  const named = new Uint8Array(length);
  for (const tip of tips)
    for (let at = tip >= 0 ? turn(tip) : -1; at >= 0 && !named[at]; at = i32(parent, at)) named[at] = 1;

  const lane = new Int32Array(length).fill(-1);
  const ends: number[] = []; // lane -> place up to which a line occupies it
  const sizes: number[] = [];
  for (let at = 0; at < length; at++) {
    // The leftmost child of a commit gave it a lane already
    let own = main[at] ? 0 : i32(lane, at);
    if (own < 0) for (own = first >= 0 ? 1 : 0; own < ends.length && nth(ends, own) > at;) own++;
    lane[at] = own;
    for (; ends.length <= own; sizes.push(0)) ends.push(-1);
    const above = i32(parent, at);
    ends[own] = Math.max(nth(ends, own), above >= 0 ? above : at);
    sizes[own] = nth(sizes, own) + 1;
    if (above >= 0 && !main[above] && (i32(lane, above) < 0 || own < i32(lane, above))) lane[above] = own;
  }
  const members = sizes.map((size) => new Int32Array(size));
  const filled = sizes.map(() => 0);
  lane.forEach((own, at) => {
    const place = nth(filled, own);
    nth(members, own)[place] = at;
    filled[own] = place + 1;
  });
  return { length, lane, parent, members, named, turn };
}

/** The lines that cross the places from `start` to `stop`: child places. At most one per lane, and those that begin between. */
export function linesBetween(lanes: Lanes, start: number, stop: number, width: number): number[] {
  const children: number[] = [];
  for (let own = 0; own < Math.min(width, lanes.members.length); own++) {
    const members = nth(lanes.members, own);
    const next = firstWhere(members.length, (at) => i32(members, at) >= start);
    for (let at = Math.max(0, next - 1); at < members.length && i32(members, at) < stop; at++) {
      if (i32(lanes.parent, i32(members, at)) >= start) children.push(i32(members, at));
    }
  }
  return children;
}
