"""Answers about values: what the statistics of chunks prove, and what is read for the rest."""
