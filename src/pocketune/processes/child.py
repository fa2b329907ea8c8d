"""Run a module as `python -m` does, in a process that ends with its parent.

    python -m pocketune.processes.child PARENT MODULE ARGUMENTS...

A parent that is killed cannot pass its signal on. On Linux, the kernel then sends SIGTERM, which
stops a run as usual: it saves. Elsewhere, the module runs to its end.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


def end_with(parent: int) -> None:
    """Get SIGTERM when the process `parent` ends, which started this one; on Linux."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGTERM)


def is_child() -> bool:
    """Whether another command started this process."""
    return "pocketune.processes.child" in sys.orig_argv


if __name__ == "__main__":
    parent, module, *arguments = sys.argv[1:]
    end_with(int(parent))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
