"""Errors that a user can cause and mend."""


class PocketuneError(Exception):
    """One clear sentence for the user: what is wrong, with which file or argument, and the remedy.

    The commands print it as ``error: <message>`` and exit with 1; the Python API raises it.
    """
