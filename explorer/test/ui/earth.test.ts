import assert from "node:assert/strict";
import { test } from "node:test";
import { type Axis, axisOf, type Coordinate, isLongitude } from "../../src/array/axes";
import { levelFor, levelsFrom } from "../../src/array/nodes";
import { coarserSlice, finerSlice, parseSlice } from "../../src/array/slices";
import { type Geolocation, locate, ofCells } from "../../src/earth/geolocation";
import { earthReference, goesNorth } from "../../src/earth/reference";
import type { ArrayNode, Node, Snapshot } from "../../src/format/types";
import { present } from "../present";
import { array } from "./memory";

const coordinateOf = (numbers: number[], units = "m", edges?: number[]): Coordinate => ({
  name: "x",
  isLongitude: false,
  isLatitude: false,
  shape: [numbers.length],
  units,
  values: Float64Array.from(numbers),
  label: (at) => String(numbers[at]),
  ...(edges ? { edges: Float64Array.from(edges) } : {}),
});

function axis(
  numbers: number[],
  { units = "m", name = "x", edges }: { units?: string; name?: string; edges?: number[] } = {},
): Axis {
  const node = array("/a", [numbers.length], [1], [name]);
  return axisOf(
    node,
    new Map([[0, coordinateOf(numbers, units, edges)]]),
    { start: [0], stop: [numbers.length], step: [1] },
    0,
    { isVertical: name === "lat" },
  );
}

const even = (from: number, step: number, length: number): number[] =>
  Array.from({ length }, (_, at) => from + at * step);
const neverRead = async (): Promise<Float64Array> => assert.fail("nothing to read");

function everyCell(places: Geolocation): void {
  for (let row = 0, at = 0; row < places.height; row++) {
    for (let column = 0; column < places.width; column++, at++)
      assert.equal(places.find(...places.place(column, row)), at, `${column}, ${row}`);
  }
}

test("each cell is at its place, for axes of all kinds", async () => {
  const mappings: [Record<string, unknown> | undefined, string | undefined, Axis, Axis][] = [
    [undefined, "EPSG:3413", axis(even(-3.8e6, 2e5, 30)), axis(even(3.8e6, -2e5, 30))],
    [
      undefined,
      "32633",
      axis(even(300, 10, 20), { units: "km" }),
      axis(even(5_000, 10, 20), { units: "km" }),
    ],
    [
      {
        grid_mapping_name: "rotated_latitude_longitude",
        grid_north_pole_latitude: 39.25,
        grid_north_pole_longitude: -162,
      },
      undefined,
      axis(even(-20, 1, 30), { units: "degrees" }),
      axis(even(-15, 1, 30), { units: "degrees" }),
    ],
    [
      {
        grid_mapping_name: "geostationary",
        perspective_point_height: 35_786_023,
        longitude_of_projection_origin: -75,
        sweep_angle_axis: "x",
      },
      undefined,
      axis(even(-2e6, 2e5, 20)),
      axis(even(2e6, -2e5, 20)),
    ],
    [
      { grid_mapping_name: "latitude_longitude" },
      undefined,
      axis(even(0, 10, 36), { units: "degrees" }),
      axis(even(85, -10, 18), { units: "degrees" }),
    ],
  ];
  for (const [mapping, code, x, y] of mappings) {
    const located = await locate({ isDegrees: false, mapping, code }, x, y, neverRead);
    assert.ok(located && "places" in located, code);
    everyCell(located.places);
  }
  const degrees = await locate(
    { isDegrees: true },
    axis([350, 355, 360, 365], { units: "degrees_east" }),
    axis([60, 50, 20], { name: "lat" }),
    neverRead,
  );
  assert.ok(degrees && "places" in degrees);
  everyCell(degrees.places);
  assert.deepEqual(
    [degrees.places.find(2, 50), degrees.places.find(-4, 12), degrees.places.find(90, 50)],
    [6, 9, -1],
  );
});

test("a system that nobody knows has a name", async () => {
  assert.deepEqual(
    await locate({ isDegrees: false, code: "EPSG:2056" }, axis([1, 2]), axis([1, 2]), neverRead),
    { unknown: "EPSG:2056" },
  );
  assert.deepEqual(
    await locate(
      { isDegrees: false, mapping: { grid_mapping_name: "oblique_mercator" } },
      axis([1, 2]),
      axis([1, 2]),
      neverRead,
    ),
    { unknown: "oblique_mercator" },
  );
});

