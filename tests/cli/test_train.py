"""`pocketune train` in this process: its options and its output."""

import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

import pocketune.device.train as training
from pocketune.cli import author
from pocketune.data import load_splits
from pocketune.device.train import TrainResult
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.train.folder import first_run, next_run
from pocketune.errors import PocketuneError
from pocketune.kit import Kit
from pocketune.kit.names import LAST, NETWORK

from ..device.runs import lines
from ..device.softmax_engine import CLASSES, write_photos


def settings_of(folder: Path):
    return Checkpoint.load(folder / LAST).settings


def test_says_how_it_went_and_how_to_go_on(run, photos, kit):
    result = run("train", photos, "--kit", kit, "--epochs", 2, "--lr", 0.05)
    assert result.exit_code == 0, result.output
    seen, cache, start, *told = result.stdout.splitlines()
    assert seen == "photos  3 classes (blue, green, red), 24 to train, 6 to validate"
    assert cache == "cache  off: keeping 4 crops of each photo pays from 8 epochs on"
    assert start.startswith("start  classifier from the photos (")
    assert told[0].startswith("steps  begin with 1/16 of its outputs, because")
    assert told[1].startswith("epoch 1/2  loss ")
    assert told[3].startswith("classifier computed again (")
    assert re.fullmatch(
        r"12 steps, (best at step \d+|none better than the start), accuracy \d+\.\d% on "
        r"6 validation photos",
        told[4],
    )
    computed = "the result is the classifier computed from the photos, on the network as it was"
    assert (told[5] == computed) == ("none better" in told[4])
    assert told[-2].startswith("peak memory ")
    run_folder = Path("runs") / "photos"
    assert told[-1] == f"saved in {run_folder}"
    assert result.stderr == f"try: pocketune predict {run_folder} PHOTO\n"


@pytest.mark.parametrize("cache", ["off", "memory"])
def test_counts_the_validation_photos_that_it_could_decode(run, photos, kit, tmp_path, cache):
    own = tmp_path / "own"
    shutil.copytree(photos, own)
    damaged = own / load_splits(own, seed=0).val.names[0]
    damaged.write_bytes(damaged.read_bytes()[:60])
    result = run("train", own, "--kit", kit, "--epochs", 2, "--cache", cache, "--out", "run")
    assert " on 5 validation photos\n" in result.stdout
    assert "\n1 file skipped:\n" in result.stdout
    assert " of 5 photos" in run("evaluate", "run").stdout


@pytest.mark.parametrize("options", [("--epochs", 2), ("--cache", "memory", "--epochs", 2), ()])
def test_counts_the_training_photos_that_it_could_decode(run, photos, kit, tmp_path, options):
    own = tmp_path / "own"
    shutil.copytree(photos, own)
    damaged = own / load_splits(own, seed=0).train.names[0]
    damaged.write_bytes(damaged.read_bytes()[:60])
    result = run("train", own, "--kit", kit, "--out", "run", *options)
    trained, training = re.search(r"trained on (\d+) of (\d+) photos", result.stdout).groups()
    assert int(trained) == int(training) - 1
    assert f"{training} to train" in result.stdout
    page = run("report", "run", "--out", "page.html")
    assert page.exit_code == 0, page.output
    assert f"trained on {trained} photos" in Path("page.html").read_text()


def test_every_option_reaches_the_run(run, photos, kit):
    result = run(
        *("train", photos, "--kit", kit, "--out", "run", "--steps", 3, "--lr", 0.5),
        *("--optimizer", "sgd", "--momentum", 0.5, "--weight-decay", 0.1, "--warmup", 2),
        *("--clip", 0.25, "--patience", 4, "--budget", "50GB", "--seed", 7),
        *(
            "--val-fraction",
            0.4,
            "--checkpoint-every",
            5,
        ),
    )
    assert result.exit_code == 0, result.output
    settings = settings_of(Path("run"))
    expected = {
        "epochs": None,
        "steps": 3,
        "lr": 0.5,
        "optimizer": "sgd",
        "momentum": 0.5,
        "weight_decay": 0.1,
        "warmup": 2,
        "clip": 0.25,
        "budget": 50_000_000_000,
        "seed": 7,
        "patience": 4,
        "val_fraction": 0.4,
        "checkpoint_every": 5,
        "checkpoint_seconds": 120.0,
        "accumulate": 1,
    }
    assert expected.items() <= settings.to_dict().items()


