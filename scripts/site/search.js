// The search of the site, for sentences. The workers of the themes have no setting for this: one wants every word of a query, "a" too, in one
// section, and the other orders pages by one word in a title. This class takes the place of both workers. It has their messages, and needs no
// thread, which browsers refuse to pages of `file:` addresses.
const COMMON = new Set(
  `a about all am an and any are as at be been but by can could did do does for from get had has have how i if in into is it its me my no not of
  on one or our out should so some than that the their them then there these they this those to too us use used using want was we were what when
  where whether which while why will with would you your`.split(/\s+/),
);
/** Words that are found for each other. */
const SAME = [
  "add append continue",
  "backup copy mirror",
  "bad broken corrupt damaged wrong",
  "who blame author",
  "calendar noleap 360_day",
  "check verify validate",
  "colleague share",
  "credential key password secret",
  "cron daily schedule",
  "delete remove drop",
  "disk space storage",
  "duckdb sql",
  "fast slow speed performance",
  "large big size huge",
  "migrate come switch",
  "moving move rename",
  "personal withdraw expire",
  "refer virtual",
  "undo revert rollback restore",
].map((words) => words.split(" "));
/** The weight of a field, and its usual number of characters. */
const FIELDS = { title: [2.5, 60], page: [1, 60], text: [1, 1200] };
const WORD = /[\p{L}\p{N}]+(?:\.\p{N}+)*/gu;

const wordsOf = (text) => text.normalize("NFKD").toLowerCase().match(WORD) ?? [];
const countedWords = (query) => wordsOf(query).filter((word) => !COMMON.has(word));
const withoutTags = (html) => html.replace(/<[^>]*>/g, (tag) => " ".repeat(tag.length));
const stem = (word) =>
  word
    .replace(/(?<=...)s$/, "")
    .replace(/(?<=....)e$|(?<=...)(?:ed|ing)$/, "")
    .replace(/(?<=..)y$/, "i");
/** A word without one of its letters: two words that share one of these differ by a typing error. */
const variants = (word) => [word, ...Array.from(word, (_, at) => word.slice(0, at) + word.slice(at + 1))];

/** Return an index: for each stem, the sections that have it, and how much it counts there. */
function indexOf(sections) {
  const index = new Map();
  const titles = {};
  sections.forEach(({ location, title, text }, number) => {
    const page = (titles[location.split("#")[0]] ??= title);
    for (const [name, content] of Object.entries({ title, page, text })) {
      const [weight, usual] = FIELDS[name];
      const counts = new Map();
      for (const word of wordsOf(withoutTags(content)).map(stem))
        counts.set(word, (counts.get(word) ?? 0) + 1);
      for (const [word, count] of counts) {
        if (!index.has(word)) index.set(word, new Map());
        const value = (weight * count) / (count + 0.5 + content.length / usual);
        index.get(word).set(number, (index.get(word).get(number) ?? 0) + value);
      }
    }
  });
  return index;
}

/** Return the stems that match a word of a query, each with a weight. */
function matches(word, index) {
  const same = SAME.filter((group) => group.some((each) => stem(each) === stem(word))).flat();
  const weights = new Map(same.map((each) => [stem(each), 0.5]));
  for (const each of index.keys()) if (each.startsWith(word)) weights.set(each, 0.3);
  if (index.has(stem(word))) weights.set(stem(word), 1);
  if (weights.size === 0) {
    const near = new Set(variants(stem(word)));
    for (const each of index.keys())
      if (variants(each).some((variant) => near.has(variant))) weights.set(each, 0.3);
  }
  return weights;
}

/** Return the numbers of the best sections: with rare words, with many words, with words in titles, of many pages. */
function best(queries, index, sections) {
  const scores = new Map();
  for (const weights of queries) {
    const values = new Map();
    for (const [each, weight] of weights) {
      const places = index.get(each) ?? new Map();
      const rarity = Math.log(1 + sections.length / (1 + places.size));
      for (const [number, value] of places)
        values.set(number, Math.max(values.get(number) ?? 0, weight * rarity * value));
    }
    for (const [number, value] of values) {
      const [total, words] = scores.get(number) ?? [0, 0];
      scores.set(number, [total + value, words + 1]);
    }
  }
  const list = Array.from(scores, ([number, [total, words]]) => {
    const [page] = sections[number].location.split("#");
    return { number, page, score: total * words * (/(^|\/)reference\//.test(page) ? 0.5 : 1) };
  });
  const order = (a, b) => b.score - a.score;
  const counts = {};
  for (const each of list.sort(order))
    each.score *= 0.7 ** (counts[each.page] = (counts[each.page] ?? -1) + 1);
  return list
    .sort(order)
    .slice(0, 30)
    .map(({ number }) => number);
}

/** Return where words of a query are in a text. */
const marks = (text, stems) =>
  Array.from(withoutTags(text).matchAll(WORD))
    .filter(([word]) => stems.has(stem(word.toLowerCase())))
    .map(({ 0: word, index }) => ({ start: index, end: index + word.length, value: word.length }));

/** Return results as the worker of Zensical does. */
function forZensical(numbers, sections, stems) {
  const items = numbers.map((id) => ({
    id,
    matches: ["title", "text"].map((field) => ({
      id,
      field,
      value: { highlight: { ranges: marks(sections[id][field], stems) } },
    })),
  }));
  return { items, query: { values: [] }, pagination: { total: items.length } };
}

/** Return results as the worker of Material for MkDocs does: the sections of a page together, after the page, with marks as elements. */
function forMaterial(numbers, sections, stems, words) {
  const terms = Object.fromEntries(words.map((word) => [word, true]));
  const mark = (word) => (stems.has(stem(word.toLowerCase())) ? `<mark>${word}</mark>` : word);
  const result = ({ location, title, text }) => {
    const plain = withoutTags(text);
    const start = Math.max(0, (marks(text, stems)[0]?.start ?? 0) - 40);
    return {
      location,
      title: title.replace(WORD, mark),
      text: plain.slice(start, start + 400).replace(WORD, mark),
      score: 1,
      terms,
    };
  };
  const pages = new Map();
  for (const section of numbers.map((number) => sections[number])) {
    const page = section.location.split("#")[0];
    if (!pages.has(page)) pages.set(page, [sections.find(({ location }) => location === page)]);
    if (section.location !== page) pages.get(page).push(section);
  }
  return { items: Array.from(pages.values(), (parts) => parts.map(result)) };
}

window.Worker = class SearchWorker extends EventTarget {
  onmessage = null;

  postMessage({ type, data }) {
    if (type === 0) {
      this.sections = data.items ?? data.docs;
      this.results = data.items ? forZensical : forMaterial;
      return this.answer(1);
    }
    this.index ??= indexOf(this.sections);
    const words = countedWords(data.input ?? data);
    const queries = words.map((word) => matches(word, this.index));
    const stems = new Set(queries.flatMap((weights) => [...weights.keys()]));
    this.answer(3, this.results(best(queries, this.index, this.sections), this.sections, stems, words));
  }

  answer(type, data) {
    queueMicrotask(() => {
      const event = new MessageEvent("message", { data: { type, data } });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    });
  }

  terminate() {}
};

// A page marks the words of the query that led to it: only those that count.
const address = new URL(location);
if (address.searchParams.has("h")) {
  address.searchParams.set("h", countedWords(address.searchParams.get("h")).join(" "));
  history.replaceState(history.state, "", address);
}
