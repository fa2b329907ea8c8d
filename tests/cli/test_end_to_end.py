"""The commands as users run them, each in its own process."""

from __future__ import annotations

import csv
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pocketune.data import center_crop
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.kit.names import LAST, NETWORK

from ..data.images.loading import load_image
from ..device.runs import assert_same_end, lines
from ..device.softmax_engine import CLASSES, write_photos
from .conftest import Process, Run, command, environment, run_command

SIZE, EPOCHS = 32, 8
LONG = 30
"""Epochs of a run that is stopped after two of them."""
WAITING = """
import time
from pocketune.__main__ import main
from pocketune.kit import kit

def wait(path):
    print("opening the kit", flush=True)
    time.sleep(60)

kit.open_storage = wait
main()
"""
"""A command that waits before a run exists."""
NETWORK_OPTIONS = [
    *("--network", "resnet18", "--width", "0.1", "--method", "blocks"),
    *("--size", SIZE, "--batch", "4"),
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos and a run on them, of a network that the command itself has compiled."""
    folder = tmp_path_factory.mktemp("work")
    write_photos(folder / "photos")
    done = run_command(
        folder,
        *("train", "photos", *NETWORK_OPTIONS, "--epochs", EPOCHS, "--lr", "0.003"),
        *("--out", "run", "--engine", "torch", "--head-start", "random"),
    )
    assert done.returncode == 0, done.stderr
    assert "built a kit of resnet18: 32 px, batch 4, method blocks" in done.stdout
    warning, *stages, after = done.stderr.splitlines()
    assert warning == (
        "warning: resnet18 starts from random weights; choose pretrained ones with --weights"
    )
    assert stages[:2] == ["creating the network", "tracing the training step"]
    assert after == "try: pocketune predict run PHOTO"
    assert {entry.name for entry in folder.iterdir()} == {"photos", "run"}
    return folder


def call(workplace: Path, *arguments: object) -> str:
    """A command that has to succeed, in the folder of the run."""
    done = run_command(workplace, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_network_learns_the_photos(workplace: Path) -> None:
    losses = [line["loss"] for line in lines(workplace / "run", "epoch")]
    assert losses[-1] < 0.7 * math.log(3)  # the loss of guessing among three classes
    told = json.loads(call(workplace, "evaluate", "run", "photos", "--json"))
    assert told["images"] == 6  # those that it held back


def test_evaluation_and_prediction_agree(workplace: Path) -> None:
    shutil.copytree(workplace / "photos", workplace / "others")
    (workplace / "others" / "red" / "0.png").unlink()
    call(workplace, "evaluate", "run", "others", "--confusion", "confusion.csv")
    told = call(workplace, "predict", "run", "others", "--json", "--top", "1")
    confusion = np.zeros((3, 3), int)
    for line in map(json.loads, told.splitlines()):
        label = Path(line["image"]).parent.name
        confusion[CLASSES.index(label), CLASSES.index(line["classes"][0]["class"])] += 1
    rows = list(csv.reader((workplace / "confusion.csv").read_text().splitlines()))[1:]
    assert [[int(cell) for cell in row[1:]] for row in rows] == confusion.tolist()


RUN_ONNX = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
print(session.get_modelmeta().custom_metadata_map["classes"])
(logits,) = session.run(["logits"], {"images": numpy.load(sys.argv[2])})
powers = numpy.exp(logits - logits.max(1, keepdims=True))
print((powers / powers.sum(1, keepdims=True)).tolist())
"""


RUN_FLATBUFFER = """
import sys, numpy
from ai_edge_litert.interpreter import Interpreter
run = Interpreter(sys.argv[1]).get_signature_runner()
images = numpy.load(sys.argv[2])
print([int(run(images=image[None])["logits"].argmax()) for image in images])
"""


def run_exported(script: str, model: Path, files: Sequence[Path]) -> list[str]:
    """The lines that a script without Pocketune prints about these photos."""
    images = model.with_name("images.npy")
    np.save(images, [np.asarray(center_crop(load_image(file), SIZE)) for file in files])
    done = subprocess.run(
        [sys.executable, "-c", script, str(model), str(images)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_file_for_tensorflow_lite_predicts_the_same(
    workplace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made in this process, which has PyTorch already, and read in one without Pocketune."""
    pytest.importorskip("ai_edge_litert", reason="needs the extra tflite")
    monkeypatch.chdir(workplace)
    done = run("export", "run", "--tflite", "--out", "out.tflite")
    assert done.exit_code == 0, done.output
    assert "of its answers are those of the model" in done.stdout
    files = sorted((workplace / "photos").rglob("*.*"))
    (places,) = run_exported(RUN_FLATBUFFER, workplace / "out.tflite", files)
    found = [CLASSES[place] for place in json.loads(places)]
    told = run("predict", "run", *files, "--json", "--top", "1").stdout
    expected = [json.loads(line)["classes"][0]["class"] for line in told.splitlines()]
    same = sum(a == b for a, b in zip(found, expected, strict=True))
    assert len(files) == 30 and same >= 27


def test_an_exported_model_runs_anywhere_and_predicts_the_same(workplace: Path) -> None:
    call(workplace, "export", "run", "--out", "out.onnx")
    files = sorted((workplace / "photos" / "red").iterdir())
    classes, shares = map(json.loads, run_exported(RUN_ONNX, workplace / "out.onnx", files))
    assert tuple(classes) == CLASSES
    told = call(workplace, "predict", "run", *files, "--json", "--top", "3")
    for line, row in zip(map(json.loads, told.splitlines()), shares, strict=True):
        expected = {guess["class"]: guess["probability"] for guess in line["classes"]}
        for name, share in zip(classes, row, strict=True):
            assert share == pytest.approx(expected[name], abs=1e-4)


def test_a_run_of_pytorch_keeps_its_network_and_is_a_kit_for_devices(workplace: Path) -> None:
    assert (workplace / "run" / NETWORK).exists()
    call(workplace, "train", "photos", "--kit", "run", "--epochs", "1", "--out", "on-onnx")
    assert not (workplace / "on-onnx" / NETWORK).exists()


# Interrupted runs: on a tiny kit, with enough epochs to be stopped in.


def begin(folder: Path, photos: Path, kit: Path, *more: object) -> subprocess.Popen[str]:
    """A run that has come to its second epoch."""
    process = subprocess.Popen(
        command(
            *("train", photos, "--kit", kit, "--out", "run", "--epochs", LONG, "--lr", 0.05),
            *("--checkpoint-every", 4, *more),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("photos  3 classes (blue, green, red), 24 to train")
    assert process.stdout.readline().startswith("cache  features of ")
    assert process.stdout.readline().startswith("start  classifier from the photos")
    assert process.stdout.readline().startswith("steps  begin with 1/16 of its outputs")
    assert process.stdout.readline().startswith(f"epoch 1/{LONG}")
    assert process.stdout.readline().startswith(f"epoch 2/{LONG}")
    return process


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, photos: Path, kit: Path) -> Path:
    """The run that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    call(
        folder,
        *("train", photos, "--kit", kit, "--out", "run", "--epochs", LONG, "--lr", 0.05),
        *("--checkpoint-every", 4),
    )
    return folder / "run"


@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
class TestStopped:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ctrl_c_saves_and_shows_the_command_that_resumes(
        self, number: int, tmp_path: Path, photos: Path, kit: Path, whole: Path
    ) -> None:
        process = begin(tmp_path, photos, kit)
        process.send_signal(number)
        _, error = process.communicate()
        assert process.returncode == 128 + number
        told, advice = error.rstrip("\n").split("; resume with: ")
        step = Checkpoint.load(tmp_path / "run" / LAST).counters.step
        assert told == f"stopped and saved at step {step} of {6 * LONG}"
        words = shlex.split(advice)
        assert words[0] == "pocketune"
        call(tmp_path, *words[1:])
        assert_same_end(tmp_path / "run", whole)

    def test_killed(
        self, tmp_path: Path, photos: Path, kit: Path, whole: Path, process: Process
    ) -> None:
        running = begin(tmp_path, photos, kit)
        time.sleep(0.05)
        running.kill()
        running.communicate()
        done = process("train", "--resume", "run")
        assert done.returncode == 0, done.stderr
        assert_same_end(tmp_path / "run", whole)

    def test_ctrl_c_before_the_run_has_begun(self, tmp_path: Path, photos: Path, kit: Path) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", WAITING, "train", photos, "--kit", kit],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment(),
            # processes in the background of a shell ignore it
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "opening the kit\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert (process.returncode, error) == (130, "stopped\n")

    def test_demo_leaves_nothing_behind(self, tmp_path: Path) -> None:
        process = subprocess.Popen(
            command("demo"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment(), "TMPDIR": str(tmp_path)},
        )
        assert process.stdout is not None
        while not process.stdout.readline().startswith("Training: "):
            assert process.poll() is None
        process.terminate()
        _, error = process.communicate()  # once the training too has closed standard output
        assert (process.returncode, error) == (143, "stopped\n")
        assert not list(tmp_path.iterdir())


def run_unread(folder: Path, *arguments: object) -> int:
    """The exit code of a command whose reader goes away before it says anything."""
    process = subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(),
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert "error" not in process.stderr.read()
    return process.wait()


def test_a_reader_that_goes_away_is_not_an_error(tmp_path: Path, photos: Path, kit: Path) -> None:
    run_unread(tmp_path, "predict", kit, photos)


def test_a_run_goes_on_where_its_reader_goes_away(tmp_path: Path, photos: Path, kit: Path) -> None:
    assert run_unread(tmp_path, "train", photos, "--kit", kit, "--epochs", 3, "--out", "run") == 0
    assert lines(tmp_path / "run", "end")


def test_a_budget_is_held_or_refused(
    process: Process, tmp_path: Path, photos: Path, kit: Path
) -> None:
    arguments = ("train", photos, "--kit", kit, "--epochs", 1)
    done = process(*arguments, "--budget", "30MB")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the budget of 30 MB is smaller than the ")
    assert not (tmp_path / "runs").exists()
    assert process(*arguments, "--budget", "400MB").returncode == 0
    peak = lines(tmp_path / "runs" / "photos", "end")[0]["memory"]
    assert peak < 400_000_000


def test_warnings_of_the_image_library_are_not_the_users(process: Process, tmp_path: Path) -> None:
    from PIL import Image

    photos = write_photos(tmp_path / "photos")
    image = Image.open(photos / "red" / "0.png").convert("P")
    image.save(photos / "red" / "0.png", transparency=bytes(range(100)))
    done = process("predict", make_kit(tmp_path), photos / "red")
    assert (done.returncode, done.stderr) == (0, "")


def make_kit(folder: Path) -> Path:
    from ..device.tiny_kit import TinyKit

    return TinyKit(size=16).write(folder / "kit").path


IMPORTED = """
import atexit, sys
sys.argv = ["pocketune", *sys.argv[1:]]
atexit.register(lambda: print(*sys.modules, file=open("modules.txt", "w")))
from pocketune.cli import main
main()
"""


def imported(folder: Path, *arguments: object) -> set[str]:
    """The modules that a command has imported by its end."""
    command = [sys.executable, "-c", IMPORTED, *map(str, arguments)]
    subprocess.run(command, cwd=folder, env=environment(), check=True)
    return set((folder / "modules.txt").read_text().split())


def test_a_run_imports_nothing_that_it_does_not_need(
    tmp_path: Path, photos: Path, kit: Path
) -> None:
    modules = imported(tmp_path, "train", photos, "--kit", kit, "--epochs", 1)
    assert {"numpy", "onnxruntime", "click"} <= modules
    strange = {"torch", "onnx", "rich", "pydantic", "pocketune.compiler", "unittest", "numpy.ma"}
    assert not modules & strange


def test_kit_show_measures_a_process_with_the_runtime_of_a_run(tmp_path: Path, kit: Path) -> None:
    """Without the runtime, its prediction is 8 MB short."""
    assert "onnxruntime" in imported(tmp_path, "kit", "show", kit)


def test_ctrl_c_while_a_command_is_imported(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command("networks"),
        capture_output=True,
        text=True,
        check=False,
        env={**environment(), "PYTHONPATH": paths},
    )
    assert (done.returncode, done.stderr) == (130, "stopped\n")


def test_the_commands_themselves_are_light() -> None:
    code = (
        "import sys, click\nfrom pocketune.cli import app\n"
        "context = click.Context(app)\n"
        "[app.get_command(context, name) for name in app.list_commands(context)]\n"
        "heavy = {'numpy', 'PIL', 'onnxruntime', 'safetensors', 'torch', 'rich', 'pydantic'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
