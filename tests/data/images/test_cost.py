"""Large images are decoded in bounded memory, which is known from their headers."""

import io
import json
import struct
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from pocketune.data import UnreadableImage, load_splits, open_image
from pocketune.data.images import strips as strips_module
from pocketune.data.images import transforms as transforms_module
from pocketune.data.images.cost import (
    HEAVY_BYTES,
    MASK_BYTES,
    SMALL,
    LargestDecoding,
    Use,
    check_size,
    decoding_bytes,
    least_bytes,
    view_bytes,
)
from pocketune.data.images.decode import EXIF_ORIENTATION, oriented_size
from pocketune.data.images.headers import Header
from pocketune.data.images.pillow_headers import header_of
from pocketune.data.images.transforms import apply, random_view, resized
from pocketune.tasks import Box

from .loading import load_image

MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")

PEAKS = """
import io, json, sys
from PIL import Image
from pocketune.data import center_crop, open_image
from pocketune.data.images.cost import view_bytes
from pocketune.data.images.pillow_headers import header_of

def status(key):
    return next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith(key)) * 1024

def written(kind, mode, options):
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x112] = options.pop("turn", 1)
    if notes := options.pop("notes", 0):
        exif[0x9286] = b"n" * notes
    if "icc_profile" in options:
        options["icc_profile"] = b"p" * options["icc_profile"]
    Image.new(mode, (2400, 1500), 99 if len(mode) == 1 else (9, 99, 199, 128)[:len(mode)]).save(
        file, kind, **options, exif=exif)
    return file

for kind in ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "AVIF"):  # the code of each decoder
    file = io.BytesIO()
    Image.new("RGB", (700, 700)).save(file, kind)
    center_crop(open_image(file), 64)
found = []
for kind, mode, options in json.loads(sys.argv[1]):
    file = written(kind, mode, options)
    before = status("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")
    with open_image(file) as image:
        counted = view_bytes(header_of(image), 64)
        center_crop(image, 64)
    found.append([status("VmHWM") - before, counted])
print(json.dumps(found))
"""


