"""The shape of the house: who imports whom, private names, one clock, one maker of pools."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_origin

import pytest
from tests.support.house import PATHS, REPOSITORY, is_ours, nodes_of, parsed, room, statements_in

import frazil

pytestmark = pytest.mark.xdist_group("house")  # one worker parses each module once

SETS: dict[str, set[str]] = {}


def table_of(text: str) -> dict[str, set[str]]:
    """A line has keys, separated by commas, a colon, and values. A name in capitals is one of ``SETS``."""
    table: dict[str, set[str]] = {}
    for keys, _, values in (line.partition(":") for line in text.strip().replace("\\\n", "").splitlines()):
        rooms = {room for each in values.split() for room in SETS.get(each, {each})}
        table |= {name: rooms for key in keys.split(", ") for name in SETS.get(key, {key})}
    return table


#: COMMON is what every room may use. NAMES is what names for users are made of.
SETS |= table_of(r"""
COMMON: about argument_docs arguments cf cf_times debug_info errors display engines error_kinds extras \
    geozarr host lazy_names logs options remedies threads zarr_names
CORE: format storage changes chunks
OF_REPOSITORY: repository repository.settings repository.catalog repository.session history handle
OPERATIONS: pipeline.derivation pipeline.ingest pipeline.transform pipeline.reductions pipeline.validation \
    pipeline.publishing pipeline.provenance pipeline.replication pipeline.definition
OF_SPARK: spark spark.runtime spark.tables spark.streams spark.functions
""")
SETS |= table_of("NAMES: OF_REPOSITORY zarr_store storage")
SETS |= table_of("ROOMS: NAMES CORE arrays answers")

#: Room, inner room, or module at the top -> what else it may import of Frazil. Every room may import itself.
#: `repository`, `pipeline` and `spark` have inner rooms: see `room`. `X.__init__` has the public names of X.
MAY_IMPORT = table_of(r"""
COMMON, format, storage:
changes: format
chunks, repository, repository.settings: storage format
repository.catalog: repository.settings repository CORE
repository.session: repository.catalog repository.settings repository CORE
repository.__init__: OF_REPOSITORY storage
history: zarr_store repository.session repository.catalog repository.settings repository CORE
handle: OF_REPOSITORY maintenance survey CORE
zarr_store: zarr_pipeline repository.session repository.settings repository
arrays: zarr_store repository.session repository.catalog repository changes chunks format
answers: arrays zarr_store repository.session repository.catalog repository changes chunks format
survey: repository.catalog repository CORE
maintenance: survey repository.session repository.catalog repository.settings repository answers arrays CORE
frazil_import: OF_REPOSITORY CORE
readers: storage
jobs: ROOMS survey
pipeline.derivation: ROOMS jobs maintenance pipeline.transform pipeline.reductions
pipeline.ingest: ROOMS jobs readers maintenance pipeline.derivation pipeline.transform
pipeline.transform: ROOMS jobs pipeline.derivation cubed xarray
pipeline.reductions: ROOMS jobs pipeline.derivation pipeline.transform
pipeline.validation: ROOMS jobs pipeline.reductions
pipeline.publishing: ROOMS jobs pipeline.derivation pipeline.validation
pipeline.provenance: ROOMS jobs pipeline.publishing
pipeline.replication: ROOMS jobs maintenance survey readers pipeline.transform
pipeline.definition: ROOMS jobs pipeline.derivation pipeline.ingest pipeline.validation pipeline.publishing \
    pipeline.provenance
pipeline.__init__: jobs OPERATIONS
members: ROOMS xarray pipeline.validation
arrow: ROOMS jobs
sql: ROOMS arrow jobs maintenance pipeline.__init__ pipeline.publishing pipeline.replication spark.tables
spark.runtime: jobs
spark.tables: ROOMS arrow jobs maintenance pipeline.__init__ spark.runtime
spark.streams: ROOMS arrow jobs pipeline.__init__ spark.runtime spark.tables
spark.functions: ROOMS jobs sql spark.runtime spark.tables
spark: ROOMS arrow jobs sql spark.__init__ spark.runtime spark.tables spark.streams spark.functions
spark.__init__: arrow pipeline.__init__ spark spark.runtime spark.tables spark.streams
pyspark_frazil: spark
ui: OF_REPOSITORY chunks storage format
cli: ROOMS arrow maintenance readers jobs sql ui __init__ pipeline.__init__ pipeline.ingest \
    pipeline.transform
