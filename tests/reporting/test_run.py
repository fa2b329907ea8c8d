"""The report of a run."""

import shutil
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import pocketune
from pocketune.device.train.progress import Silent
from pocketune.device.train.record import RunRecord
from pocketune.device.use.evaluate import evaluate
from pocketune.device.use.held_back import run_photos
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError
from pocketune.kit.bundled import bundled_kit
from pocketune.kit.names import LAST
from pocketune.reporting import run as run_module
from pocketune.reporting.evidence import Evidence, photo_sections
from pocketune.reporting.memory import PARTS
from pocketune.reporting.run import run_page

from ..cli.conftest import run_command
from .conftest import CLASSES, EACH, write_photos
from .html import check_alone


@pytest.fixture(scope="module")
def page(run: Path):
    return run_page(run, None)


@pytest.fixture
def undrawn(monkeypatch):
    """Charts with their words and numbers alone: drawing them takes most of a page's time."""
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda _, stream, **__: stream.write("<svg></svg>")
    )


def section(page, title):
    return next(each for each in page.sections if each.title == title)


def chart(page, title):
    return next(c for each in page.sections for c in each.charts if c.title == title)


def test_the_summary_says_what_was_trained_on_what_and_how_good_it_is(page, run):
    record, found = RunRecord.read(run), evaluate(run)
    said = " ".join(page.summary)
    assert "efficientnet_lite0" in said and "18 photos in photos" in said and "3 classes" in said
    assert f"accuracy is {found.top1:.1%}" in said and "6 photos" in said
    assert "They also chose the best step" in said
    assert "below the budget of 300 MB" in said
    tiles = {tile.label: tile for tile in page.tiles}
    assert tiles["accuracy"].value == f"{record.best.value:.1%}"
    assert tiles["trained parameters"].value == f"{record.parameters:,}"
    assert tiles["training photos"].value == str(3 * (EACH - 2))


