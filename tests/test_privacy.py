"""A run keeps to itself: no connection, no process, no file outside its folder, no thread left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .device.softmax_engine import CLASSES, write_photos
from .device.tiny_kit import TinyKit

# Runs commands under an audit hook, which sees what Python code does; and looks into /proc while
# it runs, for what the libraries' own code does.
WATCHED = """
import json, os, sys, threading, time

seen = []
WATCHED = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system",
           "urllib.", "http.", "ftplib.", "smtplib.", "webbrowser.", "ctypes.dlopen", "shutil.",
           "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink",
           "os.truncate", "os.chmod", "tempfile.")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def audit(event, arguments):
    if event == "open":
        path, _, flags = arguments
        if flags & WRITING and isinstance(path, (str, bytes)):
            seen.append(["open", os.fsdecode(path)])
    elif event.startswith(WATCHED):
        seen.append([event, *map(repr, arguments)])

sockets = set()

def watch():
    while True:
        for number in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{number}")
            except OSError:
                continue
            if target.startswith("socket:"):
                sockets.add(target)
        time.sleep(0.002)

out = open(sys.argv[1], "w")
if os.path.isdir("/proc/self/fd"):
    threading.Thread(target=watch, daemon=True, name="watch").start()
sys.addaudithook(audit)
from pocketune.cli import main
try:
    for command in json.load(sys.stdin):
        sys.argv = ["pocketune", *command]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
finally:
    events = list(seen)
    threads = [t.name for t in threading.enumerate() if t.name != "watch"]
    json.dump({"events": events, "threads": threads, "sockets": list(sockets)}, out)
    out.close()
"""


def snapshot(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in folder.rglob("*")}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The actions of a whole run and of what uses it, and the files that they left."""
    place = tmp_path_factory.mktemp("place")
    home, photos = place / "home", write_photos(place / "photos")
    for folder in (home, home / "tmp", home / "cache"):
        folder.mkdir()
    kit = TinyKit(classes=CLASSES, size=16).write(place / "kit.zip").path
    (place / "report.json").touch()
    before = snapshot(place)
    commands = [
        ["train", str(photos), "--kit", str(kit), "--out", "run", "--epochs", "3"],
        ["predict", "run", str(photos / "red")],
        ["evaluate", "run", str(photos)],
        ["export", "run", "--out", "run/model.onnx"],
    ]
    names = ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA")
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "report.json"],
        input=json.dumps(commands),
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith(("ORT_", "XDG_"))},
            **dict.fromkeys(names, str(home)),
            **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(home / "tmp")),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_DATA_HOME": str(home / "data"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_WAIT_POLICY": "passive",
        },
    )
    assert done.returncode == 0, done.stderr
    after = snapshot(place)
    report = json.loads((place / "report.json").read_text())
    changed = {name for name in after if before.get(name) != after[name]}
    return {**report, "place": place, "changed": changed - {"report.json"}}


def events(watched: dict, *prefixes: str) -> list[list[str]]:
    return [event for event in watched["events"] if event[0].startswith(prefixes)]


def test_the_watch_sees(watched):
    assert events(watched, "open")  # the run's own files
    assert events(watched, "os.rename")


def test_nothing_is_connected_or_looked_up(watched):
    # platform and uuid, which libraries import, may make an unbound socket object; none may exist.
    assert not events(watched, "socket.", "urllib.", "http.", "ftplib.", "smtplib.", "webbrowser.")
    assert watched["sockets"] == []


def test_no_other_process_is_started(watched):
    assert not events(watched, "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system")


def test_python_writes_into_the_run_folder_alone(watched):
    place = watched["place"]
    written = {(place / path).resolve() for _, path in events(watched, "open")}
    assert written
    outside = {
        path for path in written if path.parent != place / "run" and path != Path("/dev/null")
    }
    assert not outside


def test_nothing_else_changes_on_the_disk(watched):
    # Whoever writes: also the libraries' own code, in the places where it would.
    assert {Path(name).parts[0] for name in watched["changed"]} == {"run"}


def test_no_thread_outlives_the_run(watched):
    assert watched["threads"] == ["MainThread"]


def test_the_runtimes_telemetry_is_off_before_any_module_can_import_it():
    code = "import os, sys, pocketune; print(os.environ['ORT_DISABLE_TELEMETRY'], *sys.modules)"
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    value, *modules = done.stdout.split()
    assert value == "1"
    assert "onnxruntime" not in modules
