/** The numbers below a picture: extremes, a mean, differences, meanings. */

import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { withUnit, type Scale } from "../array/axes";
import { f64, type Shape } from "../base/lists";
import { count, plural } from "../page/text";

interface NumbersProps {
  readonly values: Float64Array;
  readonly scale: Scale;
  readonly difference: boolean;
  placeOf(at: number): string;
  readonly onChoose: ((at: number) => void) | undefined;
}

const signed = (scale: Scale, value: number): string => `${value > 0 ? "+" : ""}${withUnit(scale, value)}`;

/** How many values differ, and the mean of the differences that are not zero, as `frazil diff --values` prints it. */
function differenceText(values: Float64Array, scale: Scale, placeOf: (at: number) => string): string {
  const changes = values.filter((value) => value !== 0);
  const { count: known, mean } = statistics(changes);
  const largest = values.reduce(
    (best, value, at) =>
      Math.abs(value) > Math.abs(f64(values, best)) || Number.isNaN(values[best]) ? at : best,
    0,
  );
  const parts = [`${count(changes.length)} of ${plural(values.length, "value")} differ`];
  if (known) {
    parts.push(`mean of the values that differ ${signed(scale, mean)}`);
    parts.push(`largest ${withUnit(scale, Math.abs(f64(values, largest)))} at ${placeOf(largest)}`);
  }
  if (known < changes.length)
    parts.push(`${count(changes.length - known)} without a value in one of the versions`);
  return `${parts.join("; ")}.`;
}

/** How often each value occurs. */
function occurrences(values: Float64Array): Map<number, number> {
  const counts = new Map<number, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}

export function allCategories(values: Float64Array, known: Shape): Shape {
  const others = [...occurrences(values).keys()].filter(
    (value) => !Number.isNaN(value) && !known.includes(value),
  );
  return [...known, ...others.sort((a, b) => a - b).slice(0, MOST_MEANINGS)];
}

function meaningText(values: Float64Array, { text }: Scale): string {
  const counts = [...occurrences(values)].sort(([, one], [, other]) => other - one);
  const some = counts.slice(0, MOST_MEANINGS).map(([value, times]) => `${text(value)}: ${count(times)}`);
  if (counts.length > some.length) some.push(plural(counts.length - some.length, "other value"));
  return `${plural(values.length, "value")}. ${some.join("; ")}.`;
}

const MOST_MEANINGS = 12;

/** The extremes can lie outside of the colours: their places are one click away. */
export function Numbers({ values, scale, difference, placeOf, onChoose }: NumbersProps): VNode {
  const facts = useMemo(() => statistics(values), [values]);
  if (difference) return <p class="quiet foot">{differenceText(values, scale, placeOf)}</p>;
  if (!facts.count) return <p class="quiet foot">All values of this part are missing.</p>;
  if (!scale.hasMean) return <p class="quiet foot">{meaningText(values, scale)}</p>;
  const extreme = (at: number): VNode | string => {
    const text = withUnit(scale, f64(values, at));
    return onChoose ? (
      <button class="link" title={`Mark ${placeOf(at)}`} onClick={() => onChoose(at)}>
        {text}
      </button>
    ) : (
      text
    );
  };
  return (
    <p class="quiet foot">
      {plural(facts.count, "value")}: {extreme(facts.lowAt)} to {extreme(facts.highAt)}, mean{" "}
      {withUnit(scale, facts.mean)}
      {facts.count < values.length && `, ${count(values.length - facts.count)} missing`}.
    </p>
  );
}

/** The extremes and the mean of the values that are there. */
export function statistics(values: Float64Array) {
  let [size, sum, low, high, lowAt, highAt] = [0, 0, Infinity, -Infinity, 0, 0];
  values.forEach((value, at) => {
    if (Number.isNaN(value)) return;
    if (value < low || size === 0) [low, lowAt] = [value, at];
    if (value > high || size === 0) [high, highAt] = [value, at];
    size++;
    sum += value;
  });
  return { count: size, mean: sum / size, low, high, lowAt, highAt };
}
