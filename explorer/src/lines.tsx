/** Values along one dimension as lines, and values as a table. */

import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import type { Axis } from "./axes";
import { css, Failure, theme, useSize } from "./parts";
import { useLoad } from "./state";
import { count, plural } from "./text";

export interface Series {
  readonly title: string;
  readonly colour: string;
  readonly values: Float64Array;
}

export function Lines({ x, series, title: name, isByIndex, onPlace }: { x: Axis; series: readonly Series[]; title: string; isByIndex: boolean; onPlace?: (index: number | null) => void }): VNode {
  const [element, size] = useSize<HTMLDivElement>();
  const plot = useLoad(() => import("./plot"), []);
  useEffect(() => {
    const target = element.current;
    if (!plot.value || !target || size.width < 50) return;
    const index = Float64Array.from({ length: x.length }, (_, at) => at);
    const places = isByIndex ? index : ([x.times, x.values].find((axis) => axis && rises(axis)) ?? index);
    return plot.value.lines(target, {
      width: size.width,
      height: Math.max(160, size.height),
      x: places,
      series,
      isTime: places === x.times,
      xTitle: x.title,
      yTitle: name,
      colours: { text: css("text"), grid: css("line") },
      ...(places === index ? { label: x.label } : {}),
      onPlace,
    });
  }, [plot.value, series, size.width, size.height, x, isByIndex, theme.value]);
  return (
    <>
      <Failure of={plot} />
      <div ref={element} class="plot" role="img" aria-label={`Line of ${name} along ${x.title}. The table shows the values.`} />
    </>
  );
}

/** uPlot draws only along rising numbers. */
const rises = (values: Float64Array): boolean => values.every((value, at) => at === 0 || value > values[at - 1]!);

const TABLE = { rows: 200, columns: 30 };

export function Table({ text, width, height, x, y }: { text: (index: number) => string; width: number; height: number; x: Pick<Axis, "label"> | undefined; y: Pick<Axis, "label"> | undefined }): VNode {
  const columns = Math.min(width, TABLE.columns);
  const rows = Math.min(height, TABLE.rows);
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Values">
      <table class="values">
        {x && (
          <thead>
            <tr>
              <td />
              {Array.from({ length: columns }, (_, column) => (
                <th key={column} scope="col">
                  {x.label(column)}
                </th>
              ))}
            </tr>
          </thead>
        )}
        <tbody>
          {Array.from({ length: rows }, (_, row) => (
            <tr key={row}>
              {y && <th scope="row">{y.label(row)}</th>}
              {Array.from({ length: columns }, (_, column) => (
                <td key={column}>{text(row * width + column)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {(rows < height || columns < width) && (
        <p class="quiet">
          {count(rows)} of {plural(height, "row")}, {count(columns)} of {plural(width, "column")}: zoom in for others.
        </p>
      )}
    </div>
  );
}

