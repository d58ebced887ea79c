/** Bytes of references: inline, in a file of the repository, or in a file elsewhere. */

import { forbidden, networkFailure, notFound, reasonOf, unsupported, wrongFormat } from "../base/errors";
import { type Properties, record } from "../base/lists";
import { ChunkKind, type ChunkRef, type Source } from "./types";

/** Clocks of stores and writers differ by less than this. */
const TOLERANCE = 3600_000;
const TRIES = 3;

function containers(configuration: Properties) {
  return Object.entries(record(configuration.virtual_chunk_containers)).map(([key, value]) => {
    const { name, url_prefix: prefix, store } = record(value);
    return {
      name: typeof name === "string" ? name : undefined,
      prefix: typeof prefix === "string" ? prefix : key,
      store: record(Object.values(record(store))[0]), // options of the one store
    };
  });
}

/** The place of a virtual chunk: `vcc://NAME/` stands for the prefix of a container, if the repository has saved it. */
export function absoluteLocation(location: string, configuration: Properties): string {
  const match = /^vcc:\/\/([^/]*)\/(.*)$/s.exec(location);
  if (!match) return location;
  const entry = containers(configuration).find(({ name }) => name === match[1]);
  return entry ? entry.prefix.replace(/\/?$/, "/") + match[2] : location;
}

/** The address under which a browser may read a location. */
export function httpUrl(location: string, configuration: Properties): string {
  const url = absoluteLocation(location, configuration);
  if (/^https?:\/\//.test(url)) return url;
  const [, container] = /^vcc:\/\/([^/]*)\//.exec(url) ?? [];
  if (container !== undefined)
    throw unsupported(
      `${url}: the repository has no saved container "${container}", so the place of this chunk is unknown`,
    );
  const match = /^(s3|gs|gcs):\/\/([^/]+)\/(.*)$/s.exec(url);
  if (!match)
    throw unsupported(
      `${url} is not readable from a browser. Open the repository with "frazil ui" where the file can be read`,
    );
  const [, scheme, bucket = "", key = ""] = match;
  const path = key.split("/").map(encodeURIComponent).join("/");
  if (scheme !== "s3") return `https://storage.googleapis.com/${bucket}/${path}`;
  const best = containers(configuration)
    .filter(({ prefix }) => url.startsWith(prefix))
    .sort((a, b) => b.prefix.length - a.prefix.length)[0];
  const { region, endpoint_url: endpoint } = best?.store ?? {};
  if (typeof endpoint === "string") return `${endpoint.replace(/\/$/, "")}/${bucket}/${path}`;
  const host =
    typeof region === "string" && region !== "us-east-1" ? `s3.${region}.amazonaws.com` : "s3.amazonaws.com";
  // the certificate of a bucket with a dot in its name covers only the other form
  return bucket.includes(".") ? `https://${host}/${bucket}/${path}` : `https://${bucket}.${host}/${path}`;
}

/** What the owner of another server can do for a page that may not read it. */
function corsAdvice(url: string): string {
  const origin = globalThis.location?.origin ?? "*";
  const [methods, exposed] = ['["GET","HEAD"]', '["Content-Range","ETag","Last-Modified"]'];
  const allowed = `"AllowedOrigins":["${origin}"],"AllowedMethods":${methods},"AllowedHeaders":["Range"]`;
  const rule = `[{${allowed},"ExposeHeaders":${exposed}}]`;
  const reason = "the server is not reachable, or it does not allow this page to read";
  const advice = `Its owner can add the CORS rule ${rule}. Or open the repository with "frazil ui"`;
  return `${url} is not readable from a browser: ${reason}. ${advice}`;
}

function checkUnchanged(url: string, headers: Headers, checksum: string | undefined): void {
  if (checksum === undefined) return;
  const isTime = checksum.endsWith("GMT");
  const current = headers.get(isTime ? "Last-Modified" : "ETag"); // null if the server does not expose it
  if (current === null) return;
  const plain = (tag: string): string => tag.replace(/^W\/|"/g, "");
  const isSame = isTime
    ? !(Date.parse(current) > Date.parse(checksum) + TOLERANCE)
    : plain(current) === plain(checksum);
  if (!isSame)
    throw wrongFormat(
      `${url} changed after the reference to it was written: it has ${current}, expected ${checksum}`,
    );
}

/** Asks again if a server or the network fails for a moment. */
export async function patientFetch(url: string, headers: Record<string, string>, signal?: AbortSignal) {
  for (let attempt = 1; ; attempt++) {
    try {
      const response = await fetch(url, { headers, ...(signal ? { signal } : {}) });
      if (attempt === TRIES || !(response.status === 429 || response.status >= 500)) return response;
    } catch (cause) {
      if (signal?.aborted) throw cause;
      const { origin, host } = new URL(url, globalThis.location?.href);
      if (attempt === TRIES && origin !== globalThis.location?.origin) throw forbidden(corsAdvice(origin));
      if (attempt === TRIES) throw networkFailure(`No answer from ${host}: ${reasonOf(cause)}.`);
    }
    await new Promise((resume) => setTimeout(resume, 200 * 2 ** attempt));
  }
}

function exactly(data: Uint8Array, size: number, what: string): Uint8Array {
  if (data.length !== size)
    throw wrongFormat(`${what} ends within a chunk: ${data.length} of ${size} bytes are there`);
  return data;
}

/** Reads a part of the bytes of a reference, from `start` to `end` (exclusive). */
export async function readBytes(
  source: Source,
  configuration: Properties,
  ref: ChunkRef,
  start = 0,
  end = ref.size,
  signal?: AbortSignal,
): Promise<Uint8Array> {
  if (ref.data) return ref.data.subarray(start, end);
  if (ref.location === undefined) throw wrongFormat("a reference without a location");
  if (end <= start) return new Uint8Array(0);
  const [first, last] = [ref.offset + start, ref.offset + end];
  if (ref.kind === ChunkKind.Native) {
    const key = `chunks/${ref.location}`;
    const data = await source.get(key, first, last);
    if (!data) throw notFound(`${key} is missing: this chunk is lost`);
    return exactly(data, end - start, key);
  }
  // The source may know other containers
  const known = await source.external?.(absoluteLocation(ref.location, configuration), first, last);
  if (known) return exactly(known, end - start, ref.location);
  const url = httpUrl(ref.location, configuration);
  const response = await patientFetch(url, { Range: `bytes=${first}-${last - 1}` }, signal);
  const { status } = response;
  if (status === 404) throw notFound(`${url} does not exist: the chunk that refers to it is lost`);
  if (status === 401 || status === 403) throw forbidden(`${url} is not public (status ${status})`);
  if (!response.ok) throw networkFailure(`${url}: status ${status}`);
  checkUnchanged(url, response.headers, ref.checksum);
  const data = new Uint8Array(await response.arrayBuffer());
  return exactly(status === 206 ? data : data.subarray(first, last), end - start, ref.location);
}
