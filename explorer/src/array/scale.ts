/** How numbers are written: the values of an array, and the differences of two values. */

import type { Shape } from "../base/lists";
import { type Clock, type Tick, timeTicks } from "../cf/calendar";
import type { Decoded } from "../cf/cf";
import { number } from "../page/text";
import { type Limits, ticks } from "./colour";

export interface Scale {
  readonly units: string;
  /** Meanings instead of amounts: the numbers that have one. They have no mean. */
  readonly categories?: Shape | undefined;
  readonly hasMean: boolean;
  readonly clock?: Clock | undefined;
  text(value: number): string;
  /** Round values between two limits. */
  ticks(limits: Limits, most: number): Tick[];
}

const numeric = (units: string, factor = 1): Scale => ({
  units,
  hasMean: true,
  text: (value) => number(value / factor),
  ticks: ([low, high], most) =>
    ticks([low / factor, high / factor], most).map((value) => ({
      value: value * factor,
      text: number(value),
    })),
});

export const NUMBERS = numeric("");
const unitsOf = (units: string | undefined): string => (units === undefined || units === "1" ? "" : units);

export function scaleOf({ clock, units, flags, text }: Omit<Decoded, "label" | "values" | "shape">): Scale {
  const plain = numeric(unitsOf(units));
  if (!text) return plain;
  if (clock) {
    const times = ([low, high]: Limits, most: number): Tick[] => timeTicks(low, high, most, clock.calendar);
    return { units: "", hasMean: true, clock, text, ticks: times };
  }
  if (!flags?.values) return { ...plain, text, hasMean: !flags };
  const { values, names } = flags;
  const shown = values.map((value) => ({ value, text: names(value) }));
  return {
    ...plain,
    hasMean: false,
    categories: values,
    text,
    ticks: ([low, high]) => shown.filter(({ value }) => value >= low && value <= high),
  };
}

/** A difference of times is a duration in the unit of the array. */
export const differenceScale = ({ clock, units }: Pick<Decoded, "clock" | "units">): Scale =>
  clock ? numeric(...clock.duration) : numeric(unitsOf(units));

/** A value with its unit. */
export const full = ({ text, units }: Scale, value: number): string =>
  Number.isNaN(value) || !units ? text(value) : `${text(value)} ${units}`;

const ZERO = 273.15; // kelvins at 0 °C

/** A temperature in kelvins also in degrees Celsius. */
export const inCelsius = ({ units }: Scale, value: number): string =>
  units === "K" && value > 100 ? ` (${number(Number((value - ZERO).toFixed(2)))} °C)` : "";

/** A mean of times has no more digits than a second. */
export const meanOf = ({ clock }: Scale, mean: number): number =>
  clock ? Math.round(mean / 1000) * 1000 : mean;
