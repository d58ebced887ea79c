import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { type Answer, KernelSource } from "../../src/page/home";
import { listen, type Model } from "../../src/widget";
import { DATA, FolderSource } from "../format/folder";
import { openRepository } from "../format/reader";

type Message = Record<string, string | number>;

/** A model whose kernel answers in the reverse order, and sends each answer to all views. */
function modelOf(
  answer: (message: Message) => Promise<Answer>,
): Model & { readonly sent: Message[]; views(): number } {
  const listeners = new Set<Parameters<Model["on"]>[1]>();
  const sent: Message[] = [];
  const flush = async (): Promise<void> => {
    for (const message of sent.splice(0).reverse()) {
      const { data, error } = await answer(message);
      for (const listener of listeners)
        listener({ id: String(message.id), ...(error && { error }) }, data && [data]);
    }
  };
  return {
    sent,
    views: () => listeners.size,
    get: () => undefined,
    on: (_event, listener) => void listeners.add(listener),
    off: (_event, listener) => void listeners.delete(listener as never),
    send: (content) => void (sent.push(content as Message) === 1 && setImmediate(flush)),
  };
}

test("a repository over messages, in two views of one widget", async () => {
  for (const name of ["split", "story", "virtual"]) {
    const files = new FolderSource(join(DATA, "golden", name, "repo"));
    const model = modelOf(async ({ file, start, end }) => {
      const bytes = await files.get(String(file), start as number, end as number);
      // a buffer of a message can be a part of a larger one
      return bytes ? { data: new DataView(Uint8Array.of(9, ...bytes, 9).buffer, 1, bytes.length) } : {};
    });
    const views = [listen(model), listen(model)];
    const expected = await openRepository(files);
    const answers = await Promise.all(views.map(({ ask }, at) => ask({ file: at ? "repo" : "nothing" })));
    assert.deepEqual(
      answers.map(({ data }) => data !== undefined),
      [false, true],
    );
    for (const repository of await Promise.all(
      views.map(({ ask }) => openRepository(new KernelSource(ask, "memory"))),
    )) {
      assert.deepEqual(repository.branches, expected.branches);
      assert.equal(repository.history.id(0), expected.history.id(0));
    }
    for (const { stop } of views) stop();
    assert.equal(model.views(), 0);
  }
});

test("answers without bytes", async () => {
  const kinds: Record<string, string> = {
    "s3://closed/x": "unauthorized-virtual-chunk-container",
    "s3://slow/x": "object-store",
  };
  const { ask } = listen(
    modelOf(async ({ virtual = "" }) =>
      kinds[virtual] ? { error: { kind: kinds[virtual], message: `no ${virtual}` } } : {},
    ),
  );
  const source = new KernelSource(ask, "memory");
  assert.equal(await source.get("chunks/none"), undefined);
  assert.equal((await source.get("repo", 5, 5))?.length, 0);
  await assert.rejects(source.external("s3://closed/x", 0, 1), {
    kind: "forbidden",
    message: "no s3://closed/x",
  });
  await assert.rejects(source.external("s3://slow/x", 0, 1), { kind: "network" });
});
