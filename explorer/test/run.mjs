/**
 * Bundles the tests and runs them with Node's own runner: `node test/run.mjs [PART OF A NAME]`.
 * Frazil writes the repositories that the reader is compared with; PYTHON is the interpreter that has it.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, rmSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, ".build");
const part = process.argv[2] ?? "";
const data = join(out, "data");
const script = join(here, "format/expected.py");

if (!existsSync(join(data, "done")) || statSync(join(data, "done")).mtimeMs < statSync(script).mtimeMs) {
  const venv = join(here, "../../.venv/bin/python");
  const python = process.env.PYTHON ?? (existsSync(venv) ? venv : "python3");
  const { status } = spawnSync(python, [script, data], { stdio: "inherit" });
  if (status !== 0) process.exit(1);
}

const tests = readdirSync(here, { recursive: true })
  .filter((name) => name.endsWith(".test.ts") && name.includes(part) && !name.startsWith(".build"))
  .map((name) => join(here, name));
rmSync(join(out, "js"), { recursive: true, force: true });
await build({
  entryPoints: tests,
  outbase: here,
  outdir: join(out, "js"),
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node20",
  jsx: "automatic",
  jsxImportSource: "preact",
  outExtension: { ".js": ".mjs" },
  logLevel: "warning",
});
const files = tests.map((name) => join(out, "js", relative(here, name).replace(/\.ts$/, ".mjs")));
// The limit ends a test that hangs. It does not measure speed
const { status } = spawnSync(process.execPath, ["--test", "--test-timeout=1800000", ...files], {
  stdio: "inherit",
  env: { ...process.env, FRAZIL_DATA: data },
});
process.exit(status ?? 1);
