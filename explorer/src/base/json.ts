/** Values of JSON whose shape nobody has checked. */

import { wrongFormat } from "./errors";

export type Properties = Record<string, unknown>;

export function record(value: unknown): Properties {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Properties) : {};
}

/** The entry of a table, and not of its prototype. */
export const entryOf = <T>(table: Readonly<Record<string, T>>, name: string): T | undefined =>
  Object.hasOwn(table, name) ? table[name] : undefined;

export function sizes(value: unknown, what: string): number[] {
  if (!Array.isArray(value) || !value.every((n) => Number.isSafeInteger(n) && n >= 0))
    throw wrongFormat(`${what}: expected a list of sizes, found ${JSON.stringify(value)}`);
  return value as number[];
}
