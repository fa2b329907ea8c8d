"""`pocketune plan`, and the plan that `train` makes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from pocketune.cli import app
from pocketune.cli.plan import _table, _training
from pocketune.device.train import RunRecord
from pocketune.device.train.settings import TrainSettings
from pocketune.planner.kits import KitSource, kit_paths
from pocketune.planner.limits import Limits
from pocketune.planner.plan import Plan

from ..device.softmax_engine import CLASSES, write_photos
from ..device.tiny_kit import TinyKit

QUICK = ("--steps", 2)


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good kit and a broken one."""
    folder = tmp_path_factory.mktemp("kits")
    TinyKit(classes=CLASSES, size=16).write(folder / "tiny.zip")
    (folder / "broken.zip").write_bytes(b"PK nothing")
    return folder


@pytest.fixture(scope="module")
def planned(
    photos: Path, kits: Path, small_kits: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with a finished plan of three kits."""
    folder = tmp_path_factory.mktemp("planned")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pocketune.kit.bundled._FOLDER", small_kits)
        patch.chdir(folder)
        done = CliRunner().invoke(app, [str(word) for word in plan_of(photos, kits)])
    assert done.exit_code == 0, done.output
    assert "chosen" in done.stdout
    assert "broken.zip is no candidate: " in done.stdout
    assert "timing " in done.stderr
    assert "trying 1 of " in done.stderr
    assert done.stdout.endswith("saved in plan\n")
    assert "\nto train the choice: pocketune train " in done.stderr
    return folder


def plan_of(photos: Path, kits: Path) -> tuple[object, ...]:
    """The command; its limit of time is one that a busy machine keeps."""
    limits = ("--budget", "4GB", "--time", "10h")
    return ("plan", photos, "--kits", kits, "--out", "plan", *limits, *QUICK)


def test_the_plan_as_json_is_that_of_the_file(run, bundled, planned, photos, kits, monkeypatch):
    monkeypatch.chdir(planned)
    done = run(*plan_of(photos, kits), "--json")  # all is recalled from the plan that is there
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    plan = Plan.read(planned / "plan")
    assert printed["choice"] == plan.choice
    assert {name: printed[name] for name in plan.to_dict()} == json.loads(
        json.dumps(plan.to_dict())
    )
    assert set(printed["runners_up"]) | {plan.choice} == {"blocks", "last", "tiny.zip"}
    assert printed["smallest_budget"] > 0
    assert all(trial.memory <= 1_000_000_000 for trial in plan.trials)


def test_a_plan_says_how_to_train_its_choice(run, bundled, planned, photos, kits, monkeypatch):
    monkeypatch.chdir(planned)
    done = run(*plan_of(photos, kits))
    *_, recalled, command = done.stderr.splitlines()
    assert recalled == "the plan in plan is complete: nothing was measured again"
    words = shlex.split(command.removeprefix("to train the choice: "))
    assert words[:4] == ["pocketune", "train", str(photos), "--kit"]
    done = run(*words[1:], "--out", "chosen")
    assert done.exit_code == 0, done.output
    assert RunRecord.read(planned / "chosen").settings["steps"] == 2


def test_what_was_not_looked_at_is_counted_in_the_table(planned, capsys):
    plan = Plan.read(planned / "plan")
    unseen = [
        replace(plan.trials[0], candidate=replace(plan.trials[0].candidate, name=f"net {i}"))
        for i in range(5)
    ]
    late = [replace(t, cost=None, probes=(), dropped="there was no time") for t in unseen]
    worse = replace(plan.chosen, dropped=f"{plan.choice} promises more")
    worse = replace(worse, candidate=replace(worse.candidate, name="worse"))
    Console(width=100).print(_table(replace(plan, trials=(*plan.trials, worse, *late))))
    table = capsys.readouterr().out
    assert re.search(r"5 more +│ +│ +│ +│ there was no time +│", table)
    assert "net 0" not in table
    assert re.search(r"worse .* the choice promises more +│", table)


@pytest.mark.parametrize(("time", "seconds"), [(30.0, 18), (600.0, 510), (1.0, 1)])
def test_a_plan_that_took_too_long_leaves_the_time_for_training(planned, photos, time, seconds):
    plan = replace(Plan.read(planned / "plan"), preparing=1e6)
    asked = replace(plan.asked, limits=Limits(time=time))
    plan = replace(plan, asked=asked)
    assert plan.seconds_left == 0
    assert f" --time {seconds}s" in _training(plan, photos, TrainSettings())


def test_the_plan_of_photos_stays_where_it_is(run, bundled, planned, photos, kits, tmp_path):
    (tmp_path / "runs" / photos.name).mkdir(parents=True)
    shutil.copytree(planned / "plan", plan := tmp_path / "runs" / "photos.plan")
    arguments = [each for each in plan_of(photos, kits) if each not in ("--out", "plan")]
    done = run("plan", *arguments[1:] if arguments[0] == "plan" else arguments)
    assert "nothing was measured again" in done.stderr
    assert done.stdout.endswith("saved in runs/photos.plan\n")
    assert plan.is_dir()


def test_too_little_time_for_anything_still_gives_a_model(process, photos, tmp_path):
    limits = ("--budget", "200MB", "--time", "1s", "--epochs", 9)
    done = process("train", photos, *limits, "--out", "a")
    assert done.returncode == 0, done.stderr
    record = RunRecord.read(tmp_path / "a")
    assert (record.steps, record.reason) == (0, "time")
    assert "the classifier computed from the photos" in done.stdout


def test_a_limit_of_time_shortens_a_run_of_a_kit(process, photos, kit, tmp_path):
    done = process("train", photos, "--kit", kit, "--time", "4s", "--epochs", 10_000, "--out", "a")
    assert done.returncode == 0, done.stderr
    record = RunRecord.read(tmp_path / "a")
    assert record.reason == "time"
    assert re.search(r"time  the limit leaves room for \d+ of [\d,]+ steps, which are", done.stdout)
    assert record.steps < 10_000 * 6
    assert "peak memory" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "1MB"), "the budget of 1.0 MB is smaller than the"),
        (("--budget", "55MB"), "nothing fits the budget of 55 MB; the smallest that something"),
        (("--time", "soon"), "'soon' is not a time above 0"),
        (("--val-fraction", 0), "there are none: set --val-fraction above 0, or name a kit"),
        (("--kits", "none"), "the folder of kits none cannot be read"),
    ],
)
def test_limits_that_leave_nothing_to_choose(run, photos, options, message, monkeypatch, capfd):
    monkeypatch.setattr("pocketune.planning.process_bytes", lambda *_: 40_000_000)
    for command in ("plan", "train"):
        words = options if command == "plan" else (*options, "--budget", "4GB")
        if "--budget" in options:
            words = options
        done = run(command, photos, *words)
        assert done.exit_code == 1, done.output
        assert message in done.stderr + capfd.readouterr().err
        if "is smaller than" in message:  # nothing was tried
            assert not list(Path().glob("**/*.plan"))


def test_one_photo_of_each_class_leaves_none_to_compare_on(run, tmp_path):
    done = run("plan", write_photos(tmp_path / "photos", each=1), "--budget", "4GB")
    assert done.exit_code == 1, done.output
    assert "there are none: add photos, or name a kit" in done.stderr


def test_a_plan_leaves_test_photos_alone(run, bundled, photos, kits, tmp_path):
    for part in ("train", "test"):
        shutil.copytree(photos, tmp_path / "divided" / part)
    done = run(*plan_of(tmp_path / "divided", kits), "--json")
    assert done.exit_code == 0, done.output
    asked = json.loads(done.stdout)["asked"]
    assert asked["training"] + asked["validation"] == 30


def test_train_plans_within_the_smallest_budget_and_keeps_the_plan(process, photos, tmp_path):
    done = process("plan", photos, "--budget", "55MB", *QUICK)
    smallest = re.search(r"something fits is (\d+) MB", done.stderr)
    assert smallest, done.stderr
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    budget = f"{smallest[1]}MB"
    done = process("train", photos, "--budget", budget, "--time", "10h", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "to train the choice" not in done.stderr  # it is trained at once
    record = RunRecord.read(tmp_path / "runs" / "photos")
    plan = Plan.read(tmp_path / "runs" / "photos.plan")
    assert plan.chosen.candidate.method == record.method
    assert record.peak_memory <= int(smallest[1]) * 1_000_000
    assert record.steps == 2
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"photos", "photos.plan"}


def test_two_photos_a_class_are_enough(run, bundled, tmp_path):
    classes = tuple(f"class {number}" for number in range(20))
    photos = write_photos(tmp_path / "few", each=2, classes=classes)
    done = run("plan", photos, *QUICK)
    assert done.exit_code == 0, done.output
    assert Plan.read(tmp_path / "runs" / "few.plan").asked.validation == 20


def test_few_photos_are_all_compared_as_the_run_computes_its_classifier_from_all(
    run, bundled, tmp_path
):
    photos = write_photos(tmp_path / "few", each=4)
    for options in [(), ("--epochs", 0)]:
        assert run("plan", photos, *options).exit_code == 0
        plan = Plan.read(tmp_path / "runs" / "few.plan")
        assert (plan.asked.training, plan.asked.validation) == (12, 0)
        assert plan.chosen.head is not None and plan.chosen.head.photos == 12


def test_a_plan_without_steps_chooses_by_frozen_features(run, photos, tmp_path):
    done = run("plan", photos, "--budget", "96MB", "--epochs", 0, "--out", tmp_path / "plan")
    assert done.exit_code == 0, done.output
    plan = Plan.read(tmp_path / "plan")
    assert plan.chosen.head is not None
    assert not any(trial.probes for trial in plan.trials)


def test_nothing_set_trains_the_default_kit_without_a_plan(process, photos, tmp_path):
    done = process("train", photos, *QUICK)
    assert done.returncode == 0, done.stderr
    assert "this was the bundled kit 'blocks'; choose another with --kit" in done.stderr
    assert not (tmp_path / "runs" / "photos.plan").exists()


def test_kits_need_something_to_choose(run, photos):
    result = run("train", photos, "--kits", "a", "--kit", "blocks")
    assert result.exit_code == 2
    assert "cannot be combined with --kit or --network" in result.output


def test_a_run_in_the_folder_of_kits_is_no_candidate(kits: Path, tmp_path: Path) -> None:
    kit = TinyKit(classes=CLASSES, size=16).write(tmp_path / "run")
    (kit.path / "best.safetensors").write_bytes(b"trained")
    shutil.make_archive(str(tmp_path / "kits" / "run"), "zip", kit.path)
    assert [name for name, _ in kit_paths(tmp_path / "kits")] == ["run.zip"]
    source = KitSource(None, kits=tmp_path / "kits", bundled=False)
    (left_out,) = source.find()[1]
    assert left_out.reason == "it is a run, not a kit: name it alone to train it further"
