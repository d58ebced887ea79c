import assert from "node:assert/strict";
import { test } from "node:test";
import { FORBIDDEN, findHome, KernelSource, ServerSource, stored, WebSource } from "../../src/page/home";
import { present } from "../present";

type Reply = Response | Error;

interface Asked {
  readonly url: string;
  readonly method: string;
  readonly headers: Headers;
}

/** Runs with a network that answers as `reply` says, and an address of the page; returns the requests. */
async function withNetwork(
  reply: (asked: Asked) => Reply | Promise<Reply>,
  run: () => Promise<void>,
  address = "http://here/ice/",
): Promise<Asked[]> {
  const { fetch, location, history } = globalThis;
  const asked: Asked[] = [];
  const page = new URL(address);
  const items = new Map<string, string>();
  const sessionStorage = {
    getItem: (name: string) => items.get(name) ?? null,
    setItem: (name: string, value: string) => void items.set(name, value),
  };
  const replaceState = (_: unknown, __: unknown, hash: string): void => void (page.hash = hash);
  Object.assign(globalThis, { location: page, history: { replaceState }, sessionStorage });
  globalThis.fetch = async (url, { method = "GET", headers } = {}) => {
    const request = { url: String(url), method, headers: new Headers(headers) };
    asked.push(request);
    const answer = await reply(request);
    if (answer instanceof Error) throw answer;
    return answer;
  };
  try {
    await run();
  } finally {
    Object.assign(globalThis, { fetch, location, history });
  }
  return asked;
}

const body = (text: string, init?: ResponseInit): Response => new Response(text, init);
const FILE = "0123456789";

/** A web server with one file. */
const ranged = ({ url, headers }: Asked): Response => {
  if (!url.endsWith("/repo")) return body("", { status: 404 });
  const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(headers.get("Range") ?? "") ?? [];
  return start === undefined
    ? body(FILE, { headers: { ETag: "one" } })
    : body(FILE.slice(Number(start), Number(end) + 1), { status: 206, headers: { ETag: "one" } });
};
const text = (data: Uint8Array | undefined): string | undefined => data && new TextDecoder().decode(data);

test("files and parts of files of a web server", async () => {
  const source = new WebSource("http://data/ice/", "ice");
  const asked = await withNetwork(ranged, async () => {
    assert.equal(text(await source.get("repo")), FILE);
    assert.equal(text(await source.get("repo", 2, 5)), "234");
    assert.equal(text(await source.get("repo", 5, 5)), "");
    assert.equal(await source.get("chunks/a b"), undefined);
    assert.equal(await source.isOutdated(), false);
  });
  assert.deepEqual(
    asked.map(({ url, method }) => `${method} ${url}`),
    [
      "GET http://data/ice/repo",
      "GET http://data/ice/repo",
      "GET http://data/ice/chunks/a%20b",
      "HEAD http://data/ice/repo",
    ],
  );
});

test("a server without ranges sends a file once", async () => {
  const source = new WebSource("http://data/", "data");
  const asked = await withNetwork(
    () => body(FILE),
    async () => {
      assert.equal(text(await source.get("pack", 2, 5)), "234");
      assert.equal(text(await source.get("pack", 7, 9)), "78");
    },
  );
  assert.equal(asked.length, 1);
});

test("what a server refuses is an error with a kind", async () => {
  const source = new WebSource("http://data/", "data");
  const cases: [ResponseInit, string, string][] = [
    [{ status: 401 }, "forbidden", "data answered status 401 for x."],
    [{ status: 403 }, "forbidden", "data answered status 403 for x."],
    [{ status: 400 }, "network", "data answered status 400 for x."],
    [{ status: 416 }, "format", "x is shorter than the references to it say."],
  ];
  for (const [init, kind, message] of cases)
    await withNetwork(
      () => body("", init),
      () => assert.rejects(source.get("x", 0, 1), { kind, message }),
    );
  const said = JSON.stringify({ error: { kind: "io", message: "no disk" } });
  await withNetwork(
    () => body(said, { status: 400 }),
    () => assert.rejects(source.get("x"), { message: "data answered status 400 for x: no disk" }),
  );
});

test("a server that fails for a moment is asked again", async () => {
  const source = new WebSource("http://here/ice/", "ice");
  const replies: Reply[] = [body("", { status: 503 }), new TypeError("reset"), body(FILE)];
  const asked = await withNetwork(
    () => present(replies.shift()),
    async () => assert.equal(text(await source.get("repo")), FILE),
  );
  assert.equal(asked.length, 3);
  await withNetwork(
    () => new TypeError("reset"),
    () => assert.rejects(source.get("repo"), { kind: "network", message: "No answer from here: reset." }),
  );
  const other = new WebSource("http://other/ice/", "ice");
  await withNetwork(
    () => new TypeError("reset"),
    () => assert.rejects(other.get("repo"), { kind: "forbidden", message: /CORS rule .*http:\/\/here/ }),
  );
});