""")
#: Modules with public names.
PUBLIC = table_of(r"""
config, credentials, distributed, session, snapshots, store, types: NAMES
conflicts: NAMES arrays changes
cubed: NAMES jobs
dask: NAMES distributed
loader: NAMES arrays format
ops: NAMES maintenance
virtual: NAMES chunks
xarray: NAMES cubed dask distributed
fsspec_filesystem, xarray_engine: __init__ repository
zarr_pipeline: arrays zarr_store format
""")
MAY_IMPORT |= PUBLIC
MAY_IMPORT |= {"__main__": {"cli"}, "compat": {"__init__"}}
MAY_IMPORT["__init__"] = {*SETS["NAMES"], "answers", "arrays", "arrow", "members", *PUBLIC}
MAY_IMPORT["testing"] = set(MAY_IMPORT) - {"__init__", "__main__"}

#: Packages of others that only some rooms know. No room imports the reference.
ONLY_IN = table_of(r"""
icechunk, datafusion, polars:
click: cli
duckdb: cli sql
sqlglot: sql spark
frazil_import: cli frazil_import
google_crc32c: format
re2: repository.settings
obstore, urllib3: storage
yaml: repository.settings pipeline.validation
zarr: answers arrays arrow members zarr_names zarr_pipeline zarr_store xarray xarray_engine \
    fsspec_filesystem dask jobs readers OPERATIONS spark.tables cubed sql cli testing
