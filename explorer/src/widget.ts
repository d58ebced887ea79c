/** The widget of notebooks, a module of anywidget: the page in a frame, and messages to the kernel with the bytes. */

import type { Answer, Ask, Kernel } from "./page/home";

/** What anywidget gives to a module. */
export interface Model {
  get(name: string): unknown;
  on(
    event: string,
    listener: (content: { id?: string; error?: Answer["error"] }, buffers?: DataView[]) => void,
  ): void;
  off(event: string, listener: unknown): void;
  send(content: object): void;
}

/** A function that asks the kernel, and one that stops to listen. */
export function listen(model: Model): { ask: Ask; stop(): void } {
  const waiting = new Map<string, (answer: Answer) => void>();
  const view = Math.random().toString(36).slice(2); // all views of a widget get all its messages
  let last = 0;
  const receive: Parameters<Model["on"]>[1] = ({ id = "", error }, buffers) => {
    waiting.get(id)?.({ ...(error ? { error } : {}), ...(buffers?.[0] ? { data: buffers[0] } : {}) });
    waiting.delete(id);
  };
  model.on("msg:custom", receive);
  return {
    ask: (message) =>
      new Promise((resolve) => {
        const id = `${view}-${last++}`;
        waiting.set(id, resolve);
        model.send({ id, ...message });
      }),
    stop: () => model.off("msg:custom", receive),
  };
}

const SCRIPTS = "script-src blob: 'wasm-unsafe-eval'; worker-src blob:";
const POLICY = `default-src 'none'; ${SCRIPTS}; style-src blob:; img-src blob: data:; base-uri 'none'`;

/** The page as blobs. They name each other by address, because a script in a blob has no folder. */
function blobs(ask: Ask) {
  const addresses: string[] = [];
  const blob = (content: BlobPart, type: string): string => {
    const address = URL.createObjectURL(new Blob([content], { type }));
    addresses.push(address);
    return address;
  };
  const asset = async (name: string): Promise<DataView<ArrayBuffer>> => {
    const { data, error } = await ask({ asset: name });
    if (!data) throw new Error(error?.message ?? `The kernel has no ${name}.`);
    return data as DataView<ArrayBuffer>;
  };
  const text = async (name: string): Promise<string> => new TextDecoder().decode(await asset(name));
  /** The address of a script, and of the scripts that it may load. */
  const script = async (code: string): Promise<string> => {
    const parts = await Promise.all(
      code
        .split(/"\.\/([\w-]+\.js)"/)
        .map(async (part, at) => (at % 2 ? `"${blob(await asset(part), "text/javascript")}"` : part)),
    );
    return blob(parts.join(""), "text/javascript");
  };
  const page = async (theme: string): Promise<{ script: string; address: string }> => {
    const [, style = "", code = ""] =
      /<style>(.*?)<\/style>.*<script type="module">(.*?)<\/script>/s.exec(await text("index.html")) ?? [];
    const own = await script(code);
    const head = [
      '<meta charset="utf-8"><title>Frazil explorer</title>',
      `<meta http-equiv="Content-Security-Policy" content="${POLICY}">`,
      `<link rel="stylesheet" href="${blob(style, "text/css")}">`,
      `<script type="module" src="${own}"></script>`,
    ].join("");
    return {
      script: own,
      address: blob(
        `<!doctype html><html lang="en" data-theme="${theme}"><head>${head}</head>` +
          '<body><div id="app"></div></body></html>',
        "text/html",
      ),
    };
  };
  return { page, free: () => addresses.forEach(URL.revokeObjectURL) };
}

/** Whether the notebook has light text: the colours of notebooks do not follow the system. */
function isDark(element: Element): boolean {
  const [red = 0, green = 0, blue = 0] =
    getComputedStyle(element)
      .color.match(/[\d.]+/g)
      ?.map(Number) ?? [];
  return red + green + blue > 384;
}

async function render({ model, el }: { model: Model; el: HTMLElement }): Promise<() => void> {
  const { ask, stop } = listen(model);
  const { page, free } = blobs(ask);
  const frame = document.createElement("iframe");
  const resize = (): void => void (frame.style.height = `${Number(model.get("height"))}px`);
  frame.title = "Frazil explorer";
  frame.style.cssText = "width: 100%; border: 0; display: block";
  resize();
  model.on("change:height", resize);
  el.textContent = "Waiting for the kernel. If it was restarted, run this cell again.";
  try {
    const { script, address } = await page(isDark(el) ? "dark" : "light");
    const kernel: Kernel = {
      ask,
      script,
      settings: model.get("settings") as Kernel["settings"],
      address: "",
    };
    Object.assign(frame, { kernel });
    frame.src = address;
    el.replaceChildren(frame);
  } catch (error) {
    el.textContent = String(error);
  }
  return () => {
    stop();
    model.off("change:height", resize);
    free();
  };
}

export default { render };
