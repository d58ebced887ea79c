/** Line plots. Loaded when the first line is shown. */

import UPlot from "uplot";
import type { Scale } from "../array/axes";
import { f64 } from "../base/lists";
import { css } from "../page/canvas";
import { fitted, FONT } from "../page/text";
import type { LinesProps } from "./lines";

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

/** uPlot draws only along rising numbers. */
const rises = (values: Float64Array): boolean =>
  values.every((value, at) => at === 0 || value > f64(values, at - 1));

export function lines(target: HTMLElement, props: LinesProps, width: number, height: number): () => void {
  const { x, series, title, scale, onPlace } = props;
  const places = x.numbers && rises(x.numbers) ? x.numbers : undefined;
  const ticks = { stroke: css("line") };
  const grid = { ...ticks, width: 1 };
  const axis = { stroke: css("text"), grid, ticks, font: FONT, labelFont: FONT };
  // Gaps are null for uPlot
  const gaps = (values: ArrayLike<number>): (number | null)[] =>
    Array.from(values, (value) => (Number.isNaN(value) ? null : value));
  const single = x.length < 200;
  const byIndex = (_: unknown, indices: number[]): string[] =>
    indices.map((at) => (Number.isInteger(at) ? x.label(at) : ""));
  const xTitle = fitted(x.title, width - 120, widthOf);
  const yTitle = fitted(title, height - 80, widthOf);
  const room = (_: unknown, texts: string[] | null): number =>
    20 + Math.max(30, ...(texts ?? []).map((text) => widthOf(text)));
  const plot = new UPlot(
    {
      width,
      height,
      legend: { show: false },
      scales: { x: { time: false } },
      axes: [
        { ...axis, label: xTitle, space: 90, ...(places ? own(x.scale.ticks, 90) : { values: byIndex }) },
        { ...axis, label: yTitle, size: room, ...own(scale.ticks, 40) },
      ],
      series: [
        {},
        ...series.map(({ title: label, colour: stroke }) => {
          return { label, stroke, width: 1.5, points: { show: single, size: 5 } };
        }),
      ],
      hooks: { setCursor: [(self) => onPlace?.(self.cursor.idx ?? null)] },
    },
    [
      places ?? Float64Array.from({ length: x.length }, (_, at) => at),
      ...series.map(({ values }) => gaps(values)),
    ],
    target,
  );
  return () => plot.destroy();
}
