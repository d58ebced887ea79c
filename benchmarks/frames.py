"""Frames of the explorer in Chromium: a history of 100,000 commits, 10,000 arrays, a million chunks.

    scripts/setup bench browser; scripts/run python benchmarks/frames.py [FOLDER]

Prints the milliseconds between frames while the page scrolls, pans and zooms, beside an empty page in the
same run, the processor time of the page's thread for a frame, the memory of its process, and what the first
picture needs on a network with a round trip of 20 ms. FOLDER keeps the repository for the next run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from slow_network import slow_network

import frazil
import history
from frazil.cli.main import main

ROOT = Path(__file__).parents[1]
COMMITS, ARRAYS, SIDE, FRAMES = 100_000, 10_000, 1000, 300

#: Calls `work(i)` once in each frame, and returns the milliseconds between frames, sorted.
MEASURE = """async (work) => {
  const act = eval(work), times = [];
  let last = await new Promise(requestAnimationFrame);
  for (let i = 0; i < FRAMES; i++) {
    act(i);
    const now = await new Promise(requestAnimationFrame);
    times.push(now - last);
    last = now;
  }
  return times.sort((a, b) => a - b);
}""".replace("FRAMES", str(FRAMES))

SCROLL = "i => { document.querySelector('%s').scrollTop += %d }"
#: Sends an event of the pointer to the map or the image at a place that depends on `i`.
POINTER = """i => {
  const target = document.querySelector('[role=application]'), box = target.getBoundingClientRect();
  target.setPointerCapture = () => {};
  const clientX = box.x + box.width / 2 + 150 * Math.sin(i / 20);
  const clientY = box.y + box.height / 2 + 100 * Math.cos(i / 20);
  const deltaY = i %% 100 < 50 ? -60 : 60;
  const options = {clientX, clientY, deltaY, bubbles: true, cancelable: true, pointerId: 1};
  if (i == 0 && %d) target.dispatchEvent(new PointerEvent('pointerdown', options));
  target.dispatchEvent(new %s('%s', options));
}"""
MOVE, WHEEL = ("PointerEvent", "pointermove"), ("WheelEvent", "wheel")
MAP, IMAGE = "#/v/main/wide?view=chunks", "#/v/main/image?view=data"
#: What is measured: the address, an element that is there when the view is complete, and the work of a frame.
VIEWS = {
    "history, slowly": ("#/history", ".commits .row", SCROLL % (".commits", 47)),
    "history, fast": ("#/history", ".commits .row", SCROLL % (".commits", 3333)),
    "tree": ("#/v/main/many", ".side .row", SCROLL % (".side .list", 400)),
    "chunk map, pointer": (MAP, ".map canvas", POINTER % (0, *MOVE)),
    "chunk map, pan": (MAP, ".map canvas", POINTER % (1, *MOVE)),
    "chunk map, zoom": (MAP, ".map canvas", POINTER % (0, *WHEEL)),
    "image, pointer": (IMAGE, "canvas", POINTER % (0, *MOVE)),
    "image, drag": (IMAGE, "canvas", POINTER % (1, *MOVE)),
}


def make(folder: Path) -> None:
    """Make the repository and the static export of the page."""
    history.make(str(folder / "repo"), COMMITS)
    repo = frazil.Repository.open(str(folder / "repo"))
    with repo.transaction("main", message="many arrays, and one with many chunks") as store:
        group = zarr.create_group(store, path="many")
        for number in range(ARRAYS):
            group.create_array(f"a{number:05}", shape=(8,), chunks=(4,), dtype="f4")
        values = np.add.outer(np.sin(np.arange(SIDE) / 50), np.cos(np.arange(SIDE) / 70)).astype("f4")
        zarr.create_array(store, name="image", data=values, chunks=(SIDE, SIDE))
        zarr.create_array(store, name="wide", shape=(10 * SIDE, 10 * SIDE), chunks=(10, 10), dtype="f4")
        count = np.arange(SIDE * SIDE, dtype="u8")
        urls = [f"s3://bucket/file{number // SIDE}.nc" for number in range(SIDE * SIDE)]
        sizes = np.full(SIDE * SIDE, 400, "u8")
        store.set_virtual_refs_arr(
            "wide", (SIDE, SIDE), urls, count % SIDE * 400, sizes, validate_containers=False
        )


def frames(browser: Any, page: Any, name: str, work: str) -> None:
    """Print percentiles of the frames, and of the processor time that the page's thread used for one."""
    times = page.evaluate(MEASURE, work)
    browser.start_tracing(page=page, categories=["cc"])
    page.evaluate(MEASURE, work)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    frame = "ProxyMain::BeginMainFrame"
    used = sorted(each["tdur"] / 1000 for each in events if each["name"] == frame and "tdur" in each)
    marks = [each[int(len(each) * part)] for each in (times, used) for part in (0.5, 0.95, 0.99)]
    marks[3:3] = times[-1:]
    print(f"{name:20}" + "".join(f"{each:8.1f}" for each in [*marks, memory(browser)]), flush=True)


def memory(browser: Any) -> float:
    """Return the proportional MiB of the largest process that draws a page. Others are spare."""
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    files = (Path(f"/proc/{each['id']}/smaps_rollup") for each in processes if each["type"] == "renderer")
    return max(int(file.read_text().partition("\nPss:")[2].split()[0]) for file in files) / 1024


def measure(driver: Any, root: str, port: int) -> None:
    program = subprocess.check_output([ROOT / "scripts/install-browser", "--find"], text=True).strip()
    browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
    columns = ("p50", "p95", "p99", "longest", "cpu 50", "cpu 95", "cpu 99", "MiB")
    print(f"{'milliseconds':20}" + "".join(f"{each:>8}" for each in columns))
    empty = ("", "html", "i => {}")
    for name, (address, element, work) in {"empty page": empty, **VIEWS, "empty page again": empty}.items():
        page = browser.new_page(viewport={"width": 1280, "height": 800}, bypass_csp=True)
        page.goto(root + address if address else "about:blank")
        page.locator(element).first.wait_for(timeout=60_000)
        page.wait_for_timeout(1000)
        frames(browser, page, name, work)
        page.close()
    with slow_network(port, 20) as slow:
        for name, view in (("history", "#/history"), ("image", IMAGE)):
            page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
            requests: list[str] = []
            page.on("request", lambda request, requests=requests: requests.append(request.url))
            start = time.perf_counter()
            page.goto(f"http://127.0.0.1:{slow}/page/index.html{view}")
            page.locator(VIEWS["history, fast"][1] if name == "history" else "canvas").first.wait_for()
            seconds = time.perf_counter() - start
            count = sum(each.startswith("http") for each in requests)  # the worker comes from memory
            print(f"first picture of the {name} at 20 ms: {seconds:.2f} s, {count} requests")
    browser.close()


class Files(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        if not (folder / "repo").exists():
            make(folder)
        assert main(["ui", str(folder / "repo"), "--static", str(folder / "page")]) == 0
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder))) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with sync_playwright() as driver:
                port = server.server_address[1]
                measure(driver, f"http://127.0.0.1:{port}/page/index.html", port)
            server.shutdown()
