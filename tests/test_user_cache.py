"""The user's cache folder."""

import os
import sys
from pathlib import Path

import pytest

from pocketune.user_cache import cache_folder, cached


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {}, "/home/ann/.cache/pocketune"),
        ("linux", {"XDG_CACHE_HOME": "/tmp/x"}, "/tmp/x/pocketune"),
        ("darwin", {}, "/home/ann/Library/Caches/pocketune"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/pocketune"),
        ("linux", {"POCKETUNE_CACHE": "/tmp/own"}, "/tmp/own"),
        ("linux", {"POCKETUNE_CACHE": "~/own"}, "/home/ann/own"),
    ],
)
def test_the_cache_is_the_users_own_or_the_one_that_is_named(
    platform: str, variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POCKETUNE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/ann", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_folder() == Path(folder)


@pytest.mark.timeout(20)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_a_pipe_in_the_cache_is_not_opened(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("POCKETUNE_CACHE", str(tmp_path))
    assert cached("pipe", lambda: 3, int, lambda value: b"%d" % value) == 3
