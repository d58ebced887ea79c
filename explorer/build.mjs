/** Builds the page and copies it into the Python package. `node build.mjs [DIRECTORY]` */

import { build, transform } from "esbuild";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "../src/frazil/ui/static");
const LIMITS = { "first load": 120_000, everything: 250_000, raw: 1_000_000 };

const settings = {
  absWorkingDir: here,
  outdir: "out",
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  // Names by content: esbuild makes them from paths relative to this folder
  chunkNames: "[name]-[hash]",
  metafile: true,
  write: false,
};
const page = await build({ ...settings, entryPoints: { app: "src/main.ts" }, splitting: true });
// The worker shares no files with the page: it needs one request, and starts while the page loads. Notebooks load the widget from a text
const worker = await build({ ...settings, entryPoints: { worker: "src/worker.ts", widget: "src/widget.ts" } });
const metafile = { inputs: { ...page.metafile.inputs, ...worker.metafile.inputs }, outputs: { ...page.metafile.outputs, ...worker.metafile.outputs } };

const files = new Map([...page.outputFiles, ...worker.outputFiles].map((file) => [relative(join(here, "out"), file.path), Buffer.from(file.contents)]));
const uplot = await readFile(join(here, "node_modules/uplot/dist/uPlot.min.css"));
const style = Buffer.concat([await readFile(join(here, "src/style.css")), uplot]);
files.set("style.css", Buffer.from((await transform(style, { loader: "css", minify: true, target: "es2022" })).code));

// The licences of the packages in the bundle ask for a copy of their text
const packages = new Set(Object.keys(metafile.inputs).flatMap((input) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1] ?? []));
const notices = await Promise.all(
  [...packages].sort().map(async (name) => {
    const folder = join(here, "node_modules", name);
    const { version } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each));
    if (!file) throw new Error(`${name} has no file with its licence`);
    return `${name} ${version}\n\n${(await readFile(join(folder, file), "utf8")).trim()}\n`;
  }),
);
files.set("licenses.txt", Buffer.from(notices.join("\n----\n\n")));

const first = new Set(["index.html", "style.css"]);
const follow = (name) => {
  if (first.has(name)) return;
  first.add(name);
  for (const item of metafile.outputs[`out/${name}`].imports) if (item.kind === "import-statement") follow(relative("out", item.path));
};
follow("app.js");
// All files of the first load in one round trip
const preloads = [...first].filter((name) => /^chunk.*\.js$/.test(name)).map((name) => `    <link rel="modulepreload" href="${name}" />\n`);
files.set("index.html", Buffer.from((await readFile(join(here, "src/index.html"), "utf8")).replace("  </head>", `${preloads.join("")}  </head>`)));
await mkdir(target, { recursive: true });
// What an older build left
for (const name of await readdir(target)) if (/\.(js|css|html|txt)$/.test(name)) await rm(join(target, name));
for (const [name, bytes] of files) await writeFile(join(target, name), bytes);

const code = [...files.keys()].filter((name) => name !== "licenses.txt");
const zipped = (name) => gzipSync(files.get(name), { level: 9 }).length;
const sum = (names, size) => [...names].reduce((total, name) => total + size(name), 0);
const sizes = { "first load": sum(first, zipped), everything: sum(code, zipped), raw: sum(code, (name) => files.get(name).length) };
for (const name of files.keys()) console.log(`${String(zipped(name)).padStart(8)} bytes gzip  ${name}`);
for (const [what, size] of Object.entries(sizes)) {
  console.log(`${String(size).padStart(8)} bytes${what === "raw" ? "" : " gzip"}  ${what} (at most ${LIMITS[what]})`);
  if (size > LIMITS[what]) process.exitCode = 1;
}
