"""A simulation: several clients of Frazil over one simulated storage, in one process, with simulated clocks.

    scheduler     which client goes on at each request: seeded, or by a list of turns; its host
    pools         the thread pools of Frazil as tasks of the scheduler
    storage       the objects, what may never happen to them, and the storage of one client, with faults
    model         what each version must contain, and every change of the file `repo`
    operations    what clients do
    run           a run: its plan, made from a seed, its outcome, and what must hold at its end
    orders        all orders of two clients with few preemptions
    mutants       defects that the simulation must find
    test_disk     a disk that loses what is not flushed

`python -m tests.simulation SEED` runs one plan. Nothing here uses the real time or real random numbers, so
a seed gives the same run each time.
"""
