"""Tables: arrays as rows for SQL and DataFrames, rows as arrays, and what a repository knows of itself."""
