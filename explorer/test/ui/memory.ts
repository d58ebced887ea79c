/** A repository in memory, of any size, for tests of the views. */

import { ExplorerError } from "../../src/base/errors";
import { nth } from "../../src/base/lists";
import { decodeCF } from "../../src/cf/cf";
import {
  type ArrayNode,
  type Changes,
  ChunkKind,
  type ChunkTable,
  type History,
  type Node,
  type Region,
  type Repository,
  type Snapshot,
} from "../../src/format/types";
import type { Reader } from "../../src/page/home";
import { present } from "../present";

const name = (row: number): string => row.toString(32).toUpperCase().padStart(20, "0");

export function history(length: number, branches = 6): { history: History; tips: Map<string, number> } {
  const parent = new Int32Array(length);
  const tips = new Int32Array(branches).fill(0);
  parent[0] = -1;
  for (let row = 1; row < length; row++) {
    const branch = row % 7 === 0 ? (row % 91) % branches : 0;
    // A side branch starts again from main from time to time
    parent[row] = branch && row % 1000 < 7 ? present(tips[0]) : present(tips[branch]);
    tips[branch] = row;
  }
  const times = Float64Array.from({ length }, (_, row) => Date.UTC(2024, 0, 1) + row * 600_000);
  return {
    history: {
      parent,
      times,
      id: name,
      message: (row) => `append hour ${row} of the <b>forecast</b>`,
      metadata: (row) => (row % 3 ? { author: row % 2 ? "Ada" : "Grace" } : {}),
    },
    tips: new Map(Array.from(tips, (row, branch) => [branch ? `experiment/${branch}` : "main", row])),
  };
}

export function array(
  path: string,
  shape: number[],
  chunkShape: number[],
  dimensions: string[],
  attributes: Record<string, unknown> = {},
): ArrayNode {
  const document = {
    zarr_format: 3,
    node_type: "array",
    shape,
    data_type: "float64",
    fill_value: "NaN",
    codecs: [
      { name: "bytes", configuration: { endian: "little" } },
      { name: "zstd", configuration: { level: 3 } },
    ],
    attributes,
  };
  return {
    path,
    kind: "array",
    document,
    id: `id of ${path}`,
    shape,
    chunkShape,
    dimensions,
    dtype: "float64",
  };
}

const group = (path: string): Node => ({
  path,
  kind: "group",
  document: {
    zarr_format: 3,
    node_type: "group",
    attributes: path === "/" ? { title: "Weather <script>alert(1)</script>", history: ["made", "read"] } : {},
  },
  id: `id of ${path}`,
});

export function nodes(stations: number): Node[] {
  return [
    group("/"),
    array("/lat", [73], [73], ["lat"], { units: "degrees_north" }),
    array("/lon", [144], [144], ["lon"], { units: "degrees_east" }),
    array("/t2m", [365, 73, 144], [1, 73, 72], ["time", "lat", "lon"], {
      units: "K",
      long_name: "temperature at two metres",
    }),
    array("/time", [365], [365], ["time"], { units: "hours since 2020-01-01" }),
    array("/wide", [4000, 4000], [4, 4], ["y", "x"]),
    group("/stations"),
    ...Array.from({ length: stations }, (_, at) =>
      array(`/stations/s${String(at).padStart(5, "0")}`, [8760], [720], ["time"]),
    ),
  ];
}

export function chunkTable(node: ArrayNode, keep: (at: number) => boolean = () => true): ChunkTable {
  const grid = node.shape.map((length, at) => Math.ceil(length / present(node.chunkShape[at])));
  const total = grid.reduce((product, length) => product * length, 1);
  const kept: number[] = [];
  for (let at = 0; at < total; at++) if (keep(at)) kept.push(at);
  const coords = new Uint32Array(kept.length * grid.length);
  kept.forEach((place, row) => {
    for (let dimension = grid.length - 1; dimension >= 0; dimension--) {
      coords[row * grid.length + dimension] = place % present(grid[dimension]);
      place = Math.floor(place / present(grid[dimension]));
    }
  });
  const kind = Uint8Array.from(kept, (at) =>
    at % 17 === 0 ? ChunkKind.Inline : at % 5 === 0 ? ChunkKind.Virtual : ChunkKind.Native,
  );
  return {
    length: kept.length,
    coords,
    kind,
    offset: Float64Array.from(kept, (at) => (at % 100) * 4096),
    size: Float64Array.from(kept, (at) => 500 + ((at * 7919) % 4000)),
    location: (row) =>
      kind[row] === ChunkKind.Inline
        ? undefined
        : kind[row] === ChunkKind.Virtual
          ? `s3://bucket/file${Math.floor(present(kept[row]) / 100)}.nc`
          : name(Math.floor(present(kept[row]) / 100)),
    isPacked: (row) => present(kept[row]) % 3 !== 0,
  };
}

