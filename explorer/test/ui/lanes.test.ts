import assert from "node:assert/strict";
import { test } from "node:test";
import { type Lanes, layLanes, linesBetween } from "../../src/views/history";
import { present } from "../present";
import { history } from "./memory";

const lay = (parent: number[], first: number, tips: number[]): Lanes =>
  layLanes(Int32Array.from(parent), first, tips);

/** What must hold for any graph: parents below, no two lines of one lane over each other. */
function check(lanes: Lanes, parent: ArrayLike<number>): void {
  for (let at = 0; at < lanes.length; at++) {
    const above = present(parent[lanes.turn(at)]);
    if (above >= 0) assert.equal(lanes.parent[at], lanes.turn(above));
    assert.ok(lanes.parent[at] === -1 || present(lanes.parent[at]) > at);
  }
  for (const members of lanes.members) {
    members.forEach((at, index) => {
      const next = members[index + 1];
      const end = present(lanes.parent[at]);
      if (next !== undefined)
        assert.ok(end === -1 || end <= next, `the line from ${at} to ${end} crosses ${next}`);
    });
  }
}

test("one branch is one lane", () => {
  const lanes = lay([-1, 0, 1, 2], 3, [3]);
  assert.deepEqual([...lanes.lane], [0, 0, 0, 0]);
});

test("main keeps lane 0, even if another branch is newer", () => {
  const parent = [-1, 0, 1, 1, 3];
  const lanes = lay(parent, 2, [2, 4]);
  check(lanes, parent);
  assert.deepEqual([...lanes.lane], [1, 1, 0, 0, 0]);
});

test("a free lane is used again", () => {
  const parent = [-1, 0, 1, 2, 0, 2];
  const lanes = lay(parent, 3, [3, 4, 5]);
  check(lanes, parent);
  assert.equal(lanes.members.length, 3); // the line of 4 passes next to 5
  const apart = lay([-1, 0, 0, 2, 3, 4, 4], 6, [1, 5, 6]);
  assert.equal(apart.members.length, 2);
});

test("commits without a name are known", () => {
  const lanes = lay([-1, 0, 0], 1, [1]);
  assert.equal(lanes.named[lanes.turn(2)], 0);
  assert.equal(lanes.named[lanes.turn(0)], 1);
});

test("a damaged history ends", () => {
  const lanes = lay([1, 0, 2, 77], 0, [0, 3]);
  assert.equal(lanes.length, 4);
  assert.ok(lanes.parent.every((above, at) => above === -1 || above > at));
});

test("random trees", () => {
  let seed = 1;
  const random = (): number => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
  for (let round = 0; round < 50; round++) {
    const length = 1 + Math.floor(random() * 60);
    const parent = Array.from(
      { length },
      (_, row) => (random() < 0.05 ? -1 : Math.floor(random() ** 0.2 * row)) - (row === 0 ? 1 : 0),
    );
    parent[0] = -1;
    const lanes = lay(parent, length - 1, [length - 1, Math.floor(length / 2)]);
    check(lanes, parent);
    // The lines of a window are exactly those that touch it
    const [start, stop] = [Math.floor(length / 3), Math.floor(length / 2)];
    const lines = new Set(linesBetween(lanes, start, stop, Infinity));
    for (let at = 0; at < length; at++)
      if (present(lanes.parent[at]) >= 0)
        assert.equal(
          lines.has(at),
          at < stop && present(lanes.parent[at]) >= start,
          `${at} to ${lanes.parent[at]}`,
        );
  }
});

test("100,000 commits in less than two seconds", () => {
  const { history: all, tips } = history(100_000);
  const begin = performance.now();
  const lanes = layLanes(all.parent, present(tips.get("main")), tips.values());
  assert.ok(performance.now() - begin < 2000);
  check(lanes, all.parent);
});
