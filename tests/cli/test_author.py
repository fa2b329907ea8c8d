"""What is built beside a run."""

from pathlib import Path

from pocketune import locks
from pocketune.cli.author import remove_abandoned, scratch_beside


def killed(run: Path) -> Path:
    """What a process that was killed leaves beside a run."""
    left = run.with_name(f".{run.name}.kit-killed")
    (left / "kit").mkdir(parents=True)
    (left / ".lock").touch()
    return left


def test_what_a_killed_process_left_beside_a_run_is_removed(tmp_path):
    run = tmp_path / "run"
    left, of_others = killed(run), killed(tmp_path / "other")
    with scratch_beside(run) as first, scratch_beside(run) as second:
        assert not left.exists()
        remove_abandoned(run)
        assert first.exists()
        assert second.exists()
    assert set(tmp_path.iterdir()) == {of_others}


def test_nothing_is_removed_where_nobody_can_tell_what_is_in_use(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError("no locks available")

    monkeypatch.setattr(locks, "_lock", refuse)
    left = killed(tmp_path / "run")
    with scratch_beside(tmp_path / "run") as first, scratch_beside(tmp_path / "run"):
        assert first.exists()
        assert left.exists()


def test_what_is_beside_the_current_folder_is_not_inside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with scratch_beside(Path()) as scratch:
        assert not list(tmp_path.iterdir())
        assert scratch.parent.samefile(tmp_path.parent)