cubed: cubed pipeline.transform
xarray: members xarray xarray_engine jobs readers OPERATIONS spark.tables testing
dask: dask xarray testing
fsspec: fsspec_filesystem
pyspark: OF_SPARK pyspark_frazil testing
cloudpickle, openlineage: jobs
pyarrow: OF_SPARK arrow jobs sql pipeline.ingest pipeline.replication
anywidget, traitlets: ui
virtualizarr: pipeline.replication
datasketches: pipeline.reductions
xarray_regrid: pipeline.transform
h5py, cfgrib, eccodes, gribberish: readers
rasterio: members readers pipeline.reductions
pystac: members
pytest, hypothesis: testing
""")

# (module, what it imports) -> why an import inside a function, against the table, is right there.
DELIBERATE: dict[tuple[str, str], str] = {
    ("frazil.repository.session.session", "frazil.zarr_store"): "`session.store`, as users know it",
    (
        "frazil.history.blame",
        "pyarrow",
    ): "only `Blame.to_arrow` needs it, and the core packages do not have it",
    (
        "frazil.pipeline.transform.regridding",
        "xarray_regrid",
    ): "it takes a second to import, and most executors never regrid",
    ("frazil.engines", "importlib.metadata"): "it takes 20 ms to import, and most processes name no engine",
    (
        "pyspark_frazil",
        "frazil.spark.data_source",
    ): "Spark imports every `pyspark_*` for whatever source: ours costs nothing until it is used",
}


class Import(NamedTuple):
    """One import: ``module`` names ``target`` in ``line`` of ``path``."""

    module: str
    target: str
    path: Path
    line: int
    in_function: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(REPOSITORY)}:{self.line}: {self.module} imports {self.target}"


def imports_of(module: str, for_types: bool = False) -> Iterator[Import]:
    """Every import that happens at run time, those inside functions as well.

    With ``for_types`` also those that only a type checker makes, under ``TYPE_CHECKING``.
    """
    path = PATHS[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]

    def visit(node: Any, in_function: bool) -> Iterator[Import]:
        match node:
            case ast.If(test=test) if not for_types and ast.unparse(test).endswith("TYPE_CHECKING"):
                for child in node.orelse:
                    yield from visit(child, in_function)
                return
            case ast.Import():
                targets = [name.name for name in node.names]
            case ast.ImportFrom():
                base = node.module or ""
                if node.level:
                    above = package.split(".")[: len(package.split(".")) - node.level + 1]
                    base = ".".join([*above, *filter(None, [base])])
                # `from frazil.format import ids` may mean a module or a name in one
                names = [f"{base}.{name.name}" for name in node.names]
                targets = sorted({name if name in PATHS else base for name in names})
            case _:
                targets = []
        yield from (Import(module, target, path, node.lineno, in_function) for target in targets)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in statements_in(node):
            yield from visit(statement, inside)

    return visit(parsed(path), False)


def is_deliberate(edge: Import) -> bool:
    return edge.in_function and (edge.module, edge.target) in DELIBERATE


@cache
def every_import() -> list[Import]:
    return [edge for module in PATHS for edge in imports_of(module)]


def unlisted_imports() -> list[Import]:
    return [edge for edge in every_import() if not is_deliberate(edge)]


def listed(offences: list[Import]) -> str:
    return "\n".join(map(str, offences))


def test_every_room_is_in_the_table() -> None:
    assert {room(module) for module in PATHS} <= set(MAY_IMPORT)


def test_rooms_import_only_what_the_table_allows() -> None:
    offences = [
        edge
        for edge in unlisted_imports()
        if is_ours(edge.target)
        and room(edge.target) not in MAY_IMPORT[room(edge.module)] | SETS["COMMON"] | {room(edge.module)}
    ]
    assert not offences, f"not in the import table:\n{listed(offences)}"


def test_other_packages_stay_in_their_rooms() -> None:
    offences = [
        edge
        for edge in unlisted_imports()
        if room(edge.module) not in ONLY_IN.get(edge.target.partition(".")[0], {room(edge.module)})
    ]
    assert not offences, f"not in this room:\n{listed(offences)}"


def test_no_imports_inside_functions() -> None:
    offences = [edge for edge in unlisted_imports() if edge.in_function and room(edge.module) != "cli"]
    assert not offences, f"inside a function:\n{listed(offences)}"


def test_no_imports_by_text() -> None:
    """A module that a text names is an import that no tool sees."""
    offences = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}: {node.value}"
        for path in PATHS.values()
        for node in nodes_of(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"frazil(\.\w+)+:\w+", node.value) and node.value.partition(":")[0] in PATHS
    ]
    assert not offences, "\n".join(offences)


def test_deliberate_imports_still_exist() -> None:
    existing = {(edge.module, edge.target) for edge in every_import() if edge.in_function}
    assert existing >= {edge for edge in DELIBERATE if edge[0] in PATHS}


def test_one_module_makes_thread_pools() -> None:
    users = [
        module for module, path in PATHS.items() if re.search(r"ThreadPoolExecutor[()]", path.read_text())
    ]
    assert users == ["frazil.threads"]


#: Rooms that ask only `frazil.host` for the time, for pauses and for random numbers.
SIMULATED = SETS["CORE"] | SETS["OF_REPOSITORY"] | {"zarr_store", "maintenance", "frazil_import", "jobs"}
#: Module with its own clock or random numbers -> why.
OWN_CLOCK = {
    "frazil.storage.buckets": "credentials expire at a time of the service",
    "frazil.storage.object_store": "measures requests over a real network",
    "frazil.storage.web_client": "waits for a real network",
    "frazil.jobs.engine": "waits for processes of this machine",
    "frazil.format.columns": "a sample with a constant seed",
}
_CLOCK = re.compile(
    r"^(?:import|from) (?:time|random|secrets|uuid)\b|\bos\.urandom\(|\bdatetime\.(?:now|utcnow|today)\(|"
    r"\bnp\.random\b"
)


def has_own_clock(source: str) -> bool:
    lines = source.splitlines()
    return any(_CLOCK.search(line) for line in lines if not line.lstrip().startswith((">>>", "...")))


def test_one_module_reads_clocks_and_draws_random_numbers() -> None:
    """A simulation replaces `frazil.host`. Another clock would make it a different run each time."""
    modules = {module for module in PATHS if room(module) in SIMULATED}
    assert {each for each in modules if has_own_clock(PATHS[each].read_text())} == set(OWN_CLOCK)


#: Imports of a module above, for types as well -> why. All other imports lead downwards.
UPWARDS: dict[tuple[str, str], str] = {
    ("frazil.repository.session.session", "frazil.zarr_store"): "`session.store`, as users know it"
}


def test_no_import_cycles() -> None:
    """Neither at run time nor for a type checker: a module can be understood without those above it."""
    graph: dict[str, set[str]] = {module: set() for module in PATHS}
    for edge in (edge for module in PATHS for edge in imports_of(module, for_types=True)):
        if edge.target in PATHS and edge.target != edge.module and (edge.module, edge.target) not in UPWARDS:
            graph[edge.module].add(edge.target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("import cycle: " + " -> ".join(reversed(error.args[1])))


# ---- private names ----------------------------------------------------------------------------------

#: Private names that rooms may use though others define them -> why.
STANDARD_PRIVATE = {
    "_replace": "of named tuples",
    "_asdict": "of named tuples",
    "_fields": "of named tuples",
    "_gateway": "of pyspark's SparkContext: there is no public way to ask whether a JVM runs",
    "_jsparkSession": "of pyspark's SparkSession: there is no public way to ask for its object in the JVM",
    "_active_spark_context": "of pyspark's SparkContext: there is no public way to ask for it",
    "_async_array": "of zarr's arrays: before zarr 3.1.2, there is no public name",
    "_config": "of zarr's asynchronous arrays: before zarr 3.1.2, there is no public name",
    "_meta": "of dask arrays: the only way to the type of their chunks",
    "_write_region": "of xarray's writer of zarr, which has no public form",
    "_validate_encoding": "of xarray's writer of zarr, which has no public form",
    "_validate_and_autodetect_region": "of xarray's writer of zarr, which has no public form",
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Names that a module defines: functions, classes, variables, attributes, slots."""
    for node in nodes_of(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                for constant in ast.walk(value):
                    if isinstance(constant, ast.Constant):
                        yield str(constant.value)


@cache
def names_of_rooms() -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for module in PATHS:
        names.setdefault(room(module), set()).update(defined_names(parsed(PATHS[module])))
    return names


def foreign_private_names(module: str, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Private names of other rooms that a module uses."""
    classes = {node.name for node in nodes_of(tree) if isinstance(node, ast.ClassDef)}
    own = names_of_rooms()[room(module)]
    for node in nodes_of(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner)) if owner in {"self", "cls", *classes}:
                continue
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                continue
            case ast.Attribute(attr=name) if is_private(name):
                if name not in own and name not in STANDARD_PRIVATE:
                    yield node, name
            case ast.ImportFrom(names=aliases, module=source) if (source or "").startswith("frazil"):
                for alias in aliases:
                    if is_private(alias.name) and alias.name not in own:
                        yield node, alias.name


def test_no_private_names_of_other_rooms() -> None:
    offences = [
        f"{PATHS[module].relative_to(REPOSITORY)}:{getattr(node, 'lineno', 1)}: {name} is private"
        for module in PATHS
        for node, name in foreign_private_names(module, parsed(PATHS[module]))
    ]
    assert not offences, "give it an inner seam:\n" + "\n".join(offences)


# ---- the public list --------------------------------------------------------------------------------


def test_the_public_list_is_complete() -> None:
    public = {
        name
        for name, value in vars(frazil).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public - {"import_on_demand"} <= set(frazil.__all__)
    assert list(frazil.__all__) == sorted(frazil.__all__)


def test_public_objects_say_they_are_ours() -> None:
    foreign = [
        f"{name}: {value.__module__}"
        for name in getattr(frazil, "__all__", [])
        if isinstance(value := getattr(frazil, name), type) or (callable(value) and get_origin(value) is None)
        if not str(getattr(value, "__module__", "frazil")).startswith("frazil")
    ]
    assert not foreign
