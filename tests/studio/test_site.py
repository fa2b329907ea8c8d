"""The files of the studio, and their export."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest

import pocketune
from pocketune.errors import PocketuneError
from pocketune.kit import Kit
from pocketune.kit.bundled import list_kits
from pocketune.studio import SITE, Site, collect_site, export_site
from pocketune.studio.site import bundled_kits, pack_kit

from ..device.runs import write_run
from .conftest import PAGE

PACKAGE = Path(__file__).parents[2] / "web" / "package.json"


def test_a_site_has_the_page_the_kits_and_a_listing(site: Site, kit: Kit) -> None:
    assert sorted(site.files) == sorted([*PAGE, "kits/my-flowers.zip", "site.json"])
    listing = json.loads(site.read("site.json"))
    assert listing["files"] == {
        name: hashlib.sha256(site.read(name)).hexdigest()
        for name in sorted(site.files)
        if name != "site.json"
    }
    size = len(site.read("kits/my-flowers.zip"))
    (offered,) = listing["kits"]
    assert offered == {
        "name": "my flowers",
        "path": "kits/my-flowers.zip",
        "bytes": size,
        "hash": kit.identity,
        "network": kit.manifest.network,
        "method": kit.manifest.method,
        "task": "classification",
        "classes": list(kit.manifest.classes),
        "size": kit.manifest.size,
        "trained": sum(kit.state()[spec.name].size for spec in kit.manifest.parameters),
    }


def test_the_version_follows_every_file(built: Path, kit: Kit) -> None:
    def version(*kits: tuple[str, Kit]) -> str:
        return str(json.loads(collect_site(kits, built).read("site.json"))["version"])

    assert version(("a", kit)) == version(("a", kit))
    assert len({version(), version(("a", kit)), version(("b", kit))}) == 3


def test_a_packed_kit_is_the_kit(kit: Kit, tmp_path: Path) -> None:
    packed = pack_kit(kit)
    assert packed == pack_kit(kit)
    (tmp_path / "kit.zip").write_bytes(packed)
    assert Kit.open(tmp_path / "kit.zip").identity == kit.identity


def test_only_the_files_of_a_kit_are_packed(kit: Kit, tmp_path: Path) -> None:
    run = kit.copy_to(tmp_path / "run")
    (tmp_path / "run" / "private.txt").write_text("mine")
    assert pack_kit(run) == pack_kit(kit)


def test_the_bundled_kits_are_offered(built: Path) -> None:
    site = collect_site(folder=built)
    names = ["attributes", *list_kits("classification")]  # the page learns no masks
    assert {name for name in site.files if name.startswith("kits/")} == {
        f"kits/{name}.zip" for name in names
    }
    with zipfile.ZipFile(io.BytesIO(site.read("kits/last.zip"))) as packed:
        assert "manifest.json" in packed.namelist()
    assert [name for name, _ in bundled_kits()] == names


@pytest.mark.parametrize("second", ["my flowers", "my/flowers"])
def test_two_kits_of_one_name_are_refused(built: Path, kit: Kit, second: str) -> None:
    with pytest.raises(PocketuneError, match=f"two kits are called {second}; rename"):
        collect_site([("my flowers", kit), (second, kit)], built)


def test_what_the_page_could_not_train_as_it_is_said_to_be_is_refused(
    built: Path, tmp_path: Path
) -> None:
    run = Kit.open(write_run(tmp_path / "mine"))
    for kit, why in [(Kit.open("masks"), "is for masks"), (run, "mine is a run, and a kit has")]:
        with pytest.raises(PocketuneError, match=why):
            collect_site([("kit", kit)], built)


@pytest.mark.parametrize(
    ("name", "file"), [("..", "kit"), ("../../x", "-..-x"), ("rosé 1", "ros-1")]
)
def test_a_name_is_no_path(built: Path, kit: Kit, name: str, file: str) -> None:
    assert f"kits/{file}.zip" in collect_site([(name, kit)], built).files


def test_a_page_that_is_not_built_says_how(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="not built: run make studio"):
        collect_site([], tmp_path)


def test_an_export_is_the_site(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "site"
    written = export_site(site, folder)
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == {
        name: site.read(name) for name in site.files
    }
    assert written == sum(path.stat().st_size for path in found.values())
    assert [path.name for path in folder.parent.iterdir()] == ["site"]


def test_an_export_fills_an_empty_folder_and_no_other(site: Site, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    export_site(site, tmp_path / "empty")
    assert (tmp_path / "empty" / "index.html").is_file()
    with pytest.raises(PocketuneError, match="empty is not an empty folder"):
        export_site(site, tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PocketuneError, match="file is not an empty folder"):
        export_site(site, tmp_path / "file")


def test_an_export_that_cannot_be_written_leaves_nothing(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PocketuneError, match="cannot be written"):
        export_site(site, tmp_path / "file" / "site")
    gone = Site({**site.files, "gone.js": tmp_path / "gone.js"}, site.hashes)
    with pytest.raises(PocketuneError, match=r"gone\.js cannot be read"):
        export_site(gone, tmp_path / "site")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_built_page_loads_from_its_own_address_alone() -> None:
    if not (SITE / "index.html").is_file():
        pytest.skip("the studio's page is not built; run make studio")
    text = (SITE / "index.html").read_text(encoding="utf-8")
    assert "http://" not in text.replace("http://www.w3.org/", "")
    assert "https://" not in text


def test_the_built_page_has_the_licenses_of_the_packages_in_it() -> None:
    if not (SITE / "index.html").is_file():
        pytest.skip("the studio's page is not built; run make studio")
    text = (SITE / "licenses.txt").read_text(encoding="utf-8")
    packages = json.loads(PACKAGE.read_text(encoding="utf-8"))["dependencies"]
    kits, *parts = text.split("\n----\n\n")
    assert "EfficientNet-Lite0" in kits
    assert [part.splitlines()[0] for part in parts] == [
        f"{name} {version}" for name, version in sorted(packages.items())
    ]
    assert all("Copyright (c)" in part for part in parts)
    runtime = packages["onnxruntime-web"]
    assert f"onnxruntime/blob/v{runtime}/ThirdPartyNotices.txt" in parts[-1]


def test_the_page_has_the_version_of_the_package() -> None:
    """It writes its version into runs."""
    assert json.loads(PACKAGE.read_text(encoding="utf-8"))["version"] == pocketune.__version__
