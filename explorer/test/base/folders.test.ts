import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import { test } from "node:test";

/** A folder imports only from those before it. The files outside of folders come last. */
const ORDER = "base codecs format cf page array earth versions values chunks views".split(" ");
const source = resolve(process.cwd(), "src");

const placeOf = (file: string): number => {
  const [folder = "", rest] = relative(source, file).split(sep);
  return rest === undefined ? ORDER.length : ORDER.indexOf(folder);
};

test("folders import those before them", () => {
  const files = readdirSync(source, { recursive: true, encoding: "utf8" }).filter((name) =>
    /\.tsx?$/.test(name),
  );
  assert.ok(files.length > 50);
  for (const name of files) {
    const file = join(source, name);
    assert.ok(placeOf(file) >= 0, `${name} lies in a folder without a place`);
    for (const [, target = ""] of readFileSync(file, "utf8").matchAll(/(?:from |import\()"(\.[^"]*)"/g)) {
      const imported = resolve(dirname(file), target);
      assert.ok(placeOf(imported) <= placeOf(file), `${name} imports ${relative(source, imported)}`);
    }
  }
});

test("no line is longer than 120 characters, and a module is imported once", () => {
  for (const name of readdirSync(source, { recursive: true, encoding: "utf8" })) {
    if (!/\.(tsx?|css)$/.test(name)) continue;
    const text = readFileSync(join(source, name), "utf8");
    for (const line of text.split("\n")) assert.ok(line.length <= 120, `${name}: ${line}`);
    const modules = [...text.matchAll(/^(?:import|\}).* from ("[^"]+");$/gm)].map(([, module]) => module);
    const isTypes = /^import type \* as /m.test(text);
    assert.ok(new Set(modules).size === modules.length || isTypes, `${name} imports a module twice`);
  }
});