def test_classes_of_uneven_size_are_named_and_balanced(run, tmp_path, kit):
    photos = write_photos(tmp_path / "uneven", each=24, classes=CLASSES[:2])
    (photos / "red").mkdir()
    shutil.copy(photos / CLASSES[0] / "0.png", photos / "red" / "0.png")
    (photos / "grey").mkdir()
    result = run("train", photos, "--kit", kit, "--epochs", 1, "--out", "run")
    assert result.exit_code == 0, result.output
    assert (
        "\nuneven  the largest class has 19 times the photos of the smallest; photos of rare "
        "classes count more (balance 0.5)\nstart  "
    ) in result.stdout
    assert "1 file skipped:\n  grey: an empty folder\n" in result.stdout
    assert settings_of(Path("run")).balance == 0.5
    plain = run("train", photos, "--kit", kit, "--epochs", 1, "--balance", 0, "--out", "plain")
    assert "; each photo counts alike (balance 0)\n" in plain.stdout


def test_stopping_early_is_shown(run, photos, kit):
    result = run(
        *("train", photos, "--kit", kit, "--out", "run", "--epochs", 30, "--patience", 1),
        *("--lr", 1e-9),
    )
    assert "steps (stopped early: no better epoch), " in result.stdout


def test_a_run_that_gains_nothing_says_what_its_result_is(run, photos, kit, tmp_path):
    computed = run("train", photos, "--kit", kit, "--epochs", 1, "--lr", 1e-9, "--out", "first")
    assert "none better than the start" in computed.stdout
    assert "\nthe result is the classifier computed from the photos, on" in computed.stdout
    short = ("--kit", kit, "--time", "0.001s", "--epochs", 1)
    kept = run("train", photos, *short, "--head-start", "random", "--out", "kept")
    assert "\nthere was no time for a step: the result is the kit or run" in kept.stdout
    others = write_photos(tmp_path / "others", classes=("cyan", "pink"))
    late = run("train", others, *short, "--out", "late")
    assert "\nthere was no time for a step: the result is the classifier" in late.stdout
    drawn = run("train", others, *short, "--head-start", "random", "--out", "drawn")
    assert (
        "no time for a step: the classifier is random, so the result is of no use" in drawn.stdout
    )


def test_without_validation_photos_no_step_is_called_the_best(run, photos, kit):
    result = run("train", photos, "--kit", kit, "--epochs", 1, "--val-fraction", 0)
    assert result.exit_code == 0, result.output
    assert "\nepoch 1/1  loss" in result.stdout and "best" not in result.stdout


def test_files_left_out_are_counted_and_listed(run, tmp_path, kit):
    photos = write_photos(tmp_path / "mixed")
    (photos / "red" / "notes.txt").write_text("hello")
    (photos / "list.txt").write_text("hello")
    result = run("train", photos, "--kit", kit, "--epochs", 1)
    assert result.exit_code == 0, result.output
    assert "1 file skipped:\n  red/notes.txt: not an image in a known format\n" in result.stdout


def test_a_long_list_of_files_left_out_is_cut(run, tmp_path, kit):
    photos = write_photos(tmp_path / "mixed")
    for number in range(30):
        (photos / "red" / f"{number:02}.txt").write_text("hello")
    told = run("train", photos, "--kit", kit, "--epochs", 1).stdout
    assert "30 files skipped:" in told
    assert told.count("not an image") == 20
    assert "  and 10 more\n" in told


