/** Order and lanes of the commits on the graph. All columns, for 100,000 commits and more. */

export interface Lanes {
  readonly length: number;
  /** Place on the graph (0 is the newest) -> row of the history. */
  readonly order: Int32Array;
  /** Row of the history -> place on the graph. */
  readonly place: Int32Array;
  /** Place -> lane. */
  readonly lane: Int32Array;
  /** Place -> place of the parent; -1 for a root. */
  readonly parent: Int32Array;
  /** Lane -> places in it, in rising order. */
  readonly members: Int32Array[];
  /** Place -> 1 if a branch or tag leads to it. */
  readonly named: Uint8Array;
}

/** `first` is the row whose line of parents gets lane 0, `tips` are the rows with names. */
export function layLanes(parent: Int32Array, times: Float64Array, first: number, tips: Iterable<number>): Lanes {
  const length = parent.length;
  const { rank, depth } = ranks(parent, times);
  const order = Int32Array.from({ length }, (_, at) => length - 1 - at);
  const compare = (a: number, b: number): number => rank[b]! - rank[a]! || depth[b]! - depth[a]! || b - a;
  // Rows mostly come in this order: a sort of 100,000 rows would take longer than all else here
  if (order.some((row, at) => at > 0 && compare(order[at - 1]!, row) > 0)) order.sort(compare);
  const place = new Int32Array(length);
  order.forEach((row, at) => (place[row] = at));
  const parents = Int32Array.from(order, (row) => {
    const above = parent[row]!;
    // A damaged file can name a parent that is newer than its child. Such a line is not drawn
    return above >= 0 && above < length && place[above]! > place[row]! ? place[above]! : -1;
  });
  const main = new Uint8Array(length);
  for (let at = first >= 0 ? place[first]! : -1; at >= 0; at = parents[at]!) main[at] = 1;
  const named = new Uint8Array(length);
  for (const tip of tips) for (let at = tip >= 0 ? place[tip]! : -1; at >= 0 && !named[at]; at = parents[at]!) named[at] = 1;

  const lane = new Int32Array(length).fill(-1);
  const used: number[] = []; // lane -> place up to which a line occupies it
  for (let at = 0; at < length; at++) {
    // The leftmost child of a commit gave it a lane already
    if (main[at]) lane[at] = 0;
    if (lane[at] === -1) {
      let free = first >= 0 ? 1 : 0;
      while (free < used.length && used[free]! > at) free++;
      lane[at] = free;
    }
    const own = lane[at]!;
    const above = parents[at]!;
    while (used.length <= own) used.push(-1);
    used[own] = Math.max(used[own]!, above >= 0 ? above : at);
    if (above >= 0 && !main[above] && (lane[above] === -1 || own < lane[above]!)) lane[above] = own;
  }
  const sizes = new Int32Array(used.length);
  for (const own of lane) sizes[own]!++;
  const members = Array.from(sizes, (size) => new Int32Array(size));
  sizes.fill(0);
  lane.forEach((own, at) => (members[own]![sizes[own]!++] = at));
  return { length, order, place, lane, parent: parents, members, named };
}

/** A time for each row that is never before that of its parent, and the number of its ancestors. */
function ranks(parent: Int32Array, times: Float64Array): { rank: Float64Array; depth: Int32Array } {
  const length = parent.length;
  const rank = new Float64Array(length);
  const depth = new Int32Array(length).fill(-1);
  const stack: number[] = [];
  for (let row = 0; row < length; row++) {
    for (let at = row; at >= 0 && at < length && depth[at] === -1; at = parent[at]!) {
      depth[at] = -2; // a cycle ends here
      stack.push(at);
    }
    for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
      const above = parent[at]!;
      const known = above >= 0 && above < length && depth[above]! >= 0;
      const time = Number.isFinite(times[at]!) ? times[at]! : 0;
      depth[at] = known ? depth[above]! + 1 : 0;
      rank[at] = known ? Math.max(time, rank[above]!) : time;
    }
  }
  return { rank, depth };
}

/** The lines that cross the places from `start` to `stop`: child places. At most one per lane, and those that begin between. */
export function linesBetween(lanes: Lanes, start: number, stop: number, width: number): number[] {
  const children: number[] = [];
  for (let own = 0; own < Math.min(width, lanes.members.length); own++) {
    const members = lanes.members[own]!;
    let low = 0;
    for (let high = members.length; low < high; ) {
      const middle = (low + high) >> 1;
      if (members[middle]! < start) low = middle + 1;
      else high = middle;
    }
    for (let at = Math.max(0, low - 1); at < members.length && members[at]! < stop; at++) {
      if (lanes.parent[members[at]!]! >= start) children.push(members[at]!);
    }
  }
  return children;
}
