/** Search in the history by words, author and time. */

import { f64, nth, type Properties } from "../base/lists";
import type { History } from "../format/types";

const AUTHOR_KEYS = ["author", "author_name", "committer", "user", "email", "author_email"];

export function author(metadata: Properties): string {
  for (const key of AUTHOR_KEYS) {
    const value = metadata[key];
    if (typeof value === "string" && value) return value;
    if (value && typeof value === "object" && "name" in value) return String(value.name);
  }
  return "";
}

/** Text and authors of a history in small letters, kept from the first search on. */
const texts = new WeakMap<History, { readonly words: string[]; readonly authors: string[] }>();

function textsOf(history: History): { readonly words: string[]; readonly authors: string[] } {
  const entry = texts.get(history) ?? {
    words: Array.from(history.parent, (_, row) =>
      `${history.message(row)}\n${history.id(row)}`.toLowerCase(),
    ),
    authors: [],
  };
  texts.set(history, entry);
  return entry;
}

type Names = ReadonlyMap<number, readonly string[]>;

const FILTER = /(author|after|before):("[^"]*"|\S+)/gi;

/** The places of commits with all words in message, id, author or names; `author:jo after:2024-02` narrow it. */
export function search(history: History, text: string, names: Names): Int32Array {
  let who = "";
  let [after, before] = [-Infinity, Infinity];
  const rest = text.replace(FILTER, (_, key: string, quoted: string) => {
    const value = quoted.replaceAll('"', "");
    if (key.toLowerCase() === "author") who = value.toLowerCase();
    else if (key.toLowerCase() === "after") after = orElse(Date.parse(value), after);
    else before = orElse(Date.parse(value), before);
    return " ";
  });
  const words = rest.toLowerCase().split(/\s+/).filter(Boolean);
  const { words: all, authors } = textsOf(history);
  const matches: number[] = [];
  const { length } = history.parent;
  for (let place = 0; place < length; place++) {
    const row = length - 1 - place;
    if (f64(history.times, row) < after || f64(history.times, row) >= before) continue;
    if (words.length || who) {
      const named = names.get(row)?.join(" ").toLowerCase() ?? "";
      const left = words.filter((word) => !nth(all, row).includes(word) && !named.includes(word));
      if (left.length || who) {
        const by = (authors[row] ??= author(history.metadata(row)).toLowerCase());
        if (!by.includes(who) || left.some((word) => !by.includes(word))) continue;
      }
    }
    matches.push(place);
  }
  return Int32Array.from(matches);
}

const orElse = (value: number, other: number): number => (Number.isNaN(value) ? other : value);
