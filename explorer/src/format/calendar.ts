/** Calendars of the CF conventions: days since 1970-01-01 of the same calendar, and back. */

type Date3 = [year: number, month: number, day: number];

const MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
const LEAP_MONTHS = MONTHS.map((days, month) => (month === 1 ? 29 : days));

/** Days and dates of the Gregorian or the Julian rule; years are astronomical. Both by March-based years. */
function marchDays([year, month, day]: Date3, isJulian: boolean): number {
  const y = month <= 2 ? year - 1 : year;
  const dayOfYear = Math.floor((153 * (month + (month > 2 ? -3 : 9)) + 2) / 5) + day - 1;
  const leap = isJulian ? Math.floor(y / 4) - 2 : Math.floor(y / 4) - Math.floor(y / 100) + Math.floor(y / 400);
  return y * 365 + leap + dayOfYear - 719468;
}

function marchDate(days: number, isJulian: boolean): Date3 {
  // a guess that is at most one year off
  let y = Math.floor((days + 719468) / (isJulian ? 365.25 : 365.2425));
  while (marchDays([y + 1, 3, 1], isJulian) <= days) y++;
  while (marchDays([y, 3, 1], isJulian) > days) y--;
  const dayOfYear = days - marchDays([y, 3, 1], isJulian);
  const m = Math.floor((5 * dayOfYear + 2) / 153);
  const month = m < 10 ? m + 3 : m - 9;
  return [month <= 2 ? y + 1 : y, month, dayOfYear - Math.floor((153 * m + 2) / 5) + 1];
}

/** 1582-10-15, the first day of the Gregorian calendar. */
const REFORM = marchDays([1582, 10, 15], false);

interface Calendar {
  days(date: Date3): number;
  date(days: number): Date3;
}

function even(months: number[]): Calendar {
  const year = months.reduce((a, b) => a + b, 0);
  return {
    days: ([y, m, d]) => (y - 1970) * year + months.slice(0, m - 1).reduce((a, b) => a + b, 0) + d - 1,
    date: (days) => {
      const y = Math.floor(days / year);
      let rest = days - y * year;
      let month = 0;
      while (rest >= months[month]) rest -= months[month++];
      return [y + 1970, month + 1, rest + 1];
    },
  };
}

const march = (isJulian: boolean): Calendar => ({ days: (date) => marchDays(date, isJulian), date: (days) => marchDate(days, isJulian) });
const [GREGORIAN, JULIAN] = [march(false), march(true)];
const MIXED: Calendar = {
  days: (date) => {
    const [y, m, d] = date;
    return y * 10000 + m * 100 + d >= 15821015 ? GREGORIAN.days(date) : JULIAN.days(date);
  },
  date: (days) => (days >= REFORM ? GREGORIAN : JULIAN).date(days),
};
const [NOLEAP, ALL_LEAP, DAY_360] = [even(MONTHS), even(LEAP_MONTHS), even(new Array<number>(12).fill(30))];

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

const DAY = 86_400_000;
const UNITS: [RegExp, number][] = [
  [/^(d|days?)$/, DAY],
  [/^(h|hrs?|hours?)$/, 3_600_000],
  [/^(m|mins?|minutes?)$/, 60_000],
  [/^(s|secs?|seconds?)$/, 1000],
  [/^(ms|msecs?|millisecs?|milliseconds?)$/, 1],
  [/^(us|microsecs?|microseconds?)$/, 1e-3],
  [/^(ns|nanosecs?|nanoseconds?)$/, 1e-6],
  [/^weeks?$/, 7 * DAY],
];

const SINCE = /^\s*(\S+)\s+since\s+(-?\d+)-(\d{1,2})-(\d{1,2})(?:(?:\s+|T)(\d{1,2})(?::(\d{1,2})(?::(\d{1,2}(?:\.\d*)?))?)?)?\s*(?:Z|UTC|GMT|([+-])(\d{1,2}):?(\d{2})?)?\s*$/i;

export interface Clock {
  readonly calendar: string;
  readonly step: number; // milliseconds of a unit
  readonly origin: number; // milliseconds since 1970-01-01 of the calendar
}

