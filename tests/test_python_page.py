"""The code in docs/python.md runs, one piece after the other, as in a notebook."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pocketune

PAGE = Path(__file__).parents[1] / "docs/python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)


def test_the_page_s_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    train, keep, watch, thread, task, process, log = BLOCKS
    rng, names = np.random.default_rng(0), {}
    exec(keep, names)
    for number in range(24):
        label = ("cat", "nobody")[number % 2]
        names["keep"](rng.integers(0, 256, (48, 64, 3), dtype=np.uint8) // (1 + number % 2), label)
    assert len([*tmp_path.glob("photos/*/[0-9]*.jpg")]) == 24
    for block in (train, watch, thread, log):
        exec(block, names)
    assert len(names["losses"]) == names["result"].steps > 0
    assert names["stop"].is_set()
    assert not Path("runs/door-2").exists()
    assert "stopped before the first checkpoint" in capsys.readouterr().out
    frames = rng.integers(0, 256, (2, 90, 160, 3), dtype=np.uint8)
    names["watch"](frames)
    assert len(re.findall(r" \d+ ms$", capsys.readouterr().out, re.M)) == 2
    assert isinstance(names["predictor"], pocketune.Predictor)
    exec(task, names)
    assert asyncio.run(names["train"]()).run == Path("runs/async")
    script = tmp_path / "server.py"
    script.write_text(process)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("runs/small: ")
