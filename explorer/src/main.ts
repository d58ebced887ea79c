/** The page: finds its home, opens the repository, shows it. The worker runs the same script. */

import { effect } from "@preact/signals";
import { start } from "./app";
import { withUnits } from "./array/nodes";
import { decodeCF } from "./cf/cf";
import { useWorkers } from "./codecs/pool";
import { readRegion } from "./format/arrays";
import { openRepository } from "./format/repository";
import type { Source } from "./format/types";
import {
  type Folder,
  findHome,
  kernel,
  type Reader,
  ServerSource,
  type Settings,
  WebSource,
} from "./page/home";
import { writeRoute } from "./page/route";
import { route } from "./page/state";
import { work } from "./worker";

/** A worker from the text of this script: it needs no request. */
function startWorker(): Worker {
  const { text = "" } = document.querySelector<HTMLScriptElement>("script[type=module]") ?? {};
  const address = kernel?.script ?? URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  return new Worker(address, { type: "module" });
}

async function readerOf(source: Source & { label: string }, settings: Settings): Promise<Reader> {
  const repository = await openRepository(source);
  return {
    location: source.label,
    ...settings,
    repository,
    label: source.label,
    ...(source instanceof WebSource ? { isOutdated: source.isOutdated.bind(source) } : {}),
    ...(source instanceof ServerSource ? { ask: source.ask.bind(source) } : {}),
    ...(source instanceof ServerSource && settings.writable ? { change: source.change.bind(source) } : {}),
    read: (snapshot, path, part, signal) => readRegion(repository, source, snapshot, path, part, signal),
    decode: (snapshot, node, region) => decodeCF(withUnits(snapshot, node), region),
  };
}

async function open(): Promise<Reader | Folder> {
  const { source, settings } = await findHome();
  const { repositories } = settings;
  if (!repositories || !(source instanceof ServerSource)) return readerOf(source, settings);
  return {
    label: source.label,
    repositories,
    address: (name) => source.member(name).page,
    open: (name) => readerOf(source.member(name), {}),
  };
}

function show(): void {
  if (kernel?.address) location.replace(kernel.address);
  useWorkers(startWorker);
  start(document.getElementById("app") ?? document.body, open);

  effect(() => {
    const address = writeRoute(route.value);
    if (kernel && location.hash) kernel.address = address;
  });
}

if (typeof document === "undefined") work();
else show();
