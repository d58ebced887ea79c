/** What the page chooses: the first variable, colours, the extent and the direction of maps, the places of pixels. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { affine, inCelsius, NUMBERS } from "../../src/array/axes";
import { paletteOf } from "../../src/array/colour";
import type { Geolocation } from "../../src/earth/geolocation";
import { aim, eachPlace, fitting, frame } from "../../src/earth/projections";
import type { ArrayNode, ManifestPart, Snapshot } from "../../src/format/types";
import { sliceOf } from "../../src/earth/reference";
import { firstVariable } from "../../src/views/home";
import { array } from "./memory";

/** A version whose arrays have all their chunks, or those of `stored` along the first dimension. */
function snapshotOf(nodes: ArrayNode[], stored: Record<string, number> = {}): Snapshot {
  const manifests = (path: string): ManifestPart[] => {
    const { shape = [], chunkShape = [] } = nodes.find((each) => each.path === path) ?? {};
    const grid = shape.map((length, d) => Math.ceil(length / (chunkShape[d] ?? 1)));
    const ends = grid.map((length, d) => (d ? length : (stored[path] ?? length)));
    if (ends.includes(0)) return [];
    const extents = Uint32Array.from(ends.flatMap((end) => [0, end]));
    return [{ id: path, extents, count: ends.reduce((a, b) => a * b, 1) }];
  };
  const node = (path: string): ArrayNode | undefined => nodes.find((each) => each.path === path);
  return { id: "S", nodes, node, manifests } as unknown as Snapshot;
}

const AXES = [
  array("/lat", [73], [73], ["lat"], { units: "degrees_north" }),
  array("/lon", [144], [144], ["lon"], { units: "degrees_east" }),
  array("/time", [100], [100], ["time"], { units: "days since 2000-01-01" }),
];
const PLANE = [
  ["lat", "lon"],
  [73, 144],
] as const;
const field = (path: string, attributes = {}): ArrayNode =>
  array(path, [100, ...PLANE[1]], [10, ...PLANE[1]], ["time", ...PLANE[0]], { units: "K", ...attributes });
const flat = (path: string, attributes = {}): ArrayNode =>
  array(path, [...PLANE[1]], [...PLANE[1]], [...PLANE[0]], attributes);

test("a map has its longitudes across", () => {
  const turned = array("/t", [100, 144, 73], [1, 144, 73], ["time", "lon", "lat"]);
  const version = snapshotOf([...AXES, turned, field("/u")]);
  const axes = (node: ArrayNode, query = {}): number[] => {
    const { x, y } = sliceOf(version, node, node.shape, query);
    return [x, y];
  };
  assert.deepEqual(axes(turned), [1, 2]);
  assert.deepEqual(axes(turned, { x: "2", y: "1" }), [2, 1]);
  assert.deepEqual(axes(turned, { y: "none" }), [1, -1]);
  assert.deepEqual(axes(field("/u")), [2, 1]);
  assert.deepEqual(axes(array("/v", [3, 4], [3, 4], ["x", "y"])), [1, 0]);
  assert.deepEqual(axes(array("/v", [1, 4], [1, 4], ["x", "y"])), [1, -1]);
});

test("the first variable has data, and places where there are some", () => {
  const first = (nodes: ArrayNode[], stored?: Record<string, number>): string | undefined =>
    firstVariable(snapshotOf([...AXES, ...nodes], stored))?.node.path;
  const series = array("/a", [100], [100], ["time"], { units: "K" });
  const grid = array("/b", [50, 60], [50, 60], ["y", "x"], { units: "K" });
  assert.equal(first([]), undefined);
  assert.equal(first([series]), "/a");
  assert.equal(first([series, grid]), "/b");
  assert.equal(first([series, grid, field("/t")]), "/t");
  // Notes, helpers of other arrays, flags, and what has no chunks come last
  assert.equal(first([flat("/areacella"), flat("/lat_bnds"), field("/t")]), "/t");
  assert.equal(first([field("/a", { flag_values: [0, 1] }), field("/t")]), "/t");
  assert.equal(first([field("/height"), field("/t", { coordinates: "height time" })]), "/t");
  assert.equal(first([field("/.frazil/x"), series]), "/a");
  assert.equal(first([field("/a"), field("/t")], { "/a": 0 }), "/t");
  // Small chunks of a large array are slow to read
  const large = array("/a", [4000, 4000], [100, 100], ["lat", "lon"], { units: "K" });
  assert.equal(first([large, flat("/t", { units: "K" })]), "/t");
});

test("the first variable begins at its newest chunk", () => {
  const start = (stored?: Record<string, number>): string | undefined =>
    firstVariable(snapshotOf([...AXES, field("/t")], stored))?.start;
  assert.deepEqual([start(), start({ "/t": 3 })], ["99,0,0", "29,0,0"]);
});

