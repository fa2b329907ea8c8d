"""Small copies of photos: what changes, what does not, and what a stopped call leaves."""

import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
from PIL import Image

from pocketune.data import Loader, load_splits
from pocketune.data.prepare import prepare
from pocketune.errors import PocketuneError


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def folder(tmp_path):
    """Large photos of two classes, one of them turned by its EXIF orientation, and a small one."""
    rng, turned = np.random.default_rng(0), Image.Exif()
    turned[0x0112] = 6
    for name in ("cat/1.jpg", "cat/2.png", "dog/1.jpg"):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((80, 60)).save(path, **({"exif": turned} if name == "dog/1.jpg" else {}))
    small = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
    save(tmp_path / "photos" / "dog" / "small.jpg", small)
    return tmp_path / "photos"


def sizes(folder):
    return {
        path.relative_to(folder).as_posix(): Image.open(path).size
        for path in sorted(folder.rglob("*.*g"))
    }


def test_the_shorter_side_shrinks_and_names_stay(folder, tmp_path):
    done = prepare(folder, tmp_path / "small", size=30)
    assert (done.shrunk, done.kept, done.there, done.skipped) == (3, 1, 0, ())
    assert sizes(tmp_path / "small") == {
        "cat/1.jpg": (40, 30),
        "cat/2.png": (40, 30),
        "dog/1.jpg": (30, 40),  # upright
        "dog/small.jpg": (24, 20),
    }
    both = [load_splits(each, val_fraction=0.0).train for each in (folder, tmp_path / "small")]
    assert list(both[0].names) == list(both[1].names)
    assert both[0].labels.tolist() == both[1].labels.tolist()
    before, after = (
        np.asarray(Image.open(f / "cat/1.jpg").resize((8, 6)), float)
        for f in (folder, tmp_path / "small")
    )
    assert np.abs(before - after).mean() < 8


def test_photos_that_are_small_give_the_same_pixels(folder, tmp_path):
    prepare(folder, tmp_path / "small", size=60)
    batches = [
        next(
            Loader(load_splits(each, val_fraction=0.0).train, size=16, batch=4, train=True).epoch(0)
        )
        for each in (folder, tmp_path / "small")
    ]
    np.testing.assert_array_equal(batches[0].images, batches[1].images)


@pytest.mark.parametrize("lossless", [False, True])
def test_a_jpeg_stays_one_unless_nothing_may_be_lost(folder, tmp_path, lossless):
    prepare(folder, tmp_path / "small", size=30, lossless=lossless)
    with Image.open(tmp_path / "small/cat/1.jpg") as image:
        assert image.format == ("PNG" if lossless else "JPEG")
    with Image.open(tmp_path / "small/cat/2.png") as image:
        assert image.format == "PNG"


def test_a_stopped_call_goes_on(folder, tmp_path):
    out = tmp_path / "small"

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(folder, out, size=30, after_file=stop)
    (out / "cat" / "1.jpg").unlink()
    done = prepare(folder, out, size=30)
    assert (done.shrunk, done.there) == (1, 3)
    assert not list(out.rglob("*partial*"))


def test_masks_keep_their_values_and_palette(tmp_path):
    rng, photos = np.random.default_rng(0), tmp_path / "photos"
    values = np.kron(rng.choice([0, 3, 255], (4, 6)), np.ones((16, 16))).astype(np.uint8)
    save(photos / "images" / "a.jpg", rng.integers(0, 256, (64, 96, 3), dtype=np.uint8))
    mask = Image.fromarray(values).convert("P")
    mask.putpalette(list(range(256)) * 3)
    (photos / "masks").mkdir()
    mask.save(photos / "masks" / "a.png")
    (photos / "masks" / "classes.txt").write_text("road\nsky\ncar\nroof\n")
    done = prepare(photos, tmp_path / "small", size=32)
    assert (done.shrunk, done.kept) == (2, 1)
    with Image.open(tmp_path / "small/masks/a.png") as small:
        assert (small.mode, small.size) == ("P", (48, 32))
        assert small.getpalette() == mask.getpalette()
        np.testing.assert_array_equal(np.asarray(small), values[::2, ::2])
    assert (tmp_path / "small/masks/classes.txt").read_text().startswith("road")


def pairs(folder, count=3):
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 3, (64, 64, 3), dtype=np.uint8)
        save(folder / "images" / f"{number}.jpg", pixels)
        save(folder / "masks" / f"{number}.png", pixels[..., 0])


