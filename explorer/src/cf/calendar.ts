/** Calendars of the CF conventions: days since 1970-01-01 of the same calendar, and back. */

import { entryOf, nth } from "../base/lists";

type Date3 = [year: number, month: number, day: number];
const MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
const LEAP_MONTHS = MONTHS.map((days, month) => (month === 1 ? 29 : days));

type Calendar = { days(date: Date3): number; date(days: number): Date3 };

/** The Gregorian or the Julian rule by March-based years; years are astronomical. */
function march(isJulian: boolean): Calendar {
  const days = ([year, month, day]: Date3): number => {
    const y = month <= 2 ? year - 1 : year;
    const dayOfYear = Math.floor((153 * (month + (month > 2 ? -3 : 9)) + 2) / 5) + day - 1;
    const leap = isJulian
      ? Math.floor(y / 4) - 2
      : Math.floor(y / 4) - Math.floor(y / 100) + Math.floor(y / 400);
    return y * 365 + leap + dayOfYear - 719468;
  };
  const date = (time: number): Date3 => {
    // a guess that is at most one year off
    let y = Math.floor((time + 719468) / (isJulian ? 365.25 : 365.2425));
    while (days([y + 1, 3, 1]) <= time) y++;
    while (days([y, 3, 1]) > time) y--;
    const dayOfYear = time - days([y, 3, 1]);
    const m = Math.floor((5 * dayOfYear + 2) / 153);
    const month = m < 10 ? m + 3 : m - 9;
    return [month <= 2 ? y + 1 : y, month, dayOfYear - Math.floor((153 * m + 2) / 5) + 1];
  };
  return { days, date };
}

function even(months: number[]): Calendar {
  const year = months.reduce((a, b) => a + b, 0);
  return {
    days: ([y, m, d]) => (y - 1970) * year + months.slice(0, m - 1).reduce((a, b) => a + b, 0) + d - 1,
    date: (days) => {
      const y = Math.floor(days / year);
      let rest = days - y * year;
      let month = 0;
      while (rest >= nth(months, month)) rest -= nth(months, month++);
      return [y + 1970, month + 1, rest + 1];
    },
  };
}

const [GREGORIAN, JULIAN] = [march(false), march(true)];
/** The first day of the Gregorian calendar. */
const REFORM = GREGORIAN.days([1582, 10, 15]);
const MIXED: Calendar = {
  days: (date) => {
    const [y, m, d] = date;
    return y * 10000 + m * 100 + d >= 15821015 ? GREGORIAN.days(date) : JULIAN.days(date);
  },
  date: (days) => (days >= REFORM ? GREGORIAN : JULIAN).date(days),
};
const [NOLEAP, ALL_LEAP, DAY_360] = [even(MONTHS), even(LEAP_MONTHS), even(MONTHS.map(() => 30))];

const CALENDARS: Record<string, Calendar> = {
  standard: MIXED,
  gregorian: MIXED,
  proleptic_gregorian: GREGORIAN,
  julian: JULIAN,
  noleap: NOLEAP,
  "365_day": NOLEAP,
  all_leap: ALL_LEAP,
  "366_day": ALL_LEAP,
  "360_day": DAY_360,
};

/** The rule of a clock, which has a name of the table. */
const ruleOf = (calendar: string): Calendar => entryOf(CALENDARS, calendar) ?? MIXED;
const DAY = 86_400_000;
type Unit = readonly [name: string, milliseconds: number];
const UNITS: [RegExp, ...Unit][] = [
  [/^weeks?$/i, "weeks", 7 * DAY],
  [/^(d|days?)$/i, "days", DAY],
  [/^(h|hrs?|hours?)$/i, "hours", 3_600_000],
  [/^(m|mins?|minutes?)$/i, "minutes", 60_000],
  [/^(s|secs?|seconds?)$/i, "seconds", 1000],
  [/^(ms|msecs?|millisecs?|milliseconds?)$/i, "milliseconds", 1],
  [/^(us|microsecs?|microseconds?)$/i, "microseconds", 1e-3],
  [/^(ns|nanosecs?|nanoseconds?)$/i, "nanoseconds", 1e-6],
];

/** A unit of time that has one length in all calendars, by a name of CF or numpy. */
export function unitOf(text: string): Unit | undefined {
  const [, ...unit] = UNITS.find(([pattern]) => pattern.test(text)) ?? [];
  return unit.length ? unit : undefined;
}

