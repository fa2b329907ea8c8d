"""Completion of commands and options."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pocketune.cli import app
from pocketune.cli.completion import _ZSH_SETUP, VARIABLE, completion_script, install_completion
from pocketune.errors import PocketuneError

SHELLS = ["zsh", "fish"]  # bash's script asks the bash of this machine for its version


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_names_the_command_and_the_variable(shell: str) -> None:
    script = completion_script(app, shell)
    assert "pocketune" in script
    assert f"{VARIABLE}={shell}_complete" in script


def test_a_zsh_that_has_not_loaded_its_completion_loads_it() -> None:
    """As with a fresh .zshrc: without, `compdef` is an unknown command."""
    tag, *script = completion_script(app, "zsh").splitlines()
    assert tag == "#compdef pocketune"  # only there does zsh look for it
    assert script.index(_ZSH_SETUP) < script.index("_pocketune_completion() {")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_itself_runs_the_script(tmp_path: Path) -> None:
    file = tmp_path / "completion.zsh"
    file.write_text(completion_script(app, "zsh"))
    command = f"source '{file}' && print $_comps[pocketune]"
    done = subprocess.run(
        ["zsh", "-f", "-c", command],
        env={**os.environ, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("_pocketune_completion\n", "")


def test_a_shell_without_completion() -> None:
    with pytest.raises(PocketuneError, match="no completion for 'tcsh': use bash, zsh or fish"):
        completion_script(app, "tcsh")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("pocketune tr", {"train"}),
        ("pocketune kit ", {"build", "check", "forecast", "show"}),
        ("pocketune train --opti", {"--optimizer"}),
        ("pocketune train --optimizer ad", {"adam", "adam8", "adamw"}),
        ("pocketune kit build --task a", {"attributes"}),
    ],
)
def test_words_are_completed(line: str, found: set[str]) -> None:
    words = line.split(" ")
    settings = {
        VARIABLE: "zsh_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pocketune"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found == set(done.stdout.splitlines()[1::3])


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_startup_file_reads_the_script_once(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    (tmp_path / f".{shell}rc").write_text("alias ll='ls -l'")
    for script in ("old", "new"):
        file = install_completion(script, shell)
    assert file.read_text() == "new"
    lines = (tmp_path / f".{shell}rc").read_text().splitlines()
    assert [line for line in lines if line] == ["alias ll='ls -l'", f"source '{file}'"]


def test_fish_finds_the_script_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = install_completion("script", "fish")
    assert file == tmp_path / "fish" / "completions" / "pocketune.fish"


def test_options_of_the_command(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    shown = run("--show-completion")
    assert shown.exit_code == 0
    assert shown.stdout == completion_script(app, "fish") + "\n"
    installed = run("--install-completion")
    assert installed.exit_code == 0
    assert "start a new fish" in installed.stdout
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert run("--show-completion").exit_code == 1
