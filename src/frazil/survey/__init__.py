"""The survey: which file is needed by which array of which version. Upkeep is a set of queries on it.

Every column comes in parts, by version or manifest, and the caller reduces each part at once. ``Survey``
reads each file once, in limited memory, and skips what the stored ``index`` has. ``run_with`` is the
one parallel step. Checks that read more than these columns are pieces of their own.
"""
