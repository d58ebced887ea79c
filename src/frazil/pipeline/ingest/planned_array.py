"""The arrays of a plan, and the groups of arrays that are written together."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.pipeline.ingest.arrays import TargetArray
from frazil.pipeline.ingest.axis import Pieces


@dataclass(frozen=True, slots=True)
class PlannedArray:
    """An array of the plan. Its number is its index in the list of all arrays.

    ``existed``: the group had it before. ``adds_axis``: its files do not have the dimension in which they
    follow each other. ``virtual``: it gets references to the files instead of copies. ``unpacked``: it gets
    unpacked values. ``shifted``: the driver has already moved the chunks of its old steps.
    """

    target: TargetArray
    existed: bool
    adds_axis: bool = False
    virtual: bool = False
    unpacked: bool = False
    shifted: bool = False


@dataclass(frozen=True, slots=True)
class ArrayGroup:
    """Arrays (by number) that are written together from the same files."""

    arrays: tuple[int, ...]
    pieces: Pieces
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class FixedArrays:
    """Arrays (by number) without the axis, all from one file."""

    arrays: tuple[int, ...]
    file: int
    virtual: bool = False
