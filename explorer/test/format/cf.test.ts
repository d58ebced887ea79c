import assert from "node:assert/strict";
import { test } from "node:test";
import { DATA, readJson } from "./folder";
import { type ArrayNode, decodeCF, difference, type Region } from "./reader";
import { present } from "../present";

interface Expected {
  readonly times: { calendar: string; units: string; values: number[]; texts: string[] }[];
  readonly packed: {
    dtype: string;
    attributes: Record<string, unknown>;
    stored: number[];
    values: (number | null)[];
  }[];
}

function node(dtype: unknown, attributes: Record<string, unknown>, length: number): ArrayNode {
  return {
    path: "/v",
    kind: "array",
    document: { attributes, data_type: dtype },
    id: "",
    shape: [length],
    chunkShape: [length],
    dimensions: ["x"],
    dtype: typeof dtype === "string" ? dtype : "datetime64[s]",
  };
}

const { times, packed } = readJson<Expected>(DATA, "cf.json");

test("times of all calendars", () => {
  for (const { calendar, units, values, texts } of times) {
    const decoded = decodeCF(node("int64", { units, calendar }, values.length), {
      shape: [values.length],
      raw: values,
    });
    assert.ok(decoded.clock);
    assert.equal(decoded.clock?.calendar, calendar);
    values.forEach((value, i) => {
      const label = decoded.label(i);
      assert.equal(label.padEnd(16, " 00:00").padEnd(19, ":00"), texts[i], `${value} ${units} ${calendar}`);
    });
  }
});

test("packed values", () => {
  for (const { dtype, attributes, stored, values } of packed) {
    const decoded = decodeCF(node(dtype, attributes, stored.length), { shape: [stored.length], raw: stored });
    values.forEach((value, i) => {
      const found = decoded.values[i] as number;
      if (value === null) assert.ok(Number.isNaN(found));
      else
        assert.ok(
          Math.abs(found - value) <= 1e-6 * Math.max(1, Math.abs(value)),
          `${dtype} ${found} ${value}`,
        );
    });
  }
});

test("other values", () => {
  const of = (
    type: unknown,
    attributes: Record<string, unknown>,
    raw: ArrayLike<number> | BigInt64Array | string[],
    more = {},
  ) => decodeCF(node(type, attributes, raw.length), { shape: [raw.length], raw, ...more });
  const seconds = of(
    { name: "numpy.datetime64", configuration: { unit: "s", scale_factor: 1 } },
    {},
    BigInt64Array.of(86400n, -(2n ** 63n), 3661n),
  );
  assert.deepEqual(
    [0, 1, 2].map((i) => seconds.label(i)),
    ["1970-01-02 00:00:00", "no value", "1970-01-01 01:01:01"],
  );
  const nothing = of("int64", { units: "seconds since 1970-01-01" }, BigInt64Array.of(-(2n ** 63n), 60n));
  assert.deepEqual(
    [nothing.values[0], nothing.label(0), nothing.label(1)],
    [NaN, "no value", "1970-01-01 00:01"],
  );
  const least = of("int64", { units: "seconds" }, BigInt64Array.of(-(2n ** 63n)));
  assert.equal(least.label(0), String(-(2n ** 63n)));
  assert.equal(of("bool", {}, [1, 0]).label(0), "true");
  assert.equal(of("string", {}, ["a", "b"]).label(1), "b");
  assert.equal(of("complex64", {}, [3, -4], { isComplex: true }).label(0), "3-4i");
  assert.equal(of("complex64", {}, [3, -4], { isComplex: true }).values[0], 5);
  const third = of("complex128", {}, [1 / 3, -1e-9], { isComplex: true });
  assert.equal(third.label(0), "0.333333333333333-1e-9i");
  assert.equal(of("int64", {}, BigInt64Array.of(2n ** 60n + 1n)).label(0), String(2n ** 60n + 1n));
  assert.equal(of("float32", {}, [Math.fround(0.1)]).label(0), "0.1");
  assert.equal(of("float64", { _FillValue: "AAAAAAAA+H8=" }, [NaN]).label(0), "no value");
  assert.equal(of("float64", { _FillValue: "AAAAAAAA8D8=" }, [1]).label(0), "no value");
  assert.equal(of("uint8", { flag_values: [0, 1], flag_meanings: "land sea" }, [1]).label(0), "1 (sea)");
  const axis = of("int16", { scale_factor: (2 * 0.151844) / 599, add_offset: -0.151844 }, [0, 1, 439]);
  assert.deepEqual([0, 1, 2].map(axis.label), ["-0.151844", "-0.151337", "0.07072534"]);
  const near = of("float64", {}, [100.0001, 100.0002]);
  assert.deepEqual([0, 1].map(near.label), ["100.0001", "100.0002"]);
  const masks = of("uint8", { flag_masks: [1, 2, 4], flag_meanings: "cloud snow night" }, [5, 0]);
  assert.deepEqual(
    [masks.label(0), masks.label(1), masks.flags?.values],
    ["5 (cloud, night)", "0", undefined],
  );
  const both = { flag_masks: [1, 6, 6], flag_values: [1, 2, 4], flag_meanings: "land low high" };
  assert.equal(of("uint8", both, [5]).label(0), "5 (land, high)");
  const lag = of(
    { name: "numpy.timedelta64", configuration: { unit: "h", scale_factor: 1 } },
    {},
    BigInt64Array.of(6n),
  );
  assert.equal(lag.units, "hours");
  assert.equal(of("int32", { units: "days since a lunch" }, [1]).clock, undefined);
  assert.equal(of("int32", { units: "days since 2000-01-01", calendar: "mine" }, [1]).clock, undefined);
  assert.equal(
    of("float64", { units: "hours since 2000-01-01 00:00 +02:00" }, [0.5]).label(0),
    "1999-12-31 22:30",
  );
  assert.equal(
    of("int32", { units: "months since 2000-01-01", calendar: "360_day" }, [13]).label(0),
    "2001-02-01",
  );
});

