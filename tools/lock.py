"""Write requirements/: every package that the make targets install, with the hashes of its files.

    make lock

Versions follow pyproject.toml, constraints.txt and constraints-oldest.txt. What these leave open is
the newest that works with all Pythons that the project supports. torch is left out; see
requirements/README.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "requirements"
OLDEST_PYTHON = "3.10"
NO_TORCH = 'torch ; python_version < "3"'
OF_TORCH = "filelock fsspec jinja2 networkx setuptools>=77.0.3 sympy>=1.13.3 typing-extensions"
"""What torch needs besides itself."""
PROJECT = "pyproject.toml"
EXTRAS = "author", "heif", "plot", "report", "retrain", "tflite", "dev"


def lock(
    name: str,
    *sources: str,
    packages: str = "",
    extras: tuple[str, ...] = (),
    constraints: str = "constraints.txt",
    python: str = OLDEST_PYTHON,
) -> None:
    """Write the file of this name for files of requirements, packages and extras of the project."""
    with tempfile.TemporaryDirectory() as scratch:
        override, listed = Path(scratch) / "override.txt", Path(scratch) / "packages.in"
        override.write_text(NO_TORCH)
        listed.write_text("\n".join(packages.split()))
        subprocess.run(
            [
                *(sys.executable, "-m", "uv", "pip", "compile", *sources, listed),
                *("--universal", "--python-version", python, "--generate-hashes", "--upgrade"),
                *("--constraint", constraints, "--override", override),
                *(word for extra in extras for word in ("--extra", extra)),
                *("--quiet", "--no-header", "--no-annotate", "--output-file", OUT / name),
            ],
            cwd=ROOT,
            check=True,
        )
    lines = (OUT / name).read_text().splitlines()
    assert not any(line.startswith("torch==") or "://" in line for line in lines)
    (OUT / name).write_text("\n".join(["# Written by `make lock`.", *lines]) + "\n")
    print(f"{name}: {sum('==' in line for line in lines)} packages")


def main() -> None:
    """Write all files."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    lock("base.txt", PROJECT)
    lock("dev.txt", PROJECT, packages=OF_TORCH, extras=EXTRAS)
    lock("bench.txt", packages="pyarrow>=18")
    lock("portability.txt", packages="openvino>=2026.4 tract>=0.23")
    lock("oldest.txt", PROJECT, constraints="constraints-oldest.txt", python="3.11")
    lock("build.txt", packages="hatchling editables")
    lock("release.txt", packages="build cyclonedx-bom uv")


if __name__ == "__main__":
    main()
