/** Values along one dimension as lines, and values as a table. */

import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import type { Axis, Scale } from "../array/axes";
import { theme, useSize } from "../page/canvas";
import { Failure, Grid } from "../page/parts";
import { useLoad } from "../page/state";
import { count, plural } from "../page/text";

export type Series = { readonly title: string; readonly colour: string; readonly values: Float64Array };

export interface LinesProps {
  readonly x: Axis;
  readonly series: readonly Series[];
  readonly title: string;
  /** How the values are written. */
  readonly scale: Scale;
  onPlace?(index: number | null): void;
}

export function Lines(props: LinesProps): VNode {
  const { x, series, title: name } = props;
  const [element, size] = useSize<HTMLDivElement>();
  const plot = useLoad(() => import("./plot"), []);
  useEffect(() => {
    const target = element.current;
    if (!plot.value || !target || size.width < 50) return;
    return plot.value.lines(target, props, size.width, Math.max(160, size.height));
  }, [plot.value, series, size.width, size.height, x, theme.value]);
  return (
    <>
      <Failure of={plot} />
      <div
        ref={element}
        class="plot"
        role="img"
        aria-label={`Line of ${name} along ${x.title}. The table shows the values.`}
      />
    </>
  );
}

const [MOST_ROWS, MOST_COLUMNS] = [200, 30];

interface ValueTableProps {
  readonly name?: string;
  readonly width: number;
  readonly height: number;
  readonly x?: Pick<Axis, "label"> | undefined;
  readonly y?: (Pick<Axis, "label"> & { readonly isTurned?: boolean }) | undefined;
  /** Rows and columns; without it many, and a hint where others are. */
  readonly most?: number;
  text(index: number): string;
}

export function ValueTable({ name = "Values", text, width, height, x, y, most }: ValueTableProps): VNode {
  const columns = Math.min(width, most ?? MOST_COLUMNS);
  const rows = Math.min(height, most ?? MOST_ROWS);
  const across = Array.from({ length: columns }, (_, at) => at);
  const down = Array.from({ length: rows }, (_, at) => (y?.isTurned ? height - 1 - at : at));
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={name}>
      <Grid
        class="values"
        heads={x && across.map((at) => x.label(at))}
        rowHeads={y && down.map((at) => y.label(at))}
        rows={down.map((row) => across.map((column) => text(row * width + column)))}
      />
      {most === undefined && (rows < height || columns < width) && (
        <p class="quiet">
          {count(rows)} of {plural(height, "row")}, {count(columns)} of {plural(width, "column")}: zoom in for
          others.
        </p>
      )}
    </div>
  );
}
