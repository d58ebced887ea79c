/** Builds the page and copies it into the Python package. `node build.mjs [DIRECTORY]` */

import { build, transform } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { deflateRawSync, gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "../src/frazil/ui/static");
const LIMITS = { "first load": 110_000, everything: 260_000, raw: 1_000_000 };

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
  metafile: true,
  write: false,
};
// The decoder of zstd is WebAssembly as base64: compressed before, it is smaller than after
const smaller = {
  name: "smaller",
  setup: ({ onLoad }) =>
    onLoad({ filter: /zstddec\.mjs$/ }, async ({ path }) => {
      const [wasm, body] = ["(response) => response.arrayBuffer()", "new DecompressionStream('deflate-raw')"];
      const text = await readFile(path, "utf8");
      if (!text.includes(wasm)) throw new Error(`${path} has changed`);
      return {
        contents: text
          .replace(/(?<=const wasm = ")[^"]+/, (base64) =>
            deflateRawSync(Buffer.from(base64, "base64"), { level: 9 }).toString("base64"),
          )
          .replace(wasm, `(response) => new Response(response.body.pipeThrough(${body})).arrayBuffer()`),
      };
    }),
};
// What some views need is in files of their own, which the page imports on demand. Only modules of the page may do so. These
// files get the modules that the page has from the page, so that state exists once: `page[3]` is one of their exports
const PACKAGES = ["preact", "preact/hooks", "preact/jsx-runtime", "@preact/signals"];
const addresses = new Map(); // of the files, by their modules
const elsewhere = {
  name: "elsewhere",
  setup: ({ onResolve }) =>
    onResolve({ filter: /^\./ }, ({ kind, path, resolveDir }) => {
      if (kind !== "dynamic-import") return undefined;
      const name = relative(here, join(resolveDir, path));
      if (!addresses.has(name)) addresses.set(name, path);
      return { path: addresses.get(name), external: true };
    }),
};
const pageOf = (contents) =>
  build({ ...settings, stdin: { contents, resolveDir: here }, plugins: [elsewhere, smaller] });
const [draft] = Object.values((await pageOf('import "./src/main";')).metafile.outputs);
const own = new Map(
  Object.entries(draft.inputs)
    .filter(([, { bytesInOutput }]) => bytesInOutput > 0)
    .map(([name]) => [name.replace(/\.tsx?$/, ""), `./${name}`]),
);
for (const name of PACKAGES) own.set(name, name);
const ofPage = {
  name: "of-page",
  setup: ({ onResolve }) =>
    onResolve({ filter: /^[.a-z@]/ }, ({ kind, path, resolveDir }) => {
      const name = own.get(path.startsWith(".") ? relative(here, join(resolveDir, path)) : path);
      if (kind === "dynamic-import") throw new Error(`only the page may import ${path} on demand`);
      return name && kind !== "entry-point" ? { path: `page:${name}`, external: true } : undefined;
    }),
};
const lazy = await build({
  ...settings,
  entryPoints: [...addresses.keys()].sort((a, b) => (a < b ? -1 : 1)).map((name) => `./${name}`), // found in any order
  plugins: [ofPage],
});
const keys = [];
const place = (key) => (keys.includes(key) ? keys.indexOf(key) : keys.push(key) - 1);
for (const file of lazy.outputFiles) {
  const { entryPoint } = lazy.metafile.outputs[relative(here, file.path)];
  const text = file.text.replace(/import\s*\{([^}]*)\}\s*from\s*"page:([^"]+)";?/g, (_, names, module) => {
    const parts = names.split(",").map((each) => each.trim().split(/\s+as\s+/));
    return `const ${parts.map(([name, as = name]) => `${as}=page[${place(`${module} ${name}`)}]`)};`;
  });
  if (text.includes('"page:'))
    throw new Error(`${entryPoint}: this build does not know its imports of the page`);
  const hash = createHash("sha256").update(text).digest("hex").slice(0, 8).toUpperCase();
  const name = `${basename(file.path, ".js")}-${hash}.js`;
  addresses.set(entryPoint.replace(/\.tsx?$/, ""), `./${name}`);
  Object.assign(file, { path: join(here, "out", name), contents: Buffer.from(text) });
}
const imports = keys.map((key, at) => {
  const [module, name] = key.split(" ");
  return `import { ${name} as x${at} } from ${JSON.stringify(module)};`;
});
const page = await pageOf(
  `${imports.join("\n")} globalThis.page = [${keys.map((_, at) => `x${at}`)}]; import "./src/main";`,
);
// Notebooks load the widget from a text
const widget = await build({ ...settings, entryPoints: ["src/widget.ts"] });
const inputs = Object.assign({}, ...[lazy, page, widget].map(({ metafile }) => metafile.inputs));

const files = new Map(
  [...lazy.outputFiles, ...widget.outputFiles].map(({ path, contents }) => [
    relative(join(here, "out"), path),
    Buffer.from(contents),
  ]),
);
const uplot = await readFile(join(here, "node_modules/uplot/dist/uPlot.min.css"));
const css = Buffer.concat([await readFile(join(here, "src/style.css")), uplot]);
const style = (await transform(css, { loader: "css", minify: true, target: "es2022" })).code.trim();
const script = page.outputFiles[0].text.trim();
if (/<\/(script|style)|<!--/i.test(script + style)) throw new Error("this text would end its element");
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
// One request for all that each view needs. The policy allows only this script and this style
const html = (await readFile(join(here, "src/index.html"), "utf8"))
  .replace("script-src 'self'", () => `script-src 'self' ${hash(script)}`)
  .replace("style-src 'self'", () => `style-src 'self' ${hash(style)}`)
  .replace("<style></style>", () => `<style>${style}</style>`)
  .replace('<script type="module"></script>', () => `<script type="module">${script}</script>`);
files.set("index.html", Buffer.from(html));

// The licences of the packages in the bundle ask for a copy of their text
const packages = new Set(
  Object.keys(inputs).flatMap((input) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1] ?? []),
);
const notices = await Promise.all(
  [...packages].sort().map(async (name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each));
    if (!file) throw new Error(`${name} has no file with its licence`);
    if (!license) throw new Error(`${name} does not name its licence`);
    return `${name} ${version} (${license})\n\n${(await readFile(join(folder, file), "utf8")).trim()}\n`;
  }),
);
files.set("licenses.txt", Buffer.from(notices.join("\n----\n\n")));

await mkdir(target, { recursive: true });
// What an older build left
for (const name of await readdir(target)) if (/\.(js|css|html|txt)$/.test(name)) await rm(join(target, name));
for (const [name, bytes] of files) await writeFile(join(target, name), bytes);

const code = [...files.keys()].filter((name) => name !== "licenses.txt");
const zipped = (name) => gzipSync(files.get(name), { level: 9 }).length;
const sum = (names, size) => [...names].reduce((total, name) => total + size(name), 0);
const sizes = {
  "first load": zipped("index.html"),
  everything: sum(code, zipped),
  raw: sum(code, (name) => files.get(name).length),
};
for (const name of files.keys()) console.log(`${String(zipped(name)).padStart(8)} bytes gzip  ${name}`);
for (const [what, size] of Object.entries(sizes)) {
  console.log(
    `${String(size).padStart(8)} bytes${what === "raw" ? "" : " gzip"}  ${what} (at most ${LIMITS[what]})`,
  );
  if (size > LIMITS[what]) process.exitCode = 1;
}
