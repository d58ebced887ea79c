"""A package that is not installed is one line, which names the extra that installs it."""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.pipeline.blocked import errors, run

from frazil.extras import EXTRA_OF, install_command, needs

ROOT = Path(__file__).parents[2]

#: Name of an import -> name of the package in an index, where they differ.
DISTRIBUTIONS = {
    "cf_units": "cf-units",
    "grpc": "pyspark",
    "grpc_status": "pyspark",
    "google": "pyspark",
    "google.rpc": "pyspark",
} | {
    "openlineage": "openlineage-python",
    "opentelemetry": "opentelemetry-sdk",
    "xarray_regrid": "xarray-regrid",
    "frazil_import": "frazil-import",
}
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]

# ---- packages and extras ----------------------------------------------------------------------------


def packages_of(extra: str) -> set[str]:
    """What an extra installs, the extras that it is made of included."""
    packages: set[str] = set()
    for requirement in EXTRAS[extra]:
        own = re.fullmatch(r"frazil\[(.*)\]", requirement)
        if own is None:
            packages.add(re.split(r"[\[<>=!~]", requirement)[0].lower())
        else:
            packages = packages.union(*map(packages_of, own[1].split(",")))
    return packages


def test_extras_install_the_packages_of_the_table_and_no_others() -> None:
    named = [(DISTRIBUTIONS.get(each, each).lower(), extra) for each, extra in EXTRA_OF.items() if extra]
    assert [package for package, extra in named if package not in packages_of(extra)] == []
    users = ("xarray", "pipeline", "grib", "geotiff", "spark")
    # The extras ask for a newer zarr than the core
    assert set().union(*map(packages_of, users)) <= dict(named).keys() | {"zarr"}


# ---- the error --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libhdf5.so: cannot open shared object file", name="h5py"),
        ImportError("cannot import name 'Dataset' from 'xarray'", name="xarray"),
        ModuleNotFoundError("No module named 'xarray.other'", name="xarray.other"),
        ModuleNotFoundError("No module named 'theirs'", name="theirs"),
    ],
)
def test_what_is_no_missing_package_stays_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, needs("ingest"):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (None, 'pip install "frazil[pipeline]"'),
        ({"url": "file://FOLDER", "dir_info": {}}, 'pip install "FOLDER[pipeline]"'),
        ({"url": "file://FOLDER", "dir_info": {"editable": True}}, 'pip install -e "FOLDER[pipeline]"'),
        ({"url": "file://FOLDER/gone", "dir_info": {}}, 'pip install "frazil[pipeline]"'),
        (
            {"url": "https://a.org/b", "vcs_info": {"vcs": "git", "commit_id": "1f"}},
            'pip install "frazil[pipeline] @ git+https://a.org/b@1f"',
        ),
        (
            {"url": "https://a.org/b.whl", "archive_info": {}},
            'pip install "frazil[pipeline] @ https://a.org/b.whl"',
        ),
    ],
)
def test_an_extra_comes_from_where_frazil_came_from(
    source: dict[str, object] | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "frazil-9.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: frazil\nVersion: 9\n")
    (folder := tmp_path / "a b").mkdir()
    if source is not None:
        url = json.dumps(source).replace("FOLDER", folder.as_posix().replace(" ", "%20"))
        (record / "direct_url.json").write_text(url)
    monkeypatch.syspath_prepend(tmp_path)
    expected = command.replace("FOLDER", folder.as_posix())
    assert install_command("pipeline") == expected
    # A distribution of its own is in a folder of the checkout.
    own = expected.replace("[pipeline]", "/importer" if str(folder) in expected else "[import]")
    if "1f" in own:
        own = 'pip install "frazil-import @ git+https://a.org/b@1f#subdirectory=importer"'
    assert install_command("import") == own


# ---- programs ---------------------------------------------------------------------------------------

#: Package -> a program that needs it, its feature in the error, and the extra.
IMPORTS = [
    ("xarray", "import frazil.xarray", "frazil.xarray", "xarray"),
    ("dask", "import frazil.xarray", "frazil.xarray", "xarray"),
    ("dask", "import frazil.dask", "frazil.dask", "xarray"),
    ("xarray", "from frazil.pipeline import mean", "frazil.pipeline.mean", "pipeline"),
    ("cloudpickle", "import frazil.pipeline as p; p.Threads()", "frazil.pipeline.Threads", "pipeline"),
    ("pandas", "from frazil.pipeline import regrid", "frazil.pipeline.regrid", "pipeline"),
    ("pyarrow", "from frazil.pipeline import *", "frazil.pipeline.IngestResult", "pipeline"),
    ("cftime", "from frazil.pipeline import ingest", "frazil.pipeline.ingest", "pipeline"),
    ("datasketches", "from frazil.pipeline import quantile", "frazil.pipeline.quantile", "pipeline"),
    ("xarray", "from frazil.pipeline.reductions import mean", "frazil.pipeline.reductions.mean", "pipeline"),
    ("xarray", "from frazil.spark import mean", "frazil.spark.mean", "spark"),
    ("pyspark", "from frazil.spark import get_spark", "frazil.spark.get_spark", "spark"),
    ("pyspark", "import frazil.spark as spark; spark.OnSpark", "frazil.spark.OnSpark", "spark"),
    ("pyspark", "from frazil.spark import *", "frazil.spark.Catalog", "spark"),
    (
        "pyspark",
        "import frazil.pipeline as p; p.inspect_files('a', engine='spark')",
        "the engine 'spark'",
        "spark",
    ),
    ("rasterio", "import frazil.pipeline.reductions.zones", "rasterized", "geotiff"),
    ("anywidget", "from frazil.ui import Explorer", "frazil.ui.Explorer", "widget"),
    ("frazil_import", "from frazil import upgrade", "frazil.upgrade", "import"),
    (
        "xarray_regrid",
        "from frazil.pipeline.transform.regridding import _regridder as r; r()",
        "regrid",
        "pipeline",
    ),
]