def cut_off(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damaged", "partner", "kind"),
    [("images/0.jpg", "masks/0.png", "photo"), ("masks/0.png", "images/0.jpg", "mask")],
)
def test_a_photo_and_its_mask_are_skipped_together(tmp_path, damaged, partner, kind):
    pairs(tmp_path / "photos")
    prepare(tmp_path / "photos", tmp_path / "small", size=32)
    cut_off(tmp_path / "photos" / damaged)
    for out, there in (("new", 0), ("small", 4)):  # also where both were copied before
        done = prepare(tmp_path / "photos", tmp_path / out, size=32)
        assert (done.shrunk, done.there) == (4 - there, there)
        reasons = dict(done.skipped)
        assert reasons.keys() == {damaged, partner}
        assert reasons[partner] == f"its {kind} {damaged} was skipped"
        splits = load_splits(tmp_path / out, val_fraction=0.0)
        assert list(splits.train.names) == ["images/1.jpg", "images/2.jpg"]


def test_a_mask_of_several_photos_stays_if_one_is_skipped(tmp_path):
    pairs(tmp_path / "photos")
    table = tmp_path / "photos" / "list.csv"
    table.write_text("image,mask\n" + "".join(f"images/{n}.jpg,masks/0.png\n" for n in range(3)))
    cut_off(tmp_path / "photos" / "images" / "0.jpg")
    done = prepare(table, tmp_path / "small", size=32)
    assert [each.name for each in done.skipped] == ["images/0.jpg"]
    assert (tmp_path / "small" / "masks" / "0.png").exists()


def test_a_table_and_the_photos_that_it_names(folder, tmp_path):
    (folder / "list.csv").write_text("file,label\ncat/1.jpg,cat\ndog/small.jpg,dog\n")
    done = prepare(folder / "list.csv", tmp_path / "small", size=30)
    assert (done.shrunk, done.kept) == (1, 2)
    splits = load_splits(tmp_path / "small" / "list.csv", val_fraction=0.0)
    assert splits.train.classes == ("cat", "dog")


def test_a_table_of_masks_keeps_the_names_of_their_classes(tmp_path):
    pairs(tmp_path / "photos", 1)
    (tmp_path / "photos" / "list.csv").write_text("image,mask\nimages/0.jpg,masks/0.png\n")
    (tmp_path / "photos" / "classes.txt").write_text("road\nsky\ncar\n")
    prepare(tmp_path / "photos" / "list.csv", tmp_path / "small", size=32)
    splits = load_splits(tmp_path / "small" / "list.csv", val_fraction=0.0)
    assert splits.classes == ("road", "sky", "car")


def test_an_archive_and_a_file_that_is_no_photo(folder, tmp_path):
    (folder / "cat" / "notes.doc").write_text("words")
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for path in folder.rglob("*.*"):
            archive.write(path, path.relative_to(folder))
    done = prepare(tmp_path / "photos.zip", tmp_path / "small", size=30)
    assert (done.shrunk, done.kept) == (3, 1)
    assert [each.name for each in done.skipped] == ["cat/notes.doc"]


def test_a_text_in_an_archive_is_copied_in_pieces(folder, tmp_path):
    size = 16_000_000
    with zipfile.ZipFile(tmp_path / "photos.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "cat" / "2.png", "cat/2.png")
        archive.write(folder / "dog" / "small.jpg", "dog/small.jpg")
        archive.writestr("readme.txt", bytes(size))
    tracemalloc.start()
    prepare(tmp_path / "photos.zip", tmp_path / "small", size=30)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "small" / "readme.txt").stat().st_size == size
    assert peak < size / 4


def test_a_folder_that_holds_something_else_is_refused(folder, tmp_path):
    with pytest.raises(PocketuneError, match="is inside the folder of the photos"):
        prepare(folder, folder / "small", size=30)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("")
    with pytest.raises(PocketuneError, match="is not empty; give a new folder"):
        prepare(folder, tmp_path / "full", size=30)
    prepare(folder, tmp_path / "small", size=30)
    with pytest.raises(PocketuneError, match="of other photos or of another size"):
        prepare(folder, tmp_path / "small", size=20)


