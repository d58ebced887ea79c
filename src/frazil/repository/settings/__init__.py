"""The configuration of a repository: its values, their saved form, and the values with all defaults."""
