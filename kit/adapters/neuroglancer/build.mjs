/** Builds a page with neuroglancer: `npm install --ignore-scripts && node build.mjs FOLDER`. Its icons come from a host that npm does not serve. */

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
    builder.onLoad({ filter: /.*/, namespace: "icons" }, () => ({ contents: "export default ''", loader: "js" }));
  },
};
const contents = `
import "neuroglancer";
import "neuroglancer/unstable/kvstore/enabled_frontend_modules.js";
import { setupDefaultViewer } from "neuroglancer/unstable/ui/default_viewer_setup.js";
window.viewer = setupDefaultViewer();`;
const settings = { absWorkingDir: here, bundle: true, format: "esm", target: "es2022", plugins: [empty], logLevel: "error", loader: { ".wasm": "file", ".svg": "text", ".html": "text", ".dat": "file" } };
await build({ ...settings, stdin: { contents, resolveDir: here }, outfile: join(folder, "main.js") });
const workers = Object.fromEntries(["chunk_worker", "async_computation"].map((name) => [`${name}.bundle`, `node_modules/neuroglancer/lib/${name}.bundle.js`]));
await build({ ...settings, entryPoints: workers, outdir: folder });
await writeFile(join(folder, "index.html"), '<!doctype html><body><script type="module" src="main.js"></script>');
