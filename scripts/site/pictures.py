"""Draw the pictures of the tutorial, of the gallery and of the explorer again, into docs/pictures.

    make pictures

It runs the Python of docs/tutorial.md and docs/gallery.md, which draws the diagrams, and the pipeline of
examples/. Then it photographs the explorer with their repositories. Without a browser
(`scripts/install-browser`), it leaves the photographs as they are.
"""

from __future__ import annotations

import io
import re
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import numpy as np
import zarr
from PIL import Image

import frazil
from frazil.pipeline import Pipeline

ROOT: Final = Path(__file__).resolve().parents[2]
PICTURES: Final = ROOT / "docs" / "pictures"
#: Pages whose pictures are all drawn here. The Python of `RUN` draws diagrams and writes repositories.
PAGES: Final = ("tutorial", "gallery", "explorer", "index")
RUN: Final = ("tutorial", "gallery")
#: The largest picture, in bytes: pages must load fast, and a repository keeps every version of a picture.
LARGEST: Final = 60_000
LIMIT: Final = 600_000  # milliseconds for the browser, on a busy machine too

#: A photograph: the repository, where the explorer is, the height, and a text for which the browser waits.
#: ``before`` is the version before the newest one. The page is dark if the name ends with ``-dark``.
VIEWS: Final = {
    "tutorial-chunks": (
        "ocean",
        "#/v/{before}/surface_temperature?view=chunks&colour=commit",
        560,
        "Deliver 2009 again",
    ),
    "tutorial-overview": ("ocean", "#/", 620, "Last commits"),
    "tutorial-history": ("ocean", "#/history", 540, "Add a title"),
    "tutorial-map": ("ocean", "#/v/main/surface_temperature?view=data&i=44,0,0", 560, "values:"),
    "gallery-nemo": ("nemo", "#/", 560, "Last commits"),
    "gallery-nemo-dark": ("nemo", "#/", 560, "Last commits"),
    "gallery-grib": ("gallery", "#/v/main/grib/t?view=data", 600, "valid_time"),
    "gallery-satellite": ("gallery", "#/v/main/meteosat/data?view=data", 600, "Point at a place"),
    "gallery-history": ("gallery", "#/history", 480, "Cohort B"),
    "explorer-history": ("weather", "#/history?at={before}", 590, "NaN"),
    "explorer-commits": (
        "weather",
        "#/v/main/weather/t2m?view=chunks&colour=commit&x=0&y=1&cell=2,0,0",
        645,
        "Location",
    ),
    "explorer-pipeline": ("weather", "#/v/main/?view=pipeline", 420, "publication"),
}
#: Photographs with another width than 1,000 pixels.
WIDTHS: Final = {"explorer-pipeline": 1300}


def run_page(name: str, folder: Path) -> None:
    """Run the Python of a page in a folder."""
    code = "\n".join(
        re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{name}.md").read_text(), re.DOTALL)
    )
    (folder / f"{name}.py").write_text(code)
    subprocess.run([sys.executable, f"{name}.py"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def run_pipeline(folder: Path) -> None:
    """Run the pipeline of examples/ on three mornings, at last with a damaged file, and change its data."""
    archive = runpy.run_path(str(ROOT / "examples" / "daily" / "archive.py"))
    text = (ROOT / "examples" / "daily_pipeline.toml").read_text().partition("[retention]")[0]
    file = folder / "weather.toml"
    file.write_text(text.replace('"spark"', '"inline"').replace('"repository"', '"weather"'))
    for days in (8, 16, 21):
        files = archive["fill"](folder / "archive", date(2026, 1, 1), days)
        if days == 21:
            archive["damage"](files[-1])
        Pipeline.load(file).run()
    repo = frazil.Repository.open(frazil.local_filesystem_storage(folder / "weather"))
    repo.create_tag("2026-01-20", "main")
    repo.create_branch("colder", "main")
    with repo.transaction("colder", message="Try a colder first day") as store:
        zarr.open_array(store, path="weather/t2m")[:4] = 2500
    with repo.transaction("main", message="Correct the sensors of the north") as store:
        array = zarr.open_array(store, path="weather/t2m")
        array[8:12, :36] = np.asarray(array[8:12, :36]) + 1500
    with repo.transaction("main", message="Correct the first hour of rain") as store:
        zarr.open_array(store, path="weather/tp")[0] = 0


def copy_diagrams(folder: Path, target: Path) -> list[Path]:
    """Copy the diagrams of the pages, with 128 colours, and return their places."""
    places = []
    for source in sorted(folder.glob("*.png")):
        place = target / source.name
        with Image.open(source) as picture:
            picture.convert("RGB").quantize(128).save(place, optimize=True)
        places.append(place)
    return places


class Files(SimpleHTTPRequestHandler):
    """A web server as `python -m http.server`, which says nothing."""

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder, and yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def photograph(folder: Path, target: Path) -> list[Path]:
    """Photograph the explorer of the repositories of the pages, and return the places of the photographs."""
    find = [str(ROOT / "scripts" / "install-browser"), "--find"]
    browser_path = subprocess.run(find, capture_output=True, text=True, check=False).stdout.strip()
    if not browser_path:
        return []
    from playwright.sync_api import sync_playwright  # only with a browser

    command = str(Path(sys.executable).with_name("frazil"))
    before = {}
    for name in sorted({name for name, *_ in VIEWS.values()}):
        static = [command, "ui", name, "--static", f"{name}/explorer"]
        subprocess.run(static, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        repo = frazil.Repository.open(frazil.local_filesystem_storage(folder / name))
        before[name] = repo.lookup_snapshot(repo.lookup_branch("main")).parent_id
    places = []
    with serve(folder) as address, sync_playwright() as driver:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=browser_path, args=flags, timeout=LIMIT)
        for name, (repository, view, height, text) in VIEWS.items():
            scheme = "dark" if name.endswith("-dark") else "light"
            size = {"width": WIDTHS.get(name, 1000), "height": height}
            page = browser.new_page(viewport=size, color_scheme=scheme)
            page.set_default_timeout(LIMIT)
            page.goto(f"{address}{repository}/explorer/{view.format(before=before[repository])}")
            page.get_by_text(text).first.wait_for()
            page.wait_for_load_state("networkidle")
            place = target / f"{name}.webp"
            Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(place, quality=70, method=6)
            places.append(place)
            page.close()
        browser.close()
    return places


def draw(target: Path) -> list[Path]:
    """Draw all pictures into a folder, and return their places."""
    with tempfile.TemporaryDirectory(prefix="frazil-pictures-") as place:
        folder = Path(place)
        for name in RUN:
            run_page(name, folder)
        run_pipeline(folder)
        return copy_diagrams(folder, target) + photograph(folder, target)


if __name__ == "__main__":
    for place in draw(PICTURES):
        print(f"{place.relative_to(ROOT)}: {place.stat().st_size:,} bytes")
        if place.stat().st_size > LARGEST:
            sys.exit(f"{place.name} has more than {LARGEST:,} bytes")
