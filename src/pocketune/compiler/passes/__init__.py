"""Rewrites of a kit's graphs, one pass a file."""
