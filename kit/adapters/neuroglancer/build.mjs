/** Builds a page of neuroglancer, without icons: `npm install --ignore-scripts`, `node build.mjs FOLDER`. */

import { build } from "esbuild";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = process.argv[2];
const here = fileURLToPath(new URL(".", import.meta.url));
const empty = {
  name: "icons",
  setup(builder) {
    builder.onResolve({ filter: /^ikonate/ }, ({ path }) => ({ path, namespace: "icons" }));
    // they come from a host that npm does not serve
    builder.onLoad({ filter: /.*/, namespace: "icons" }, () => ({ contents: "export default ''" }));
  },
};
const contents = `
import "neuroglancer";
import "neuroglancer/unstable/kvstore/enabled_frontend_modules.js";
import { setupDefaultViewer } from "neuroglancer/unstable/ui/default_viewer_setup.js";
window.viewer = setupDefaultViewer();`;
const loader = { ".wasm": "file", ".svg": "text", ".html": "text", ".dat": "file" };
const form = { bundle: true, format: "esm", target: "es2022", loader, logLevel: "error" };
const settings = { ...form, absWorkingDir: here, plugins: [empty] };
await build({ ...settings, stdin: { contents, resolveDir: here }, outfile: join(folder, "main.js") });
const bundle = (name) => [`${name}.bundle`, `node_modules/neuroglancer/lib/${name}.bundle.js`];
const workers = Object.fromEntries(["chunk_worker", "async_computation"].map(bundle));
await build({ ...settings, entryPoints: workers, outdir: folder });
const html = '<!doctype html><body><script type="module" src="main.js"></script>';
await writeFile(join(folder, "index.html"), html);
