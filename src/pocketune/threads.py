"""How the threads of PyTorch wait for each other."""

import os


def wait_asleep() -> None:
    """Let PyTorch's threads sleep if they wait for each other for long; before it is imported.

    By default they spin. Beside other work on the same cores, that takes several times the
    processor's time; threads that sleep at once take twice the time on idle cores. GNU's OpenMP,
    which PyTorch has on Linux, spins so many times first: some microseconds.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
