/** What a view shows as a link, as lines of code, as a table and as a picture. */

import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { axisOf, type Coordinates } from "../array/axes";
import { dimensionName, isArray } from "../array/nodes";
import { nth } from "../base/lists";
import { timeText } from "../cf/calendar";
import type { Snapshot } from "../format/types";
import type { Target } from "../page/home";
import { emptyCanvas } from "../page/canvas";
import { notice } from "../page/state";
import { last, parent } from "../page/text";
import type { PictureSet, Plane } from "./picture";

type Shown = Pick<PictureSet, "snapshot" | "plane" | "coordinates">;
const text = (of: string): string => JSON.stringify(of); // of Python
const word = (of: string): string => `'${of.replaceAll("'", "'\\''")}'`; // of a shell

/** Lines of code that read what a plane shows, or its difference from an older version, by their titles. */
export function linesOf(location: string, { snapshot, plane, coordinates }: Shown, base?: Target) {
  const { node, box, slice } = plane;
  const isShown = (d: number): boolean => d === slice.x || d === slice.y;
  const part = box.start.map((low, d) => {
    const by = nth(box.step, d) > 1 ? `:${box.step[d]}` : "";
    return isShown(d) ? `${low}:${box.stop[d]}${by}` : low;
  });
  const program = (more: string, read: string): string =>
    `import frazil, ${more}

repo = frazil.Repository.open(${text(location)})

def read(version):
    session = repo.readonly_session(snapshot_id=version)
    return ${read}[${part.join(", ") || "..."}]${more.startsWith("numpy") ? ")" : ""}

values = read(${text(snapshot.id)})${base ? ` - read(${text(base.snapshot.id)})` : ""}
`;
  const [group, name] = [parent(node.path), last(node.path)];
  const open = `xr.open_zarr(session.store, group=${text(group)}, consolidated=False)[${text(name)}]`;
  // xarray would take another part: it has one index for each name
  const xarray = isDistinct(node.dimensions) && isDataset(snapshot, group) && program("xarray as xr", open);
  const isReal = !node.dtype.startsWith("complex"); // a file has no other numbers
  const file = xarray && isReal && `${xarray}values.to_netcdf(${text(`${name}.nc`)})\n`;
  const names = [...node.dimensions, name];
  const isTable = !base && isDistinct(names.map((each) => each?.toLowerCase())); // SQL knows no case
  const where = isTable ? conditions(plane, coordinates) : undefined;
  const columns = names.map((each) => `"${each?.replaceAll('"', '""')}"`).join(", ");
  const query = `select ${columns} from t${where?.length ? ` where ${where.join(" and ")}` : ""}`;
  const sql = `frazil sql ${word(`${location}@${snapshot.id}:${node.path.slice(1)}`)} ${word(query)}\n`;
  return [
    ...(xarray ? [["xarray", xarray]] : []),
    // Elements as stored: packed, and times as numbers
    ["Frazil", program("numpy as np", `frazil.read(session, ${text(node.path)}, np.s_`)],
    ...(where ? [["SQL", sql]] : []),
    ...(file ? [["NetCDF", file]] : []),
  ];
}

const isDistinct = (names: readonly unknown[]): boolean => new Set(names).size === names.length;

/** xarray opens no group with a dimension that has no name, or several lengths. */
function isDataset({ nodes }: Snapshot, group: string): boolean {
  const members = nodes.filter(isArray).filter(({ path }) => parent(path) === group);
  const names = members.flatMap(({ dimensions }) => dimensions);
  const sides = members.flatMap(({ shape, dimensions }) =>
    shape.map((size, d) => `${size} ${dimensions[d]}`),
  );
  return !names.includes(null) && new Set(names).size === new Set(sides).size;
}

