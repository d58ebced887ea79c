"""`Pipeline`: a definition from TOML or Python, and what it does: plan, run, status, backfill, graph.

A run does what is left to do. It compares the files with the ledgers of their groups, and the derived arrays
with their definitions and digests, so a pipeline has no state of its own. The job id of a publication is a
hash of the fingerprints of the files, of the definition, and of the version that the run starts from.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from frazil import host
from frazil.arguments import check_fields, require_choice
from frazil.display import some_of, suggest
from frazil.errors import AlreadyExistsError, ConflictError, ErrorKind, InvalidInputError, RefNotFoundError
from frazil.handle.addresses import virtual_access
from frazil.handle.repository import Repository
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job import Job, Target, Tasks, Version
from frazil.jobs.job_history import job_metrics
from frazil.jobs.job_run import run_job
from frazil.jobs.progress import Progress
from frazil.lazy_names import ModuleOnDemand
from frazil.pipeline.definition.files import Label, TableFiles, newest_label, problems_of, quarantined
from frazil.pipeline.definition.record import no_work, record_job, record_of
from frazil.pipeline.definition.results import (
    Outcome,
    PastRun,
    PipelineGraph,
    PipelinePlan,
    PipelineRun,
    PipelineStatus,
    PlannedIngest,
    some_names,
)
from frazil.pipeline.definition.tables import (
    PipelineDerived,
    PipelineIngest,
    declaration_of,
    keys_of,
    located,
    require_keys,
    table_of,
)
from frazil.pipeline.derivation.declaration import Declaration
from frazil.pipeline.derivation.digest_table import ChunkHashes
from frazil.pipeline.derivation.refresh import DerivedArray, DerivedState, Refresh, derived, preview, refresh
from frazil.pipeline.ingest.operation import IngestResult, run_ingest, with_containers
from frazil.pipeline.ingest.options import ledger_name
from frazil.pipeline.provenance import Step, lineage_graph
from frazil.pipeline.publishing.operation import write_audit_publish
from frazil.pipeline.validation.rules import KINDS, Rule, require_sound, rules_from
from frazil.repository.catalog.protection import AUDIT
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.session.session import Session, scratch_session
from frazil.storage.memory import in_memory_storage
from frazil.storage.option_names import shown_url
from frazil.storage.profiles import profile_of, storage_of_location

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = ModuleOnDemand("tomllib")

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
#: The number of runs that a status lists.
_RUNS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline as data: files are ingested, arrays derived, rules checked, and all is published at once.

    Args:
        name: The name: letters, digits, ``_``, ``.`` and ``-``.
        repository: The location of the repository: a folder, a URL, or a profile. It has no credentials.
        ingest: The files, as `PipelineIngest`.
        owners: The names of the owners, who are the author of its commits.
        rules: The rules that must hold before the publication.
        derived: The derived arrays, as `PipelineDerived`. A table may read results of tables before it.
        engine: The engine that runs the tasks: an `Engine`, or "inline", "threads", "processes", "spark".
            The default, None, is `default_engine()`.
        branch: The branch of readers. It is created if it does not exist.
        audit_branch: The branch of the work. The default, None, is ``audit/NAME``, with ``-`` instead of
            ``/`` in repositories of spec version 1.
        tag: The name of a tag for each published version, with the time of the version (UTC) as in
            ``strftime``: ``"feed-%Y-%m-%d"``. The default, None, creates no tags.
        versions: The number of published versions that stay. The default, None, sets no limit.
        days: The number of days for which versions stay. The default, None, sets no limit. With both, a
            version is removed if neither retains it. Versions of tags always stay.
        collect: Whether files that only removed versions used are deleted.
        folder: The folder where relative paths begin. The default is the current folder.

    Raises:
        InvalidInputError: A value does not fit: ``unknown-choice`` for an unknown name.
        TypeError: A value has the wrong type.

    Examples:
        >>> import xarray
        >>> from frazil.pipeline import Pipeline, PipelineIngest
        >>> data = xarray.Dataset({"t": ("time", [280.0])}, {"time": [0]})
        >>> data.to_netcdf("feed_0.nc", engine="h5netcdf", unlimited_dims=["time"])
        >>> files = PipelineIngest("feed_*.nc", "/feed", {"concat_dim": "time"})
        >>> pipeline = Pipeline(name="feed", repository="feed", ingest=[files], engine="inline")
        >>> pipeline.plan().ingest[0].tasks
        1
        >>> pipeline.run().outcome, pipeline.run().outcome, pipeline.backfill(0, 9).outcome
        ('published', 'unchanged', 'published')
        >>> pipeline.status().newest
        (('/feed', '0'),)
        >>> print(pipeline.graph())
        feed_*.nc -> ingest -> /feed
        /feed -> publish, 0 rules -> branch main
    """

    name: str
    repository: str
    ingest: Sequence[PipelineIngest]
    owners: Sequence[str] = ()
    rules: Sequence[Rule] = ()
    derived: Sequence[PipelineDerived] = ()
    engine: Engine | EngineName | None = None
    branch: str = "main"
    audit_branch: str | None = None
    tag: str | None = None
    versions: int | None = None
    days: float | None = None
    collect: bool = True
    folder: Path = field(default_factory=Path)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("ingest", "owners", "rules", "derived"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not _NAME.fullmatch(self.name):
            raise InvalidInputError(f"`name` must be letters, digits, _, . and -, got {self.name!r}")
        if (shown := shown_url(self.repository)) != self.repository:
            raise InvalidInputError(
                f"`repository` must not have a user, a password or a signature, got {shown!r}. Credentials "
                "come from the environment"
            )
        if isinstance(self.engine, str):
            require_choice("`engine`", self.engine, get_args(EngineName.__value__))
        if not self.ingest:
            raise InvalidInputError("`ingest` must have at least one table, got none")
        for name in ("versions", "days"):
            if (limit := getattr(self, name)) is not None and limit < 1:
                raise InvalidInputError(f"`{name}` must be at least 1, got {limit}")
        for rule in self.rules:
            require_sound(rule)
        groups = [path for each in self.ingest for path in each.groups]
        if len({*groups}) < len(groups):
            raise InvalidInputError(
                "each table of `ingest` must have a `group` of its own. `files` may be several globs"
            )
        for one, other in itertools.permutations([each.to for each in self.derived], 2):
            if f"{other}/".startswith(f"{one.rstrip('/')}/"):
                raise InvalidInputError(
                    f"each table of `derived` must have a group `to` of its own, got {one} and {other}"
                )

    @staticmethod
    def load(file: str | Path) -> Pipeline:
        r"""Read a definition from TOML.

        Args:
            file: The path of the file. Relative paths in the definition begin in its folder.

        Returns:
            The pipeline.

        Raises:
            InvalidInputError: The file cannot be read or is not TOML, or has a value of another type
                (``invalid-argument``), or an unknown key, rule or operation (``unknown-choice``). The
                message has the file, the table and the key.

        Examples:
            >>> from pathlib import Path
            >>> from frazil.pipeline import Pipeline
            >>> text = 'name = "feed"\nrepository = "feed"\n[[ingest]]\nfiles = "feed_*.nc"\n'
            >>> _ = Path("feed.toml").write_text(text)
            >>> Pipeline.load("feed.toml").ingest[0].files
            ('feed_*.nc',)
        """
        path = Path(file)
        if (place := str(path.parent.resolve())) not in sys.path:  # functions may be in modules of the folder
            sys.path.append(place)
        try:
            document = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise InvalidInputError(f"{path} must be a definition of a pipeline: {error.strerror}") from error
        except ValueError as error:  # of TOML, or of UTF-8
            raise InvalidInputError(f"{path} must be TOML, got an error: {error}") from error
        hidden = {"folder", *itertools.chain(*_SECTIONS.values())}
        known = {name: is_required for name, is_required in keys_of(Pipeline).items() if name not in hidden}
        with located(str(path)):
            require_keys(document, known | dict.fromkeys(_SECTIONS, False))
        values = {name: document[name] for name in document if name not in _SECTIONS}
        for section, names in _SECTIONS.items():
            with located(f"{path}: [{section}]"):
                require_keys(document.get(section, {}), dict.fromkeys(names, False))
            values |= document.get(section, {})
        for name, parse in _TABLES.items():
            tables = values.get(name, [])
            if not isinstance(tables, list):
                raise InvalidInputError(f"{path}: `{name}` must be tables [[{name}]], got {tables!r:.80}")
            values[name] = [parse(each, f"{path}: [[{name}]] {at}") for at, each in enumerate(tables, 1)]
        with located(str(path)):
            return Pipeline(folder=path.parent, **values)

    def plan(self) -> PipelinePlan:
        """Return what a run would do. Nothing is written.

        New and changed files are opened. The work on derived arrays is that of a refresh after the ingest.

        Returns:
            The plan.

        Raises:
            InvalidInputError: ``bad-source`` for files that a run would refuse, ``key-not-found`` if no file
                matches.
        """
        repo, is_first = self._open()
        containers = [each for table in self.ingest for each in table.options.get("containers", ())]
        repo = with_containers(repo, containers, save=False)
        session = scratch_session(self._tip(repo).session())
        hashes, planned, files = ChunkHashes(session), list[PlannedIngest](), dict[str, tuple[str, ...]]()
        for table in self.ingest:
            each = TableFiles.of(session, table, self.folder, engine=self.engine).plan(session, hashes)
            files[table.group] = (*files.get(table.group, ()), *each.changed, *each.new)
            planned.append(each)
        rows, replaced, fresh = list[DerivedArray](), list[str](), list[tuple[Declaration, str]]()
        for derivation in self.derived:
            state, others = self._state(session, derivation)
            if state != DerivedState.CURRENT:
                replaced += others
                reason = "its definition has changed" if others else "it is new"
                fresh.append((declaration_of(derivation), reason))
        target = Target(repo, self.branch)
        stored = preview(session, Refresh(target, None, "auto", "refuse", {}), hashes)[0]
        for declaration, reason in fresh:
            rows += declaration.preview(session, hashes, target, reason)
        for row in (each for each in stored if each.path not in replaced):
            renewed = sorted({*row.sources} & {*replaced})
            if renewed and row.state == DerivedState.CURRENT:
                text = f"{renewed[0]} is computed again"
                rows.append(replace(row, state=DerivedState.BEHIND, reason=text))
            elif row.state != DerivedState.CURRENT:
                rows.append(row)
        sources = {each.path: each.sources for each in (*stored, *rows)}
        for at, row in enumerate(rows):
            if names := tuple(dict.fromkeys(_causes(row.path, sources, files))):
                text = f"because of {some_names(names)}"
                rows[at] = replace(row, reason=", ".join(filter(None, (row.reason, text))))
        seconds = None if is_first else self._seconds(repo, planned, rows)
        return PipelinePlan(self.name, tuple(planned), tuple(rows), seconds)

    def run(self, *, progress: Progress | None = None) -> PipelineRun:
        """Ingest new and changed files, compute derived arrays, check the rules, and publish all in one step.

        A run that has nothing to do writes nothing. A run that was killed is continued by the next one.

        Args:
            progress: A `Progress` that shows the tasks.

        Returns:
            The result.

        Raises:
            InvalidInputError: ``bad-source`` for files with problems, with ``on_problem="fail"``;
                ``key-not-found`` if no file matches.
            ValidationFailedError: A rule fails. Nothing is published.
            SessionStateError: ``not-allowed``: somebody has changed a derived array.
            ConflictError: Another run of the pipeline works at the same time. Nothing is published twice.
        """
        return self._run(progress, None)

    def backfill(self, start: Label, stop: Label, *, progress: Progress | None = None) -> PipelineRun:
        """Ingest all files with labels in a span again, refresh what depends on them, and publish.

        The files may be late, changed, or ingested before with other options. Their values replace those of
        the repository (``mode="backfill"``, ``on_change="rewrite"``), and no label is removed.

        Args:
            start: The first label: a date or a time (UTC), or a number for labels that are no times.
            stop: The last label. A date is the whole day.
            progress: A `Progress` that shows the tasks.

        Returns:
            The result. Its outcome is ``"unchanged"`` if no file has such a label.

        Raises:
            InvalidInputError: As for `run`, and ``invalid-argument`` for a span of another kind than the
                labels.
        """
        return self._run(progress, (start, stop))

    def status(self) -> PipelineStatus:
        """Return how new the published version is, the last runs, and what is left out or behind.

        Returns:
            The state. Quarantined files are opened to find their problems.
        """
        repo, is_first = self._open()
        if is_first or self.branch not in repo.list_branches():
            return PipelineStatus(self.name)
        version = self._tip(repo)
        session, info = version.session(), repo.lookup_snapshot(version.snapshot_id)
        newest = {path: newest_label(session, path) for each in self.ingest for path in each.groups}
        left_out = dict[str, str]()
        for table in self.ingest:
            left_out |= quarantined(session, table, self.folder, engine=self.engine)
        history = lineage_graph(version, jobs_only=False).steps
        runs, audit = list(self._runs(history, is_published=True)), self._audit_branch(repo)
        if audit in repo.list_branches():
            known = {each.snapshot_id for each in history}
            ahead = lineage_graph(repo, branch=audit, jobs_only=False).steps
            ahead = tuple(each for each in ahead if each.snapshot_id not in known)
            runs[:0] = self._runs(ahead, is_published=False)
        tags = sorted(repo.list_tags()) if self.tag else []
        for at, run in enumerate(runs[:_RUNS]):
            name = run.written_at.strftime(self.tag or "") if run.written_at else ""
            own = (each for each in tags if each == name or each.startswith(f"{name}."))  # as in `_tag`
            runs[at] = replace(run, tag=next((e for e in own if repo.lookup_tag(e) == run.snapshot_id), None))
        return PipelineStatus(
            self.name,
            info.id,
            info.written_at,
            tuple(each for each in newest.items() if each[1]),
            tuple(runs[:_RUNS]),
            tuple(left_out.items()),
            tuple(each for each in derived(version).arrays if each.state != DerivedState.CURRENT),
        )

    def graph(self) -> PipelineGraph:
        """Return the steps: files, groups, derived arrays, and the publication.

        Returns:
            The graph.
        """
        steps = [(tuple(each.files), "ingest", path) for each in self.ingest for path in each.groups]
        steps += [(tuple(each.sources), each.operation, each.to) for each in self.derived]
        groups = tuple(dict.fromkeys(output for *_, output in steps))
        publication = f"publish, {len(self.rules)} rules", f"branch {self.branch}"
        return PipelineGraph((*steps, (groups, *publication)))

    # The parts of a run

    def _open(self, *, create: bool = False) -> tuple[Repository, bool]:
        """Open the repository. If it does not exist, return an empty one in memory, and True."""
        location = self.repository
        if "://" not in location and profile_of(location).location == location:
            location = str(self.folder / location)
        storage, is_first = storage_of_location(location), False
        if not create and not Repository.exists(storage):
            storage, is_first = in_memory_storage(), True
        repo = Repository.open_or_create(storage, authorize_virtual_chunk_access=virtual_access())
        if self.owners:
            repo.set_default_commit_metadata({"author": ", ".join(self.owners)})
        return repo, is_first

    def _record(self) -> dict[str, Any]:
        """Return the definition as JSON, for the attributes of its record."""
        names = ("owners", "branch", "tag", "versions", "days")
        others = {each: getattr(self, each) for each in names}
        return record_of(self.name, self.ingest, self.derived, self.rules, others)

    def _tip(self, repo: Repository) -> Version:
        return Version.of(repo, branch=self.branch if self.branch in repo.list_branches() else "main")

    def _audit_branch(self, repo: Repository) -> str:
        return self.audit_branch or f"audit{'/' if repo.spec_version > 1 else '-'}{self.name}"

    def _state(self, session: Session, table: PipelineDerived) -> tuple[DerivedState | None, tuple[str, ...]]:
        """Return the state of the results of a table, as `Declaration.state`: None without their sources."""
        has_sources = all(session.workspace.node(each) is not None for each in table.sources)
        return declaration_of(table).state(session) if has_sources else (None, ())

    def _is_behind(self, version: Version, session: Session) -> bool:
        """Return whether a table of derived arrays is not computed, or an array needs a refresh."""
        if any(self._state(session, each)[0] != DerivedState.CURRENT for each in self.derived):
            return True
        needs = (DerivedState.BEHIND, DerivedState.EDITED)
        return any(each.state in needs for each in derived(version).arrays)

    def _seconds(
        self, repo: Repository, planned: Sequence[PlannedIngest], rows: Sequence[DerivedArray]
    ) -> float | None:
        """Return the time of planned jobs at the throughput of earlier ones; None if it is not known.

        A small job takes as long as the shortest of them. Jobs of references are compared by their tasks.
        """
        jobs, total = job_metrics(repo, branch=self._tip(repo).branch), 0.0
        all_bytes, all_tasks = (sum(getattr(each, name) for each in planned) for name in ("bytes", "tasks"))
        for is_ingest, size, measure in (
            (True, all_bytes or all_tasks, "bytes_written" if all_bytes else "tasks"),
            (False, sum(each.bytes_read for each in rows), "bytes_read"),
        ):
            records = [each for each in jobs if (each["name"] == "ingest") == is_ingest and each.get(measure)]
            times = [each.get("seconds", 0.0) for each in records]
            if size and not records:
                return None
            if size:
                total += max(min(times), size * sum(times) / sum(each[measure] for each in records))
        return total

    def _runs(self, steps: Sequence[Step], *, is_published: bool) -> Iterator[PastRun]:
        """Yield the runs in a history, newest first: an audit, and the jobs before it."""
        starts = [at for at, each in enumerate(steps) if each.audit is not None]
        if not is_published and steps and 0 not in starts:
            starts.insert(0, 0)
        for start, stop in itertools.pairwise([*starts, len(steps)]):
            step, rows = steps[start], (steps[start].audit or {}).get("rows") or []
            seconds = sum((each.metrics or {}).get("seconds", 0.0) for each in steps[start:stop])
            holds = sum(bool(row.get("ok")) for row in rows)
            failed: Outcome = "unfinished" if holds == len(rows) else "rules-failed"
            outcome: Outcome = "published" if is_published else failed
            yield PastRun(self.name, outcome, step.snapshot_id, seconds, holds, step.written_at)

    def _job_id(self, files: Sequence[TableFiles], start: str, span: object) -> str:
        """Return a hash of what decides the work: the files, the definition, and the version at the start."""
        parts = [
            [each.inspection.digest for each in files],
            [[each.files, each.group, each.options] for each in self.ingest],
            [[each.operation, each.sources, each.to, each.parameters] for each in self.derived],
            [each.as_dict() for each in self.rules],
            [self.branch, start, repr(span)],
        ]
        text = json.dumps(parts, sort_keys=True, default=_text)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"

    def _run(self, progress: Progress | None, span: tuple[Label, Label] | None) -> PipelineRun:
        started = host.monotonic_seconds()
        repo, is_first = self._open()
        base = self._tip(repo)
        session, options = base.session(), {"engine": self.engine, "progress": progress}
        files, unreadable = list[TableFiles](), dict[str, str]()
        for table in self.ingest:
            if span is None:
                files.append(TableFiles.of(session, table, self.folder, **options))
            else:
                some, reasons = TableFiles.within(session, table, self.folder, span, **options)
                files, unreadable = [*files, *some], unreadable | reasons
        done = PipelineRun(self.name, "unchanged", base.snapshot_id, 0.0, left_out=tuple(unreadable.items()))
        is_pending = any(each.pending.any() for each in files)
        if not (is_pending or (span is None and self._is_behind(base, session))):
            return done if is_first else self._finished(repo, done, started)
        repo, _ = self._open(create=True)
        if self.branch not in repo.list_branches():
            repo.create_branch(self.branch, repo.lookup_branch("main"))
        job_id = self._job_id(files, base.snapshot_id, span)
        audit = self._audit_branch(repo)
        try:
            published = write_audit_publish(
                repo,
                partial(self._work, files=files, progress=progress, job_id=None if span is None else job_id),
                self.rules,
                branch=self.branch,
                audit_branch=audit,
                job_id=job_id,
                engine=self.engine,
            )
        except (AlreadyExistsError, ConflictError, RefNotFoundError) as error:
            is_other_ref = error.kind == ErrorKind.REF_NOT_FOUND and audit in repo.list_branches()
            if is_other_ref or error.kind not in _RIVAL:
                raise
            raise ConflictError(
                message=f"another writer {_RIVAL[error.kind]} the branch `{audit}` during this run. It is "
                f"probably another run of the pipeline `{self.name}`, which publishes the same files"
            ).with_remedy("Run the pipeline again: it does what is left to do") from error
        results, computed = published.value or ((), ())
        reports = [each.report for each in results if each.report is not None]
        left_out = dict(unreadable)
        for each in reports:
            left_out |= problems_of(each.inspection, each.fatal())
        # A run before this one may have left out files on the audit branch, and not have published them.
        names = {ledger_name(each.url) for report in reports for each in report.fatal() if each.url}
        now = Version.of(repo, branch=self.branch).session()
        for table in self.ingest:
            left_out |= quarantined(now, table, self.folder, since=session, without=names, engine=self.engine)
        done = replace(
            done,
            outcome="unchanged" if published.done_before else "left-out" if left_out else "published",
            snapshot_id=published.snapshot_id,
            files=sum(int(each.dataset.members.sum()) for each in reports),
            left_out=tuple(left_out.items()),
            derived=computed,
            rules=0 if published.report is None else len(published.report.rows),
        )
        return self._finished(repo, done, started)

    def _work(
        self, target: Target, files: Sequence[TableFiles], progress: Progress | None, job_id: str | None
    ) -> tuple[list[IngestResult], tuple[str, ...]]:
        """Ingest all files, and compute and refresh the derived arrays, on the audit branch."""
        results, repo, branch = list[IngestResult](), target.repo, target.branch
        for number, each in enumerate(files):
            request = replace(each.request, job_id=None if job_id is None else f"{job_id}-{number}")
            place = replace(target, group=each.table.group)
            results.append(run_ingest(request, place, each.inspection, again=job_id is not None))
        self._require_files(Version.of(repo, branch=branch).session())
        computed, options = list[str](), {"engine": self.engine, "progress": progress}
        for table in self.derived:
            declaration, version = declaration_of(table), Version.of(repo, branch=branch)
            state, others = self._state(version.session(), table)
            if state == DerivedState.CURRENT:
                continue
            if others:
                run_job(_deletion(target, others), self.engine)
                version = Version.of(repo, branch=branch)
            choices: Any = {**declaration.options, **options}
            declaration.operation.run(version, replace(target, group=declaration.group), choices)
            computed.append(declaration.group.rstrip("/"))
        plan = refresh(repo, branch=branch, engine=self.engine, progress=progress)
        rows = plan.report.arrays
        behind = [each.path for each in rows if each.state in ("behind", "edited")]
        if behind:
            plan.apply()
        new = [each.path for each in rows if any(each.path.startswith(f"{group}/") for group in computed)]
        if repo.lookup_branch(branch) != repo.lookup_branch(self.branch) and (
            job := record_job(target, self._record())
        ):
            run_job(job, self.engine)
        return results, tuple(dict.fromkeys((*new, *behind)))

    def _require_files(self, session: Session) -> None:
        """Raise ``InvalidInputError`` if all files of a table are left out, so that it has no arrays yet."""
        nodes = session.workspace
        for table in self.ingest:
            paths = (f"{each.rstrip('/')}/{name}" for each in table.groups for name in nodes.children(each))
            if any(map(nodes.is_array, paths)):
                continue
            if left_out := quarantined(session, table, self.folder, engine=self.engine):
                names = some_of([f"{name}: {reason}" for name, reason in left_out.items()])
                raise InvalidInputError(
                    f"the group `{table.group}` must get the data of at least one file, got only files that "
                    f"are left out: {names}",
                    ErrorKind.BAD_SOURCE,
                )

    def _finished(self, repo: Repository, done: PipelineRun, started: float) -> PipelineRun:
        """Create the tag, remove versions, and return the complete result."""
        info = repo.lookup_snapshot(done.snapshot_id)
        tag = self._tag(repo, done.snapshot_id, info.written_at.strftime(self.tag or ""))
        expired, freed = self._retain(repo)
        return replace(
            done,
            written_at=info.written_at,
            tag=tag if AUDIT in info.metadata else None,
            expired=expired,
            bytes_deleted=freed,
            seconds=host.monotonic_seconds() - started,
        )

    def _tag(self, repo: Repository, snapshot_id: str, name: str) -> str | None:
        """Return the tag of a published version, and create it if it does not exist."""
        if not name or AUDIT not in repo.lookup_snapshot(snapshot_id).metadata:
            return None
        for each in itertools.chain([name], (f"{name}.{number}" for number in itertools.count(2))):
            try:
                if each not in repo.list_tags():
                    repo.create_tag(each, snapshot_id)
            except AlreadyExistsError:  # a deleted tag
                continue
            if repo.lookup_tag(each) == snapshot_id:
                return each
        raise AssertionError("no end")

    def _retain(self, repo: Repository) -> tuple[int, int]:
        """Remove the versions that no limit retains; return their number, and the bytes of deleted files."""
        infos = repo.ancestry(branch=self.branch)
        times = [each.written_at for each in infos if AUDIT in each.metadata]
        limits = [] if self.days is None else [to_datetime(now_us()) - timedelta(days=self.days)]
        limits += [] if self.versions is None or not times else [times[min(self.versions, len(times)) - 1]]
        if not limits or not any(each < min(limits) for each in times[1:]):
            return 0, 0
        expired = repo.expire_snapshots(min(limits))
        if not self.collect:
            return len(expired), 0
        return len(expired), repo.upkeep.collect(min(limits), engine=self.engine).apply().bytes_deleted


def _rule_of(document: Any, where: str) -> Rule:
    with located(where):
        require_keys(document, {"rule": True}, others=True)
        name = str(document["rule"])
        if name not in KINDS:
            text = f"`rule` must be one of {', '.join(KINDS)}, got {name!r}{suggest(name, KINDS)}"
            raise InvalidInputError(text, ErrorKind.UNKNOWN_CHOICE)
        require_keys(document, {"rule": True, **keys_of(KINDS[name])})
        return rules_from([document])[0]


#: The parsers of the tables that may be repeated.
_TABLES: Final[dict[str, Callable[[Any, str], Any]]] = {
    "ingest": partial(table_of, PipelineIngest),
    "derived": partial(table_of, PipelineDerived),
    "rules": _rule_of,
}
#: The tables of TOML whose keys are fields of the pipeline.
_SECTIONS: Final = {
    "publish": ("branch", "audit_branch", "tag"),
    "retention": ("versions", "days", "collect"),
}

#: What another run has done to the audit branch, by the kind of the error of this run.
_RIVAL: Final = {
    ErrorKind.BRANCH_ALREADY_EXISTS: "created",
    ErrorKind.COMMIT_CONFLICT: "committed to",
    ErrorKind.REF_NOT_FOUND: "deleted",
}


def _text(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    return repr(value) if name is None else f"{getattr(value, '__module__', '')}:{name}"


def _causes(
    path: str, sources: Mapping[str, Sequence[str]], files: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    """Yield the names of the files whose groups have the arrays that an array is derived from."""
    seen, pending = set[str](), [path]
    while pending:
        each = pending.pop()
        if each not in seen:
            seen.add(each)
            pending += sources.get(each, ())
            for group, names in () if each in sources else files.items():
                yield from names if each.startswith(f"{group.rstrip('/')}/") else ()


def _deletion(target: Target, paths: Sequence[str]) -> Job:
    """Return a job that deletes results of another definition. An audit branch has only commits of jobs."""

    def prepare(session: Session) -> Tasks:
        for path in paths:
            session.workspace.delete_node(path)
        return Tasks([])

    message = f"Delete {len(paths)} derived arrays, whose definition has changed"
    return Job("delete", target, prepare, no_work, writes=tuple(paths), message=message)