const ZONE = /(?:Z|UTC|GMT|([+-])(\d{1,2}):?(\d{2})?)?/;
const TIME = /(\d{1,2})(?::(\d{1,2})(?::(\d{1,2}(?:\.\d*)?))?)?/;
const DATE = /(-?\d+)-(\d{1,2})-(\d{1,2})/;
const SINCE = new RegExp(
  `^\\s*(\\S+)\\s+since\\s+${DATE.source}(?:(?:\\s+|T)${TIME.source})?\\s*${ZONE.source}\\s*$`,
  "i",
);

export interface Clock {
  readonly calendar: string;
  readonly duration: Unit; // of differences
  readonly step: number; // milliseconds of a unit
  readonly origin: number; // milliseconds since 1970-01-01 of the calendar
}

/** The clock of units like "days since 1900-01-01"; undefined if they are no times. */
export function clockOf(units: string, calendar = "standard"): Clock | undefined {
  const match = SINCE.exec(units);
  const rule = entryOf(CALENDARS, calendar.toLowerCase());
  if (!match || !rule) return undefined;
  const [, name = "", y, m, d, hour, minute, second, sign, zoneHour, zoneMinute] = match;
  const [, unit] = unitOf(name) ?? [];
  // a month is a length of time in one calendar only
  const step = unit ?? (rule === DAY_360 && /^months?$/i.test(name) ? 30 * DAY : undefined);
  if (step === undefined || Number(m) < 1 || Number(m) > 12) return undefined;
  const zone = sign ? (Number(zoneHour) * 60 + Number(zoneMinute ?? 0)) * (sign === "-" ? -1 : 1) : 0;
  const time = ((Number(hour ?? 0) * 60 + Number(minute ?? 0) - zone) * 60 + Number(second ?? 0)) * 1000;
  const origin = rule.days([Number(y), Number(m), Number(d)]) * DAY + time;
  return { calendar: calendar.toLowerCase(), duration: [name, step], step, origin };
}

const two = (value: number): string => String(value).padStart(2, "0");
const PRECISIONS = ["year", "month", "day", "minute", "second", "millisecond"] as const;
type Precision = (typeof PRECISIONS)[number];
/** The letters of a text that are finer than a precision. */
const FINER = { year: 19, month: 16, day: 13, minute: 7, second: 4, millisecond: 0 };

/** The coarsest precision, from days on, that shows all of these times. */
export function precisionOf(times: Iterable<number>, least: Precision = "day"): Precision {
  let out = PRECISIONS.indexOf(least);
  for (const time of times) {
    if (!Number.isFinite(time)) continue;
    const rounded = Math.round(time);
    out = Math.max(out, rounded % 1000 ? 5 : rounded % 60_000 ? 4 : rounded % DAY ? 3 : 2);
    if (out === 5) break;
  }
  return nth(PRECISIONS, out);
}

/** Times farther from 1970 than this have no text: they are broken values. */
const FARTHEST = 1e8 * DAY;

/** The text of a time in the calendar, in which 2001-02-29 may be a date, and finer digits; undefined for no time. */
export function timeText(time: number, calendar: string, precision: Precision, finer = "") {
  if (!(Math.abs(time) <= FARTHEST)) return undefined;
  const rounded = Math.round(time);
  const days = Math.floor(rounded / DAY);
  const rest = rounded - days * DAY;
  const [year, month, day] = ruleOf(calendar).date(days);
  const years = `${year < 0 ? "-" : ""}${String(Math.abs(year)).padStart(4, "0")}`;
  const parts = [rest / 3_600_000, (rest / 60_000) % 60, (rest / 1000) % 60];
  const clock = parts.map((part) => two(Math.floor(part))).join(":");
  const text = `${years}-${two(month)}-${two(day)} ${clock}.${String(rest % 1000).padStart(3, "0")}`;
  return text.slice(0, text.length - FINER[precision]) + finer;
}