/** The conditions of SQL on the coordinates of a part; undefined if they would choose other cells. */
function conditions({ node, box }: Plane, coordinates: Coordinates): string[] | undefined {
  const all = node.shape.map((length, d): string | undefined => {
    const [low, high] = [nth(box.start, d), nth(box.stop, d)];
    const [coordinate, name] = [coordinates.get(d), node.dimensions[d]];
    const column = name && `"${name.replaceAll('"', '""')}"`;
    if (!column || nth(box.step, d) > 1) return undefined;
    if (low === 0 && high === length) return "";
    if (!coordinate) return `${column} between ${low} and ${high - 1}`;
    const { values, clock } = coordinate;
    if (!(values instanceof Float64Array)) return undefined;
    if (clock && !/^(standard|(proleptic_)?gregorian)$/.test(clock.calendar)) return undefined;
    const chosen = values.subarray(low, high);
    const [least, most] = [Math.min(...chosen), Math.max(...chosen)];
    // Numbers of 32 bits are not exact, and neither are those of times finer than a millisecond
    const room = clock ? (clock.step < 1 ? 0.01 : 0) : 1e-6 * Math.max(Math.abs(least), Math.abs(most));
    const [from, to] = clock
      ? [Math.floor(least - room), Math.ceil(most + room)]
      : [least - room, most + room];
    if (values.filter((value) => value >= from && value <= to).length !== high - low) return undefined;
    const end = (of = NaN): string =>
      clock ? `timestamp '${timeText(of, clock.calendar, "millisecond")}'` : String(of);
    return `${column} between ${end(from)} and ${end(to)}`;
  });
  return all.includes(undefined) ? undefined : all.flatMap((each) => each || []);
}

const field = (of: string): string => (/[",\n]/.test(of) ? `"${of.replaceAll('"', '""')}"` : of);

/** The values of a plane with the labels of their axes, one for each line. */
export function csvOf({ exact, node, values, box, slice, scale }: Plane, coordinates: Coordinates): string {
  const shown = [slice.y, slice.x].filter((d) => d >= 0);
  const axes = shown.map((d) => axisOf(node, coordinates, box, d));
  const width = axes.at(-1)?.length ?? 1;
  const places = (at: number): number[] => [Math.floor(at / width), at % width].slice(2 - axes.length);
  const plain = scale.clock ? scale.text : String;
  const lines = Array.from(values as ArrayLike<number | string>, (value, at) => [
    ...places(at).map((place, which) => nth(axes, which).label(place)),
    typeof value === "string" ? value : Number.isNaN(value) ? "" : (exact?.(at) ?? plain(value)),
  ]);
  const heads = [...shown.map((d) => dimensionName(node, d)), last(node.path)];
  return [heads, ...lines].map((line) => `${line.map(field).join(",")}\n`).join("");
}

function save(name: string, content: Blob): void {
  const href = URL.createObjectURL(content);
  Object.assign(document.createElement("a"), { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

export function Copies({ base, ...shown }: PictureSet & { base: Target | undefined }): VNode {
  const { plane, coordinates, reader } = shown;
  const [copied, setCopied] = useState("");
  const name = last(plane.node.path);
  const copy = async (title: string, content: string): Promise<void> => {
    setCopied(content);
    await navigator.clipboard?.writeText(content).then(
      () => (notice.value = `${title} copied`),
      () => (notice.value = `Select and copy the text.`), // a frame may not write to the clipboard
    );
  };
  const canvases = (of: string): HTMLCanvasElement[] => [...document.querySelectorAll<HTMLCanvasElement>(of)];
  const pair = canvases(".pair canvas");
  const pictures = pair.length ? pair : canvases(".image canvas, .plot canvas").slice(0, 1);
  const saveImage = (): void => {
    const { width, height } = nth(pictures, 0); // those next to each other have one size
    const all = emptyCanvas(width * pictures.length, height);
    pictures.forEach((each, at) => all.getContext("2d")?.drawImage(each, at * width, 0));
    all.toBlob((blob) => blob && save(`${name}.png`, blob));
  };
  const isRead = !plane.isSummary && !plane.bands && plane.values.length > 0;
  const lines = isRead ? linesOf(reader.location, shown, base) : [];
  return (
    <section class="column" aria-label="Copy as">
      <div class="bar">
        {[["Link", location.href], ...lines].map(([title = "", content = ""]) => (
          <button key={title} onClick={() => copy(title, content)}>
            {title}
          </button>
        ))}
        {pictures.length > 0 && <button onClick={saveImage}>PNG</button>}
        {!plane.bands && (
          <button onClick={() => save(`${name}.csv`, new Blob([csvOf(plane, coordinates)]))}>CSV</button>
        )}
      </div>
      {copied && <pre class="lines">{copied}</pre>}
    </section>
  );
}
