"""Repair: steps that bring lost and damaged files back, where no guess is needed.

``plan`` makes every step on an ``overlay`` of the storage, and verifies the overlay after each round.
``RepairPlan.apply`` makes the same steps in the storage. A damaged file is put into ``quarantine`` before it
is replaced. ``repo_file`` restores the file ``repo`` and the commits that its backup does not list.
``copies`` looks for another copy of each damaged file, and rebuilds transaction logs. ``lost_chunks``
describes chunks for which there is no copy, and makes commits without them.
"""
