"""A function of xarray datasets over whole arrays, run by Cubed: `map_datasets`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from frazil.arguments import misfit, parse_bytes
from frazil.jobs.blocks import MaxMem
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job import BoundedRunOptions, JobResult, Source, Target, takes_versions, with_options
from frazil.lazy_names import ModuleOnDemand
from frazil.pipeline.derivation.operation import ArrayOperation, BlockPlan, SourceView
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    Json,
    array_info,
    arrays_below,
    clipped_chunks,
    document_of,
    names_of,
    with_companions,
)
from frazil.pipeline.transform.block_functions import fingerprint
from frazil.pipeline.transform.block_job import ComputedArrays, DriverArray, OutputArrays, create_groups
from frazil.repository.session.session import Session, scratch_session

if TYPE_CHECKING:
    from frazil.pipeline.transform import cubed_plan
else:
    cubed_plan = ModuleOnDemand("frazil.pipeline.transform.cubed_plan")

#: The data of a variable, which ``Variable.data`` would read.
_data: Final = attrgetter("_data")
#: The kinds of data types that Cubed has.
_NUMBERS: Final = "biufc"


@with_options(BoundedRunOptions)
@takes_versions
def map_datasets(
    function: Callable[..., xr.Dataset | xr.DataArray],
    source: Source,
    paths: Sequence[str],
    *,
    to: Target,
    **options: Unpack[BoundedRunOptions],
) -> JobResult:
    """Store the results of a function of xarray datasets as new arrays, in one commit.

    The function gets datasets whose arrays are those of Cubed, and it computes nothing itself. Cubed maps
    the chunks of its results to chunks of the sources. So the results are derived arrays: `refresh` computes
    the chunks that changes of the sources reach. A reduction over a dimension that grows reads all of it.
    The extra ``cubed`` is needed, and ``docs/cubed.md`` has the functions of xarray that Cubed lacks.

    Args:
        function: The function. It gets a dataset for each group of ``paths``, in the order of the groups'
            names, with decoded values. It returns a dataset, or an array with a name. `refresh` imports it by
            its module and name.
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: The paths of arrays, or of groups for all arrays below them.
        to: The `Target`. The results have the names of the variables, below its group.
        max_mem: The most memory of a task, in bytes: a number, or a text such as ``"1GB"``. Cubed refuses a
            program that needs more. The default, None, is ``spec.allowed_mem`` of Cubed.

    Returns:
        The `JobResult`, whose ``version`` has the new arrays.

    Raises:
        InvalidInputError: The function returns something else, or arrays that a repository cannot have.
        MissingExtraError: Cubed is not installed.
        TaskFailedError: A task fails in all its attempts.
        ValueError: A task needs more than ``max_mem``.

    Examples:
        >>> import frazil, numpy as np, xarray as xr, frazil.xarray
        >>> from frazil.pipeline import Target, map_datasets
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> days = xr.Dataset({"t": ("time", np.arange(6.0))}).chunk(time=2)
        >>> _ = days.frazil.to(repo, group="data")
        >>> def steps(ds):
        ...     return ds.diff("time")
        >>> result = map_datasets(steps, repo, ["data"], to=Target(repo, group="steps"), engine="inline")
        >>> xr.open_zarr(result.version.session().store, group="steps", consolidated=False).t.values
        array([1., 1., 1., 1., 1.])
    """
    return DatasetFunction(names_of(paths), function).run(source, to, options)


@dataclass(frozen=True, slots=True)
class DatasetFunction(ArrayOperation):
    """The operation of `map_datasets`."""

    name = "map_datasets"
    function: Callable[..., xr.Dataset | xr.DataArray]

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return the results of the function."""
        session = view.session
        arrays = arrays_below(session, self.paths)
        program = Program(
            self.function,
            tuple(each.path for each in arrays),
            to,
            options.get("max_mem"),
            options.get("engine"),
        )
        with program.context():
            variables, attributes = program.results(session)
            program.plans.append((session, variables))
            computed, coordinates = [], []
            for name, variable in variables.items():
                new = ArrayInfo(to.path(name), variable.document)
                if isinstance(variable.values, np.ndarray):
                    coordinates.append(DriverArray(arrays[0], new, variable.values))
                else:
                    computed.append(ComputedArrays(arrays[0], (new,), new.grid, _by_the_program))
        group_attributes = {to.path(""): attributes} if attributes else {}
        outputs = OutputArrays(computed, (), coordinates, group_attributes, program=program)
        inputs = with_companions(session, arrays)
        return BlockPlan(inputs, outputs, {"function": fingerprint(self.function)})


def _by_the_program(session: Session, start: Any, stop: Any) -> Any:
    raise AssertionError("the program computes its arrays")


