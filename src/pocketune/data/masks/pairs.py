"""Read which images there are and their masks, from folders of both.

Folders are `images/1.jpg` and `masks/1.png` (or `1_mask.png`), also within `train/` and `val/` or
with these within them; or those of Pascal VOC: `JPEGImages/1.jpg`, `SegmentationClass/1.png` and
the lists `ImageSets/Segmentation/train.txt` and `val.txt`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING

from pocketune.data.examples import Example, Examples, unique
from pocketune.data.labels.layouts import PARTS, TRAIN, TestUse, in_use, wrapper
from pocketune.data.labels.lists import read_list
from pocketune.data.masks.no_masks import NoMasks
from pocketune.data.masks.values import NAMES_FILES
from pocketune.data.names import Names
from pocketune.data.readable import read_headers
from pocketune.errors import PocketuneError
from pocketune.files import shown
from pocketune.tasks.segmentation import Mask

if TYPE_CHECKING:
    from pocketune.data.sources import Source

FOLDERS = ("images", "masks")
VOC_FOLDERS = ("jpegimages", "segmentationclass")
VOC_LISTS = "imagesets/segmentation"
_BOTH = "trainval"
"""The list of the images to train on and of those to validate on, which may be divided further."""
_TEXTS = (".json", ".txt", ".xml", ".csv", ".yaml", ".yml", ".npy", ".cache")
"""Suffixes of what programs write beside an image, under its name."""

_Keyed = dict[str, str]  # file names by what an image and its mask have in common


def read_pairs(
    names: Names, source: Source, where: str, test: TestUse = "hold out"
) -> Examples | None:
    """The images that have a mask, with the masks as labels; None if there are no such folders.

    In folders `images` and `masks`, each image needs a mask; files without a partner that are no
    images are passed over. In folders of VOC, the lists say
    which images are meant; without lists, all that have a mask are.

    Args:
        names: File names with forward slashes, relative to the root.
        source: The files.
        where: The root, for messages.
        test: What the images of `test` are for.

    Raises:
        NoMasks: Most images have no mask.
        PocketuneError: An image has no mask, a mask has no image, or two files stand for one.
    """
    prefix = wrapper(names)
    images, masks = in_folders(names, prefix, FOLDERS, where)
    if images and masks:
        masks = without_tail(masks, images)
        _check_partners(images, masks, where, source)
        return in_use(paired(sorted(images.keys() & masks.keys()), images, masks), test)
    images, masks = in_folders(names, prefix, VOC_FOLDERS, where)
    if images and masks:
        return in_use(_voc(names, prefix, images, masks, source), test)
    return None


def may_be_image(name: str) -> bool:
    """Whether the suffix of a file is not that of a text about an image."""
    return not name.lower().endswith(_TEXTS)


def in_folders(
    names: Iterable[str],
    prefix: str,
    folders: tuple[str, str],
    where: str,
    is_label: Callable[[str], bool] = may_be_image,
) -> tuple[_Keyed, _Keyed]:
    """The files below a folder of images and below one of labels, by the rest of their path.

    Raises:
        PocketuneError: There are both, and two files have the same rest.
    """
    found: tuple[_Keyed, _Keyed] = {}, {}
    shared: tuple[str, str] | None = None
    for name in names:
        *path, file = name[len(prefix) :].split("/")
        lower = [part.casefold() for part in path]
        place = next((i for i, part in enumerate(lower) if part in folders), None)
        if place is None or file.casefold() in NAMES_FILES:
            continue
        kind = folders.index(lower[place])
        if not (is_label if kind else may_be_image)(name):
            continue
        key = "/".join([*path[:place], *path[place + 1 :], posixpath.splitext(file)[0]])
        first = found[kind].setdefault(key, name)
        if first != name:
            shared = shared or (first, name)
    if shared and all(found):  # else none of them has a partner
        one, other = map(shown, shared)
        raise PocketuneError(
            f"{where} has {one} and {other}, which would share a partner; rename or remove one"
        )
    return found


def without_tail(masks: _Keyed, images: _Keyed) -> _Keyed:
    """Masks by the keys of their images, which all may end alike, as in `1_mask.png`."""
    if masks.keys() & images.keys():
        return masks
    first = min(masks)
    starts = (first[:end] for end in range(len(first) - 1, 0, -1))
    tail = next((first[len(start) :] for start in starts if start in images), "")
    if not all(key.endswith(tail) for key in masks):
        return masks
    return {key.removesuffix(tail): mask for key, mask in masks.items()}


def _check_partners(images: _Keyed, masks: _Keyed, where: str, source: Source) -> None:
    """Check that each image has a mask, and the reverse."""
    most = 2 * len(images.keys() & masks.keys()) >= len(images)
    kinds = ((images, masks, "mask", "image"), (masks, images, "image", "mask"))
    for these, others, missing, own in kinds:
        names = Names(these[key] for key in sorted(these.keys() - others.keys()))
        alone = names.take(read_headers(source, names)[0])
        if len(alone):
            more = f", as {len(alone) - 1} more" * (len(alone) > 1)
            raise (PocketuneError if most else NoMasks)(
                f"{shown(alone[0])} in {where} has no {missing} of the same name{more}; add "
                f"the {missing} or remove the {own}"
            )


def paired(keys: Iterable[str], images: _Keyed, masks: _Keyed) -> Examples:
    """The pairs of these keys, each in the part that the first folder of its path names."""
    return Examples(
        Example(images[key], Mask(masks[key]), PARTS.get(key.partition("/")[0].casefold()))
        for key in keys
    )


def _voc(
    names: Iterable[str], prefix: str, images: _Keyed, masks: _Keyed, source: Source
) -> Examples:
    """The pairs that VOC's lists name; without lists, all masks with their images."""
    lists = {}
    for name in names:
        folder, file = posixpath.split(name[len(prefix) :].casefold())
        if folder == VOC_LISTS and file.endswith(".txt"):
            lists[file.removesuffix(".txt")] = name
    listed = {part: _keys(source, lists[part]) for part in PARTS if part in lists}
    if _BOTH in lists and all(PARTS[part] != TRAIN for part in listed):
        others = set(chain.from_iterable(listed.values()))
        listed[_BOTH] = [key for key in _keys(source, lists[_BOTH]) if key not in others]
    if not listed:
        both = sorted(images.keys() & masks.keys())
        return Examples(Example(images[key], Mask(masks[key])) for key in both)
    for part, keys in listed.items():
        for key in keys:
            _check_listed(key, images, masks, lists[part])
    examples = Examples(
        Example(images[key], Mask(masks[key]), PARTS.get(part))
        for part, keys in listed.items()
        for key in keys
    )
    return unique(examples, *(lists[part] for part in listed))


def _keys(source: Source, name: str) -> list[str]:
    """The images that a list names, each once."""
    lines = read_list(source, name).decode("utf-8-sig", "replace").splitlines()
    return list(dict.fromkeys(filter(None, map(str.strip, lines))))


def _check_listed(key: str, images: _Keyed, masks: _Keyed, where: str) -> None:
    for files, kind in ((images, "image"), (masks, "mask")):
        if key not in files:
            raise PocketuneError(
                f"{shown(where)} lists {shown(key)}, which has no {kind}; add it or remove the line"
            )