test("cells with places of their own: the nearest one, over the date line and the pole", () => {
  const [width, height] = [40, 30];
  for (const [lon0, lat0] of [
    [175, 0],
    [20, 78],
  ] as const) {
    const longitudes = new Float64Array(width * height);
    const latitudes = new Float64Array(width * height);
    for (let at = 0; at < width * height; at++) {
      const [column, row] = [at % width, Math.floor(at / width)];
      // A square around a centre, turned a little
      const [right, up] = [(column - 20) * 0.8 + row * 0.2, (row - 15) * 0.8 - column * 0.1];
      const far = (Math.hypot(right, up) * Math.PI) / 180;
      const turn = Math.atan2(right, up);
      const [one, other] = [
        (lat0 * Math.PI) / 180,
        Math.asin(
          Math.sin((lat0 * Math.PI) / 180) * Math.cos(far) +
            Math.cos((lat0 * Math.PI) / 180) * Math.sin(far) * Math.cos(turn),
        ),
      ];
      latitudes[at] = (other * 180) / Math.PI;
      longitudes[at] =
        lon0 +
        (Math.atan2(
          Math.sin(turn) * Math.sin(far) * Math.cos(one),
          Math.cos(far) - Math.sin(one) * Math.sin(other),
        ) *
          180) /
          Math.PI;
    }
    longitudes[5] = NaN;
    const places = ofCells(longitudes, latitudes, width, height);
    const vector = (east: number, north: number): number[] => [
      Math.cos((north * Math.PI) / 180) * Math.cos((east * Math.PI) / 180),
      Math.cos((north * Math.PI) / 180) * Math.sin((east * Math.PI) / 180),
      Math.sin((north * Math.PI) / 180),
    ];
    let hits = 0;
    for (let step = 0; step < 2000; step++) {
      const [east, north] = [
        lon0 - 40 + (step % 50) * 1.6,
        Math.min(90, lat0 - 25 + Math.floor(step / 50) * 1.3),
      ];
      const here = vector(east, north);
      const far = Array.from(longitudes, (each, at) =>
        Math.hypot(...vector(each, present(latitudes[at])).map((part, axis) => part - present(here[axis]))),
      );
      const nearest = far.reduce((best, each, at) => (each < present(far[best]) ? at : best), 0);
      const cell = places.find(east, north);
      if (cell >= 0)
        assert.ok(
          Math.abs(present(far[cell]) - present(far[nearest])) < 1e-12,
          `${east}, ${north}: ${cell}, not ${nearest}`,
        );
      else assert.ok(present(far[nearest]) > 0.005, `${east}, ${north} is in cell ${nearest}`);
      hits += cell >= 0 ? 1 : 0;
    }
    assert.ok(hits > 200 && hits < 1900, String(hits));
  }
});

test("what the metadata say about places", () => {
  const group = (path: string, attributes: Record<string, unknown> = {}): Node => ({
    path,
    kind: "group",
    id: path,
    document: { attributes },
  });
  const wkt = 'PROJCRS["ETRS89 / LAEA",BASEGEOGCRS["x",ID["EPSG",4258]],ID["EPSG",3035]]';
  const nodes: Node[] = [
    group("/"),
    array("/lat", [3], [3], ["lat"], { units: "degrees_north" }),
    array("/lon", [4], [4], ["lon"]),
    array("/t", [3, 4], [3, 4], ["lat", "lon"]),
    group("/utm", { "proj:code": "EPSG:32633" }),
    array("/utm/t", [3, 4], [3, 4], ["y", "x"]),
    group("/laea"),
    array("/laea/spatial_ref", [], [], [], { crs_wkt: wkt }),
    array("/laea/t", [3, 4], [3, 4], ["y", "x"], { grid_mapping: "spatial_ref: x y" }),
    group("/ocean"),
    array("/ocean/nav_lat", [3, 4], [3, 4], ["j", "i"], { units: "degrees_north" }),
    array("/ocean/nav_lon", [3, 4], [3, 4], ["j", "i"], { standard_name: "longitude" }),
    array("/ocean/t", [2, 3, 4], [1, 3, 4], ["time", "j", "i"]),
    array("/plain", [3, 4], [3, 4], ["b", "a"]),
  ];
  const snapshot = {
    id: "S",
    nodes,
    node: (path: string) => nodes.find((each) => each.path === path),
  } as unknown as Snapshot;
  const of = (path: string, x: number, y: number): ReturnType<typeof earthReference> =>
    earthReference(snapshot, snapshot.node(path) as ReturnType<typeof array>, { x, y });
  assert.equal(of("/t", 1, 0)?.isDegrees, true);
  assert.equal(of("/utm/t", 1, 0)?.code, "EPSG:32633");
  assert.equal(of("/laea/t", 1, 0)?.code, "3035");
  assert.deepEqual(
    of("/ocean/t", 2, 1)?.cells?.map(({ path }) => path),
    ["/ocean/nav_lon", "/ocean/nav_lat"],
  );
  assert.deepEqual(
    [of("/ocean/t", 2, 0), of("/plain", 1, 0), of("/plain", 1, -1)],
    [undefined, undefined, undefined],
  );
});

test("which axis is a longitude", () => {
  const table: [string, Record<string, unknown>, boolean][] = [
    ["x", { standard_name: "longitude" }, true],
    ...["degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE"].map(
      (units): [string, Record<string, unknown>, boolean] => ["x", { units }, true],
    ),
    ["lon", {}, true],
    ["Longitude", {}, true],
    ["lon", { units: "m" }, false],
    ["lon", { standard_name: "time" }, false],
    ["x", { units: "degrees" }, false],
    ["lat", { units: "degrees_north" }, false],
  ];
  for (const [name, attributes, is] of table)
    assert.equal(isLongitude(name, attributes), is, JSON.stringify(attributes));
});

