"""Repair: steps that bring lost and damaged files back, where no guess is needed.

    plan       It makes every step on an overlay of the storage, and verifies the overlay after each round.
    steps      Each step is atomic for each of its files, and can be repeated after an interruption.
    finish     ``RepairPlan.apply`` makes the same steps in the storage. A damaged file is put aside before it
               is replaced.

``repo_file`` and ``relisting`` restore the file ``repo`` and the snapshots that its backup does not list,
``refs`` does the same for spec version 1. ``files`` looks for another copy of each damaged file, and ``logs``
rebuilds transaction logs. ``lost`` describes chunks for which there is no copy, and ``lost_commits`` makes
commits without them. ``orphans`` moves files that no version needs.
"""
