"""Control groups of Linux with a limit of memory, where this user may make one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")
PLACES = ((ROOT / "memory", "memory.limit_in_bytes"), (ROOT, "memory.max"))
"""Where groups are made, and the file of the limit: of version 1, and of version 2."""


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A group whose processes may take `limit` bytes; the test is skipped where none can be made.

    Yields:
        The file that a process writes its number into to join.
    """
    for place, file in PLACES:
        group = place / f"pocketune-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            members = group / "cgroup.procs"
            if _is_limited(group / file, limit) and _can_be_joined(members):
                yield members
                return
        finally:
            group.rmdir()
    pytest.skip("this user may not make a control group with a limit of memory")


def _is_limited(file: Path, limit: int) -> bool:
    try:
        file.write_text(str(limit))
    except OSError:  # the group has no control of memory
        return False
    return True


def _can_be_joined(members: Path) -> bool:
    return subprocess.run(["sh", "-c", f"echo $$ > {members}"], check=False).returncode == 0
