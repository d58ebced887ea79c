"""Commands that change a repository: branches, tags, commits, nodes, configuration."""
