"""The experiments: a folder for each notebook, and what puts them together."""
