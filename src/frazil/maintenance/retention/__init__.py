"""Retention: which versions of a history stay, and which versions an expiration removes.

``policy`` and ``commit_pattern`` are the rules that a user writes, as values. ``periods`` computes the hours,
days, weeks, months and years of many times. ``rules`` selects the rows of a table of snapshots. ``decision``
returns the repository after a policy, as a pure function, and ``report`` is the decision as a table for
people.
"""
