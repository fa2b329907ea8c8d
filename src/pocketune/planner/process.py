"""The memory of a training process before it opens a kit, measured in such a process."""

from __future__ import annotations

import subprocess
import sys

from pocketune.errors import PocketuneError


def process_bytes() -> int:
    """Resident bytes of a process that has imported everything that training needs.

    It is measured in a new process, because this one may have imported PyTorch.

    Raises:
        PocketuneError: The process cannot be started.
    """
    command = [sys.executable, "-m", "pocketune.planner.process"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise PocketuneError(f"the memory of a training process cannot be measured: {last[0]}")
    return int(done.stdout)


if __name__ == "__main__":
    from pocketune.device.memory.baseline import training_baseline

    print(training_baseline())
