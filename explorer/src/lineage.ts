/** What jobs have recorded in the metadata of their commits. */

import { record } from "./format/grid";
import type { Repository } from "./format/types";

/** A list as text; empty if it is something else. */
export const texts = (value: unknown): string => (Array.isArray(value) ? value.map(String).join(", ") : "");

/** One commit of a job: what it read and wrote. */
export interface Step {
  readonly row: number;
  readonly job: string;
  readonly wrote: string;
  readonly inputs: readonly { readonly paths: string; readonly snapshot: string }[];
}

/** The commits that jobs made, newest first, by the records in their metadata. */
export function steps({ history }: Repository): Step[] {
  const rows = Array.from(history.times.keys()).sort((one, other) => history.times[other]! - history.times[one]!);
  return rows.flatMap((row) => {
    const job = record(history.metadata(row)["frazil_job"]);
    if (typeof job["name"] !== "string") return [];
    const inputs = Array.isArray(job["inputs"]) ? job["inputs"].map(record) : [];
    return [{ row, job: job["name"], wrote: texts(job["outputs"]), inputs: inputs.map((each) => ({ paths: texts(each["paths"]), snapshot: String(each["snapshot"] ?? "") })) }];
  });
}