test("colours by what an array is", () => {
  const of = (names: string, units = "", limits: [number, number] = [0, 1]): string => {
    const { map, isCentred, low, high } = paletteOf(names, units, limits);
    return [map, isCentred && "centred", low, high]
      .filter((each) => each !== undefined && each !== false)
      .join(" ");
  };
  assert.equal(of("tas air_temperature", "K", [220, 300]), "thermal");
  assert.equal(of("tos Sea surface temperature", "degC", [-2, 30]), "thermal");
  assert.equal(of("tas Temperature anomaly", "K", [-1, 4]), "balance centred");
  assert.equal(of("siconc sea_ice_area_fraction", "%", [0, 97]), "ice 0 100");
  assert.equal(of("siconc sea_ice_area_fraction", "1", [0, 0.9]), "ice 0 1");
  assert.equal(of("pr precipitation_flux", "kg m-2 s-1", [1e-6, 1e-4]), "rain 0");
  assert.equal(of("dem elevation", "m", [-4000, 3000]), "relief centred");
  assert.equal(of("dem elevation", "m", [10, 3000]), "land");
  assert.equal(of("uas eastward_wind", "m s-1", [1, 9]), "balance centred");
  assert.deepEqual([of("x"), of("x", "", [-1, 1])], ["viridis", "balance centred"]);
  const kelvin = { ...NUMBERS, units: "K" };
  assert.deepEqual(
    [inCelsius(kelvin, 288.1), inCelsius(kelvin, 3), inCelsius(NUMBERS, 288.1)],
    [" (14.95 °C)", "", ""],
  );
});

const places = (easts: number[], norths: number[], name = "latitude longitude"): Geolocation => ({
  name,
  width: easts.length,
  height: norths.length,
  place: (column, row) => [easts[column] ?? NaN, norths[row] ?? NaN],
  find: () => -1,
});
const even = (from: number, to: number, length: number): number[] =>
  Array.from({ length }, (_, at) => from + ((to - from) * at) / (length - 1));
const SIZE = { width: 800, height: 600 };

test("a map shows all of a plane", () => {
  const world = frame(places(even(1, 359, 90), even(-89, 89, 45)));
  assert.equal(world.line, undefined);
  const europe = frame(places(even(-15, 20, 36), even(60, 35, 26)));
  const view = fitting("local", europe, SIZE);
  assert.ok(view.span > 35 && view.span < 70, String(view.span));
  const projection = aim("local", view, SIZE);
  for (const corner of [
    [-15, 60],
    [20, 60],
    [-15, 35],
    [20, 35],
  ] as [number, number][]) {
    const [x = NaN, y = NaN] = projection(corner) ?? [];
    assert.ok(x >= 0 && x <= 800 && y >= 0 && y <= 600, `${corner.join()} is at ${x}, ${y}`);
  }
  const [, top = NaN] = projection([0, 60]) ?? [];
  const [, bottom = NaN] = projection([0, 35]) ?? [];
  assert.ok(top < bottom, "north is up");
});

test("a full disk is a globe, of which all is on the screen", () => {
  const disc = places(even(-150, 0, 31), even(80, -80, 31), "geostationary");
  const isInSpace = (column: number, row: number): boolean => Math.hypot(column - 15, row - 15) > 15;
  const part = frame({
    ...disc,
    place: (column, row) => (isInSpace(column, row) ? [NaN, NaN] : disc.place(column, row)),
  });
  assert.deepEqual(
    [part.isDisc, part.line, part.centre.map((each) => Math.round(each) + 0)],
    [true, undefined, [-75, 0]],
  );
  const projection = aim("globe", fitting("globe", part, SIZE), SIZE);
  const spots = [
    [-75, 89],
    [-75, -89],
    [-164, 0],
    [14, 0],
  ].map((place) => projection(place as [number, number]));
  for (const [x, y] of spots as [number, number][])
    assert.ok(x > 0 && x < 800 && y > 0 && y < 600, `${x}, ${y}`);
  assert.equal(frame(disc).isDisc, false);
});

test("the place in the middle of the screen, and of each pixel", () => {
  for (const [name, centre, span] of [
    ["natural", [100, 40], 200],
    ["local", [10, 85], 30],
    ["globe", [-75, 0], 120],
    ["plate", [179, -20], 0.01],
  ] as const) {
    const projection = aim(name, { centre: [...centre], span }, SIZE);
    const middle = projection.invert?.([400, 300]) ?? [];
    assert.ok(Math.hypot((middle[0] ?? 0) - centre[0], (middle[1] ?? 0) - centre[1]) < 1e-4 * span, name);
    let count = 0;
    eachPlace(projection, { width: 50, height: 30 }, 1, (pixel, east, north) => {
      const [x = NaN, y = NaN] = projection([east, north]) ?? [];
      const [column, row] = [(pixel % 50) + 0.5, Math.floor(pixel / 50) + 0.5];
      // Beyond the edge of the Earth there is no place that comes back
      const exact = projection.invert?.([column, row]) ?? [NaN, NaN];
      const back = projection(exact);
      if (!back || !(Math.hypot(back[0] - column, back[1] - row) < 1e-3)) return;
      assert.ok(Math.hypot(x - column, y - row) < 0.75, `${name} ${column} ${row}: ${x} ${y}`);
      count++;
    });
    assert.ok(count > 0 || name === "globe", name);
  }
});

test("the cells of a raster lie around its nodes, or between its corners", () => {
  const places = (registration: object): number[][] => {
    const raster = array("/r", [2, 3], [2, 3], ["y", "x"], {
      "spatial:dimensions": ["y", "x"],
      "spatial:transform": [10, 0, 500, 0, -20, 900],
      ...registration,
    });
    const snapshot = snapshotOf([raster]);
    return [0, 1].map((dimension) => [...(affine(snapshot, raster, dimension)?.values ?? [])].map(Number));
  };
  const corners = [
    [890, 870],
    [505, 515, 525],
  ];
  assert.deepEqual(places({}), corners);
  assert.deepEqual(places({ "spatial:registration": "pixel" }), corners);
  assert.deepEqual(places({ "spatial:registration": "node" }), [
    [900, 880],
    [500, 510, 520],
  ]);
});
