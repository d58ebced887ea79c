/** Addresses of views. The part after `#` of the page's address says all that a view shows. */

import { i32 } from "../base/lists";
import type { Repository } from "../format/types";

export type Page = "home" | "history" | "node" | "diff" | "repository";

export interface Route {
  readonly page: Page;
  /** A branch, a tag or the id of a snapshot. */
  readonly version: string;
  /** The older version on the page of differences. */
  readonly base: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
}

export const HOME: Route = { page: "home", version: "", base: "", path: "/", query: {} };

const decode = (part: string): string => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};

const encodePath = (path: string): string =>
  path.split("/").filter(Boolean).map(encodeURIComponent).join("/");

export function parseRoute(hash: string): Route {
  const [address = "", search = ""] = hash.replace(/^#/, "").split(/\?(.*)/s, 2);
  const query = Object.fromEntries(new URLSearchParams(search));
  const parts = address.split("/").filter(Boolean).map(decode);
  const path = (start: number): string => "/" + parts.slice(start).join("/");
  if (parts[0] === "v" && parts[1])
    return { page: "node", version: parts[1], base: "", path: path(2), query };
  if (parts[0] === "diff" && parts[1] && parts[2])
    return { page: "diff", base: parts[1], version: parts[2], path: path(3), query };
  const page = parts[0] === "repository" || parts[0] === "history" ? parts[0] : "home";
  return { ...HOME, page, query };
}

export function writeRoute(route: Route): string {
  const prefix = {
    home: () => "#/",
    history: () => "#/history",
    repository: () => "#/repository",
    node: () => `#/v/${encodeURIComponent(route.version)}/${encodePath(route.path)}`,
    diff: () =>
      `#/diff/${encodeURIComponent(route.base)}/${encodeURIComponent(route.version)}/${encodePath(route.path)}`,
  }[route.page]();
  const query = new URLSearchParams(Object.entries(route.query).filter(([, value]) => value !== ""))
    .toString()
    .replaceAll("%2C", ",");
  return query ? `${prefix}?${query}` : prefix;
}

type Names = Pick<Repository, "branches" | "tags" | "history" | "row">;

/** The snapshot that a version names. `branch.` or `tag.` may come first, for names that are both, and `~2` last. */
export function resolve(names: Names, version: string): string {
  const [, kind, name = version] = /^(branch|tag)\.(.+)$/s.exec(version) ?? [];
  const ids = { branch: names.branches, tag: names.tags }[kind ?? ""];
  const id = ids?.get(name) ?? names.branches.get(version) ?? names.tags.get(version);
  const [, tip, steps] = /^(.*)~(\d{0,9})$/s.exec(version) ?? [];
  if (id !== undefined || tip === undefined) return id ?? version;
  const { parent } = names.history;
  let row = names.row(resolve(names, tip || "main"));
  for (let step = Number(steps || 1); step > 0 && row >= 0; step--) row = i32(parent, row);
  return row >= 0 ? names.history.id(row) : version;
}

/** The branch that people see first. */
export const mainBranch = ({ branches }: Pick<Repository, "branches">): string | undefined =>
  branches.has("main") ? "main" : [...branches.keys()][0];