@pytest.mark.parametrize(
    ("photos", "taken", "name"),
    [
        ("flowers", [], "flowers"),
        ("some/flowers.zip", [], "flowers"),
        ("flowers/", ["flowers"], "flowers-2"),
        ("flowers.csv", ["flowers", "flowers-2"], "flowers-3"),
        ("/", [], "photos"),
    ],
)
def test_where_a_run_goes_when_nobody_says(photos, taken, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in taken:
        (tmp_path / "runs" / folder).mkdir(parents=True)
    assert next_run(photos) == Path("runs") / name
    assert first_run(photos) == Path("runs") / name.partition("-")[0]


def test_a_run_is_named_after_the_folder_itself(tmp_path, monkeypatch):
    (tmp_path / "my.photos.2024" / "red").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "my.photos.2024" / "red")
    assert next_run("..") == Path("runs") / "my.photos.2024"


def test_only_the_error_is_said_of_photos_that_cannot_be_used(run, bundled, tmp_path):
    (tmp_path / "empty").mkdir()
    write_photos(tmp_path / "one", classes=CLASSES[:1])
    for photos in ("nowhere", "empty", "one"):
        result = run("train", photos)
        assert (result.exit_code, result.stdout) == (1, "")


def test_without_a_kit_the_bundled_one_is_trained_and_said(run, photos, bundled):
    result = run("train", photos, "--epochs", 1)
    assert result.exit_code == 0, result.output
    last = "this was the bundled kit 'blocks'; choose another with --kit, or let Pocketune choose"
    assert last in result.stderr


def test_a_bundled_kit_by_its_name(run, photos, bundled, small_kits):
    result = run("train", photos, "--kit", "last", "--epochs", 1)
    assert result.exit_code == 0
    assert f"kit          {small_kits / 'last.zip'}\n" in run("kit", "show", "last").stdout
    predicted = run("predict", "blocks", photos, "--json")
    assert predicted.exit_code == 0
    note = "note: blocks knows no classes before it is trained"
    assert predicted.stderr.startswith(note)
    assert run("export", "blocks").stderr.startswith(note)


def test_a_path_comes_before_a_bundled_name(run, photos, bundled):
    Path("last").write_text("not a kit")
    result = run("train", photos, "--kit", "last")
    assert result.exit_code == 1
    assert "last is not a kit" in result.stderr


