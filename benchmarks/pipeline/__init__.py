"""The data pipeline beside what else there is. A session of Spark is there before anything is timed, and each
implementation has done the same with a little data before: what that costs is a table of its own.
"""
