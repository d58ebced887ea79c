"""The withdrawal of data from all versions and files, with a certificate."""
