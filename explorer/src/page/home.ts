/** The homes of the page: a server of `frazil ui`, static files next to the data, or the kernel of a notebook. */

import { ExplorerError, forbidden, networkFailure, notFound, wrongFormat } from "../base/errors";
import { record } from "../base/lists";
import type { Decoded } from "../cf/cf";
import { patientFetch } from "../format/remote";
import type { ArrayNode, Lost, Region, Repository, Selection, Snapshot, Source } from "../format/types";

type Query = Record<string, string>;

/** All that the views need of a repository. */
export interface Reader extends Pick<Settings, "version" | "path" | "folder"> {
  readonly repository: Repository;
  readonly label: string;
  /** What Python and the command line call the repository. */
  readonly location: string;
  /** Whether somebody has changed the repository since the page read it; undefined in a notebook. */
  isOutdated?(): Promise<boolean>;
  /** A slow answer of the server, as JSON; undefined for static files and in a notebook. */
  ask?(name: string, query: Query, signal?: AbortSignal): Promise<unknown>;
  /** Asks for the plan of a change, or applies it; undefined where the page may not change the repository. */
  change?(step: "plan" | "apply", change: Query): Promise<unknown>;
  read(snapshot: Snapshot, path: string, part: Selection, signal?: AbortSignal): Promise<Region>;
  /** The values of a region. The snapshot says what the attributes of other arrays say about this one. */
  decode(snapshot: Snapshot, node: ArrayNode, region: Region): Decoded;
}

/** Several repositories, which a server shows side by side. */
export interface Folder {
  readonly label: string;
  readonly repositories: readonly string[];
  /** The address of the page of a repository, which also opens in another tab. */
  address(name: string): string;
  open(name: string): Promise<Reader>;
}

/** An array of a version, and as views get it. */
export type Target = { readonly snapshot: Snapshot; readonly node: ArrayNode };
export type ArrayProps = Target & { readonly reader: Reader };
/** A snapshot by the name that the address has for it. */
export type SnapshotProps = Pick<ArrayProps, "reader" | "snapshot"> & { readonly version: string };

/** The values of a part of an array, of the whole without `part`, and what of it is lost. */
export async function valuesOf(
  { reader, snapshot, node }: ArrayProps,
  part: Selection = { start: node.shape.map(() => 0), stop: node.shape },
  signal?: AbortSignal,
): Promise<Decoded & { lost: readonly Lost[] }> {
  const region = await reader.read(snapshot, node.path, part, signal);
  return { ...reader.decode(snapshot, node, region), lost: region.lost ?? [] };
}

/** `explorer.json` of a static export, or what a server says about itself. */
export interface Settings {
  readonly repo?: string;
  /** Branches and tags of spec version 1, relative to the page: web servers do not list folders. */
  readonly index?: string;
  readonly label?: string;
  readonly location?: string;
  /** Version and path to show first. */
  readonly version?: string;
  readonly path?: string;
  /** The address of the list of repositories that this one is from. */
  readonly folder?: string;
  readonly writable?: boolean; // a server makes changes
  readonly repositories?: readonly string[]; // of a folder, instead of a repository
}

export interface Answer {
  readonly data?: DataView; // missing if there is no such file
  readonly error?: { readonly kind: string; readonly message: string };
}
export type Ask = (message: Record<string, string | number>) => Promise<Answer>;

/** What the frame of the page has as the property `kernel`. */
export interface Kernel {
  readonly ask: Ask;
  readonly script: string; // its address
  readonly settings: Settings & { readonly label: string };
  /** The view that the page shows: notebooks load a frame anew when they move it. */
  address: string;
}

/** The kernel, if this page is in the frame of a widget. */
export const kernel = (globalThis.frameElement as { kernel?: Kernel } | null | undefined)?.kernel;
export const FORBIDDEN = "unauthorized-virtual-chunk-container";

export class KernelSource implements Source {
  constructor(
    private readonly ask: Ask,
    readonly label: string,
  ) {}

  async get(key: string, start?: number, end?: number): Promise<Uint8Array | undefined> {
    if (start === undefined || end === undefined) return this.bytes({ file: key });
    return end <= start ? new Uint8Array() : this.bytes({ file: key, start, end });
  }

