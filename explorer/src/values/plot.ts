/** Line plots. Loaded when the first line is shown. */

import UPlot from "uplot";
import type { Scale } from "../array/axes";
import { fitted, FONT } from "../page/text";
import type { Series } from "./lines";

interface LinesSettings {
  readonly width: number;
  readonly height: number;
  readonly x: ArrayLike<number>;
  readonly series: readonly Series[];
  readonly xTitle: string;
  readonly yTitle: string;
  readonly colours: { readonly text: string; readonly grid: string };
  /** Round places between two limits, with their texts. */
  readonly xTicks?: Ticks | undefined;
  readonly yTicks: Ticks;
  /** Text of a place on the axis, if numbers do not say enough. */
  label?(index: number): string;
  onPlace?: ((index: number | null) => void) | undefined;
}

type Ticks = Scale["ticks"];
const canvas = document.createElement("canvas").getContext("2d");

function widthOf(text: string): number {
  if (!canvas) return 0;
  canvas.font = FONT;
  return canvas.measureText(text).width;
}

/** An axis with its own ticks: places, and their texts. `space` is the least number of pixels between two. */
function own(ticks: Ticks, space: number): Pick<UPlot.Axis, "splits" | "values"> {
  let shown: ReturnType<Ticks> = [];
  return {
    splits: (plot, axis, low, high) => {
      const { width, height } = plot.bbox;
      const length = (axis === 0 ? width : height) / devicePixelRatio;
      shown = ticks([low, high], Math.max(1, length / space));
      return shown.map(({ value }) => value);
    },
    values: (_, places) => places.map((place) => shown.find(({ value }) => value === place)?.text ?? ""),
  };
}

export function lines(target: HTMLElement, settings: LinesSettings): () => void {
  const { colours, label, xTicks, yTicks, width, height } = settings;
  const ticks = { stroke: colours.grid };
  const grid = { stroke: colours.grid, width: 1 };
  const axis = { stroke: colours.text, grid, ticks, font: FONT, labelFont: FONT };
  // Gaps are null for uPlot
  const gaps = (values: ArrayLike<number>): (number | null)[] =>
    Array.from(values, (value) => (Number.isNaN(value) ? null : value));
  const single = settings.x.length < 200;
  const byIndex = (_: unknown, places: number[]): string[] =>
    places.map((at) => (Number.isInteger(at) ? (label?.(at) ?? "") : ""));
  const xTitle = fitted(settings.xTitle, width - 120, widthOf);
  const yTitle = fitted(settings.yTitle, height - 80, widthOf);
  const room = (_: unknown, texts: string[] | null): number =>
    20 + Math.max(30, ...(texts ?? []).map((text) => widthOf(text)));
  const plot = new UPlot(
    {
      width,
      height,
      legend: { show: false },
      scales: { x: { time: false } },
      axes: [
        {
          ...axis,
          label: xTitle,
          space: label ? 90 : 60,
          ...(xTicks ? own(xTicks, 90) : label ? { values: byIndex } : {}),
        },
        { ...axis, label: yTitle, size: room, ...own(yTicks, 40) },
      ],
      series: [
        {},
        ...settings.series.map(({ title, colour }) => {
          return { label: title, stroke: colour, width: 1.5, points: { show: single, size: 5 } };
        }),
      ],
      hooks: { setCursor: [(self) => settings.onPlace?.(self.cursor.idx ?? null)] },
    },
    [Float64Array.from(settings.x), ...settings.series.map(({ values }) => gaps(values))],
    target,
  );
  return () => plot.destroy();
}
