"""Folders of photos and of their masks under names of their own, which look like two classes."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from pocketune.data.masks.pairs import may_be_image, without_tail

if TYPE_CHECKING:
    from pocketune.data.examples import Examples

_HINTS = ("mask", "label", "annot", "segment", "trimap")
"""What the names of folders of masks contain, as `SegmentationClass` and `trainannot`."""
_LOSSY = {".jpg", ".jpeg", ".webp", ".heic"}
"""Suffixes of photos, whose values are not those of a mask."""


def misnamed_masks(examples: Examples) -> tuple[str, str] | None:
    """The class folders that seem to be one of images and one of their masks, in this order.

    So it is where each image has a mask that is called like it, up to an ending that all masks
    share, and either the masks alone are .png or the folder's name tells. Names are only compared
    in such folders, as they take memory.

    Args:
        examples: The files of two classes.
    """
    classes = [str(each) for each in examples.labels.distinct()]
    kinds: dict[str, set[str]] = {each: set() for each in classes}
    for name, label, _ in examples:
        if may_be_image(name):
            kinds[str(label)].add(posixpath.splitext(name)[1].lower())
    if not all(kinds.values()):  # texts alone
        return None
    for images, masks in (classes, classes[::-1]):
        if kinds[masks] & _LOSSY:
            continue
        differ = kinds[masks] == {".png"} and ".png" not in kinds[images]
        # that of images lacks it: "mask" and "no_mask" are classes
        hinted = any(h in masks.casefold() and h not in images.casefold() for h in _HINTS)
        if (differ or hinted) and _are_partners(examples, images, masks):
            return images, masks
    return None


def _are_partners(examples: Examples, images: str, masks: str) -> bool:
    """Whether the files of two classes have the same names, up to an ending of all masks."""
    stems: dict[str, dict[str, str]] = {images: {}, masks: {}}
    for name, label, _ in examples:
        if may_be_image(name):
            stem = posixpath.splitext(posixpath.basename(name))[0]
            stems[str(label)][stem] = name
    return without_tail(stems[masks], stems[images]).keys() == stems[images].keys()
