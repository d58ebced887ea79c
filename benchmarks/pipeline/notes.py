"""What the numbers say, in words: calculated, so that nothing here is older than the table above it."""

from __future__ import annotations

from workload import Medians

from pipeline.names import ONE, SPARK

SLOTS = 1000
#: What S3 promises for one prefix: so many requests a second that write. It gives more when asked for long.
PREFIX = 3500
#: Seconds of work in a task that is as large as it should be.
TASK = 10.0


def thousand_slots(medians: Medians) -> str:
    """What saturates first. ``T`` seconds of work in each task: a driver that needs ``d`` for one keeps
    ``T / d`` slots busy.
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
        f"Calculated from this, for tasks of {TASK:g} s, each is busy all the time: {at}. "
        f"So {first} is the first to saturate. "
        f"A thousand slots of this speed ask a store for {SLOTS * requests:,.0f} requests and "
        f"{SLOTS * moved:,.0f} GB a second, and stay busy while a task has "
        f"{SLOTS * max(driver, scheduler):.1f} s of work or more."
    )


def pays(medians: Medians) -> str:
    """From which size on Spark is faster, of those that were tried."""
    said = []
    for kind in ("copies", "mean"):
        of_one = {name: value for name, value in medians[ONE].items() if name.startswith(f"{kind} of ")}
        sizes = {int(name.split()[2]): medians[SPARK][name] < value for name, value in of_one.items()}
        slower = max((size for size, faster in sizes.items() if not faster), default=0)
        more = min((size for size in sizes if size > slower), default=None)
        said.append(f"{kind}: not up to {slower} MB" if more is None else f"{kind}: from {more} MB on")
    return f"Where Spark is faster than one process, its start not counted: {'; '.join(said)}."