def test_a_table_that_leads_out_of_its_folder_is_refused(folder, tmp_path):
    (folder / "cat" / "list.csv").write_text("file,label\n1.jpg,cat\n../dog/1.jpg,dog\n")
    with pytest.raises(PocketuneError, match="outside its folder"):
        prepare(folder / "cat" / "list.csv", tmp_path / "small")
    with pytest.raises(PocketuneError, match="outside its folder"):
        prepare(folder / "cat", tmp_path / "small")


def test_a_table_of_absolute_paths_is_refused(folder, tmp_path):
    table = folder / "labels.csv"
    rows = (f"{folder.resolve() / name},{name[:3]}\n" for name in ("cat/1.jpg", "dog/1.jpg"))
    table.write_text("".join(["file,label\n", *rows]))
    with pytest.raises(PocketuneError, match="relative to the table's folder"):
        prepare(table, tmp_path / "small")
    (folder / "cat").rename(folder / "photos")
    (folder / "dog").rename(folder / "photos" / "dog")
    table.write_text(f"file,label\n{folder.resolve()}/photos/1.jpg,cat\nphotos/2.png,dog\n")
    with pytest.raises(PocketuneError, match="relative to the table's folder"):
        prepare(folder, tmp_path / "small")


def test_outlines_in_pixels_are_refused(tmp_path):
    save(tmp_path / "photos" / "a.jpg", np.zeros((40, 40, 3), np.uint8))
    coco = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 40, "height": 40}],
        "categories": [{"id": 1, "name": "road"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "segmentation": [[0, 0, 9, 0, 9, 9]]}
        ],
    }
    (tmp_path / "photos" / "annotations.json").write_text(json.dumps(coco))
    with pytest.raises(PocketuneError, match="outlines in pixels"):
        prepare(tmp_path / "photos", tmp_path / "small")


def test_what_has_changed_since_is_copied_again(folder, tmp_path):
    (folder / "labels.csv").write_text("file,label\ncat/1.jpg,a\ncat/2.png,b\n")
    prepare(folder, tmp_path / "small", size=30)
    (folder / "labels.csv").write_text("file,label\ncat/1.jpg,b\ncat/2.png,a\n")
    (folder / "cat" / "1.jpg").unlink()
    (tmp_path / "small" / "cat" / ".DS_Store").write_text("system")
    save(folder / "cat" / "2.png", np.full((60, 60, 3), 9, np.uint8))
    done = prepare(folder, tmp_path / "small", size=30)
    assert (done.shrunk, done.kept, done.there) == (1, 1, 2)
    assert done.skipped == (("cat/1.jpg", "the original is gone; delete the copy"),)
    assert Image.open(tmp_path / "small" / "cat" / "2.png").size == (30, 30)
    assert "cat/2.png,a" in (tmp_path / "small" / "labels.csv").read_text()


def test_an_original_is_copied_again_if_an_older_one_is_put_in_its_place(folder, tmp_path):
    prepare(folder, tmp_path / "small", size=30)
    older = tmp_path / "older.png"
    save(older, np.full((60, 60, 3), 9, np.uint8))
    os.utime(older, (1, 1))
    older.replace(folder / "cat" / "2.png")
    done = prepare(folder, tmp_path / "small", size=30)
    assert (done.shrunk, done.there) == (1, 3)


def test_large_photos_are_skipped_before_they_are_decoded(tmp_path):
    for name, kind in (("a/1.webp", "WEBP"), ("b/2.jpg", "JPEG"), ("b/3.webp", "WEBP")):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        side = 100 if "3" in name else 1000
        Image.new("RGB", (side, side)).save(path, kind)
    done = prepare(tmp_path / "photos", tmp_path / "pixels", size=128, max_pixels=500_000)
    ((name, reason),) = done.skipped
    assert name == "a/1.webp"
    assert reason.startswith("its 1000 x 1000 pixels would be decoded in full, and max_pixels is")
    done = prepare(tmp_path / "photos", tmp_path / "room", size=128, room=15_000_000)
    ((name, reason),) = done.skipped
    assert name == "a/1.webp"
    assert reason.startswith("decoding its 1000 x 1000 pixels takes about 2")
    assert "more than the 15 MB that the budget leaves" in reason
    assert (done.shrunk, done.kept) == (1, 1)
    done = prepare(tmp_path / "photos", tmp_path / "room", size=128, room=60_000_000)
    assert (done.shrunk, done.there, done.skipped) == (1, 2, ())
