"""Answers about values: what the statistics of chunks prove, and what is read for the rest.

tiles        what is known of the tiles of an array, chunks or inner chunks of shards: statistics, ranges
kernels      the table of statistics: partial results of cells and of tiles
conditions   conditions on values and on ranges of values
plan         which tiles of a box are used, and which are read
functions    `frazil.reduce` and `frazil.where`
"""
