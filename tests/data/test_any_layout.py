"""Folders of any content have labeled photos, or one sentence says why not."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pocketune.data import load_splits
from pocketune.data.load import unlabeled_splits
from pocketune.errors import PocketuneError

FOLDERS = (
    *("", "images", "masks", "labels", "annotations", "img", "trainannot", "photos"),
    *("train", "val", "test", "train/images", "cats", "dogs", "JPEGImages", "SegmentationClass"),
)
COCO = '{"images": [{"id": 1, "file_name": "a.jpg", "width": 8, "height": 8}], "annotations": [%s]}'
CONTENTS = {
    ".txt": ("", "cat\ndog", "0 0.1 0.1 0.2 0.2", "0 0.1 0.1 0.5 0.1 0.5 0.5"),
    ".json": (
        *("", "[]", '{"images": 3}', '{"shapes": [], "imagePath": "a.jpg"}', COCO % ""),
        COCO % '{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}',
        COCO % '{"id": 1, "image_id": 1, "category_id": 1, "segmentation": [[0, 0, 5, 0, 5, 5]]}',
    ),
    ".csv": ("", "file,label\na.jpg,x\nb.jpg,y", "image,mask\na.jpg,a.png", "file,age\na.jpg,3"),
    ".jpg": ("RGB",),
    ".png": ("RGB", "L", "P"),
}
files = st.sampled_from(sorted(CONTENTS)).flatmap(
    lambda suffix: st.tuples(
        st.sampled_from(FOLDERS),
        st.sampled_from(["a", "b", "c", "a_mask", "annotations", "data"]),
        st.just(suffix),
        st.sampled_from(CONTENTS[suffix]),
    )
)


@given(st.lists(files, min_size=1, max_size=12), st.sampled_from([None, "classification"]))
def test_any_files_are_read_or_refused(
    written: list[tuple[str, str, str, str]], task: str | None
) -> None:
    with TemporaryDirectory() as name:
        for folder, stem, suffix, content in written:
            path = Path(name) / folder / f"{stem}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if suffix in (".jpg", ".png"):
                Image.new(content, (8, 8), 1).save(path)
            else:
                path.write_text(content)
        with suppress(PocketuneError):  # any other error is a bug
            train = load_splits(name, task=task).train
            assert len(train)
            assert all((Path(name) / each).is_file() for each in train.names)
        with suppress(PocketuneError):
            assert all((Path(name) / each).is_file() for each in unlabeled_splits(name)[0].names)