@pytest.mark.usefixtures("undrawn")
def test_it_says_what_it_draws(run, monkeypatch):
    told = []

    @contextmanager
    def staged():
        yield lambda what, share: told.append((what, share))

    monkeypatch.setattr(run_module, "staged", staged)
    run_page(run, None)
    assert [what.split()[0] for what, _ in told] == ["drawing"] * 3
    shares = [share for _, share in told]
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] < 1


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_steps_and_validation_photos_shows_its_estimate(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    record = RunRecord.read(run)
    for head, kind in (("LDA", "cross-validated"), ("kept", "on the training photos")):
        short = replace(record, steps=0, start=None, best=None, estimate=record.best, head=head)
        short.write(folder)
        page = run_page(folder, None)
        share = f"{record.best.value:.1%}"
        assert page.summary[1] == f"No photos validated it. Its accuracy is {share}, {kind}."
        assert (page.tiles[0].value, page.tiles[0].detail) == (share, kind)
        assert "Training" not in [each.title for each in page.sections]
    replace(record, best=None).write(folder)  # nothing is known of the trained network
    page = run_page(folder, None)
    assert page.summary[1].endswith("so it is not known how good the result is.")
    steps = next(tile for tile in page.tiles if tile.label == "steps")
    assert steps.detail == f"batch {record.batch}"


@pytest.mark.usefixtures("undrawn")
def test_without_steps_nothing_has_changed(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    replace(RunRecord.read(run), steps=0).write(folder)
    page = run_page(folder, None)
    assert "Before training" not in page.summary[1] and not page.tiles[0].detail


@pytest.mark.usefixtures("undrawn")
def test_a_classifier_that_was_computed_again_is_named(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    record = RunRecord.read(run)
    for refitted in (None, "ridge"):
        replace(record, refitted=refitted).write(folder)
        said = " ".join(run_page(folder, None).summary)
        assert ("computed again after the last step (ridge" in said) == bool(refitted)


def test_the_mistakes_are_those_of_the_evaluation(page, run):
    found = evaluate(run)
    mistakes = section(page, "Mistakes")
    wrong = found.images - int(found.confusion.trace())
    assert len(mistakes.photos) == wrong
    losses = [float(photo.note.removeprefix("loss ")) for photo in mistakes.photos]
    assert losses == sorted(losses, reverse=True)
    assert all(photo.picture for photo in mistakes.photos)
    ((_, table),) = mistakes.tables
    assert [row[0] for row in table.rows] == list(found.classes)
    assert [row[2] for row in table.rows] == found.confusion.diagonal().tolist()


def test_photos_and_skipped_files_are_counted(page):
    photos = section(page, "Photos")
    table = photos.charts[0].table
    assert sorted(table.rows) == sorted((name, "6", "2") for name in CLASSES)
    ((title, skipped),) = photos.tables
    assert title == "1 file skipped" and skipped.rows[0][0].endswith("<details>.txt")


def test_each_chart_says_in_words_what_it_shows_and_has_its_numbers(page):
    charts = [each for section in page.sections for each in section.charts]
    assert len(charts) == 8
    for each in charts:
        assert each.text.endswith(".") and each.table.rows
        assert all(len(row) == len(each.table.titles) for row in each.table.rows)


def test_the_curves_are_the_log_s(page, run):
    rows = chart(page, "Accuracy over the steps").table.rows
    last = RunRecord.read(run).last
    assert rows[-1][2] == f"{last.value:.1%}"
    assert len([row for row in rows if row[0] != "0"]) == 3


def test_the_page_needs_nothing_else_and_takes_no_name_for_markup(run, tmp_path):
    file = pocketune.report(run, tmp_path / "page.html")
    text = file.read_text(encoding="utf-8")
    read = check_alone(text)
    assert len(text) < 2_000_000
    said = " ".join(read.text)
    assert all(name in said for name in CLASSES)
    assert "<img src=x onerror=alert(" in said
    pictures = [each for each in read.all("div") if each.get("role") == "img"]
    assert len(pictures) == 8 and all(each["aria-label"] for each in pictures)
    assert all(each["alt"] for each in read.all("img"))


def test_the_command_repeats_the_run(page):
    code = section(page, "Repeat it").code
    assert code == (
        "pocketune train photos --kit last --budget 300MB --epochs 3 --lr 1e-05"
        " --head-start random --val-fraction 0.25 --cache off"
    )


@pytest.mark.usefixtures("undrawn")
def test_a_run_of_a_browser_is_not_said_to_be_repeated(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    record = RunRecord.read(folder)
    assert section(run_page(folder, None), "Repeat it").text[0].endswith("give the same result:")
    replace(record, engine="onnxruntime-web 1.30.0").write(folder)
    (text,) = section(run_page(folder, None), "Repeat it").text
    assert text.endswith(
        "The run was made in a browser. This one has the same settings, but other crops:"
    )


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_continued_another_or_was_cut_by_time_says_so(run, tmp_path):
    photos, settings = run.parent / "photos", RunRecord.read(run).settings
    options = {"epochs": 1, "val_fraction": settings["val_fraction"], "cache": "off"}
    made = pocketune.train(run, photos, tmp_path / "run", progress=Silent(), **options)
    shown = section(run_page(made.run, None), "Repeat it")
    assert shown.code == (
        "pocketune train photos --kit RUN --epochs 1 --val-fraction 0.25 --cache off"
    )
    assert shown.text[0].startswith("RUN is the run that this one was trained further from. The")
    replace(RunRecord.read(made.run), reason="time").write(made.run)
    (text,) = section(run_page(made.run, None), "Repeat it").text
    assert text.endswith("A limit of time set the length of this run, so another one may differ:")


@pytest.mark.usefixtures("undrawn")
def test_validation_photos_that_an_earlier_run_was_trained_on_are_counted(run, tmp_path):
    settings = RunRecord.read(run).settings
    options = {"epochs": 1, "val_fraction": settings["val_fraction"], "seed": 1, "cache": "off"}
    made = pocketune.train(run, run.parent / "photos", tmp_path / "run", None, **options)
    first, second = (run_photos(Model.open(each)) for each in (run, made.run))
    both = set(first.train.names) & set(second.val.names)
    said = run_page(made.run, None).summary
    assert "On 6 photos that were held back, its accuracy is" in said[1]
    assert both and said[-1].startswith(f"{len(both)} of the 6 validation photos have the names")
    assert not any("have the names" in each for each in run_page(run, None).summary)


@pytest.mark.usefixtures("undrawn")
def test_without_its_photos_the_report_says_what_it_leaves_out(run, tmp_path):
    alone = tmp_path / "run"
    shutil.copytree(run, alone)
    photos = run.parent / "photos"
    moved = tmp_path / "moved"
    photos.rename(moved)
    try:
        page = run_page(alone, None)
        done = run_command(tmp_path, "report", "run")
        found = run_page(alone, moved)
    finally:
        moved.rename(photos)
    gone = f"the photos of the run are no longer at {photos}; give their new location"
    assert gone in page.summary[-1]
    assert done.stderr == f"note: the parts of the report that show photos are left out: {gone}\n"
    titles = [each.title for each in page.sections]
    assert titles == ["Training", "Memory", "Repeat it"]
    assert "Mistakes" in [each.title for each in found.sections]


def test_other_photos_than_the_run_s_are_refused(run, tmp_path):
    other = tmp_path / "photos"
    shutil.copytree(run.parent / "photos", other)
    next((other / CLASSES[0]).glob("*.png")).rename(other / CLASSES[0] / "new.png")
    with pytest.raises(PocketuneError, match="have changed"):
        run_page(run, other)


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_its_checkpoint_shows_photos_that_are_divided_as_in_the_run(run, tmp_path):
    alone, photos = tmp_path / "run", tmp_path / "photos"
    shutil.copytree(run, alone, ignore=shutil.ignore_patterns(LAST))
    assert "give photos" in run_page(alone, None).summary[-1]
    shutil.copytree(run.parent / "photos", photos)
    with pytest.raises(PocketuneError, match=r"has 24 photos to train on and 0 .* had 18 and 6"):
        run_page(alone, photos)
    for name in CLASSES:
        for place, photo in enumerate(sorted((photos / name).glob("*.png"))):
            part = tmp_path / "divided" / ("val" if place < 2 else "train") / name
            part.mkdir(parents=True, exist_ok=True)
            photo.rename(part / photo.name)
    mistakes = section(run_page(alone, tmp_path / "divided"), "Mistakes")
    assert 0 < len(mistakes.photos) <= 6


@pytest.mark.usefixtures("undrawn")
def test_without_the_author_half_the_step_is_left_out_with_a_sentence(run, device_half_alone):
    memory = section(run_page(run, None), "Memory")
    assert "left out" in memory.text[0] and len(memory.charts) == 1


def test_every_part_of_the_run_s_own_prediction_is_drawn(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    record = RunRecord.read(folder)
    assert sum(record.memory_parts.values()) == record.predicted_memory
    parts = dict.fromkeys(PARTS, 7_000_000)
    assert record.memory_parts.keys() == parts.keys()
    replace(record, memory_parts=parts).write(folder)
    drawn = chart(run_page(folder, None), "Memory by purpose")
    assert all(name in drawn.svg for name in PARTS.values())
    assert [float(size) for name, size in drawn.table.rows if name in PARTS.values()] == [7.0] * 9


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(PocketuneError, match="neither a run nor a plan"):
        pocketune.report(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_not_finished_is_refused_with_the_remedy(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "result.json").unlink()
    with pytest.raises(PocketuneError, match=r"not finished; resume with: pocketune\.resume"):
        pocketune.report(copy)


def test_a_missing_package_is_named_with_its_extra(run, tmp_path, monkeypatch):
    monkeypatch.setattr("pocketune.reporting.page.find_spec", lambda name: None)
    with pytest.raises(PocketuneError, match=r"needs jinja2.*pocketune\[report\]"):
        pocketune.report(run, tmp_path / "page.html")


def test_the_default_place_is_the_run_folder(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    assert pocketune.report(copy) == copy / "report.html"
    assert np.isclose((copy / "report.html").stat().st_size, 300_000, rtol=0.9)


def test_a_zipped_run_is_reported_beside_it(page, run, tmp_path):
    packed = shutil.make_archive(str(tmp_path / "flowers"), "zip", run)
    file = pocketune.report(packed)
    assert file == tmp_path / "flowers.html"
    assert page.summary[0] in unescape(file.read_text(encoding="utf-8"))


def test_a_report_replaces_nothing_but_a_page(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    before = (copy / "best.safetensors").read_bytes()
    with pytest.raises(PocketuneError, match=r"exists and is not a page: choose a name that ends"):
        pocketune.report(copy, copy / "best.safetensors")
    assert (copy / "best.safetensors").read_bytes() == before


@pytest.mark.usefixtures("undrawn")
def test_photos_of_a_computed_classifier_are_judged_by_that_of_all_others(tmp_path):
    photos = write_photos(tmp_path / "few")
    kit = bundled_kit("last")
    found = pocketune.train(kit, photos, tmp_path / "computed", progress=Silent())
    assert (found.steps, found.best) == (0, None)
    splits = run_photos(Model.open(found.run))
    plain = Evidence.gather(Model.open(found.run), splits)
    evidence = Evidence.gather(Model.open(found.run), splits, computed=True)
    assert plain.others is None and plain.judged is plain.training
    assert evidence.judged is evidence.others is not None
    assert evidence.others.marks.mean() == pytest.approx(found.estimate.value)
    (mistakes, *_) = photo_sections(evidence)
    assert "by the classifier that is computed from all others" in mistakes.text[0]
    page = run_page(found.run, None)
    assert any(mistakes.text == each.text for each in page.sections)


@pytest.mark.usefixtures("undrawn")
def test_the_only_photo_of_a_class_is_not_judged(tmp_path):
    photos = write_photos(tmp_path / "few")
    (photos / "lone").mkdir()
    next(photos.glob("*/*.png")).rename(photos / "lone" / "one.png")
    run = pocketune.train(bundled_kit("last"), photos, tmp_path / "run", progress=Silent()).run
    model = Model.open(run)
    evidence = Evidence.gather(model, run_photos(model), computed=True)
    assert evidence.training is not None and evidence.others is not None
    assert len(evidence.others.photos) == len(evidence.training.photos) - 1
    assert str(Path("lone", "one.png")) not in evidence.others.photos.names
    (mistakes, *_) = photo_sections(evidence)
    assert "1 photo could not be tested this way: no other shows the" in mistakes.text[0]
