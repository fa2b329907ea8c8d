"""Images from folders, tables and archives, as batches of pixels. Numpy and Pillow only."""

from .dataset import ImageDataset, unlabelled
from .images import load_image, open_image
from .load import load_splits, open_images
from .loader import Batch, Loader
from .skipped import Skipped
from .splits import Splits, stratify
from .transforms import Box, center_crop, crop, random_resized_crop
from .unreadable import UnreadableImage

__all__ = [
    "Batch",
    "Box",
    "ImageDataset",
    "Loader",
    "Skipped",
    "Splits",
    "UnreadableImage",
    "center_crop",
    "crop",
    "load_image",
    "load_splits",
    "open_image",
    "open_images",
    "random_resized_crop",
    "stratify",
    "unlabelled",
]