/** The clock of units like "days since 1900-01-01"; undefined if they are no times. */
export function clockOf(units: string, calendar = "standard"): Clock | undefined {
  const match = SINCE.exec(units);
  const rule = Object.hasOwn(CALENDARS, calendar.toLowerCase()) ? CALENDARS[calendar.toLowerCase()] : undefined;
  const unit = match && UNITS.find(([name]) => name.test(match[1].toLowerCase()))?.[1];
  // a month is a length of time in one calendar only
  const step = unit ?? (match && rule === DAY_360 && /^months?$/i.test(match[1]) ? 30 * DAY : undefined);
  if (!match || !rule || step === undefined) return undefined;
  const [, , y, m, d, hour, minute, second, sign, zoneHour, zoneMinute] = match;
  const zone = sign ? (Number(zoneHour) * 60 + Number(zoneMinute ?? 0)) * (sign === "-" ? -1 : 1) : 0;
  const time = ((Number(hour ?? 0) * 60 + Number(minute ?? 0) - zone) * 60 + Number(second ?? 0)) * 1000;
  if (Number(m) < 1 || Number(m) > 12) return undefined;
  return { calendar: calendar.toLowerCase(), step, origin: rule.days([Number(y), Number(m), Number(d)]) * DAY + time };
}

const two = (value: number): string => String(value).padStart(2, "0");

export type Precision = "day" | "minute" | "second" | "millisecond";

export function precisionOf(times: Iterable<number>): Precision {
  let out: Precision = "day";
  for (const time of times) {
    if (!Number.isFinite(time)) continue;
    const rounded = Math.round(time);
    if (rounded % 1000 !== 0) return "millisecond";
    if (rounded % 60_000 !== 0) out = "second";
    else if (rounded % DAY !== 0 && out === "day") out = "minute";
  }
  return out;
}

/** The text of a time in the calendar: 2001-02-29 is a date in some. */
export function timeText(time: number, calendar: string, precision: Precision): string {
  if (!Number.isFinite(time)) return "missing";
  const rounded = Math.round(time);
  const days = Math.floor(rounded / DAY);
  const rest = rounded - days * DAY;
  const [year, month, day] = CALENDARS[calendar].date(days);
  const date = `${year < 0 ? "-" : ""}${String(Math.abs(year)).padStart(4, "0")}-${two(month)}-${two(day)}`;
  if (precision === "day") return date;
  const clock = `${two(Math.floor(rest / 3_600_000))}:${two(Math.floor(rest / 60_000) % 60)}`;
  if (precision === "minute") return `${date} ${clock}`;
  const seconds = two(Math.floor(rest / 1000) % 60);
  return `${date} ${clock}:${seconds}${precision === "second" ? "" : `.${String(rest % 1000).padStart(3, "0")}`}`;
}

const TYPED = /^(-?\d{1,6})(?:-(\d\d?)(?:-(\d\d?)(?:[T ]+(\d\d?)(?::(\d\d)(?::(\d\d(?:\.\d*)?))?)?Z?)?)?)?$/;

/** The time of a date as a person types it, in the milliseconds of `timeText`; undefined if the calendar has no such date. */
export function timeOf(typed: string, calendar = "proleptic_gregorian"): number | undefined {
  const rule = CALENDARS[calendar] ?? GREGORIAN;
  const parts = TYPED.exec(typed.trim());
  if (!parts) return undefined;
  const [year, month, day, hour, minute, second] = [parts[1], parts[2] ?? 1, parts[3] ?? 1, parts[4] ?? 0, parts[5] ?? 0, parts[6] ?? 0].map(Number) as [number, number, number, number, number, number];
  if (month < 1 || month > 12 || hour > 24 || minute > 59 || second >= 60) return undefined;
  const days = rule.days([year, month, day]);
  const [, sameMonth, sameDay] = rule.date(days);
  return sameMonth === month && sameDay === day ? days * DAY + ((hour * 60 + minute) * 60 + second) * 1000 : undefined;
}
