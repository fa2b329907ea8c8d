"""A process that plans is killed in each of its phases, and the next one goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pocketune.planner.plan import Plan
from pocketune.planner.trial import Trial

from ..device.softmax_engine import CLASSES
from ..device.tiny_kit import TinyKit

PHASES = (" predicted", " before training", "timing ", "trying 1 of 3", "trying 2 of 3")
"""What a plan says in the order of its phases."""
PLAN = """
import sys
from pathlib import Path
from pocketune.kit import bundled
bundled._FOLDER = Path(sys.argv.pop(1))
from pocketune.cli import app
app()
"""


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("more")
    TinyKit(classes=CLASSES, size=24).write(folder / "tiny.zip")
    return folder


def planning(small_kits: Path, photos: Path, kits: Path, plan: Path) -> subprocess.Popen[str]:
    """A process that plans within limits that a busy machine keeps."""
    limits = ("--budget", "4GB", "--time", "10h", "--steps", 2)
    words = (small_kits, "plan", photos, "--kits", kits, "--out", plan, *limits)
    command = [sys.executable, "-c", PLAN, *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def known(plan: Plan) -> dict[str, tuple[object, ...]]:
    """What was measured of each trial."""

    def of(trial: Trial) -> tuple[object, ...]:
        return trial.cost, trial.heads, trial.probes

    return {trial.name: of(trial) for trial in plan.trials}


def test_a_plan_goes_on_after_a_kill_in_each_phase(
    small_kits: Path, photos: Path, kits: Path, tmp_path: Path
) -> None:
    before: dict[str, tuple[object, ...]] = {}
    for phase in PHASES:
        with planning(small_kits, photos, kits, tmp_path / "plan") as process:
            assert process.stderr is not None
            assert any(phase in line for line in process.stderr), phase
            process.kill()
        assert process.returncode == -signal.SIGKILL
        plan = Plan.read(tmp_path / "plan")
        assert plan.choice is None
        now = known(plan)
        assert _are_kept(before, now), phase
        before = now
    with planning(small_kits, photos, kits, tmp_path / "plan") as process:
        _, said = process.communicate()
    assert process.returncode == 0, said
    plan = Plan.read(tmp_path / "plan")
    assert plan.choice is not None
    assert _are_kept(before, known(plan))
    assert all(len(trial.probes) == 1 for trial in plan.trials)


def _are_kept(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> bool:
    """Whether everything that was measured is still there, and not measured again.

    A process that was killed had begun with an empty list, and filled it as far as it came.
    """
    return all(
        new is not None and old in (None, (), new)
        for name, earlier in before.items()
        for old, new in zip(earlier, after[name], strict=True)
        if old
    )