class TestEngine:
    """Which engine a run gets; the engines themselves have tests of their own."""

    @pytest.fixture
    def called(self, monkeypatch):
        calls = {}

        def record(*arguments, engine=None, **options):
            calls.update(options, arguments=arguments, engine=engine)
            return TrainResult(Path("run"), ("a", "b"), 1, "steps", 1, None, None, 1, ())

        monkeypatch.setattr(training, "train", record, raising=False)
        monkeypatch.setattr(training, "resume", record, raising=False)
        return calls

    def test_onnx_by_default(self, run, photos, kit, called):
        run("train", photos, "--kit", kit)
        assert called["engine"] is None

    def test_torch(self, run, photos, kit, called):
        run("train", photos, "--kit", kit, "--engine", "torch", "--device", "cuda")
        assert type(called["engine"]).__name__ == "TorchEngines"
        assert called["engine"]._device == "cuda"

    def test_torch_starts_from_the_values_next_to_a_kit(self, run, photos, called, tmp_path):
        folder = tmp_path / "folder"
        folder.mkdir()
        run("train", photos, "--kit", folder, "--engine", "torch")
        assert called["engine"]._source is None
        (folder / NETWORK).touch()
        run("train", photos, "--kit", folder, "--engine", "torch")
        assert called["engine"]._source == folder / NETWORK

    @pytest.mark.parametrize(
        ("file", "options", "torch"),
        [
            (None, [], False),
            (NETWORK, [], True),
            (NETWORK, ["--engine", "onnx"], False),
            (None, ["--engine", "torch"], True),
        ],
    )
    def test_a_resumed_run_keeps_its_engine(self, run, called, tmp_path, file, options, torch):
        (tmp_path / "old").mkdir()
        if file:
            (tmp_path / "old" / file).touch()
        run("train", "--resume", "old", "--budget", "1GB", *options)
        assert called["arguments"] == (Path("old"), None)
        assert called["budget"] == "1GB"
        assert (called["engine"] is not None) == torch

    def test_a_run_of_onnx_takes_no_device(self, run, called):
        result = run("train", "--resume", "old", "--device", "cuda")
        assert result.exit_code == 2
        assert "this run uses onnx" in result.output
        assert not called

    def test_without_the_author_half(self, run, photos, kit, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch", None)
        for name in [
            name
            for name in sys.modules
            if name.startswith(("pocketune.compiler", "pocketune.eager"))
        ]:
            monkeypatch.delitem(sys.modules, name)
        result = run("train", photos, "--kit", kit, "--engine", "torch")
        assert result.exit_code == 1
        assert result.stderr == (
            "error: --engine torch needs torch, which is not installed; install it with: "
            'pip install "pocketune[author]"\n'
        )


class TestNetwork:
    """A kit is made in another process first."""

    def test_its_options_are_those_given(self, run, photos, kit, monkeypatch):
        asked = []

        def build(*command, **_):
            asked.extend(map(str, command))
            Kit.open(kit).copy_to(command[command.index("--out") + 1])
            return 0, ""

        monkeypatch.setattr(author, "run_command", build)
        result = run(
            *("train", photos, "--network", "resnet18", "--width", 0.5, "--weights", "w.pth"),
            *("--padding", "same", "--method", "bias", "--size", 64, "--batch", 4),
            *("--label-smoothing", 0.1, "--epochs", 1, "--out", "run"),
        )
        assert result.exit_code == 0, result.output
        assert asked[:3] == ["kit", "build", "resnet18"]
        given = dict(zip(asked[3::2], asked[4::2], strict=True))
        given.pop("--out")
        given.pop("--save-network")
        assert given == {
            "--photos": str(photos),
            "--width": "0.5",
            "--weights": "w.pth",
            "--padding": "same",
            "--method": "bias",
            "--size": "64",
            "--batch": "4",
            "--label-smoothing": "0.1",
        }
        assert {file.name for file in Path().iterdir()} == {"run"}  # and nothing else
        assert lines(Path("run"), "end")

    @pytest.mark.parametrize(("code", "expected"), [(1, 1), (2, 2), (130, 130), (-9, 1)])
    def test_its_failure_is_ours(self, run, photos, monkeypatch, code, expected):
        monkeypatch.setattr(author, "run_command", lambda *_, **__: (code, ""))
        result = run("train", photos, "--network", "resnet18", "--out", "deep/run")
        assert result.exit_code == expected
        assert not Path("deep").exists()  # neither the scratch folder nor the one above it

    @pytest.mark.parametrize(
        ("option", "value", "said"),
        [
            ("--lr", -1, "lr must be above 0"),
            ("--budget", "much", "'much' is not a size"),
            ("--max-pixels", "many", "'many' is not a number of pixels"),
            ("--out", ".", "is not empty"),
        ],
    )
    def test_errors_are_reported_before_a_kit_is_built(
        self, run, photos, monkeypatch, option, value, said
    ):
        monkeypatch.delattr(author, "run_command")
        Path("file").touch()
        result = run("train", photos, "--network", "resnet18", option, value)
        assert result.exit_code == 1, result.exception
        assert said in result.stderr

    def test_nowhere_to_write(self, run, photos):
        Path("file").touch()
        result = run("train", photos, "--network", "resnet18", "--out", "file/run")
        assert result.exit_code == 1
        assert result.stderr.startswith("error: the run folder file/run cannot be read: ")


def test_errors_of_ours_are_one_line_and_bugs_show_themselves(run, photos, kit, monkeypatch):
    def fail(error):
        def train(*_, **__):
            raise error

        monkeypatch.setattr(training, "train", train, raising=False)
        return run("train", photos, "--kit", kit)

    result = fail(PocketuneError("it went wrong"))
    assert (result.exit_code, result.stderr) == (1, "error: it went wrong\n")
    result = fail(KeyboardInterrupt())
    assert (result.exit_code, result.stderr) == (130, "stopped\n")
    result = fail(KeyboardInterrupt(signal.SIGTERM))
    assert (result.exit_code, result.stderr) == (143, "stopped\n")
    result = fail(ValueError("a bug"))
    assert isinstance(result.exception, ValueError)
