"""What the make targets install: pinned, with hashes, and in step with the project's own files."""

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PACKAGE = re.compile(r"^([a-z0-9-]+)==(\S+)( ; .+)? \\$")
UNLOCKED = {"torch"}
"""See requirements/README.md."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, set[str]]:
    """The versions of each package in a file of requirements."""
    found: dict[str, set[str]] = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            name, _, rest = line.partition("==")
            found.setdefault(canonical(name), set()).add(re.split(r"[ ;]", rest)[0])
    return found


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_package_has_a_version_and_hashes(path: Path) -> None:
    lines = path.read_text().splitlines()[1:]
    assert lines
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if not line.startswith(" "):
            assert PACKAGE.match(line), line
            assert following.startswith("    --hash=sha256:")
        else:
            assert re.match(r"    --hash=sha256:[0-9a-f]{64}( \\)?$", line)


@pytest.mark.parametrize(
    ("constraints", "locks"),
    [
        ("constraints.txt", ("base.txt", "dev.txt", "bench.txt", "portability.txt")),
        ("constraints-oldest.txt", ("oldest.txt",)),
    ],
)
def test_the_constraints_hold(constraints: str, locks: tuple[str, ...]) -> None:
    """After a change of them: make lock."""
    for name, versions in pins(ROOT / constraints).items():
        for lock in (pins(ROOT / "requirements" / lock) for lock in locks):
            assert name not in lock or versions <= lock[name], name


def test_every_dependency_is_locked() -> None:
    """After a change of them: make lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = (project["dependencies"], *project["optional-dependencies"].values())
    names = {canonical(re.split(r"[><=;\[ ]", each)[0]) for names in lists for each in names}
    assert {"numpy", "onnx", "pytest"} <= names
    assert names - {name for lock in LOCKS for name in pins(lock)} == UNLOCKED
