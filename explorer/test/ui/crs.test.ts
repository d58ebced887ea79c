import assert from "node:assert/strict";
import { test } from "node:test";
import { crsOf, mappingOfCode } from "../../src/earth/crs";
import { present } from "../present";
import table from "./projections.json";

test("places of projections, as PROJ has them", () => {
  for (const { name, attributes, points } of table as {
    name: string;
    attributes: Record<string, unknown> | null;
    points: number[][];
  }[]) {
    const crs = present(crsOf(attributes ?? present(mappingOfCode(name))));
    for (const [longitude, latitude, x, y] of points as [number, number, number, number][]) {
      const unit = Math.max(Math.abs(x), Math.abs(y)) > 200 ? 0.01 : 1e-7; // metres; radians or degrees
      const [right, up] = crs.forward(longitude, latitude);
      assert.ok(
        Math.hypot(right - x, up - y) < unit,
        `${name}: ${longitude}, ${latitude} is at ${x}, ${y}, not ${right}, ${up}`,
      );
      const [east, north] = crs.inverse(x, y);
      assert.ok(
        Math.hypot((east - longitude) * Math.cos((latitude * Math.PI) / 180), north - latitude) < 1e-6,
        `${name}: ${x}, ${y} is ${longitude}, ${latitude}, not ${east}, ${north}`,
      );
    }
  }
});

test("places that a system does not have, and systems that nobody knows", () => {
  const satellite = present(
    crsOf({
      grid_mapping_name: "geostationary",
      perspective_point_height: 35_786_023,
      sweep_angle_axis: "x",
    }),
  );
  assert.ok(Number.isNaN(satellite.forward(120, 0)[0]) && Number.isNaN(satellite.inverse(0.2, 0.2)[0]));
  assert.deepEqual(
    [
      mappingOfCode("EPSG:2056"),
      mappingOfCode("EPSG:32661"),
      mappingOfCode("x"),
      crsOf({ grid_mapping_name: "oblique_mercator" }),
      crsOf({}),
    ],
    Array(5).fill(undefined),
  );
  assert.equal(present(mappingOfCode("OGC:CRS84"))["grid_mapping_name"], "latitude_longitude");
});
