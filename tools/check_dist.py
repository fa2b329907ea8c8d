"""Install a wheel and an sdist into empty environments without compilers, and use them.

    make dist

Each environment gets the device half's packages by their hashes, as wheels alone, and then the
project from the file. Its commands run with nothing else on their path, in a folder of their own.
The SBOM (CycloneDX) is that of the wheel's environment.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
SBOM = "sbom.cdx.json"
DRAW = "import pathlib, pocketune.demo.digits as d; d.unpack_digits(pathlib.Path('d'))"
COMMANDS = (
    ("pocketune", "--version"),
    ("python", "-c", DRAW),
    ("pocketune", "train", "d", "--kit", "last", "--epochs", "0", "--out", "run"),
    ("pocketune", "predict", "run", "d/one/000.png"),
    ("pocketune", "export", "run", "--out", "model.onnx"),
    ("pocketune", "evaluate", "run", "d"),
)
"""A run from bundled photos and a bundled kit to a model."""


def install(artifact: Path, environment: Path) -> None:
    """Make an environment with the project from a wheel or an sdist, and with what it needs."""
    venv.create(environment, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install"]
    pip += ["--quiet", "--no-deps"]
    locked = ["--only-binary", ":all:", "--require-hashes", "--requirement"]
    files = ["base.txt"] if artifact.suffix == ".whl" else ["base.txt", "build.txt"]
    for name in files:
        subprocess.run([*pip, *locked, REQUIREMENTS / name], check=True)
    no_compiler = {**os.environ, "CC": "false", "CXX": "false"}
    subprocess.run([*pip, "--no-build-isolation", artifact], check=True, env=no_compiler)


def use(environment: Path) -> None:
    """Run the commands in an empty folder, with nothing else on the path."""
    binaries = environment / "bin"
    path = {"PATH": str(binaries), "LANG": "C.UTF-8"}
    assert not any(shutil.which(name, path=binaries) for name in ("cc", "gcc", "clang"))
    with tempfile.TemporaryDirectory() as folder:
        for name, *arguments in COMMANDS:
            command = [binaries / name, *arguments]
            subprocess.run(command, check=True, cwd=folder, env={**path, "HOME": folder})


def write_sbom(environment: Path, out: Path) -> None:
    """Write what is in an environment as CycloneDX."""
    subprocess.run(
        [
            *(sys.executable, "-m", "cyclonedx_py", "environment", environment / "bin" / "python"),
            *("--pyproject", ROOT / "pyproject.toml", "--mc-type", "application"),
            *("--output-reproducible", "--of", "JSON", "--output-file", out),
        ],
        check=True,
    )


def main() -> None:
    """Check every artifact of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of a wheel and an sdist")
    folder = parser.parse_args().folder
    artifacts = sorted(folder.glob("*.tar.gz")) + sorted(folder.glob("*.whl"))
    assert [each.suffix for each in artifacts] == [".gz", ".whl"], artifacts
    for artifact in artifacts:
        with tempfile.TemporaryDirectory() as name:
            environment = Path(name) / "environment"
            install(artifact, environment)
            use(environment)
            if artifact.suffix == ".whl":
                write_sbom(environment, folder / SBOM)
        print(f"{artifact.name}: {artifact.stat().st_size / 1e6:.1f} MB, works")


if __name__ == "__main__":
    main()
