"""Commands about the content of a version or a repository: ls, tree, info, cat, sql, du, stats, inspect."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import click
import numpy as np

import frazil
from frazil.cli.arguments import AnyTarget, ArrayTarget, Everything, Raw, RequiredTarget
from frazil.cli.command import Output, argument, option, picked, table, verb
from frazil.cli.opening import SHORT, OpenTarget, below, clock, node_at, node_document, shown, summary
from frazil.display import counted
from frazil.errors import InvalidInputError
from frazil.format.chunk_table import ChunkKind
from frazil.maintenance.statistics import array_sizes
from frazil.repository.paths import HIDDEN
from frazil.repository.target import MAIN

if TYPE_CHECKING:
    from frazil.cli.cells import OpenArray
    from frazil.handle.repository import Repository
    from frazil.repository.session.workspace import Workspace


def sizes_below(version: OpenTarget, everything: bool) -> list[dict[str, Any]]:
    """Return the number of chunks and bytes of each array at and below the path of a version."""
    nodes = version.workspace.snapshot.nodes
    arrays = [(nodes.node(row), None) for row in _arrays_below(version, everything)]
    kinds = (ChunkKind.NATIVE, ChunkKind.INLINE, ChunkKind.VIRTUAL)
    return [
        {
            "path": each.node.path,
            "chunks": int(each.counts.sum()),
            "bytes": int(each.bytes.sum()),
            **{kind.name.lower(): int(each.bytes[kind].sum()) for kind in kinds},
        }
        for each in array_sizes(version.context, arrays)
    ]


def _arrays_below(version: OpenTarget, everything: bool) -> list[int]:
    """Return the rows of the arrays at and below the path of a version, in its table of nodes."""
    node_at(version.workspace, version.path)
    nodes = version.workspace.snapshot.nodes
    hidden, paths = len(version.path.rstrip("/")), nodes.paths_list()
    return [
        row
        for row in np.flatnonzero(nodes.is_array).tolist()
        if below(paths[row], version.path) and (everything or "/." not in paths[row][hidden:])
    ]


#: `cat` reads more values only with `--all`.
_MOST = 1_000_000


@verb("ls")
def ls(output: Output, target: AnyTarget, everything: Everything) -> None:
    """List the groups and arrays directly in a group, with type and shape. The path of an array lists it.

    Examples:
        frazil ls ice               the groups and arrays of the root
        frazil ls ice@v1:era5       a group of a tag
        frazil ls ice --json        with chunks, codecs and attributes
    """
    version = OpenTarget(target)
    nodes = version.workspace
    members = [node_at(nodes, version.path)]
    if members[0].array is None:
        prefix = version.path.rstrip("/")
        names = shown(nodes.children(version.path), everything)
        members = [nodes.require_node(f"{prefix}/{name}") for name in names]
    documents = list(map(node_document, members))
    slash = {"group": "/", "array": ""}
    rows = (
        (each["path"].rpartition("/")[2] + slash[each["kind"]], each["kind"], summary(each))
        for each in documents
    )
    output.emit(documents, map(output.cut, table(rows)), pages=True)


@verb("tree")
def tree(
    output: Output,
    target: AnyTarget,
    depth: Annotated[int | None, option(metavar="N")],
    everything: Everything,
) -> None:
    """Show a group and all groups and arrays in it as a tree, with types and shapes.

    Args:
        depth: Show at most N levels.

    Examples:
        frazil tree ice             the whole version
        frazil tree ice@dev:era5    a group of a branch
        frazil tree ice --depth 1   only the members of the root
    """
    version = OpenTarget(target)
    documents, lines = [], []
    for lasts, document in _walk(version.workspace, version.path, (), depth, everything):
        stem = "".join("    " if last else "│   " for last in lasts[:-1])
        branch = ("└── " if lasts[-1] else "├── ") if lasts else ""
        name = document["path"].rpartition("/")[2] if lasts else document["path"]
        documents.append(document)
        lines.append(output.cut(f"{stem}{branch}{name}  {summary(document)}".rstrip()))
    output.emit(documents, lines, pages=True)


def _walk(
    nodes: Workspace, path: str, lasts: tuple[bool, ...], depth: int | None, everything: bool
) -> Iterator[tuple[tuple[bool, ...], dict[str, Any]]]:
    """Yield a node and those below it, each with whether it and its groups are the last of their members."""
    node = node_at(nodes, path)
    yield lasts, node_document(node)
    if node.array is not None or depth == len(lasts):
        return
    names = shown(nodes.children(path), everything)
    for name in names:
        yield from _walk(nodes, f"{path.rstrip('/')}/{name}", (*lasts, name == names[-1]), depth, everything)


@verb("info")
def info(output: Output, target: AnyTarget) -> None:
    """Describe a repository: spec version, status, branches, tags, and the newest version.

    With a path, describe a group or an array: type, shape, chunks, codecs, attributes.

    Examples:
        frazil info ice             the repository
        frazil info ice@v1:era5/t   an array of a tag
        frazil info ice:/           the root group with its attributes
    """
    opened = OpenTarget(target)
    if target.path is None and target.version is None:
        document = _repository_document(opened.repo)
    else:
        node = node_at(opened.workspace, opened.path)
        document = {"version": opened.id, **node_document(node)}
    attributes = document.get("attributes", {})
    texts = {name: value for name, value in document.items() if name != "attributes"}
    if texts.get("shards") is None:
        texts.pop("shards", None)
    lines = table((name.replace("_", " "), _info_text(name, value)) for name, value in texts.items())
    lines += [f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in attributes.items()]
    output.emit(document, lines)


def _repository_document(repo: Repository) -> dict[str, Any]:
    """Return the description of a repository in the form that JSON has."""
    newest = repo.lookup_snapshot(repo.lookup_branch("main"))
    is_new = repo.spec_version > 1
    metadata = repo.metadata if is_new else {}
    return {
        "spec_version": int(repo.spec_version),
        "status": repo.status.availability.name if is_new else "online",
        "branches": sorted(repo.list_branches()),
        "tags": sorted(repo.list_tags()),
        "main": {"id": newest.id, "time": newest.written_at, "message": newest.message},
        "metadata": {name: value for name, value in metadata.items() if not name.startswith("frazil.")},
    }


def _info_text(name: str, value: Any) -> str:
    if name == "main":
        return f"{value['id'][:SHORT]}  {clock(value['time'])}  {value['message']}".partition("\n")[0]
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@verb("cat", ignore_unknown_options=True)
def cat(
    output: Output,
    target: ArrayTarget,
    selection: Annotated[str, argument(default="", metavar="[SLICE]")],
    everything: Annotated[bool, option("--all")],
    raw: Raw,
    plot: bool,
    stats: bool,
    where: Annotated[str, option("--where", metavar="CONDITION")] = "",
) -> None:
    """Print values of an array as text, with their units and, for one or two dimensions, the labels.

    Values are decoded by the CF conventions: packing (scale_factor, add_offset), missing values, booleans,
    times. --raw prints the stored elements. SLICE selects cells: an index, or START:STOP:STEP as in Python,
    for each dimension, separated by commas; or labels of coordinates: NAME=LABEL, NAME=FIRST..LAST with both
    ends, NAME~VALUE for the nearest label (this needs the extra `pipeline`).

    --plot draws one or two dimensions: low values are light, high values are dense, missing values are empty.
    North is at the top: rows of ascending latitudes are drawn in the reverse order. The command refuses to
    read more than a million values without --all.

    --stats prints the mean, the extremes and the numbers of values instead. It reads only chunks without
    statistics and chunks that are partly in SLICE: `frazil stats --build` stores statistics.

    --where prints the values that meet a condition, each with its index and its labels: comparisons with
    numbers or times, IN, BETWEEN and IS NULL, joined by AND, OR and NOT. It reads only chunks that can have
    such values by their statistics.

    Args:
        everything: Also read more than a million values.
        plot: Draw the values in the terminal.
        stats: Print the mean, the extremes and the number of values, NaN and missing values.
        where: Print only the values that meet a condition such as "> 40 and <= 50".

    Examples:
        frazil cat ice:era5/t 0,:2         the first values of the first step
        frazil cat ice@v1:era5/time        all values of a coordinate
        frazil cat ice:era5/t time=2       the values at a label
        frazil cat ice:era5/t 0 --raw      the stored elements
        frazil cat ice:era5/t --plot       a picture in the terminal
        frazil cat ice:era5/t --stats      the mean and the extremes, and how many chunks were read
        frazil cat ice:era5/t --where "> 40 or is null"   the places of these values
        frazil cat ice:era5/t -1 --json    the last step as nested lists, with its shape, type and units
    """
    from frazil.cli.cells import SELECTION, OpenArray, indices_of, lines_of, plot_lines, selected_shape

    selected = SELECTION.convert(selection or (), None, None)
    version = OpenTarget(target)
    session = version.session()
    opened = OpenArray(session, version.path, raw=raw)
    indices = indices_of(session, version.path, selected)
    if stats:
        _emit_statistics(output, version, opened, indices, raw=raw)
        return
    if where:
        if raw or plot:
            raise click.UsageError("--where compares decoded values: leave out --raw and --plot")
        _emit_matches(output, version, opened, frazil.where(opened.array, where, indices or ...), everything)
        return
    count = math.prod(selected_shape(opened.array.shape, indices))
    if count > _MOST and not everything:
        raise click.UsageError(f"got {count:,} values, expected at most {_MOST:,}. Pass a SLICE, or --all")
    elements = opened.elements(indices)
    cells = opened.cells(elements)
    axes = opened.axes(indices)
    document = {
        "path": version.path,
        "version": version.id,
        "dtype": str(elements.dtype),
        "shape": list(elements.shape),
        "units": cells.units or None,
        "coordinates": {each.name: each.labels.documents() for each in axes if each.labels},
        "values": cells.documents(),
    }
    name = version.path.rpartition("/")[2]
    by_label = isinstance(selected, dict)
    lines = plot_lines(cells, axes) if plot else lines_of(name, cells, axes, by_label=by_label)
    output.emit(document, lines, pages=not plot)


_STATISTICS = ("size", "count", "nan", "missing", "min", "max", "mean", "std", "chunks", "chunks_read")


def _emit_statistics(
    output: Output, version: OpenTarget, opened: OpenArray, indices: Any, *, raw: bool
) -> None:
    """Print the statistics of the values of a selection. Times are texts, and numbers in JSON."""
    from frazil.cli.cells import place

    array = frazil.Array(version.session(), version.path)
    numbers = picked(frazil.reduce(array, indices or ..., decoded=not raw), *_STATISTICS)
    dtype, units = np.dtype(array.dtype), opened.coding.units
    texts = {
        name: f"{value:.12g}" if isinstance(value, float) else f"{value:,}" for name, value in numbers.items()
    }
    is_numpy = dtype.kind in "mM"
    if numbers["count"] and not raw and (opened.coding.is_time or is_numpy):
        for name in ("min", "max", "mean"):
            number = np.array([numbers[name]])
            element = number.astype(np.int64).view(dtype) if is_numpy else number
            texts[name] = str(opened.cells(element).texts()[0])
        texts["std"] += f" {np.datetime_data(dtype)[0] if is_numpy else opened.coding.step[0]}"
    rows = [(name.replace("_", " "), text) for name, text in texts.items()]
    rows += [("units", units)] if units else []
    where = place(opened.axes(indices))
    rows += [("at", where)] if where else []
    output.emit({"path": version.path, "version": version.id, "units": units, **numbers}, table(rows))


def _emit_matches(
    output: Output, version: OpenTarget, opened: OpenArray, matches: frazil.Matches, everything: bool
) -> None:
    """Print the values that meet a condition, with their indices and labels."""
    from frazil.cli.cells import shortened

    if (count := matches.count()) > _MOST and not everything:
        raise click.UsageError(f"got {count:,} values, expected at most {_MOST:,}. Pass a SLICE, or --all")
    points = matches.points()
    index = tuple(points.T)
    elements = np.reshape(opened.elements(index), -1)[:count]
    cells, labelled = opened.cells(elements), [each for each in opened.axes(index) if each.labels]
    document = {
        "path": version.path,
        "version": version.id,
        "dtype": str(elements.dtype),
        "units": cells.units or None,
        "index": points.tolist(),
        "coordinates": {each.name: each.labels.documents() for each in labelled if each.labels},
        "values": cells.documents(),
    }
    name = version.path.rpartition("/")[2]
    title = f"{name} [{cells.units}]" if cells.units else name
    columns = [["index", *(",".join(map(str, each)) for each in points.tolist())]]
    columns += [[each.name, *each.texts] for each in labelled]
    columns.append([title, *shortened(cells.texts()).tolist()])
    lines = table(zip(*columns, strict=True), right=frozenset(range(1, len(columns))))
    output.emit(document, lines if count else ["no values meet the condition"], pages=True)


@verb("du")
def du(
    output: Output,
    target: AnyTarget,
    summarize: Annotated[bool, option("-s", "--summarize")],
    everything: Everything,
) -> None:
    """Show how many chunks and bytes each array of a version has, the largest first.

    Chunks that several versions share count for each version: `frazil stats` counts the bytes of the whole
    repository.

    Args:
        summarize: Only print the sum.

    Examples:
        frazil du ice             all arrays of `main`
        frazil du ice@v1:era5     the arrays of a group
        frazil du ice -s          only the sum
    """
    from frazil.jobs.progress import size

    version = OpenTarget(target)
    rows = sorted(sizes_below(version, everything), key=lambda row: (-row["bytes"], row["path"]))
    numbers = ("chunks", "bytes", "native", "inline", "virtual")
    total = {"path": version.path, **{name: sum(row[name] for row in rows) for name in numbers}}
    visible = [total] if summarize else [*rows, {**total, "path": "total"}]
    lines = table(
        ((size(row["bytes"]), f"{row['chunks']:,}", row["path"]) for row in visible), right=frozenset({0, 1})
    )
    output.emit({"arrays": [] if summarize else rows, "total": total}, lines, pages=True)


@verb("stats")
def stats(output: Output, target: AnyTarget, everything: Everything, build: bool, rebuild: bool) -> int:
    """Count the versions of a repository, the bytes of all chunks, and the chunks that have statistics.

    The bytes are in chunk files (native), in manifests (inline), and in objects outside of the repository
    (virtual). Each range counts once, even if many versions refer to it. The command reads all manifests.

    Then it lists the arrays of a version, or those at PATH: how many of their chunks have statistics, so that
    a mean, an extreme or a search needs not read them. --build reads the other chunks, and stores theirs. The
    exit status is 1 if some of them cannot be read.

    Args:
        build: Store the statistics of the chunks that have none.
        rebuild: Read all chunks of these arrays, and replace their statistics.

    Examples:
        frazil stats ice                   the numbers for people
        frazil stats ice --json            the numbers in bytes, for programs
        frazil stats ice@dev:era5 --build  store the statistics of the arrays of a group
    """
    from frazil.jobs.progress import size
    from frazil.maintenance.chunk_statistics import coverage

    opened = OpenTarget(target)
    rows, failures = _arrays_below(opened, everything), 0
    if build or rebuild:
        nodes = opened.workspace.snapshot.nodes.paths_list()
        paths = [nodes[row] for row in rows] if target.path is not None else None
        with output.progress("stats") as bar:
            report = opened.repo.upkeep.build_statistics(opened.id, paths, rebuild=rebuild, progress=bar)
        failures = report.chunks_failed
    whole = opened.context.catalog.full_repo_info()
    statistics = opened.repo.chunk_storage_stats()
    document: dict[str, Any] = {
        "versions": len(whole.snapshots),
        "branches": len(whole.branches),
        "tags": len(whole.tags),
        "native_bytes": statistics.native_bytes,
        "inline_bytes": statistics.inlined_bytes,
        "virtual_bytes": statistics.virtual_bytes,
    }
    lines = table(
        (
            (name.replace("_", " "), size(value) if name.endswith("bytes") else f"{value:,}")
            for name, value in document.items()
        ),
        right=frozenset({1}),
    )
    arrays = coverage(opened.workspace, rows)
    lines += table(
        (f"statistics {path}", f"{known:,} of {counted(chunks, 'chunk')}") for path, chunks, known in arrays
    )
    lines += [f"{counted(failures, 'chunk')} could not be read: `frazil verify` names them"] * bool(failures)
    document |= {
        "chunks_failed": failures,
        "arrays": [dict(zip(("path", "chunks", "known"), each, strict=True)) for each in arrays],
    }
    output.emit(document, lines)
    return 1 if failures else 0


@verb("inspect")
def inspect(
    output: Output,
    target: AnyTarget,
    repo: bool,
    log: bool,
    manifests: bool,
    manifest: Annotated[str | None, option(metavar="ID")],
) -> None:
    """Print what a file of the format contains, as JSON: by default the snapshot of a version.

    Args:
        repo: Print the file `repo`.
        log: Print the transaction log of the version.
        manifests: List the manifests of the version.
        manifest: Print the numbers of a manifest.

    Examples:
        frazil inspect ice                   the snapshot of `main`
        frazil inspect ice@v1 --log          what the commit of a tag changed, by node ids
        frazil inspect ice --manifests       the manifests of a version
        frazil inspect ice --repo            refs, snapshots and newest updates
    """
    version = OpenTarget(target)
    handle = version.repo
    document: Any
    if manifest is not None:
        document = handle.inspect_manifest(manifest)
    elif repo:
        document = handle.inspect_repo_info()
    elif log:
        document = handle.inspect_transaction_log(version.id)
    elif manifests:
        files = handle.list_manifest_files(version.id)
        document = [picked(each, "id", "size_bytes", "num_chunk_refs") for each in files]
    else:
        document = handle.inspect_snapshot(version.id)
    output.emit(document, json.dumps(document, indent=2, ensure_ascii=False).splitlines(), pages=True)


#: The table of the group at the path of the target.
_OF_TARGET = "t"


@verb("collection")
def collection(
    output: Output,
    target: RequiredTarget,
    where: Annotated[str | None, option(metavar="CONDITION")],
    bbox: Annotated[str | None, option(metavar="W,S,E,N")],
) -> None:
    """List the members of a collection: name, first time, box, shape.

    Args:
        where: Only members whose rows meet a condition, such as "cloud < 10 and time >= '2024-01-01'".
        bbox: Only members whose box touches this one, in degrees. The west may be larger than the east.

    Examples:
        frazil collection ice:scenes                        all members
        frazil collection ice@v1:scenes --where "cloud < 10"
        frazil collection ice:scenes --bbox=170,-20,-170,10 --json
    """
    version = OpenTarget(target)
    try:
        box = None if bbox is None else tuple(map(float, bbox.split(",")))
    except ValueError:
        raise InvalidInputError(f"--bbox must be four numbers W,S,E,N, got {bbox!r}") from None
    members = frazil.Collection(version.session(), version.path).where(where, bbox=box)
    columns = {name: each.tolist() for name, each in members.columns.items()}
    rows = [
        dict(zip(("member", *columns), row, strict=True))
        for row in zip(members, *columns.values(), strict=True)
    ]
    sides = ("west", "south", "east", "north")
    lines = (
        table(
            (
                each["member"],
                str(each["time"] or ""),
                ",".join(f"{each[side]:g}" for side in sides),
                each["shape"],
            )
            for each in rows
        )
        if rows
        else []
    )
    output.emit(rows, map(output.cut, lines), pages=True)


@verb("sql", commits=True)
def sql(
    output: Output, target: RequiredTarget, query: Annotated[str, argument(metavar="QUERY")], csv: bool
) -> None:
    """Print the answer of DuckDB to a query in SQL, or change tables by statements.

    Each group is a table with a row for each cell of its arrays. Coordinates are columns too. The name of a
    table is the path of the group below the path of the target, such as air or "era5/surface". The group of
    the target, or of its array, is the table t. Chunks that no row of the answer needs are not read. Files
    are tables too: 'stations.csv', 'stations.parquet'.

    INSERT, UPDATE, DELETE, MERGE, CREATE and other statements change the branch of the target. Each of them
    is one commit.

    Args:
        csv: Print the result as CSV.

    Examples:
        frazil sql ice:era5 "select x, avg(t) from t group by x order by x"
        frazil sql ice@v1 "select * from era5 where time < 2 limit 3"
        frazil sql ice "select count(*) as cells from era5" --json
        frazil sql ice "update era5 set t = t + 273.15 where x = 0"
    """
    import duckdb

    from frazil.sql.catalog import StatementRunner
    from frazil.sql.names import Namespace
    from frazil.sql.on_duckdb import DuckDbSql

    version = OpenTarget(target)
    node_at(version.workspace, version.path)
    tables, name = _tables(version), target.location
    at = {"branch": target.version or MAIN}
    if at["branch"] not in version.info.branches:
        at = {"snapshot_id": version.id}
    runner = StatementRunner(
        DuckDbSql(), Namespace({name: version.repo}, name, version.path, at, aliases=tables)
    )
    try:
        answer = runner.run(query)
    except duckdb.Error as error:
        is_table = isinstance(error, duckdb.CatalogException)
        advice = _tables_advice(version, tables, str(error)) if is_table else ""
        raise InvalidInputError(f"DuckDB: {str(error).splitlines()[0].rstrip('!')}{advice}") from error
    names, rows = answer.names, answer.rows
    if csv and not output.as_json:
        _print_csv(names, rows)
        return
    keys = _distinct(names)
    documents = ({key: _plain(cell) for key, cell in zip(keys, row, strict=True)} for row in rows)
    right = frozenset(at for at, cell in enumerate(rows[0] if rows else ()) if isinstance(cell, int | float))
    lines = table([tuple(names), *(tuple(map(_text, row)) for row in rows)], right=right)
    output.emit(documents, map(output.cut, lines), pages=True)


def _tables(version: OpenTarget) -> dict[str, str]:
    """Return the paths of the groups at and below the path of a version, by the names of their tables."""
    nodes = version.workspace.snapshot.nodes
    groups = nodes.select_nodes(~np.asarray(nodes.is_array)).paths_list()
    prefix = version.path.rstrip("/") + "/"
    inner = {path.removeprefix(prefix): path for path in groups if below(path, version.path)}
    tables = {name: path for name, path in inner.items() if path != version.path}
    return {**tables, _OF_TARGET: tables.get(_OF_TARGET, version.path)}


def _tables_advice(version: OpenTarget, tables: Mapping[str, str], message: str) -> str:
    """Return the names of the tables, and that a name which is no table is the name of a column."""
    names = ", ".join(name for name in tables if name.partition("/")[0] != HIDDEN)
    absent = re.search(r"with name (\S+) does not exist", message)
    node = version.workspace.node(f"{tables[_OF_TARGET].rstrip('/')}/{absent[1]}") if absent else None
    column = f", and {absent[1]} is a column of {_OF_TARGET}" if absent and node and node.array else ""
    return f". The tables are {names}{column}"


def _print_csv(names: list[str], rows: list[tuple[Any, ...]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names with numbers at those that came before, as DuckDB names the columns of a subquery."""
    keys: list[str] = []
    for name in names:
        numbered = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
        keys.append(next(each for each in numbered if each not in keys))
    return keys


def _plain(cell: Any) -> Any:
    """Return a value for JSON. Times without a zone are in UTC."""
    is_naive = isinstance(cell, datetime) and cell.tzinfo is None
    return cell.replace(tzinfo=UTC) if is_naive else cell


def _text(cell: Any) -> str:
    return "null" if cell is None else str(cell)