export const value = (path: string, coords: readonly number[], version = 0): number => {
  if (path === "/lat") return -90 + 2.5 * present(coords[0]);
  if (path === "/lon") return 2.5 * present(coords[0]);
  if (path === "/time") return Date.UTC(2020, 0, 1) + present(coords[0]) * 86_400_000;
  const [time = 0, row = 0, column = 0] = coords;
  if (path === "/t2m" && row > 30 && row < 34 && column < 20) return NaN;
  const wave = 288 - 30 * Math.cos(((row - 36) / 73) * Math.PI * 2) + 8 * Math.sin(column / 9 + time / 12);
  return wave + (version && row > 40 && row < 60 && column > 30 && column < 70 ? Math.sin(column / 4) : 0);
};

export function memoryReader({ commits = 200, stations = 20 } = {}): Reader {
  const { history: all, tips } = history(commits);
  const list = nodes(stations);
  const snapshots = new Map<string, Snapshot>();
  const tables = new Map<string, ChunkTable>();
  const row = (id: string): number => {
    const at = /^[0-9A-V]{20}$/.test(id) ? parseInt(id, 32) : -1;
    return at >= 0 && at < commits ? at : -1;
  };
  const repository: Repository = {
    specVersion: 2,
    branches: new Map([...tips].map(([branch, at]) => [branch, all.id(at)])),
    tags: new Map([["v1", all.id(Math.floor(commits / 2))]]),
    history: all,
    ops: [],
    status: "online",
    row,
    async snapshot(id) {
      if (row(id) < 0) throw new ExplorerError("not-found", `There is no version ${id}.`);
      const found: Snapshot = snapshots.get(id) ?? {
        id,
        nodes: row(id) % 2 ? list : list.slice(0, -1),
        node: (path) => found.nodes.find((node) => node.path === path),
        async chunks(path) {
          const table = tables.get(path) ?? chunkTable(found.node(path) as ArrayNode, (at) => at % 11 !== 3);
          tables.set(path, table);
          return table;
        },
        manifests: (path) => {
          const { shape, chunkShape } = found.node(path) as ArrayNode;
          const extents = Uint32Array.from(
            shape.flatMap((length, d) => [0, Math.ceil(length / nth(chunkShape, d))]),
          );
          return [{ id: "M", extents, count: Infinity }];
        },
        async statistics(_path, { length }) {
          const column = (): Float64Array => new Float64Array(length).fill(NaN);
          return { minimum: column(), maximum: column(), mean: column(), gaps: column(), notes: [] };
        },
        async chunk(path, coords) {
          const table = await found.chunks(path);
          for (let at = 0; at < table.length; at++) {
            if (coords.every((place, dimension) => table.coords[at * coords.length + dimension] === place)) {
              const location = table.location(at);
              return {
                kind: table.kind[at] as ChunkKind,
                offset: present(table.offset[at]),
                size: present(table.size[at]),
                ...(location ? { location } : { data: new Uint8Array([1, 2, row(id)]) }),
              };
            }
          }
          return undefined;
        },
      };
      snapshots.set(id, found);
      return found;
    },
    async changes(id): Promise<Changes | undefined> {
      if (row(id) <= 0) return undefined;
      return {
        newGroups: [],
        newArrays: row(id) % 2 ? [present(list.at(-1)).id] : [],
        deletedGroups: [],
        deletedArrays: [],
        updatedGroups: [],
        updatedArrays: ["id of /time"],
        updatedChunks: [{ nodeId: "id of /t2m", count: 2, coords: Uint32Array.of(5, 0, 0, 6, 0, 1) }],
        moves: [],
      };
    },
  };
  return {
    repository,
    label: "in memory",
    location: "memory",
    async read(snapshot, path, { start, stop, step = start.map(() => 1) }, signal): Promise<Region> {
      await new Promise((resume) => setTimeout(resume, 5));
      signal?.throwIfAborted();
      const shape = start.map((low, at) => Math.ceil((present(stop[at]) - low) / present(step[at])));
      const raw = new Float64Array(shape.reduce((product, length) => product * length, 1));
      const at = [...start];
      for (let index = 0; index < raw.length; index++) {
        raw[index] = value(path, at, row(snapshot.id) % 2);
        for (let dimension = at.length - 1; dimension >= 0; dimension--) {
          at[dimension] = present(at[dimension]) + present(step[dimension]);
          if (present(at[dimension]) < present(stop[dimension])) break;
          at[dimension] = present(start[dimension]);
        }
      }
      return { shape, raw };
    },
    decode: (_, node, region) => decodeCF(node, region),
  };
}