def picture(mode: str, width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height // 8, width // 8, 4), np.uint8)
    image = Image.fromarray(pixels, "RGBA").resize((width, height), Image.Resampling.BICUBIC)
    if mode == "I;16":
        return Image.fromarray(np.asarray(image)[..., 0].astype(np.uint16) * 257)
    return image.convert(mode)


def both_ways(data: bytes, box: Box, columns: int, rows: int, monkeypatch) -> tuple:
    """A part of an image in strips, and of the whole one."""
    found = []
    for small in (0, 1 << 40):
        with monkeypatch.context() as patch, open_image(io.BytesIO(data)) as image:
            patch.setattr(transforms_module, "SMALL", small)
            patch.setattr(transforms_module, "is_better_in_strips", lambda _: True)
            patch.setattr(strips_module, "PIXELS", 5000)
            found.append(transforms_module.resized(image, box, columns, rows))
    return tuple(found)


class TestStrips:
    @pytest.mark.parametrize("orientation", [1, 3, 4, 6, 7])
    @pytest.mark.parametrize("mode", MODES)
    def test_pixels_are_those_of_the_whole_image(self, encoded, monkeypatch, mode, orientation):
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = orientation
        data = encoded(picture(mode, 240, 200), exif=exif, compress_level=1)
        with open_image(io.BytesIO(data)) as image:
            width, height = oriented_size(image)
        for box, columns, rows in (
            (Box(0, 0, width, height), 64, 48),
            (Box(51, 102, 90, 61), 37, 29),
            (Box(7.25, 3.5, width - 8, height - 4.75), 50, 300),
            (Box(width - 9, height - 5, 9, 5), 30, 30),
        ):
            one, other = both_ways(data, box, columns, rows, monkeypatch)
            np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize(
        ("kind", "mode", "options"),
        [
            ("JPEG", "RGB", {}),
            ("JPEG", "CMYK", {}),
            ("WEBP", "RGBA", {"lossless": True}),
            ("GIF", "P", {}),
            ("TIFF", "RGBA", {"compression": "tiff_lzw"}),
            ("PNG", "P", {"transparency": 3}),
            ("PNG", "P", {"bits": 4}),
            ("PNG", "RGB", {"transparency": (0, 0, 0)}),
        ],
    )
    def test_other_formats(self, encoded, monkeypatch, kind, mode, options):
        image = picture(mode, 240, 160)
        if options.get("bits"):
            image = picture("RGB", 240, 160).quantize(16)
        data = encoded(image, kind, **options)
        one, other = both_ways(data, Box(20.5, 30, 200, 111), 60, 40, monkeypatch)
        np.testing.assert_array_equal(one, other)

    def test_pixels_in_several_chunks(self, encoded, noise, monkeypatch):
        data = encoded(noise(0, 600, 500), compress_level=0)
        assert data.count(b"IDAT") > 5
        one, other = both_ways(data, Box(0, 0, 600, 500), 64, 64, monkeypatch)
        np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("share", [0.3, 0.9])
    def test_truncated(self, encoded, noise, share):
        data = encoded(noise(0, 600, 500))
        with (
            pytest.raises(OSError, match="truncated"),
            open_image(io.BytesIO(data[: int(len(data) * share)])) as image,
        ):
            resized(image, Box(0, 0, 600, 500), 64, 64)

    def test_damaged(self, encoded, noise):
        data = bytearray(encoded(noise(0, 600, 500)))
        data[5000:5100] = bytes(100)
        with (
            pytest.raises(OSError, match="damaged"),
            open_image(io.BytesIO(bytes(data))) as image,
        ):
            resized(image, Box(0, 0, 600, 500), 64, 64)


class TestBytes:
    @pytest.mark.skipif(sys.platform != "linux", reason="peaks are reset as on Linux")
    def test_no_format_takes_more_than_its_header_says(self):
        cases = [
            ("JPEG", "RGB", {}),
            ("JPEG", "RGB", {"progressive": True}),
            ("PNG", "RGBA", {"compress_level": 1}),
            ("PNG", "1", {}),
            ("WEBP", "RGB", {"method": 0}),
            ("GIF", "P", {}),
            ("TIFF", "RGB", {"compression": "tiff_lzw"}),
            ("AVIF", "RGB", {"speed": 10}),
            ("AVIF", "RGBA", {"speed": 10, "subsampling": "4:4:4"}),
            ("AVIF", "RGB", {"speed": 10, "codec": "aom", "advanced": {"film-grain-test": "5"}}),
            ("TIFF", "RGB", {"turn": 6}),
            ("TIFF", "RGB", {"turn": 3, "compression": "tiff_lzw"}),
            *(
                (kind, "RGB", {where: 9_000_000, **options})
                for kind, options in (
                    ("WEBP", {"method": 0}),
                    ("AVIF", {"speed": 10}),
                    ("TIFF", {}),
                )
                for where in ("notes", "icc_profile")
            ),
        ]
        command = [sys.executable, "-c", PEAKS, json.dumps(cases)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "clear_refs" in done.stderr:
            pytest.skip("this system does not reset the peak")
        for case, (taken, counted) in zip(cases, json.loads(done.stdout), strict=True):
            assert taken <= counted + 1_000_000, case  # pages that are touched once
        assert json.loads(done.stdout)[2][0] < 6_000_000  # a PNG row by row

    def test_a_jpeg_takes_what_its_scale_does(self):
        large, larger = (Header("JPEG", "RGB", side, side) for side in (4000, 8000))
        assert view_bytes(larger, 32) > decoding_bytes(larger, 1 / 8, 32) - 1
        assert decoding_bytes(large, 1, 32) > 4 * 4000**2
        assert decoding_bytes(large, 1 / 8, 32) < 4 * 500**2 + 1_000_000

    def test_every_view_is_covered(self):
        rng = np.random.default_rng(0)
        for _ in range(300):
            width, height = (int(side) for side in rng.integers(300, 5000, 2))
            header = Header("JPEG", "RGB", width, height)
            box, *_ = random_view(width, height, 160, rng)
            scale = max(160 / box.width, 160 / box.height)
            assert decoding_bytes(header, scale, 160) <= view_bytes(header, 160)

    def test_the_dearest_photo_is_named(self):
        dearest = LargestDecoding(64)
        assert dearest.decoding is None
        light, heavy = Header("JPEG", "RGB", 640, 480), Header("WEBP", "RGB", 4000, 3000)
        for name, header in (("a", light), ("b", heavy), ("c", light)):
            dearest.add(name, header)
        found = dearest.decoding
        assert (found.name, found.header, found.most) == ("b", heavy, view_bytes(heavy, 64))
        assert found.total(2) - found.total(1) == view_bytes(light, 64)
        assert found.total(1) == found.most
        assert found.others <= HEAVY_BYTES < found.most

    def test_beside_a_photo_another_may_be_opened(self):
        photo, dearest = Header("WEBP", "RGB", 4000, 3000, file_bytes=9_000_000), LargestDecoding(9)
        dearest.add("a", photo)
        assert dearest.decoding.others == 18_000_000
        dearest.add("b", photo._replace(metadata=2_000_000))
        assert dearest.decoding.others == 24_000_000

    def test_beside_a_heavy_view_only_a_light_one_is_decoded(self):
        photo, dearest = Header("JPEG", "RGB", 4000, 3000), LargestDecoding(224)
        assert least_bytes(photo, 224) <= HEAVY_BYTES < view_bytes(photo, 224)
        dearest.add("a", photo)
        assert (dearest.decoding.most, dearest.decoding.others) == (
            view_bytes(photo, 224),
            HEAVY_BYTES,
        )

    def test_masks_of_a_set(self):
        light, dearest = Header("JPEG", "RGB", 2000, 1500), LargestDecoding(64, masks=MASK_BYTES)
        for number, packed in enumerate((3_000, 9_000, 5_000)):
            dearest.add(str(number), light)
            dearest.add_mask(3_000_000, packed)
        found = dearest.decoding
        assert found.masks == (9_000, 5_000, 3_000)
        assert [found.waiting(count) for count in (1, 2, 9)] == [9_000, 14_000, 17_000]
        assert 3_000_000 < found.compared < 3_100_000
        assert found.most >= MASK_BYTES * 3_000_000

    def test_what_is_done_with_each_photo_beside(self):
        small, large = Header("JPEG", "RGB", 320, 240), Header("JPEG", "RGB", 4000, 3000)
        found = {}
        for name, use in (("none", None), ("held", Use(2)), ("drawn", Use(2, 1, 1024, 16))):
            dearest = LargestDecoding(64, use=use)
            dearest.add("small", small)
            dearest.add("large", large)
            found[name] = dearest.decoding
        assert [found["none"].beside, found["held"].beside] == [0, 24_000_000]
        whole = decoding_bytes(large, 1024 / 4000, 1024)
        assert whole > HEAVY_BYTES
        assert found["drawn"].beside >= 24_000_000 + 16 * 1024 * 768
        peak = found["drawn"].total(2) + found["drawn"].beside
        assert peak >= 24_000_000 + whole + 2 * found["drawn"].others

    def test_a_set_knows_its_dearest_photo(self, photos, tree, encoded):
        folder = photos(cats=3, dogs=3)
        data = encoded(Image.new("RGB", (900, 800)), "WEBP")
        splits = load_splits(tree({"cats/large.webp": data}), size=32)
        assert splits.decoding.name == "cats/large.webp"
        assert splits.decoding.most > 900 * 800 * 16
        assert load_splits(folder).decoding is None

    def test_larger_photos_are_left_out_where_they_are_decoded_in_full(self, photos, encoded):
        folder, large = photos(cats=3, dogs=3), Image.new("RGB", (300, 200))
        for name, kind, options in (
            ("rows.png", "PNG", {}),
            ("plain.jpg", "JPEG", {}),
            ("slow.jpg", "JPEG", {"progressive": True}),
            ("large.webp", "WEBP", {}),
            ("large.gif", "GIF", {}),
        ):
            (folder / "cats" / name).write_bytes(encoded(large, kind, **options))
        every = load_splits(folder, size=32)
        assert load_splits(folder, size=32, max_pixels=60_000).fingerprint() == every.fingerprint()
        assert every.decoding.name == "cats/large.webp"
        limited = load_splits(folder, size=32, max_pixels=59_999)
        assert {skipped.name: skipped.reason for skipped in limited.skipped} == dict.fromkeys(
            ("cats/large.gif", "cats/large.webp", "cats/slow.jpg"),
            "its 300 x 200 pixels would be decoded in full, and max_pixels is 59,999; allow more, "
            "or make it smaller with pocketune prepare",
        )
        assert limited.decoding.name in ("cats/rows.png", "cats/plain.jpg")
        assert limited.decoding.most < every.decoding.most

    @pytest.mark.parametrize("head", [b"RIFF\0\0\0\0WEBPVP8 ", b"\0\0\0\x1cftypavif"])
    def test_an_endless_file_is_not_read(self, tmp_path, head):
        path = tmp_path / "endless.webp"
        with path.open("wb") as file:
            file.write(head)
            file.truncate(3 << 30)
        with pytest.raises(UnreadableImage, match="3072 MB is larger"):
            load_image(path)

    @pytest.mark.parametrize(
        "head",
        [
            struct.pack("<4sIHHHII", b"II*\0", 8, 1, 37724, 7, 3 << 30, 26),
            struct.pack(">4sIHHHII", b"MM\0*", 8, 1, 37724, 4, 3 << 28, 26),
            struct.pack("<4sHHQQHHQQ", b"II+\0", 8, 0, 16, 1, 37724, 7, 3 << 30, 44),
            struct.pack("<2s12sI", b"BM", b"", 3 << 30),
        ],
    )
    def test_endless_metadata_is_not_read(self, tmp_path, head):
        path = tmp_path / "endless"
        with path.open("wb") as file:
            file.write(head)
            file.truncate(4 << 30)
        with pytest.raises(UnreadableImage, match="of 3072 MB is larger"):
            load_image(path)

    def test_small_images_are_decoded_whole(self, encoded, monkeypatch):
        monkeypatch.setattr(transforms_module, "resized_in_strips", None)
        with open_image(io.BytesIO(encoded(Image.new("RGB", (512, 512))))) as image:
            assert image.width * image.height <= SMALL
            assert header_of(image).streamed
            assert apply(image, random_view(512, 512, 32, np.random.default_rng(0))).any() == 0


RELEASED = """
import io, json, sys
from PIL import Image
from pocketune.data import center_crop, open_image
from pocketune.device.memory.process import process_memory
from pocketune.heap import save_memory

save_memory()
held = []
for kind in sys.argv[1:]:
    file = io.BytesIO()
    Image.new("RGB", (1600, 1200)).save(file, kind)
    with open_image(file) as image:
        center_crop(image, 64)  # what is imported and kept once
    before = process_memory().current
    with open_image(file) as image:
        center_crop(image, 64)
        held.append(process_memory().current - before)
print(json.dumps(held))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory as on Linux")
def test_a_heavy_photo_that_was_cut_holds_no_pixels() -> None:
    command = [sys.executable, "-c", RELEASED, "WEBP", "AVIF", "BMP"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert max(json.loads(done.stdout)) < 3_000_000  # of 8 to 30 MB


def test_a_jpeg_that_pillow_does_not_open_is_refused_by_its_header():
    most = 2 * Image.MAX_IMAGE_PIXELS
    check_size(Header("JPEG", "RGB", most, 1))
    with pytest.raises(ValueError, match="are more than 178 million; make it smaller"):
        check_size(Header("JPEG", "RGB", most + 1, 1))
