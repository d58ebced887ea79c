/** The page on a web server or in a notebook: finds its home, opens the repository, shows it. */

import { effect } from "@preact/signals";
import { start } from "./app";
import { decodeCF, openRepository, readRegion, useWorkers } from "./format/index";
import { findHome, ServerSource, WebSource } from "./home";
import { kernel } from "./kernel";
import { writeRoute } from "./route";
import { route } from "./state";

if (kernel?.address) location.replace(kernel.address);
if (kernel) useWorkers(() => new Worker(kernel!.worker, { type: "module" }));

start(document.getElementById("app")!, async () => {
  const { source, settings } = await findHome();
  const repository = await openRepository(source);
  return {
    ...settings,
    repository,
    label: source.label,
    ...(source instanceof WebSource ? { isOutdated: source.isOutdated.bind(source) } : {}),
    ...(source instanceof ServerSource ? { ask: source.ask.bind(source) } : {}),
    ...(source instanceof ServerSource && settings.writable ? { change: source.change.bind(source) } : {}),
    read: (snapshot, path, start, stop, step, signal) => readRegion(repository, source, snapshot, path, start, stop, step, signal),
    decode: decodeCF,
  };
});

effect(() => {
  const address = writeRoute(route.value);
  if (kernel && location.hash) kernel.address = address;
});
