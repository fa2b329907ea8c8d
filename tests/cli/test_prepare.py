"""`pocketune prepare`: what it prints, and how it fails."""

import numpy as np
import pytest
from PIL import Image

from pocketune.data import load_splits


@pytest.fixture
def large(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        pixels = np.full((40, 60, 3), 90, np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / name / "1.jpg")
    (tmp_path / "photos" / "dog" / "notes.doc").write_text("words")
    return tmp_path / "photos"


def test_copies_are_counted_and_a_second_call_finds_them(run, large, tmp_path):
    command = ("prepare", large, "--size", 20, "--out", tmp_path / "small")
    first, second = run(*command), run(*command)
    assert first.exit_code == second.exit_code == 0
    assert "2 files shrunk, 0 copied\n1 file skipped:\n  dog/notes.doc: " in first.stdout
    assert "0 files shrunk, 0 copied, 2 there already" in second.stdout
    other = run(*command[:2], "--size", 30, *command[4:]).stderr
    assert other.endswith("photos or of another size; choose another folder with --out\n")
    with Image.open(tmp_path / "small" / "cat" / "1.jpg") as image:
        assert image.size == (30, 20)


def test_the_folder_has_the_name_of_the_photos(run, large, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = run("prepare", large, "--size", 20)
    assert result.exit_code == 0
    assert result.stdout.endswith("saved in photos-small\n")
    assert result.stderr.endswith("try: pocketune train photos-small\n")
    large.rename(tmp_path / "other photos")
    other = run("prepare", tmp_path / "other photos", "--size", 50)
    said = "no file was shrunk, 2 copied: none of these has more than 50 px on both sides\n"
    assert other.stdout.startswith(said)
    assert other.stderr.endswith("try: pocketune train 'other photos-small'\n")


def test_copies_of_a_table_are_to_be_trained_on_by_the_table(run, large, tmp_path):
    (large / "labels.csv").write_text("file,label\ncat/1.jpg,one\ndog/1.jpg,other\n")
    small = tmp_path / "small"
    result = run("prepare", large / "labels.csv", "--size", 20, "--out", small)
    assert result.stderr.endswith(f"try: pocketune train {small / 'labels.csv'}\n")
    assert load_splits(small / "labels.csv", val_fraction=0).classes == ("one", "other")


def test_photos_that_are_not_there_are_one_sentence(run, tmp_path):
    result = run("prepare", tmp_path / "none", "--out", tmp_path / "small")
    assert result.exit_code == 1
    assert "does not exist; check the path" in result.output
    assert not (tmp_path / "small").exists()


def test_photos_that_exceed_a_limit_are_skipped_and_named(run, large, tmp_path):
    Image.new("RGB", (1500, 1500)).save(large / "cat" / "2.webp")
    command = ("prepare", large, "--size", 20, "--out", tmp_path / "small")
    result = run(*command, "--max-pixels", "1MP")
    assert result.exit_code == 0
    assert "cat/2.webp: its 1500 x 1500 pixels would be decoded in full" in result.stdout
    result = run(*command, "--budget", "1MB")
    assert result.exit_code == 1
    assert "the budget of 1.0 MB is smaller than the " in result.stderr