  external(url: string, start: number, end: number): Promise<Uint8Array | undefined> {
    return this.bytes({ virtual: url, start, end });
  }

  private async bytes(message: Record<string, string | number>): Promise<Uint8Array | undefined> {
    const { data, error } = await this.ask(message);
    if (error) throw (error.kind === FORBIDDEN ? forbidden : networkFailure)(error.message);
    return data && new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }
}

const TOKEN = "frazil-token";
const WHOLE_FILES = 64e6; // bytes of files that a server without ranges sent whole

/** An item that the browser stores; null if the page is in a frame that may not store any. */
export function stored(storage: "localStorage" | "sessionStorage", name: string, value?: string) {
  try {
    if (value !== undefined) globalThis[storage].setItem(name, value);
    return globalThis[storage].getItem(name);
  } catch {
    return value ?? null;
  }
}

/** The token of the server: from the address at first load, later from the session of this tab. */
function token(): string | null {
  const [, secret, rest] = /^#token=([^&/?]+)(.*)$/s.exec(location.hash) ?? [];
  if (secret) history.replaceState(null, "", `#${(rest ?? "").replace(/^&/, "")}`);
  return stored("sessionStorage", TOKEN, secret);
}

export class WebSource implements Source {
  private readonly whole = new Map<string, Uint8Array>();
  private state: string | null = null; // of the file `repo`, when it was read
  private early: Promise<Response> | undefined;

  constructor(
    private readonly base: string,
    public label: string,
    protected readonly secret: string | null = null,
    /** Keys that lie elsewhere. */
    private readonly elsewhere: Readonly<Record<string, string>> = {},
  ) {}

  get headers(): Record<string, string> {
    return this.secret ? { Authorization: `Bearer ${this.secret}` } : {};
  }

  protected url(key: string): string {
    return this.elsewhere[key] ?? this.base + key.split("/").map(encodeURIComponent).join("/");
  }

  /** Asks for the file `repo`, which each view needs, before the rest of the home is known. */
  prepare(): this {
    this.early = patientFetch(this.url("repo"), this.headers);
    this.early.catch(() => undefined); // whoever reads it gets the error
    return this;
  }

  /** Asks for the state of the file `repo`, which each update replaces, without its bytes. */
  async isOutdated(): Promise<boolean> {
    if (this.state === null) return false; // specification version 1, or a server that does not tell
    const settings = { method: "HEAD", headers: this.headers, cache: "no-store" } as const;
    const response = await fetch(this.url("repo"), settings).catch(() => undefined);
    return response?.ok === true && stateOf(response) !== this.state;
  }

  async get(key: string, start?: number, end?: number): Promise<Uint8Array | undefined> {
    const part = start !== undefined && end !== undefined;
    if (part && end <= start) return new Uint8Array();
    const whole = part ? this.whole.get(key) : undefined;
    if (whole) return whole.subarray(start, end);
    const url = this.url(key);
    const early = key === "repo" ? this.early : undefined;
    this.early = undefined;
    const response = await (early ??
      patientFetch(url, part ? { ...this.headers, Range: `bytes=${start}-${end - 1}` } : this.headers));
    if (response.status === 404) return undefined;
    if (response.status === 416) throw wrongFormat(`${key} is shorter than the references to it say.`);
    if (!response.ok)
      throw await failure(response, `${this.label} answered status ${response.status} for ${key}`);
    const body = await response.arrayBuffer().then(
      (buffer) => new Uint8Array(buffer),
      (cause) => {
        throw networkFailure(`The answer for ${key} broke off: ${cause}`);
      },
    );
    if (key === "repo") this.state = stateOf(response);
    if (!part || response.status === 206) return body;
    // This server knows no ranges. The whole file is kept, so that it comes once
    this.whole.set(key, body);
    const size = [...this.whole.values()].reduce((sum, each) => sum + each.length, 0);
    if (size > WHOLE_FILES) this.whole.clear();
    return body.subarray(start, end);
  }
}

