"""Sentences about the values. They are calculated, so they always agree with the table above them."""

from __future__ import annotations

from workload import Medians

from pipeline.names import ONE, SPARK

SLOTS = 1000
#: Write requests per second that S3 promises for one prefix. S3 allows more after sustained load.
PREFIX = 3500
#: Seconds of work in a task of a good size.
TASK = 10.0


def thousand_slots(medians: Medians) -> str:
    """Return a sentence about the part that saturates first.

    If each task has ``T`` seconds of work, a driver that needs ``d`` seconds per task keeps ``T / d`` slots
    busy.
    """
    found = medians[SPARK]

    def value(start: str) -> float:
        return next(value for name, value in found.items() if name.startswith(start))

    driver, scheduler = value("Frazil's driver, for a task") / 1000, value("Spark's driver") / 1000
    requests, moved = value("a slot that rechunks, requests"), value("a slot that rechunks, MB") / 1000
    limits = {
        "Frazil's driver": TASK / driver,
        "Spark's scheduler": TASK / scheduler,
        f"a store of {PREFIX:,} requests a second (as S3 promises for one prefix)": PREFIX / requests,
    }
    first = min(limits, key=lambda name: limits[name])
    at = "; ".join(f"{name} at {slots:,.0f} slots" for name, slots in limits.items())
    return (
        f"Calculated from these values, for tasks of {TASK:g} s. Each of these parts is always busy: {at}. "
        f"So {first} is the first to saturate. "
        f"A thousand slots of this speed make {SLOTS * requests:,.0f} requests and move "
        f"{SLOTS * moved:,.0f} GB per second, and stay busy if a task has "
        f"{SLOTS * max(driver, scheduler):.1f} s of work or more."
    )


def pays(medians: Medians) -> str:
    """Return a sentence about the smallest measured size from which Spark is faster."""
    said = []
    for kind in ("copies", "mean"):
        of_one = {name: value for name, value in medians[ONE].items() if name.startswith(f"{kind} of ")}
        sizes = {int(name.split()[2]): medians[SPARK][name] < value for name, value in of_one.items()}
        slower = max((size for size, faster in sizes.items() if not faster), default=0)
        more = min((size for size in sizes if size > slower), default=None)
        said.append(f"{kind}: none up to {slower} MB" if more is None else f"{kind}: from {more} MB on")
    return f"Spark, without its start, is faster than one process for these sizes: {'; '.join(said)}."
