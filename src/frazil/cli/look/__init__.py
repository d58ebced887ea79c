"""Commands that look at a repository and change nothing."""