test("times finer than a millisecond have the digits of their unit", () => {
  const decoded = (raw: BigInt64Array, units: string, attributes = {}) =>
    decodeCF(node("int64", { units, ...attributes }, raw.length), { shape: [raw.length], raw });
  const labels = (raw: BigInt64Array, units: string, attributes = {}): string[] =>
    [...raw.keys()].map(decoded(raw, units, attributes).label);
  assert.deepEqual(
    labels(BigInt64Array.of(0n, 1n, -1n, -(2n ** 63n), 86_399_999_999n), "microseconds since 2000-01-01"),
    [
      "2000-01-01 00:00:00.000000",
      "2000-01-01 00:00:00.000001",
      "1999-12-31 23:59:59.999999",
      "no value",
      "2000-01-01 23:59:59.999999",
    ],
  );
  const nanoseconds = 1_792_800_000_000_000_001n;
  assert.deepEqual(labels(BigInt64Array.of(nanoseconds, nanoseconds - 2n), "nanoseconds since 1970-01-01"), [
    "2026-10-24 00:00:00.000000001",
    "2026-10-23 23:59:59.999999999",
  ]);
  assert.deepEqual(labels(BigInt64Array.of(-1n), "ns since 1999-03-01", { calendar: "360_day" }), [
    "1999-02-30 23:59:59.999999999",
  ]);
  assert.deepEqual(labels(BigInt64Array.of(7n, 8n), "us since 2000-01-01", { _FillValue: 7 }), [
    "no value",
    "2000-01-01 00:00:00.000008",
  ]);
  const scaled = node({ name: "numpy.datetime64", configuration: { unit: "ns", scale_factor: 25 } }, {}, 1);
  assert.equal(
    decodeCF(scaled, { shape: [1], raw: BigInt64Array.of(3n) }).label(0),
    "1970-01-01 00:00:00.000000075",
  );
  const days = BigInt64Array.of(0n, 86_400_000_000_000n);
  assert.deepEqual(labels(days, "ns since 2000-01-01"), ["2000-01-01", "2000-01-02"]);
  assert.equal(decoded(days, "ns since 2000-01-01").exact, undefined);
  const now = decoded(BigInt64Array.of(nanoseconds + 2n), "ns since 1970-01-01");
  const old = decoded(BigInt64Array.of(nanoseconds / 1000n + 1n), "us since 1970-01-01");
  assert.equal(difference(now, old, 0), -997e-6);
});

test("differences of values that numbers do not have in full", () => {
  const minus = (type: string, now: Region["raw"], old: Region["raw"], isComplex = false): number[] => {
    const length = now.length / (isComplex ? 2 : 1);
    const [one, other] = [now, old].map((raw) =>
      decodeCF(node(type, {}, length), { shape: [length], raw, ...(isComplex ? { isComplex } : {}) }),
    );
    return Array.from({ length }, (_, at) => difference(present(one), present(other), at));
  };
  const wide = 2n ** 53n;
  assert.deepEqual(
    minus("int64", BigInt64Array.of(wide + 1n, -wide - 1n, 5n), BigInt64Array.of(wide, -wide, 5n)),
    [1, -1, 0],
  );
  assert.deepEqual(
    minus("uint64", BigUint64Array.of(2n ** 64n - 2n), BigUint64Array.of(2n ** 64n - 1n)),
    [-1],
  );
  assert.deepEqual(minus("complex128", [3, 4, 1, 1, NaN, 0], [3, -4, 1, 1, 0, NaN], true), [8, 0, 0]);
  assert.deepEqual(minus("float64", [NaN, NaN, Infinity, Infinity], [NaN, 1, Infinity, -Infinity]), [
    0,
    NaN,
    0,
    Infinity,
  ]);
});

test("a time that is no date shows its number", () => {
  for (const calendar of ["noleap", "360_day", "standard", "julian", "proleptic_gregorian"]) {
    const attributes = { units: "days since 1970-01-01", calendar };
    const raw = Float64Array.of(1, 2e8, NaN, Infinity);
    const decoded = decodeCF(node("float64", attributes, raw.length), { shape: [raw.length], raw });
    assert.deepEqual([0, 1, 2, 3].map(decoded.label), ["1970-01-02", "200000000", "no value", "Infinity"]);
  }
});

test("a part that cannot be read has no values", () => {
  const lost = [{ start: [0, 1], count: [2, 1], message: "damaged", kind: "format" as const }];
  const region = { shape: [2, 2], raw: Int32Array.of(1, 2, 3, 4), lost };
  assert.deepEqual([...decodeCF(node("int32", {}, 4), region).values], [1, NaN, 3, NaN]);
});
