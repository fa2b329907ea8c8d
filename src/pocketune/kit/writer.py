"""Write a kit atomically."""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pocketune.files import sha256, sync, writing
from pocketune.kit.kit import Kit, manifest_text, required_files
from pocketune.kit.manifest import KitError, Manifest
from pocketune.kit.names import BLOCKED_STEP, KIT_FILES, MANIFEST, RUN_FILES
from pocketune.kit.storage import open_storage
from pocketune.schema import parse_object

_EPOCH = (1980, 1, 1, 0, 0, 0)  # one time for all entries, so that equal kits give equal .zips


def write_kit(
    path: str | os.PathLike[str],
    manifest: Manifest,
    files: Mapping[str, bytes | Path],
    *,
    verify: bool = True,
) -> Kit:
    """Write a kit and open it.

    The kit is assembled under a temporary name in the same folder and then renamed, so that an
    incomplete kit is never at `path`. An existing kit is replaced.

    Args:
        path: A folder, or a file whose name ends in .zip; of a symbolic link, what it leads to.
        manifest: The manifest; its `files` are filled in here.
        files: Each file of the kit except the manifest, as bytes or as a path to copy from.
        verify: As in `Kit.open`; False where the same files have just been verified.

    Raises:
        KitError: Something other than a kit is at `path`, or the disk cannot be written.
        ValueError: `files` are not the files of a kit with this manifest.
    """
    target = _where(path)
    needed = required_files(manifest)
    if set(files) - {BLOCKED_STEP} != set(needed):
        raise ValueError(f"this kit needs the files {needed}, not {tuple(files)}")
    check_place(target)
    with writing(f"the kit {target}", raises=KitError):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", dir=target.parent, ignore_cleanup_errors=True
        ) as scratch:
            folder = Path(scratch) / "kit"
            _fill(folder, manifest, files)
            _put_in_place(folder, target, Path(scratch))
    return Kit.open(Path(path), verify=verify)


def check_place(path: str | os.PathLike[str]) -> None:
    """Check, before a kit is compiled, that `write_kit` can write to `path`.

    Raises:
        KitError: Something other than a kit is at `path`, or the folder that contains it cannot
            be written.
    """
    target = _where(path).absolute()
    if target == Path.cwd():
        raise KitError(f"the kit {path} would replace the current folder: name another")
    with writing(f"the kit {path}", raises=KitError):
        refuse_to_overwrite(target)
        nearest = next(folder for folder in target.parents if folder.exists())
        with tempfile.TemporaryDirectory(dir=nearest):
            pass


def _where(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)  # noqa: PTH114


def refuse_to_overwrite(target: Path) -> None:
    """Refuse to replace anything but a kit, such as a run with its checkpoints.

    Raises:
        KitError: There is something else at `target`.
    """
    if target.is_dir():
        names = {entry.name for entry in target.iterdir()}
        is_kit = not names or (MANIFEST in names and names <= {MANIFEST, *KIT_FILES})
    elif target.exists():
        is_kit = _is_zip(target) and zipfile.is_zipfile(target)
        if is_kit:  # a kit of any schema
            place = open_storage(target)
            is_kit = "schema" in parse_object(manifest_text(place), str(target))
            is_kit &= not any(map(place.find, RUN_FILES - {MANIFEST, *KIT_FILES}))
    else:
        return
    if not is_kit:
        raise KitError(f"{target} exists and is not a kit: choose another name, or move it")


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip"


def _fill(folder: Path, manifest: Manifest, files: Mapping[str, bytes | Path]) -> None:
    folder.mkdir()
    hashes = {}
    for name, content in files.items():
        if isinstance(content, Path):
            shutil.copyfile(content, folder / name)
        else:
            (folder / name).write_bytes(content)
        with (folder / name).open("rb") as stream:
            hashes[name] = sha256(stream)
    (folder / MANIFEST).write_bytes(replace(manifest, files=hashes).to_json())
    for name in (*files, MANIFEST):
        sync(folder / name)


def _put_in_place(folder: Path, target: Path, scratch: Path) -> None:
    if _is_zip(target):
        archive = scratch / "kit.zip"
        _pack(folder, archive)
        sync(archive)
        archive.replace(target)
        return
    old = scratch / "old"
    try:
        if target.exists():
            target.rename(old)
        folder.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise


def _pack(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.iterdir()):
            entry = zipfile.ZipInfo(file.name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with file.open("rb") as source, packed.open(entry, "w") as stream:
                shutil.copyfileobj(source, stream)
