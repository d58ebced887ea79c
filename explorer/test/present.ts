import assert from "node:assert/strict";

/** A value that a test needs. */
export function present<T>(value: T | null | undefined): T {
  assert.ok(value !== undefined && value !== null, "this test needs a value that is not there");
  return value;
}
