"""The configuration of a repository: values, their saved forms, and the values with every default."""
