"""Errors that a user can cause and mend."""


class PocketuneError(Exception):
    """One clear sentence for the user: what is wrong, with which file or argument, and the remedy.

    The commands print it as ``error: <message>`` and exit with 1; the Python API raises it.
    """


def check_positive(**numbers: object) -> None:
    """Refuse what is no number of images, pixels, channels and the like.

    Raises:
        PocketuneError: naming the first argument that is no whole number of at least 1.
    """
    for name, number in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise PocketuneError(f"{name}={number!r} must be a whole number of at least 1")
