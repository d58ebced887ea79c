/** The page on a web server: finds its home, opens the repository, shows it. */

import { start } from "./app";
import { decodeCF, openRepository, readRegion } from "./format/index";
import { findHome, ServerSource } from "./home";

start(document.getElementById("app")!, async () => {
  const { source, settings } = await findHome();
  const repository = await openRepository(source);
  return {
    ...settings,
    repository,
    label: source.label,
    ...(source instanceof ServerSource ? { ask: source.ask.bind(source) } : {}),
    ...(source instanceof ServerSource && settings.writable ? { change: source.change.bind(source) } : {}),
    read: (snapshot, path, start, stop, step, signal) => readRegion(repository, source, snapshot, path, start, stop, step, signal),
    decode: decodeCF,
  };
});
