"""The widget of notebooks: its messages, and the page in a frame that gets its bytes by them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.patience import patience
from tests.ui.serving import repository

import frazil
from frazil.credentials import LocalFileSystemAccess
from frazil.ui.files import LONGEST

comm = pytest.importorskip("comm", reason="needs the extra `widget`")
BaseComm: Any = comm.base_comm.BaseComm
from frazil.ui import Explorer  # noqa: E402  # without the extra there is none

Answer = tuple[dict[str, Any], bytes | None]
_ONE = threading.Lock()


class Channel(comm.base_comm.BaseComm):  # type: ignore[misc, name-defined]
    """The kernel's end of a widget, which records what a notebook would get."""

    def publish_msg(self, msg_type: str, data: Any = None, **others: Any) -> None:
        if msg_type == "comm_msg" and data["method"] == "custom":
            buffers = others["buffers"] or [None]
            self.answers.append((data["content"], buffers[0]))

    @property
    def answers(self) -> list[Answer]:
        return cast("list[Answer]", self.__dict__.setdefault("answered", []))

    def receive(self, content: Mapping[str, Any]) -> None:
        self.handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})

    def ask(self, **message: Any) -> Answer:
        """Send a message where no event loop runs: the answer comes at once."""
        with _ONE:
            self.receive({"id": "1", **message})
            return self.answers.pop()


@pytest.fixture(autouse=True)
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm, "create_comm", Channel)


@pytest.mark.parametrize("spec_version", [1, 2])
def test_messages_read_files_of_the_format_alone(tmp_path: Path, spec_version: int) -> None:
    folder = repository(tmp_path / "ice", spec_version)
    channel = Explorer(frazil.Repository.open(str(folder))).comm
    files = [path for path in folder.rglob("*") if path.is_file()]
    formats = [path for path in files if path.relative_to(folder).parts[0] in ("repo", "snapshots", "chunks")]
    assert formats
    for path in formats:
        key, data = path.relative_to(folder).as_posix(), path.read_bytes()
        assert channel.ask(file=key) == ({"id": "1"}, data)
        assert channel.ask(file=key, start=1, end=9) == ({"id": "1"}, data[1:9])
        assert channel.ask(file=key, start=1, end=LONGEST) == ({"id": "1"}, data[1:])
    secret = (tmp_path / "secret").as_posix()
    for key in (
        "secret",
        "../secret",
        secret,
        f"file://{secret}",
        "chunks/../repo",
        "chunks/" + "A" * 20,
        "",
    ):
        assert channel.ask(file=key) == ({"id": "1"}, None)
    index = channel.ask(file="index.json")[1]
    assert (index is not None and "winter" in json.loads(index)["branches"]) == (spec_version == 1)


def test_messages_read_the_page_and_nothing_beside_it() -> None:
    channel = Explorer(frazil.Repository.create(frazil.in_memory_storage())).comm
    assert b"<script" in (channel.ask(asset="index.html")[1] or b"")
    assert channel.ask(asset="../files.py") == ({"id": "1"}, None)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"file": 1},
        {"file": "repo", "start": 0},
        {"file": "repo", "start": 2, "end": 1},
        {"file": "repo", "start": -1, "end": 1},
        {"file": "repo", "start": 0, "end": LONGEST + 1},
        {"virtual": "file:///data", "start": 0},
        {"virtual": "file:///data", "start": 0, "end": 2**60},
    ],
)
def test_message_that_is_not_valid(message: dict[str, Any]) -> None:
    content, buffer = Explorer(frazil.Repository.create(frazil.in_memory_storage())).comm.ask(**message)
    assert (content["error"]["kind"], buffer) == ("invalid-argument", None)


def test_messages_read_virtual_objects_that_the_user_has_authorised(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "data").write_bytes(b"0123456789")
    (tmp_path / "secret").write_bytes(b"secret")
    prefix = f"{(tmp_path / 'open').as_uri()}/"
    config = frazil.RepositoryConfig()
    for each in (prefix, f"{tmp_path.as_uri()}/"):
        config.set_virtual_chunk_container(
            frazil.VirtualChunkContainer(each, frazil.local_filesystem_store(each.removeprefix("file://")))
        )
    repo = frazil.Repository.create(
        frazil.in_memory_storage(), config, authorize_virtual_chunk_access={prefix: LocalFileSystemAccess}
    )
    channel = Explorer(repo).comm
    assert channel.ask(virtual=f"{prefix}data", start=2, end=5) == ({"id": "1"}, b"234")
    for url in ((tmp_path / "secret").as_uri(), f"{prefix}../secret"):
        content, buffer = channel.ask(virtual=url, start=0, end=5)
        assert buffer is None
        assert content["error"]["kind"] != "other"


