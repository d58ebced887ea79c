import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { DATA, FolderSource } from "./folder";
import {
  absoluteLocation,
  ChunkKind,
  type ChunkRef,
  httpUrl,
  openRepository,
  readBytes,
  type Source,
} from "./reader";

const CONFIGURATION = {
  virtual_chunk_containers: {
    "s3://cold/": { name: "era", url_prefix: "s3://cold/", store: { s3: { region: "eu-west-1" } } },
    "s3://near/": {
      name: null,
      url_prefix: "s3://near/",
      store: { s3_compatible: { region: null, endpoint_url: "https://store.example/" } },
    },
  },
};

test("addresses of virtual chunks", () => {
  assert.equal(absoluteLocation("vcc://era/a/b.nc", CONFIGURATION), "s3://cold/a/b.nc");
  assert.equal(absoluteLocation("vcc://other/a", CONFIGURATION), "vcc://other/a");
  const cases = [
    ["https://host/a b", "https://host/a b"],
    ["vcc://era/2020/a.nc", "https://cold.s3.eu-west-1.amazonaws.com/2020/a.nc"],
    ["s3://cold/some dir/data%20x", "https://cold.s3.eu-west-1.amazonaws.com/some%20dir/data%2520x"],
    ["s3://near/a?b", "https://store.example/near/a%3Fb"],
    ["s3://open.data/k", "https://s3.amazonaws.com/open.data/k"],
    ["gs://bucket/k", "https://storage.googleapis.com/bucket/k"],
  ];
  for (const [location = "", url] of cases) assert.equal(httpUrl(location, CONFIGURATION), url);
  for (const location of ["file:///etc/passwd", "javascript:alert(1)", "az://a/b", "vcc://other/a"])
    assert.throws(() => httpUrl(location, CONFIGURATION), { kind: "unsupported" });
});

const source: Source = {
  label: "memory",
  get: async (key, start, end) =>
    key === "chunks/AB" ? Uint8Array.of(1, 2, 3, 4).subarray(start, end) : undefined,
};
const virtual: ChunkRef = {
  kind: ChunkKind.Virtual,
  location: "https://host/data",
  offset: 10,
  size: 4,
  checksum: '"tag"',
};

async function withFetch<T>(
  answer: (url: string, range: string) => Response,
  run: () => Promise<T>,
): Promise<T> {
  const { fetch } = globalThis;
  globalThis.fetch = async (url, options) =>
    answer(String(url), new Headers(options?.headers).get("Range") ?? "");
  try {
    return await run();
  } finally {
    globalThis.fetch = fetch;
  }
}

test("bytes of references", async () => {
  const native = { kind: ChunkKind.Native, location: "AB", offset: 1, size: 3 };
  assert.deepEqual([...(await readBytes(source, {}, native))], [2, 3, 4]);
  assert.deepEqual([...(await readBytes(source, {}, native, 1, 2))], [3]);
  assert.deepEqual(
    [
      ...(await readBytes(
        source,
        {},
        { kind: ChunkKind.Inline, offset: 0, size: 2, data: Uint8Array.of(7, 8) },
        1,
      )),
    ],
    [8],
  );
  await assert.rejects(readBytes(source, {}, { ...native, size: 9 }), { kind: "format" });
  await assert.rejects(readBytes(source, {}, { ...native, location: "XY" }), { kind: "not-found" });

  const body =
    (status: number, headers = {}) =>
    () =>
      new Response(new Uint8Array(status === 206 ? 4 : 14), { status, headers });
  const read = (answer: (url: string, range: string) => Response) =>
    withFetch(answer, () => readBytes(source, {}, virtual));
  assert.equal((await read(body(206, { ETag: 'W/"tag"' }))).length, 4);
  assert.equal((await read(body(200))).length, 4);
  await read((url, range) => {
    assert.deepEqual([url, range], ["https://host/data", "bytes=10-13"]);
    return body(206)();
  });
  await assert.rejects(read(body(206, { ETag: '"other"' })), { kind: "format", message: /changed/ });
  await assert.rejects(read(body(404)), { kind: "not-found" });
  await assert.rejects(read(body(403)), { kind: "forbidden" });
  await assert.rejects(read(body(500)), { kind: "network" });
  await assert.rejects(
    read(() => {
      throw new TypeError("failed");
    }),
    { kind: "forbidden", message: /not readable from a browser.*"AllowedHeaders":\["Range"\]/s },
  );
  const dated = { ...virtual, checksum: "Sat, 21 Nov 2026 07:02:53 GMT" };
  const at = (time: string) =>
    withFetch(body(206, { "Last-Modified": time }), () => readBytes(source, {}, dated));
  await at("Sat, 21 Nov 2026 08:02:53 GMT");
  await assert.rejects(at("Sat, 21 Nov 2026 08:02:54 GMT"), { kind: "format" });
});

test("a repository of spec version 1 without a list of refs shows main", async () => {
  const folder = new FolderSource(join(DATA, "random", "v1", "repo"));
  const repository = await openRepository({
    label: "no list",
    get: async (key, start, end) => (key === "index.json" ? undefined : folder.get(key, start, end)),
  });
  assert.deepEqual([...repository.branches.keys()], ["main"]);
  assert.equal(repository.history.parent.length, 2);
  assert.deepEqual(repository.ops, []);
  const wrong = {
    label: "wrong",
    get: async (key: string) =>
      key === "index.json" ? new TextEncoder().encode('{"branches": {"main": 3}}') : undefined,
  };
  await assert.rejects(openRepository(wrong), { kind: "format" });
});