test("where north is on a grid of cells with places", () => {
  const grid = (latitude: (row: number) => number): Geolocation => ({
    name: "",
    width: 5,
    height: 9,
    find: () => -1,
    place: (column, row) => [column, latitude(row)],
  });
  const edge = (row: number): number => (row === 0 || row === 8 ? NaN : row);
  const pole = (row: number): number => 90 - Math.abs(row - 4);
  const planes = [(row: number) => row, (row: number) => -row, edge, pole, () => NaN];
  assert.deepEqual(
    planes.map((each) => goesNorth(grid(each))),
    [true, false, true, undefined, undefined],
  );
});

test("cells of an uneven axis lie between their edges", () => {
  const depth = axis([0, 10, 50, 100]);
  assert.ok(depth.isUneven);
  assert.deepEqual([0.01, 0.04, 0.2, 0.5, 0.99].map(depth.cell), [0, 0, 1, 2, 3]);
  assert.deepEqual(depth.sides(1), [10 / 130, 35 / 130]);
  assert.equal(depth.centre(2), 55 / 130);
  const north = axis([10, 20, 60], { name: "lat" });
  assert.deepEqual([north.cell(0.01), north.cell(0.99), north.centre(0) > north.centre(2)], [2, 0, true]);
  const bounds = axis([15, 45], { edges: [0, 31, 59] });
  assert.deepEqual([bounds.cell(30.5 / 59), bounds.cell(31.5 / 59), bounds.centre(0)], [0, 1, 15 / 59]);
  assert.deepEqual([axis([3, 1, 2]).edges, axis([3, 1, 2]).cell(0.4)], [undefined, 1]);
});

test("the levels of a pyramid, and the one that fits to a screen", () => {
  const group = (path: string, attributes: Record<string, unknown>): Node => ({
    path,
    kind: "group",
    id: path,
    document: { attributes },
  });
  const layout = ["0", "1", "2"].map((asset) => ({ asset }));
  const datasets = ["0", "1"].map((path) => ({ path }));
  const nodes: Node[] = [
    group("/", {}),
    group("/scene", { multiscales: { layout } }),
    ...[64, 32, 16].map((size, level) =>
      array(`/scene/${level}/raw/band`, [size, size], [16, 16], ["y", "x"]),
    ),
    group("/image", { ome: { multiscales: [{ datasets }] } }),
    ...[64, 32].map((size, level) => array(`/image/${level}`, [size, size], [16, 16], ["y", "x"])),
    array("/scene/10", [64, 64], [16, 16], ["y", "x"]),
  ];
  const snapshot = {
    id: "S",
    nodes,
    node: (path: string) => nodes.find((each) => each.path === path),
  } as unknown as Snapshot;
  const of = (path: string): string[] =>
    levelsFrom(snapshot, snapshot.node(path) as ArrayNode).map(
      ({ node, ratio, place }) => `${place} ${node.path} ${ratio.join()}`,
    );
  assert.deepEqual(of("/scene/0/raw/band"), [
    "0 /scene/0/raw/band 1,1",
    "1 /scene/1/raw/band 2,2",
    "2 /scene/2/raw/band 4,4",
  ]);
  assert.deepEqual(
    of("/scene/2/raw/band"),
    ["2 /scene/2/raw/band 4,4"].map((line) => line.replace("4,4", "1,1")),
  );
  assert.deepEqual([of("/image/0")[1], of("/scene/10")], ["1 /image/1 2,2", ["0 /scene/10 1,1"]]);
  const levels = levelsFrom(snapshot, snapshot.node("/scene/0/raw/band") as ArrayNode);
  const place = (query: Record<string, string>, pixels: number): number =>
    levelFor(levels, parseSlice([64, 64], query), pixels).place;
  assert.deepEqual([place({}, 16), place({}, 20), place({}, 40), place({}, 90)], [2, 1, 0, 0]);
  // A part of the array has more elements in a finer level
  assert.deepEqual([place({ r0: "0-32", r1: "10-42" }, 16), place({ r1: "0-8" }, 16)], [1, 2]);
});

test("slices of levels", () => {
  const slice = parseSlice([7, 101, 64], { i: "3,0,0", r1: "10-31", r2: "7-64" });
  const [ratio, shape] = [
    [1, 4, 4],
    [7, 25, 16],
  ];
  const coarse = coarserSlice(slice, ratio, shape);
  assert.deepEqual(
    [coarse.index, coarse.from, coarse.to],
    [
      [3, 0, 0],
      [0, 2, 1],
      [7, 8, 16],
    ],
  );
  const fine = finerSlice(coarse, ratio, shape, [7, 101, 64]);
  assert.deepEqual(
    [fine.index, fine.from, fine.to],
    [
      [3, 0, 0],
      [0, 8, 4],
      [7, 32, 64],
    ],
  );
  const all = coarserSlice(parseSlice([7, 101, 64], {}), ratio, shape);
  assert.deepEqual([all.to, finerSlice(all, ratio, shape, [7, 101, 64]).to], [shape, [7, 101, 64]]);
});
