"""Images from folders, tables and archives, as batches of pixels. Numpy and Pillow only."""

from pocketune.data.dataset import ImageDataset, Splits, imbalance, stratify, unlabeled
from pocketune.data.finding import has_test, task_of
from pocketune.data.images.opening import UnreadableImage, open_image
from pocketune.data.images.transforms import center_crop
from pocketune.data.load import load_splits, training_images, unlabeled_splits
from pocketune.data.loader import Batch, Loader, sample
from pocketune.data.masks.values import MaskOptions
from pocketune.data.paths import open_images
from pocketune.data.readable import checked
from pocketune.data.streams import Purpose, random_stream
from pocketune.files import Skipped

__all__ = [
    "Batch",
    "ImageDataset",
    "Loader",
    "MaskOptions",
    "Purpose",
    "Skipped",
    "Splits",
    "UnreadableImage",
    "center_crop",
    "checked",
    "has_test",
    "imbalance",
    "load_splits",
    "open_image",
    "open_images",
    "random_stream",
    "sample",
    "stratify",
    "task_of",
    "training_images",
    "unlabeled",
    "unlabeled_splits",
]