@dataclass(frozen=True, slots=True, eq=False)
class _Variable:
    """A variable of the results: a Cubed array or values, and its ``zarr.json``."""

    values: Any
    document: Json


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A function of datasets of the arrays at ``paths``, and how Cubed computes its results."""

    function: Callable[..., xr.Dataset | xr.DataArray]
    paths: tuple[str, ...]
    to: Target
    max_mem: MaxMem
    engine: Engine | EngineName | None
    #: The session that the plan is for, and its results.
    plans: list[tuple[Session, dict[str, _Variable]]] = field(default_factory=list)

    def context(self) -> Any:
        """Return a context in which the plans have the bound of memory of the caller."""
        return cubed_plan.allowed_memory(None if self.max_mem is None else parse_bytes(self.max_mem))

    def results(self, session: Session) -> tuple[dict[str, _Variable], Json]:
        """Return what the function makes of the arrays of a session: variables by name, and attributes."""
        groups: dict[str, list[ArrayInfo]] = {}
        for path in self.paths:
            array = array_info(session, path)
            groups.setdefault(array.group, []).append(array)
        datasets = [_dataset(session, group, arrays) for group, arrays in groups.items()]
        with xr.set_options(chunk_manager="cubed"):  # type: ignore[no-untyped-call]
            returned = self.function(*datasets)
        if isinstance(returned, xr.DataArray) and returned.name is not None:
            returned = returned.to_dataset()
        if not isinstance(returned, xr.Dataset):
            kind = type(returned).__name__
            raise misfit(f"The function must return a Dataset, or a DataArray with a name, got a {kind}")
        for name, variable in returned.variables.items():
            if str(variable.dtype).startswith("interval"):  # of groupby_bins
                raise misfit(
                    f"The function must return coordinates that Zarr can store, got intervals in `{name}`. "
                    "Replace them, for example by their middles: "
                    f'dataset.assign_coords({name}=[each.mid for each in dataset.indexes["{name}"]])'
                )
        for name in returned.data_vars:
            values = _data(returned.variables[name])
            if values.size and not cubed_plan.is_cubed(values):
                raise misfit(
                    f"The function must return arrays that are not computed yet, got `{name}` in memory. "
                    "Some functions of xarray read all values of a Cubed array: docs/cubed.md lists them"
                )
        return _encoded(returned)

    def _plans(self, session: Session, results: Sequence[ArrayInfo]) -> dict[str, Any]:
        """Return the Cubed arrays of results by path, with the chunks of the stored arrays."""
        variables = next((each for of, each in self.plans if of is session), None)
        variables = variables or self.results(session)[0]
        by_path = {self.to.path(name): each.values for name, each in variables.items()}
        return {each.path: cubed_plan.rechunked(by_path[each.path], each.grid) for each in results}

    def chunk_plan(self, session: Session, result: ArrayInfo) -> Any:
        """Return the plan of a result by its chunks."""
        with self.context():
            return cubed_plan.ChunkPlan(self._plans(session, [result])[result.path])

    def run(self, session: Session, source: Session, masks: Mapping[str, NDArray[np.bool_]]) -> None:
        """Compute the chunks of the masks, by the path of the result, in the arrays of a session.

        The session itself is not forked, so that the job can be resumed.
        """
        results = [array_info(session, path) for path, mask in masks.items() if mask.any()]
        if not results:
            return
        scratch = scratch_session(session, stores_files=True)
        for result in results:
            create_groups(scratch, session, result.group, result.group)
            if scratch.workspace.node(result.path) is not None:
                scratch.workspace.delete_node(result.path)
            scratch.workspace.set_node(result.path, result.encoded())
        with self.context():
            self.plans.clear()  # a dry run may have made them from results that are not computed yet
            arrays = self._plans(source, results)
            targets = [
                zarr.open_array(scratch.store, path=each.path.strip("/"), mode="r+") for each in results
            ]
            by_target = {each.path.strip("/"): masks[each.path] for each in results}
            cubed_plan.run_part([arrays[each.path] for each in results], targets, by_target, self.engine)
        for result in results:
            table = scratch.chunk_table(result.path)
            session.workspace.set_refs(result.path, table)
            is_empty = masks[result.path].copy()  # chunks of the fill value are not stored
            is_empty[tuple(table.index.T)] = False
            session.workspace.delete_refs(result.path, np.argwhere(is_empty).astype(np.uint32))


def _dataset(session: Session, group: str, arrays: Sequence[ArrayInfo]) -> xr.Dataset:
    """Return arrays of a group as a dataset: numbers as Cubed arrays.

    Indexes, values of other types, and coordinates that are not among the arrays are in memory.
    """
    dataset = xr.open_dataset(
        cast("Any", session.store), engine="zarr", group=group, consolidated=False, chunks=None, cache=False
    )
    dataset = dataset[[each.name for each in arrays if each.name in dataset.variables]]
    by_name = {each.name: each for each in arrays}
    lazy = {}
    for name, variable in dataset.variables.items():
        array = by_name.get(str(name))
        is_number = variable.dtype.kind in _NUMBERS and variable.size
        if array is None or name in dataset.indexes or not is_number:
            dataset[name].load()
        else:
            chunks = clipped_chunks(array.grid, array.shape)
            values = cubed_plan.source_array(array.path, variable, chunks)
            lazy[name] = xr.Variable(variable.dims, values, variable.attrs)
    coordinates = list(dataset.coords)
    return dataset.assign(lazy).set_coords(coordinates)


def _encoded(dataset: xr.Dataset) -> tuple[dict[str, _Variable], Json]:
    """Return variables as Zarr has them: Cubed arrays as they are, and the values of others."""
    lazy = {name: each.data for name, each in dataset.variables.items() if cubed_plan.is_cubed(_data(each))}
    dataset = dataset.copy()
    for name in lazy:
        dataset[name].encoding = {}
    encoding = {name: {"chunks": clipped_chunks(each.chunksize, each.shape)} for name, each in lazy.items()}
    group = zarr.open_group(cubed_plan.stored_metadata(dataset, encoding), mode="r")
    variables = {}
    for name in map(str, dataset.variables):
        array = cast("zarr.Array[Any]", group[name])
        values = lazy[name] if name in lazy else np.asarray(array[...])
        variables[name] = _Variable(values, json.loads(document_of(array)))
    return variables, dict(group.attrs)
