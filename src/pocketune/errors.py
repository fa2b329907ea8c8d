"""Errors that a user can cause and mend."""


class PocketuneError(Exception):
    """One clear sentence for the user: what is wrong, with which file or argument, and the remedy.

    The commands print it as ``error: <message>`` and exit with 1; the Python API raises it.
    """


def check_positive(name: str, value: object) -> None:
    """Refuse what is no number of images, pixels, channels and the like.

    Raises:
        PocketuneError: naming the argument, where it is no whole number of at least 1.
    """
    if not isinstance(value, int) or value < 1:
        raise PocketuneError(f"{name}={value!r} must be a whole number of at least 1")