const stateOf = (response: Response): string | null =>
  response.headers.get("ETag") ?? response.headers.get("Last-Modified");

/** A source on a server of `frazil ui`, which also reads virtual chunks and computes slow answers. */
export class ServerSource extends WebSource {
  constructor(
    private readonly server: string,
    label: string,
    secret: string | null,
  ) {
    super(`${server}repo/`, label, secret);
  }

  /** Statistics that do not exist are an empty file: a status 404 would be an error in the console. */
  protected override url(key: string): string {
    return `${super.url(key)}${key.startsWith("statistics/") ? "?optional=" : ""}`;
  }

  /** A repository of a folder. */
  member(name: string): ServerSource {
    return new ServerSource(`${this.server}r/${encodeURIComponent(name)}/`, name, this.secret);
  }

  /** The address of the page, which the token opens in another tab, too. */
  get page(): string {
    return this.server + (this.secret ? `#token=${this.secret}` : "");
  }

  async external(url: string, start: number, end: number): Promise<Uint8Array | undefined> {
    const response = await this.request("virtual", { url, start: String(start), end: String(end) });
    return response.status === 404 ? undefined : new Uint8Array(await response.arrayBuffer());
  }

  async ask(name: string, query: Query, signal?: AbortSignal): Promise<unknown> {
    return (await this.request(`api/${name}`, query, signal)).json();
  }

  /** The answer may be an error, with its kind. The request is never repeated: a lost one may have taken effect. */
  async change(step: "plan" | "apply", change: Query): Promise<unknown> {
    const headers = { "Content-Type": "application/json", ...this.headers };
    const request = { method: "POST", headers, body: JSON.stringify(change) };
    return (await fetch(`${this.server}api/${step}`, request)).json();
  }

  private async request(path: string, query: Query, signal?: AbortSignal): Promise<Response> {
    const url = `${this.server}${path}?${new URLSearchParams(query)}`;
    const response = await patientFetch(url, this.headers, signal);
    if (!response.ok && response.status !== 404)
      throw await failure(response, `The server answered status ${response.status}`);
    return response;
  }
}

const KINDS: Record<number, ExplorerError["kind"]> = { 401: "forbidden", 403: "forbidden", 404: "not-found" };

/** The error of an answer, with what the server says about it. */
async function failure(response: Response, what: string): Promise<ExplorerError> {
  const said: unknown = await response.json().catch(() => undefined); // whoever answered may not be `frazil ui`
  const { message } = record(record(said).error);
  return new ExplorerError(KINDS[response.status] ?? "network", message ? `${what}: ${message}` : `${what}.`);
}

async function answer<T>(url: string, headers: Record<string, string> = {}): Promise<T | undefined> {
  const response = await patientFetch(url, headers);
  if (response.status === 401 || response.status === 403) {
    throw forbidden(
      "This page was opened without the token of the server. Open the address that `frazil ui` printed.",
    );
  }
  // Some web servers answer every address with a page
  return response.ok ? (response.json() as Promise<T>).catch(() => undefined) : undefined;
}

export async function findHome(): Promise<{ source: Source; settings: Settings }> {
  if (kernel)
    return { source: new KernelSource(kernel.ask, kernel.settings.label), settings: kernel.settings };
  const secret = token();
  const settings = secret ? undefined : await answer<Settings>("explorer.json");
  if (settings?.repo !== undefined) {
    const base = new URL(settings.repo.replace(/\/?$/, "/"), location.href).href;
    const elsewhere = settings.index && { "index.json": new URL(settings.index, location.href).href };
    const source = new WebSource(base, settings.label ?? base, null, elsewhere || {});
    return { source, settings: { location: base.replace(/\/$/, ""), ...settings } };
  }
  const source = new ServerSource(new URL("./", location.href).href, location.host, secret);
  if (secret && !location.search.includes("folder")) source.prepare(); // a folder has no file `repo`
  const info = await answer<Settings>("api/info", source.headers);
  if (!info)
    throw notFound(
      "There is no repository here: neither `explorer.json` next to this page nor a server of `frazil ui`.",
    );
  source.label = info.label ?? source.label;
  return { source, settings: info };
}