@pytest.mark.deep
def test_an_import_ends_with_one_line(tmp_path: Path) -> None:
    messages = errors([([package], program) for package, program, _, _ in IMPORTS], tmp_path)
    assert messages == [
        f"MissingExtraError: {feature} needs {package}: {install_command(extra)}"
        for package, _, feature, extra in IMPORTS
    ]


LOADER = """
import frazil, numpy, zarr
from frazil.loader import TrainingWindows
repo = frazil.Repository.create(frazil.in_memory_storage())
with repo.transaction("main", message="an array") as store:
    zarr.create_array(store, name="t", data=numpy.arange(4))
next(iter(TrainingWindows(repo.readonly_session("main"), ["t"], window=2).PACKAGE()))
"""


@pytest.mark.deep
def test_packages_without_an_extra_are_named(tmp_path: Path) -> None:
    packages = ("jax", "torch")
    messages = errors([([each], LOADER.replace("PACKAGE", each)) for each in packages], tmp_path)
    assert messages == [
        f"MissingExtraError: TrainingWindows.{each} needs {each}: pip install {each}" for each in packages
    ]


READERS = [
    ("h5py", b"\x89HDF\r\n\x1a\n", "hdf5", "pipeline"),
    ("cfgrib", b"GRIB", "grib", "grib"),
    ("rasterio", b"II*\0", "geotiff", "geotiff"),
]
INSPECT = """
import frazil, sys
from frazil.pipeline import Target, ingest, inspect_files
repo = frazil.Repository.create(frazil.local_filesystem_storage("ice"))
for name in sys.argv[1:] or ["hdf5", "grib", "geotiff"]:
    for engine in ("inline", "processes"):
        try:
            inspect_files([name], concat_dim="time", engine=engine)
        except frazil.MissingExtraError as error:
            print(error)
    try:
        ingest([name], Target(repo), concat_dim="time", engine="inline", on_problem="skip")
    except ImportError as error:
        print(error)
"""


@pytest.mark.deep
def test_a_reader_without_its_library_is_no_problem_of_the_file(tmp_path: Path) -> None:
    for _, data, name, _ in READERS:
        (tmp_path / name).write_bytes(data)
    done = run(INSPECT, [package for package, *_ in READERS], tmp_path)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"the reader of {name} files needs {package}: {install_command(extra)}"
        for package, _, name, extra in READERS
        for _ in range(3)
    ]


@pytest.mark.deep
def test_other_commands_need_no_extra(tmp_path: Path) -> None:
    every = sorted({each for each in EXTRA_OF if not each.startswith("google")})
    program = "from frazil import *; from frazil.cli import main; main(['log', 'none'])"
    program += "; main(['ingest', 'grib', 'ice'])"
    done = run(program, every, tmp_path)
    other, ingest = done.stderr.splitlines()
    assert "[repository-not-found]" in other
    install = re.escape(install_command("pipeline"))
    assert re.fullmatch(rf"frazil: `frazil ingest` needs \w+: {install} \[missing-extra\]", ingest)


@pytest.mark.deep
@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark")
def test_spark_connect_needs_its_packages(tmp_path: Path) -> None:
    program = "import os; os.environ['SPARK_REMOTE'] = 'sc://127.0.0.1:1'\n"
    program += (
        "__import__('sys').modules['__main__'].__file__ = 'a program'  # pyspark takes it for a doctest\n"
    )
    program += "from frazil.spark import get_spark\nget_spark()"
    expected = f"Spark Connect needs grpc: {install_command('connect')}"
    assert errors([(["grpc"], program)], tmp_path) == [f"MissingExtraError: {expected}"]


def test_numcodecs_that_does_not_know_the_version_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numcodecs.py").write_text("raise ValueError('post0')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "numcodecs", raising=False)
    text = "the store needs numcodecs, but its import fails: post0"
    with pytest.raises(ImportError, match=text), needs("the store"):
        importlib.import_module("numcodecs")
    with pytest.raises(ValueError, match="other"), needs("the store"):
        raise ValueError("other")
