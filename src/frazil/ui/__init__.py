"""The homes of the explorer, a page that shows a repository in a browser: a server, and a static export.

The page reads the files of the repository itself. So a home only has to give it bytes, and knows as little of
the format as the names of files.
"""
