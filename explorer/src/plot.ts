/** Line plots. Loaded when the first line is shown. */

import UPlot from "uplot";

export interface LinesSettings {
  readonly width: number;
  readonly height: number;
  readonly x: ArrayLike<number>;
  readonly series: readonly { readonly title: string; readonly colour: string; readonly values: ArrayLike<number> }[];
  readonly isTime: boolean;
  readonly xTitle: string;
  readonly yTitle: string;
  readonly colours: { readonly text: string; readonly grid: string };
  /** Text of a place on the axis, if numbers do not say enough. */
  label?(index: number): string;
  onPlace?: ((index: number | null) => void) | undefined;
}

const DAY = 86_400;

/** Dates in the order of their parts, as long as the steps of the axis need. */
function dates(seconds: readonly number[], step: number): string[] {
  const [from, to] = step >= 365 * DAY ? [0, 4] : step >= 28 * DAY ? [0, 7] : step >= DAY ? [0, 10] : step >= 60 ? [11, 16] : [11, 23];
  return seconds.map((at) => new Date(at * 1000).toISOString()).map((text) => (from && text.slice(11, 19) === "00:00:00" ? text.slice(0, 10) : text.slice(from, to)));
}

export function lines(target: HTMLElement, settings: LinesSettings): () => void {
  const { colours } = settings;
  const axis = { stroke: colours.text, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid } };
  // Gaps are null for uPlot; times are seconds
  const columns = settings.series.map(({ values }) => Array.from(values, (value) => (Number.isNaN(value) ? null : value)));
  const x = Float64Array.from(settings.x, (value) => (settings.isTime ? value / 1000 : value));
  const single = x.length < 200;
  const { label } = settings;
  const texts = settings.isTime
    ? (_: unknown, places: number[], __: number, ___: number, step: number) => dates(places, step)
    : label && ((_: unknown, places: number[]) => places.map((at) => (Number.isInteger(at) ? label(at) : "")));
  const plot = new UPlot(
    {
      width: settings.width,
      height: settings.height,
      legend: { show: false },
      tzDate: (seconds) => UPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: { x: { time: settings.isTime } },
      axes: [
        { ...axis, label: settings.xTitle, space: settings.isTime || label ? 90 : 60, ...(texts ? { values: texts } : {}) },
        { ...axis, label: settings.yTitle, size: 70 },
      ],
      series: [{}, ...settings.series.map(({ title, colour }) => ({ label: title, stroke: colour, width: 1.5, points: { show: single, size: 5 } }))],
      hooks: { setCursor: [(self) => settings.onPlace?.(self.cursor.idx ?? null)] },
    },
    [x, ...columns],
    target,
  );
  return () => plot.destroy();
}
