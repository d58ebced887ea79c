"""Commands that move data, and that compute them: copy, export, rechunk, ingest, refresh, and others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from glob import has_magic
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import click

from frazil.cli import arguments as args
from frazil.cli.cells import SELECTION
from frazil.cli.command import Output, argument, option, picked, table, verb
from frazil.cli.contents import sizes_below
from frazil.cli.opening import SHORT, BranchChange, OpenTarget, author_metadata, emit_tip, storage_of
from frazil.display import counted
from frazil.errors import InvalidInputError
from frazil.handle.addresses import virtual_access
from frazil.handle.repository import Repository
from frazil.jobs.progress import size
from frazil.repository.target import MAIN, Target
from frazil.storage.base import Storage

_Patterns = Annotated[tuple[str, ...], option(metavar="PATTERN")]
_Text = Annotated[str, argument()]


def open_or_create(storage: Storage) -> Repository:
    """Open the repository of a storage, or create it. Its commits have the author of the command."""
    repo = Repository.open_or_create(storage, authorize_virtual_chunk_access=virtual_access())
    repo.set_default_commit_metadata(author_metadata())
    return repo


def _replicate(
    output: Output,
    source: args.RequiredLocation,
    target: args.RequiredLocation,
    branch: _Patterns,
    tag: _Patterns,
    shallow: bool,
    dry_run: args.DryRun,
    engine: args.Engine = "inline",
    *,
    operation: str,
    **further: Any,
) -> None:
    """Copy or clone a repository.

    Args:
        branch: Only these branches.
        tag: Only these tags.
        shallow: Only the newest version of each branch, without history.
    """
    import frazil.pipeline

    part = frazil.pipeline.RepositoryPart(branches=branch or ("*",), tags=tag or ("*",), newest_only=shallow)
    settings: dict[str, Any] = {"dry_run": dry_run, "engine": engine, **further}
    storage = storage_of(target)
    to, output.location = output.location, str(Target(source.location))
    repo = OpenTarget(source).repo
    output.location = to
    with output.progress(operation) as bar:
        replicate = getattr(frazil.pipeline, f"{operation}_repository")
        report = replicate(repo, storage, part=None if part.is_whole else part, progress=bar, **settings)
    _emit_report(output, report, storage.label(), dry_run=dry_run)


@verb("copy", like=_replicate)
def copy(output: Output, compare: bool, **arguments: Any) -> None:
    """Copy a repository into another storage, or bring an earlier copy up to date: only new files are copied.

    The copy is complete at every moment.

    Args:
        compare: Compare files that the copy has already, too.

    Examples:
        frazil copy ice backup --dry-run              count the objects to copy
        frazil copy ice backup                        a copy in another folder
        frazil copy s3://bucket/ice backup --compare  also copy files again that differ
    """
    _replicate(output, operation="copy", compare=compare, **arguments)


@verb("clone", like=_replicate)
def clone(output: Output, **arguments: Any) -> None:
    """Make a new repository with the files of another one, for commits of its own.

    Examples:
        frazil clone ice mine                          with all branches and tags
        frazil clone ice mine --branch main            only one branch
        frazil clone ice mine --shallow                without the history
    """
    _replicate(output, operation="clone", **arguments)


def _emit_report(output: Output, report: Any, label: str, *, dry_run: bool = False) -> None:
    document = picked(report, "objects", "bytes", "existing")
    existing = f", {counted(report.existing, 'object')} existed" if report.existing else ""
    action = "would copy " if dry_run else ""
    work = f"{counted(report.objects, 'object')} ({size(report.bytes)})"
    output.emit({**document, "dry_run": dry_run}, [f"{action}{work} to {label}{existing}"])


@verb("view")
def view(
    output: Output,
    source: Annotated[Target, argument(type=args.TargetType(), metavar="LOCATION[@VERSION][:PATH]")],
    target: args.RequiredLocation,
    box: Annotated[Any, option(metavar="DIM=FIRST..LAST,...", type=SELECTION, default={})],
    variables: Annotated[Any, option(metavar="A,B,...", callback=args.converted(args.comma_separated, ()))],
    rectilinear: bool,
    unprotected: bool,
    dry_run: args.DryRun,
    max_copy: Annotated[str, option(metavar="SIZE")] = "1GB",
    engine: args.Engine = "inline",
) -> None:
    """Make a repository that refers to the chunks of another one, or bring it up to date. No chunk is copied.

    Only chunks that the box cuts are copied. A tag in the source protects the chunks until it is deleted.
    A view of a branch follows it when the same command runs again. Readers name the containers in the
    variable FRAZIL_VIRTUAL_ACCESS; in Python in authorize_virtual_chunk_access.

    Args:
        box: Labels along dimensions, both ends included; without a coordinate, indices without LAST.
        variables: Only these arrays of the group, with their coordinates.
        rectilinear: Give an array whose box begins inside of a chunk chunks of unequal lengths.
        unprotected: Make no tag in the source, which may then delete the chunks.
        max_copy: The most values to copy, before compression.

    Examples:
        frazil view ice share                                     everything
        frazil view ice@v1:era5 share --box time=2020..2021       two years of a group, at a tag
        frazil view s3://bucket/ice s3://share/ice --variables t  one variable and its coordinates
        frazil view ice share --box lat=10..60 --dry-run          count what it refers to and copies
    """
    import frazil.pipeline

    opened = OpenTarget(source)
    if not isinstance(box, dict):
        raise click.UsageError("--box takes labels: DIM=FIRST..LAST,...")
    name = source.version or MAIN
    branch = name if name in opened.info.branches else None
    version = frazil.pipeline.Version(opened.repo, opened.id, branch)
    paths = tuple(f"{opened.path.rstrip('/')}/{name}" for name in variables) or (opened.path,)
    settings: dict[str, Any] = {"rectilinear": rectilinear, "max_copy": max_copy, "unprotected": unprotected}
    with output.progress("view") as bar:
        report = frazil.pipeline.view_repository(
            version,
            storage_of(target),
            paths=paths,
            sel=box,
            engine=engine,
            progress=bar,
            dry_run=dry_run,
            **settings,
        )
    document = picked(report, "arrays", "chunks", "bytes", "copied", "copied_bytes", "tag", "done_before")
    work = (
        f"{counted(report.arrays, 'array')} with {counted(report.chunks, 'reference')} ({size(report.bytes)})"
        f", copied {counted(report.copied, 'chunk')} ({size(report.copied_bytes)})"
    )
    action = "would make" if dry_run else "up to date:" if report.done_before else "made"
    lines = [f"{action} {work}"]
    if not dry_run:
        lines.append(f"protection in the source: {f'tag {report.tag}' if report.tag else 'none'}")
    lines.append(f"readers authorise: {' '.join(report.containers) or 'nothing'}")
    output.emit({**document, "containers": list(report.containers), "dry_run": dry_run}, lines)


@verb("export")
def export(
    output: Output, target: args.RequiredTarget, to: _Text, overwrite: bool, dry_run: args.DryRun
) -> None:
    """Write a version without its history.

    The result is a plain Zarr store, or such a store in one zip file if TO ends in `.zip`, or a group as a
    NetCDF file if TO ends in `.nc`. A Zarr store that was exported before is brought up to date.

    Args:
        overwrite: Replace an existing NetCDF or zip file.

    Examples:
        frazil export ice plain.zarr             the newest version of `main` as a Zarr store
        frazil export ice plain.zarr.zip         the same in one file
        frazil export ice@v1:era5 era5.nc        a group of a tag as a NetCDF file
        frazil export ice plain.zarr --dry-run   count the arrays and chunks
        frazil export ice@v1 s3://bucket/plain   a Zarr store in a bucket
    """
    import frazil.pipeline

    version = OpenTarget(target)
    if dry_run:
        rows = sizes_below(version, everything=False)
        counts = {name: sum(row[name] for row in rows) for name in ("chunks", "bytes")}
        text = f"{counted(len(rows), 'array')}, {counted(counts['chunks'], 'chunk')}"
        output.emit(
            {"arrays": len(rows), **counts, "dry_run": True},
            [f"would write {text} ({size(counts['bytes'])} as stored) to {to}"],
        )
        return
    source: Any = frazil.pipeline.Version.of(version.repo, snapshot_id=version.id)
    arrays = ("*",) if version.path == "/" else (version.path, f"{version.path}/*")
    if to.endswith((".nc", ".zip")):
        if "://" in to:
            raise InvalidInputError(
                f"TO must be a local file if it ends in .nc or .zip, got {to}. Export to a local file, and "
                "upload it"
            )
        if to.endswith(".nc"):
            path = frazil.pipeline.export_netcdf(source, to, group=version.path, overwrite=overwrite)
        else:
            with output.progress("export") as bar:
                zipped: dict[str, Any] = {"arrays": arrays, "overwrite": overwrite, "progress": bar}
                path = frazil.pipeline.export_zip(source, to, **zipped)
        output.emit({"file": str(path), "bytes": path.stat().st_size}, [f"wrote {path}"])
        return
    storage = storage_of(args.LOCATION.convert(to, None, None))
    with output.progress("export") as bar:
        report = frazil.pipeline.export_zarr(source, storage, arrays=arrays, engine="inline", progress=bar)
    _emit_report(output, report, storage.label())


@verb("adopt", commits=True)
def adopt(
    output: Output,
    source: args.RequiredLocation,
    target: Annotated[args.RequiredTarget, argument(metavar="LOCATION[@BRANCH]")],
    message: args.Message,
    metadata: args.Metadata,
    dry_run: args.DryRun,
    copy: bool,
    engine: args.Engine = "inline",
) -> None:
    """Make a version with all groups and arrays of a Zarr store of version 3. No chunk is copied.

    The version refers to the objects of the store, which must stay as they are. The repository is created if
    it does not exist. Readers name the URL of the store, with a slash at the end, in the variable
    FRAZIL_VIRTUAL_ACCESS; in Python in authorize_virtual_chunk_access.

    With --copy, the chunks are copied without decoding, so that the store can be deleted. A second run copies
    what is new, and continues a run that was interrupted.

    Args:
        copy: Copy the bytes of the chunks instead.

    Examples:
        frazil adopt plain.zarr ice --dry-run                     count the arrays and chunks
        frazil adopt plain.zarr ice --copy                        copy the chunks as they are
        frazil adopt plain.zarr ice                               on the branch `main`
        frazil adopt s3://bucket/plain.zarr s3://bucket/ice@dev   on another branch
    """
    from frazil.handle.upgrade import adopt, read_zarr_store
    from frazil.storage.profiles import profile_of
    from frazil.storage.urls import parse_url

    location = parse_url(profile_of(source.location).location).chunk_location.rstrip("/")
    place = args.container(f"{location}/")
    store = read_zarr_store(storage_of(source))  # a wrong store must not leave a new repository
    storage = storage_of(target, dry_run)
    open_or_create(storage)
    opened = OpenTarget(target, storage)
    repo, branch = opened.repo, opened.branch
    if copy:
        import frazil.pipeline

        to = frazil.pipeline.Target(repo, branch)
        with output.progress("copy") as bar:
            settings: dict[str, Any] = {"message": message, "metadata": metadata, "progress": bar}
            report = frazil.pipeline.from_zarr(
                storage_of(source), to, engine=engine, dry_run=dry_run, **settings
            )
        _emit_report(output, report, repo.storage.label(), dry_run=dry_run)
        return
    config = repo.config
    config.set_virtual_chunk_container(place)
    repo = repo.reopen(config)
    session = repo.writable_session(branch)
    adoption = adopt(session, store, location)
    repo.save_config()
    id_ = session.commit(message or f"Adopt {location}", metadata or None)
    work = (
        f"{counted(adoption.arrays, 'array')}, {counted(adoption.chunks, 'chunk')} ({size(adoption.bytes)})"
    )
    line = f"would adopt {work}" if dry_run else f"{branch} is at {id_[:SHORT]}: adopted {work}"
    output.emit({"branch": branch, "id": id_, "dry_run": dry_run, **asdict(adoption)}, [line])


@verb("import")
def import_(
    output: Output,
    source: args.RequiredLocation,
    target: Annotated[Target | None, argument(type=args.LOCATION, required=False)],
    copy_chunks: bool,
    reference_chunks: bool,
    dry_run: args.DryRun,
) -> None:
    """Import a repository that was written by icechunk 0.1.0a1 to 0.1.3, or by the draft format before that.

    The new repository has spec version 2, with all snapshots, branches and tags. The old files do not change.
    If an import was interrupted, run the same command again to continue it. For NetCDF files and others use
    `frazil ingest`.

    SOURCE and TARGET are folders, or URLs as in docs/storage.md. Without TARGET the import is in place.

    Args:
        copy_chunks: Copy the chunk files (the default, except in place).
        reference_chunks: Do not copy the chunk files: refer to them as virtual chunks.

    Examples:
        frazil import old new                                    copy everything
        frazil import old                                        import in place
        frazil import old new --dry-run                          only rehearse
        frazil import s3://bucket/old new --reference-chunks     leave the chunks in the bucket
    """
    from frazil_import.importer import Chunks, upgrade

    if copy_chunks and reference_chunks:
        raise click.UsageError("--copy-chunks and --reference-chunks exclude each other")
    if Path(source.location).is_file():
        raise click.UsageError(
            f"{source.location} is a file, and `import` reads repositories of older formats. `frazil ingest "
            f"{source.location} REPOSITORY` writes the data of files into a repository. In Python, "
            "`frazil.pipeline.import_kerchunk` imports references of kerchunk"
        )
    chunks: Chunks = "copy" if copy_chunks else "reference" if reference_chunks else "auto"
    if target in (None, source):
        report = upgrade(storage_of(source, dry_run), chunks=chunks)
    else:
        assert target is not None
        # a rehearsal does not copy chunk files: it would need the memory for all of them
        chunks = "reference" if dry_run else chunks
        report = upgrade(storage_of(source), storage_of(target, dry_run), chunks=chunks)
    lines = [*(["rehearsal: nothing was written"] if dry_run else []), *str(report).splitlines()]
    output.emit({**asdict(report), "dry_run": dry_run}, lines)


def _rewrite(
    output: Output,
    target: args.BranchNodeTarget,
    message: args.Message,
    dry_run: args.DryRun,
    engine: args.Engine = "inline",
    *,
    operation: str,
    argument: Any,
    **further: Any,
) -> None:
    """Store arrays in another form."""
    import frazil.pipeline

    if target.path is None:
        raise click.UsageError("name an array or a group: LOCATION[@BRANCH]:PATH")
    change = BranchChange(output, target, dry_run)
    with output.progress(operation) as bar:
        getattr(frazil.pipeline, operation)(
            frazil.pipeline.Version.of(change.repo, branch=change.branch),
            [change.path],
            argument,
            message=message or f"{operation.capitalize()} {change.path}",
            engine="inline" if dry_run else engine,  # a rehearsal is in the memory of this process
            progress=bar,
            **further,
        )
    change.emit()


@verb("rechunk", commits=True, like=_rewrite)
def rechunk(
    output: Output,
    chunks: _Text,
    shards: Annotated[str | None, option(metavar="DIM=N,...")],
    **arguments: Any,
) -> None:
    """Store arrays in other chunks, in one commit on a branch. Values do not change.

    CHUNKS is DIM=N,...; -1 is the whole dimension. With the path of a group, all arrays below it.

    Args:
        shards: The lengths of shards (no shards).

    Examples:
        frazil rechunk ice:era5/t time=-1,x=1            series along time
        frazil rechunk ice@dev:era5/t time=2 --dry-run   only rehearse
    """
    outer = None if shards is None else args.chunk_sizes(shards)
    _rewrite(output, operation="rechunk", argument=args.chunk_sizes(chunks), shards=outer, **arguments)


@verb("recompress", commits=True, like=_rewrite)
def recompress(output: Output, codec: _Text, **arguments: Any) -> None:
    """Store arrays with another compression, in one commit on a branch. Values do not change.

    CODEC is zstd, gzip or blosc with a level (zstd:9), `none`, or the metadata of codecs as JSON.

    Examples:
        frazil recompress ice:era5/t zstd:9            compress better
        frazil recompress ice:era5 none --dry-run      all arrays of a group; only rehearse
    """
    name, _, level = codec.partition(":")
    codecs: list[dict[str, Any]] = []
    if codec.startswith("["):
        try:
            codecs = json.loads(codec)
        except json.JSONDecodeError as error:
            raise click.UsageError(f"CODEC must be JSON, got {codec!r}: {error}") from error
    elif name in _CODECS and (level or "5").isdigit():
        key, others = _CODECS[name]
        codecs = [{"name": name, "configuration": {key: int(level or 5), **others}}]
    elif codec != "none":
        names = ", ".join(_CODECS)
        raise click.UsageError(f"CODEC must be one of {names} with a level, none or JSON, got {codec!r}")
    _rewrite(output, operation="recompress", argument=codecs, **arguments)


def _derived_lines(rows: Sequence[Any]) -> list[str]:
    """Return derived arrays as a table: path, operation, state, and what a refresh computes."""
    return table((each.path, each.operation, each.row()) for each in rows) if rows else ["no derived arrays"]


def _derived_document(rows: Sequence[Any]) -> list[dict[str, Any]]:
    return [asdict(each) for each in rows]


@verb("derived")
def derived(output: Output, target: args.AnyTarget) -> int:
    """List the derived arrays of a version: which are current, and what a refresh would compute.

    The command ends with 1 if an array is not current.

    Examples:
        frazil derived ice               all derived arrays of main
        frazil derived ice@v2:levels     those below a group, at a tag
    """
    import frazil.pipeline

    opened = OpenTarget(target)
    version = frazil.pipeline.Version(opened.repo, opened.id, target.version)
    report = frazil.pipeline.derived(version, None if target.path is None else [opened.path])
    document = {"arrays": _derived_document(report.arrays), "is_current": report.is_current}
    output.emit(document, _derived_lines(report.arrays), pages=True)
    return int(not report.is_current)


@verb("refresh", commits=True)
def refresh(
    output: Output,
    target: args.AnyTarget,
    mode: Annotated[Literal["auto", "strict", "full"], option(metavar="MODE", default="auto")],
    overwrite_edits: bool,
    message: args.Message,
    dry_run: args.DryRun,
    engine: args.Engine = "inline",
) -> None:
    """Compute what has changed of derived arrays, in one commit on a branch.

    Args:
        mode: auto computes what has changed, strict refuses to compute all of an array, full computes all.
        overwrite_edits: Compute chunks again that somebody has changed.

    Examples:
        frazil refresh ice --dry-run          show what would be computed
        frazil refresh ice:levels             refresh the arrays below a group
    """
    import frazil.pipeline

    change = BranchChange(output, target, dry_run)
    paths = None if target.path is None else [change.path]
    edits: Literal["refuse", "overwrite"] = "overwrite" if overwrite_edits else "refuse"
    with output.progress("refresh") as bar:
        plan = frazil.pipeline.refresh(
            change.repo,
            paths,
            branch=change.branch,
            mode=mode,
            edits=edits,
            message=message or "Refresh derived arrays",
            engine=engine,
            progress=bar,
        )
        rows = plan.report.arrays
        if not dry_run:
            plan.apply()
    changed = [each for each in rows if each.state != "current"]
    current = [f"{counted(len(rows), 'derived array')}: all current"] if rows and not changed else []
    change.emit(current or _derived_lines(changed), arrays=_derived_document(changed))


#: Codec -> the name of its level, and the rest of its configuration.
_CODECS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "zstd": ("level", {"checksum": False}),
    "gzip": ("level", {}),
    "blosc": ("clevel", {"cname": "zstd", "shuffle": "bitshuffle", "typesize": 4, "blocksize": 0}),
}


@verb("ingest", commits=True)
def ingest(
    output: Output,
    source: Annotated[tuple[str, ...], argument(nargs=-1, required=True)],
    repository: args.RequiredLocation,
    dry_run: args.DryRun,
    inspect: bool,
    concat_dim: args.ConcatDim,
    variables: args.Variables,
    chunks: Annotated[Any, option(metavar="DIM=N,...", callback=args.converted(args.chunk_sizes, {}))],
    virtual: bool,
    container: Annotated[
        Any, option(metavar="PREFIX", multiple=True, callback=args.collected(args.container))
    ],
    unpack: bool,
    format: str | None,
    filter_by_keys: args.FilterByKeys,
    reader_option: Annotated[
        Any, option(metavar="KEY=VALUE", multiple=True, callback=args.collected(args.key_value, dict))
    ],
    rename: Annotated[Any, option(metavar="OLD=NEW,...", callback=args.converted(args.key_values, {}))],
    convert: Annotated[Any, option(metavar="NAME=UNITS,...", callback=args.converted(args.key_values, {}))],
    dates: Annotated[Any, option(metavar="NAME=PATTERN,...", callback=args.converted(args.key_values, {}))],
    preprocess: Annotated[Any, option(metavar="MODULE:FUNCTION", callback=args.converted(args.function))],
    grow: Annotated[Any, option(metavar="DIM,...", callback=args.converted(args.comma_separated, ()))],
    groups: Annotated[
        Any,
        option(metavar="PATH:KEY=VALUE,...", multiple=True, callback=args.collected(args.group_rule, dict)),
    ],
    allow: Annotated[Any, option(metavar="KIND,...", callback=args.converted(args.comma_separated, ()))],
    refresh: bool,
    message: args.Message,
    mode: Literal["create", "append", "insert", "upsert", "backfill"] = "create",
    branch: str = "main",
    group: str = "/",
    source_group: Annotated[str, option(metavar="GROUP")] = "/",
    compound: Literal["skip", "fields"] = "skip",
    on_problem: Literal["fail", "skip", "quarantine"] = "fail",
    on_change: Literal["fail", "ignore", "rewrite"] = "fail",
    engine: Literal["auto", "inline", "threads", "processes", "spark", "sail"] = "auto",
) -> int:
    """Write many files into one dataset, in one commit.

    The command inspects all files first. If some files do not fit, it prints their names and problems, and
    does not write. A second run with the same files does not write either. With --mode append, a run with
    more files writes the new files. If --on-problem skip or quarantine leaves files out, the exit status is
    4, and the command lists them.

    SOURCE is a file, or a glob in quotes: 'data/*.nc'. The repository is created if it does not exist. A
    rehearsal (--dry-run) reads everything and holds the new chunks in memory.

    Args:
        inspect: Only print the contents and the problems of the files.
        concat_dim: The dimension along which the files are joined.
        variables: The data variables to ingest (all).
        chunks: Chunk lengths; -1 is the whole dimension.
        virtual: Refer to the bytes in the files, and copy only coordinates.
        container: A prefix that virtual chunks may refer to: file:///folder, s3://bucket/prefix,
            gs://bucket/prefix or az://account/container/prefix.
        unpack: Store packed data (scale_factor, add_offset) as values.
        format: The format of the files (recognised from each file).
        filter_by_keys: The GRIB fields to ingest: typeOfLevel=surface,stepType=instant (all).
        reader_option: An option of the reader of the format, VALUE as JSON or text: squeeze=false, page=2.
        rename: New names of variables and dimensions; names that a file does not have are ignored.
        convert: Units of variables, to which files with other units are converted: tas=K.
        dates: Times from names of files or attributes: time=s2_%Y%m%d.tif, time=attribute:ACQUIRED.
        preprocess: A function of the dataset of each file, or of two paths.
        grow: Labelled dimensions, such as stations, that files have in any order and in part.
        groups: A rule for the files of another group: /noleap:calendar=noleap, /coarse:lat=90.
        allow: Problems to tolerate: values, unordered, overlap, duplicate, hole, variables, dtype.
        refresh: Also compute what has changed of derived arrays, in the same commit.
        mode: How the files relate to existing data.
        branch: The branch to commit to.
        group: The group in the repository.
        source_group: The group in the files.
        compound: Leave out HDF5 variables of compound types, or make an array of each field.
        on_problem: What happens to files with problems.
        on_change: What happens to files that changed since they were ingested.
        engine: Where tasks run: in this process (inline), in its threads, in processes of this machine, on
            Spark, on Sail, or inline for a few small files, else processes.

    Examples:
        frazil ingest 'era5/*.nc' ice --inspect                print the problems of the files
        frazil ingest 'era5/*.nc' ice --dry-run                show what the commit would change
        frazil ingest 'era5/*.nc' ice --chunks time=24         write them into one dataset
        frazil ingest 'era5/*.nc' ice --mode append            append new files
        frazil ingest 'era5/*.nc' ice --mode append --refresh  and compute what follows from them
        frazil ingest 'gfs/*.grib2' ice --filter-by-keys typeOfLevel=isobaricInhPa
                                                               write one kind of level of GRIB files
    """
    from frazil.pipeline import Target, inspect_files
    from frazil.pipeline.ingest.operation import inspect_for_new_group, run_ingest
    from frazil.pipeline.ingest.options import IngestRequest, is_small

    files = list(source)
    # Missing files must not leave a new repository.
    automatic = "inline" if is_small(files) or dry_run else "processes"
    common: dict[str, Any] = {
        "concat_dim": concat_dim,
        "variables": variables,
        "virtual": virtual,
        "allow": allow,
        "unpack": unpack,
        "format": format,
        "source_group": source_group,
        "reader_options": {**reader_option, **({"filter_by_keys": filter_by_keys} if filter_by_keys else {})},
        "compound": compound,
        "rename": rename,
        "convert": convert,
        "dates": dates,
        "preprocess": preprocess,
        "grow": grow,
        "groups": groups,
        "engine": automatic if engine == "auto" else engine,
    }
    if inspect:
        # The last argument, the repository, may be one more file: an inspection writes nothing.
        report = inspect_files(files, **common)
        output.emit(_report_document(report), str(report).splitlines())
        return 1 if report.fatal() else 0
    if has_magic(repository.location) or Path(repository.location).is_file():
        raise click.UsageError(
            f"the last argument must be the repository, got the files {repository.location}"
        )
    storage = storage_of(repository, dry_run)
    with output.progress("ingest") as progress:
        request = IngestRequest(
            files,
            mode=mode,
            chunks=chunks,
            containers=container,
            on_problem=on_problem,
            on_change=on_change,
            refresh=refresh,
            message=message,
            progress=progress,
            **common,
        )
        inspection = None
        if on_problem == "fail" and not Repository.exists(storage):
            # An inspection that fails must not leave a new repository.
            inspection = inspect_for_new_group(request)
        repo = open_or_create(storage)
        if branch not in repo.list_branches():
            repo.create_branch(branch, repo.lookup_branch("main"))
        result = run_ingest(request, Target(repo, branch, group), inspection)
    if dry_run and not result.done_before:
        before = repo.lookup_snapshot(repo.lookup_branch(branch)).parent_id
        emit_tip(output, repo, branch, before, dry_run=True, further=_notes(result))
    else:
        document = {"snapshot": result.snapshot_id, "done_before": bool(result.done_before)}
        left_out = {"left_out": list(result.quarantined)}
        outcome: Any = result.report
        number, bad, known = len(outcome.urls), len(outcome.bad), outcome.unchanged
        if result.done_before:
            text = f"nothing to do: {known:,} of {number:,} files are ingested and unchanged"
            lines = [text, *_left_out(outcome)]
        else:
            text = f"{result.snapshot_id}: {counted(number - bad - known, 'file')}"
            text += f", {known:,} ingested before" if known else ""
            text += f", {bad:,} left out because of problems" if bad else ""
            lines = [text, *_notes(result)]
        output.emit({**document, **left_out, **_report_document(outcome)}, lines)
    return LEFT_OUT if result.quarantined else 0


#: The exit status of an ingest that left files out because of problems.
LEFT_OUT: Final = 4
#: The number of notes, and of files that were left out, that are printed; `--inspect` prints more.
_NOTES: Final = 10


def _notes(result: Any) -> list[str]:
    """Return the files that were left out, the chunks of new arrays, and the first notes, as lines."""
    report = result.report
    chunks = [f"chunks: {each}" for each in report.chunk_lines()[:_NOTES]]
    return [*_left_out(report), *chunks, *(f"note: {each}" for each in report.notes[:_NOTES])]


def _left_out(report: Any) -> list[str]:
    first = {each.url: each for each in reversed(report.fatal()) if each.url is not None}
    lines = [f"left out: {url}: {first[url].kind}: {first[url].message}" for url in report.bad[:_NOTES]]
    more = len(report.bad) - len(lines)
    return [*lines, *([f"left out: {counted(more, 'more file')}: `--inspect` lists them"] if more else [])]


def _report_document(report: Any) -> dict[str, Any]:
    """Return a report on files in the form that JSON has."""
    problems = [
        {"file": each.url, "kind": str(each.kind), "fatal": each.fatal, "text": each.message}
        for each in report.problems
    ]
    return {
        "files": len(report.urls),
        **picked(report, "unchanged", dimension="concat_dim"),
        "problems": problems,
        "chunks": [picked(each, "array", "shape", "bytes", "reason") for each in report.chunks],
    }