const [SECOND, MINUTE, HOUR] = [1000, 60_000, 3_600_000];
const MULTIPLES = [1, 2, 5, 10, 15, 30];
/** Steps of an axis that have one length in all calendars. */
const STEPS = [
  ...[1, 10, 100].flatMap((each) => [each, 2 * each, 5 * each]),
  ...MULTIPLES.map((each) => each * SECOND),
  ...MULTIPLES.map((each) => each * MINUTE),
  ...[1, 2, 3, 6, 12].map((each) => each * HOUR),
  ...[1, 2, 5, 10].map((each) => each * DAY),
];
const MONTH = 30.5 * DAY;

/** A place on an axis. */
export type Tick = { readonly value: number; readonly text: string };

/** Round times of the calendar between two others for an axis, with their texts. */
export function timeTicks(low: number, high: number, most: number, calendar: string): Tick[] {
  const rough = (high - low) / most;
  const rule = ruleOf(calendar);
  if (!(rough > 0) || !Number.isFinite(rough)) return [];
  const step = STEPS.find((each) => each >= rough);
  if (step !== undefined) {
    const first = Math.ceil(low / step);
    const times = Array.from({ length: Math.floor(high / step) - first + 1 }, (_, at) => (first + at) * step);
    const precision = precisionOf([step]);
    // Midnight has a date; other times of the day follow it
    const text = (value: number): string => {
      const whole = timeText(value, calendar, value % DAY ? precision : "day") ?? "";
      return value % DAY ? whole.slice(whole.indexOf(" ") + 1) : whole;
    };
    return times.map((value) => ({ value, text: text(value) }));
  }
  const power = 12 * 10 ** Math.max(0, Math.floor(Math.log10(rough / (12 * MONTH))));
  const months =
    [1, 2, 3, 6, power, 2 * power, 5 * power, 10 * power].find((each) => each * MONTH >= rough) ?? 20 * power;
  const [year, month] = rule.date(Math.floor(low / DAY));
  const first = Math.ceil((year * 12 + month - 1) / months) * months;
  const ticks = [];
  for (let at = first; ; at += months) {
    const value = rule.days([Math.floor(at / 12), at - Math.floor(at / 12) * 12 + 1, 1]) * DAY;
    if (value > high) return ticks;
    const text = timeText(value, calendar, months < 12 ? "month" : "year") ?? "";
    if (value >= low) ticks.push({ value, text });
  }
}

const TYPED = /^(-?\d{1,6})(?:-(\d\d?)(?:-(\d\d?)(?:[T ]+(\d\d?)(?::(\d\d)(?::(\d\d(?:\.\d*)?))?)?Z?)?)?)?$/;

/** The times that a typed date names, in milliseconds: from its begin up to its end, exclusive. */
type Period = { readonly start: number; readonly end: number };

/** A date as a person types it: `2001`, `2001-02`, `2001-02-03 06:30`. A sentence if the calendar has no such date. */
export function periodOf(typed: string, calendar: string): Period | string {
  const rule = ruleOf(calendar);
  const text = typed.trim();
  const parts = TYPED.exec(text);
  if (!parts) return `"${text}" is not a date: write 2001-12-31 or 2001-12-31 06:30.`;
  const [, year = 1, month = 1, day = 1, hour = 0, minute = 0, second = 0] = parts.map((part) =>
    part === undefined ? undefined : Number(part),
  );
  if (month < 1 || month > 12) return `There is no month ${month}.`;
  if (hour > 24 || minute > 59 || second >= 60)
    return `There is no time of day ${text.slice(text.search(/[T ]/) + 1)}.`;
  const days = rule.days([year, month, day]);
  const [, sameMonth, sameDay] = rule.date(days);
  if (sameMonth !== month || sameDay !== day) {
    const before = [...Array(32).keys()]
      .reverse()
      .find((each) => each > 0 && each < day && rule.date(rule.days([year, month, each]))[2] === each);
    const last = timeText(rule.days([year, month, before ?? 1]) * DAY, calendar, "day");
    const date = text.slice(0, text.search(/[T ]|$/));
    return `The calendar ${calendar} has no date ${date}. The last one before it is ${last}.`;
  }
  const start = days * DAY + ((hour * 60 + minute) * 60 + second) * 1000;
  if (parts[4] !== undefined) return { start, end: start };
  const [nextYear, nextMonth] =
    parts[2] === undefined ? [year + 1, 1] : month === 12 ? [year + 1, 1] : [year, month + 1];
  return { start, end: parts[3] === undefined ? rule.days([nextYear, nextMonth, 1]) * DAY : start + DAY };
}