def test_reads_overlap_and_are_answered_on_the_thread_of_the_messages(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer = Explorer(frazil.Repository.open(str(folder)))
    barrier = threading.Barrier(3)
    storage = type(frazil.local_filesystem_storage(str(folder)))
    read = storage.get_versioned
    senders = []

    def together(self: Any, key: str) -> Any:
        barrier.wait(patience(20))
        return read(self, key)

    async def main() -> None:
        for id_ in "abc":
            explorer.comm.receive({"id": id_, "file": "repo"})
        while len(explorer.comm.answers) < 3:
            await asyncio.sleep(0.005)

    publish = Channel.publish_msg

    def record(self: Any, *arguments: Any, **others: Any) -> None:
        senders.append(threading.current_thread())
        publish(self, *arguments, **others)

    monkeypatch.setattr(storage, "get_versioned", together)
    monkeypatch.setattr(Channel, "publish_msg", record)
    asyncio.run(asyncio.wait_for(main(), patience(30)))
    assert {content["id"] for content, _ in explorer.comm.answers} == set("abc")
    assert {data for _, data in explorer.comm.answers} == {(folder / "repo").read_bytes()}
    assert set(senders) == {threading.current_thread()}


def test_a_session_opens_its_version(folder: Path) -> None:
    repo = frazil.Repository.open(str(folder))
    session = repo.readonly_session(tag="v1")
    explorer = Explorer(session, "/t", height=300)
    assert explorer.settings["version"] == session.snapshot_id
    assert (explorer.settings["path"], explorer.height) == ("/t", 300)
    assert "version" not in Explorer(repo).settings
    assert explorer.settings["location"] == str(folder)
    with pytest.raises(TypeError, match="Repository or Session, got str"):
        Explorer(cast("Any", str(folder)))


# In a browser

PAGE = """<!doctype html><html lang="en"><title>Notebook</title>
<body style="background: #111; color: #eee"><div id="cell"></div><div id="other"></div></body>
<script type="module">
import widget from "./widget.js";
const settings = await (await fetch("settings")).json();
function model() {
  const listeners = [];
  return {
    get: (name) => settings[name],
    on: (event, listener) => void (event === "msg:custom" && listeners.push(listener)),
    off: () => undefined,
    async send(content) {
      const response = await fetch("message", { method: "POST", body: JSON.stringify(content) });
      const bytes = await response.arrayBuffer();
      const buffers = response.headers.has("X-Buffer") ? [new DataView(bytes)] : [];
      for (const listener of listeners) listener(JSON.parse(response.headers.get("X-Content")), buffers);
    },
  };
}
for (const id of ["cell", "other"]) widget.render({ model: model(), el: document.getElementById(id) });
</script></html>"""


class _Notebook(BaseHTTPRequestHandler):
    """A page with two widgets, and the messages of their models."""

    explorer: Any

    def do_GET(self) -> None:
        traits = {"settings": self.explorer.settings, "height": self.explorer.height}
        answers = {
            "/": (PAGE, "text/html"),
            "/widget.js": (self.explorer._esm, "text/javascript"),
            "/settings": (json.dumps(traits), "application/json"),
        }
        text, type_ = answers.get(self.path, ("", "text/plain"))
        self._send(text.encode(), {"Content-Type": type_})

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content, buffer = self.explorer.comm.ask(**message)
        headers = {"X-Content": json.dumps(content), **({"X-Buffer": "1"} if buffer is not None else {})}
        self._send(buffer or b"", headers)

    def _send(self, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.browser
def test_widgets_in_a_page(page: Any, folder: Path) -> None:
    explorer = Explorer(frazil.Repository.open(str(folder)))
    handler = type("Handler", (_Notebook,), {"explorer": explorer})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever, 0.02)
        try:
            page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
            one, other = (page.frame_locator(f"#{name} iframe") for name in ("cell", "other"))
            one.get_by_role("link", name="History", exact=True).click()
            for name in ("main", "winter", "v1"):
                one.locator("body", has_text=name).wait_for()
            one.locator("html[data-theme=dark]").wait_for()
            one.get_by_role("option", name="Create the array").click()
            one.get_by_role("link", name="Data", exact=True).click()
            one.get_by_role("treeitem", name="t").last.click()
            one.get_by_role("tab", name="Data").click()
            one.get_by_text("4,000 values: 0 to 3999").wait_for()
            assert page.workers
            other.get_by_role("link", name="Create the array").wait_for()
            # notebooks move the outputs of cells, and a browser loads a moved frame anew
            page.evaluate("document.body.append(document.getElementById('cell'))")
            one.get_by_text("4,000 values: 0 to 3999").wait_for()
        finally:
            page.goto("about:blank")  # which reads what can wait until the end
            server.shutdown()
