"""Subprocesses: commands, jobs, and the signals that end them."""
