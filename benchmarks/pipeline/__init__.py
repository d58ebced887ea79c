"""The data pipeline compared with its alternatives.

A session of Spark runs before the measurement starts, and each implementation has run the same work with a
little data. A separate table shows the cost of this start.
"""