test("a repository that somebody changed is outdated", async () => {
  const source = new WebSource("http://data/", "data");
  const states = ["one", "one", "two"];
  await withNetwork(
    () => body(FILE, { headers: { ETag: present(states.shift()) } }),
    async () => {
      await source.get("repo");
      assert.equal(await source.isOutdated(), false);
      assert.equal(await source.isOutdated(), true);
    },
  );
  await withNetwork(
    () => new TypeError("offline"),
    async () => assert.equal(await source.isOutdated(), false),
  );
});

test("the server of frazil ui: token, statistics, changes, slow answers", async () => {
  const source = new ServerSource("http://here/", "ice", "secret");
  const asked = await withNetwork(
    ({ url }) => (url.includes("verify") ? body("{}", { status: 503 }) : body("[1]")),
    async () => {
      await source.get("statistics/X");
      assert.deepEqual(await source.ask("jobs", {}), [1]);
      assert.equal(text(await source.external("s3://b/k", 0, 3)), "[1]");
      assert.deepEqual(await source.change("plan", { action: "undo" }), [1]);
      await assert.rejects(source.ask("verify", { level: "all" }), { kind: "network" });
    },
  );
  assert.ok(asked.every(({ headers }) => headers.get("Authorization") === "Bearer secret"));
  assert.deepEqual(
    asked.slice(0, 5).map(({ url, method }) => `${method} ${url}`),
    [
      "GET http://here/repo/statistics/X?optional=",
      "GET http://here/api/jobs?",
      "GET http://here/virtual?url=s3%3A%2F%2Fb%2Fk&start=0&end=3",
      "POST http://here/api/plan",
      "GET http://here/api/verify?level=all",
    ],
  );
});

test("the home of a page: a static export, or a server with a token", async () => {
  const settings = { repo: "../data", index: "index.json", label: "weather", version: "v1" };
  await withNetwork(
    ({ url }) => (url === "explorer.json" ? body(JSON.stringify(settings)) : body("<html>")),
    async () => {
      const { source, settings: own } = await findHome();
      assert.deepEqual([source.label, own.version], ["weather", "v1"]);
      await source.get("index.json");
    },
  );
  const info = JSON.stringify({ label: "ice", writable: true });
  const asked = await withNetwork(
    ({ url }) => body(url === "api/info" ? info : FILE),
    async () => {
      const { source, settings: own } = await findHome();
      assert.deepEqual([source.label, own.writable, location.hash], ["ice", true, "#/v/main/t"]);
      assert.equal(text(await source.get("repo")), FILE);
    },
    "http://here/ice/#token=secret&/v/main/t",
  );
  // the file that each view needs is asked for before the home is known
  assert.deepEqual(
    asked.map(({ url }) => url),
    ["http://here/ice/repo/repo", "api/info"],
  );
  for (const [status, kind] of [
    [404, "not-found"],
    [403, "forbidden"],
  ] as const)
    await withNetwork(
      () => body("", { status }),
      () => assert.rejects(findHome(), { kind }),
    );
});

test("a kernel answers with bytes, nothing, or an error", async () => {
  const messages: unknown[] = [];
  const answers = [
    { data: new DataView(new ArrayBuffer(2)) },
    {},
    { data: new DataView(new ArrayBuffer(1)) },
  ];
  const source = new KernelSource(async (message) => {
    messages.push(message);
    return present(answers.shift());
  }, "cell");
  assert.equal((await source.get("repo"))?.length, 2);
  assert.equal(await source.get("gone"), undefined);
  assert.equal((await source.external("s3://b/k", 1, 2))?.length, 1);
  assert.equal((await source.get("repo", 4, 4))?.length, 0);
  assert.deepEqual(messages, [{ file: "repo" }, { file: "gone" }, { virtual: "s3://b/k", start: 1, end: 2 }]);
  for (const [kind, shown] of [
    [FORBIDDEN, "forbidden"],
    ["io", "network"],
  ] as const) {
    const refusing = new KernelSource(async () => ({ error: { kind, message: "no" } }), "cell");
    await assert.rejects(refusing.get("repo"), { kind: shown, message: "no" });
  }
});

test("a page that may not store items works without", () => {
  Object.defineProperty(globalThis, "localStorage", {
    configurable: true,
    get: () => {
      throw new Error("refused");
    },
  });
  assert.equal(stored("localStorage", "theme", "dark"), "dark");
  assert.equal(stored("localStorage", "theme"), null);
});
