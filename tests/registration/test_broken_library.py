"""A missing or broken library leaves JAX working, and says why to whoever asks for metal."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import pjrt_metal

from .processes import output, run


def _missing(library: Path) -> None:
    library.unlink()


def _empty(library: Path) -> None:
    library.write_bytes(b"")


def _truncated(library: Path) -> None:
    library.write_bytes(library.read_bytes()[:5000])


def _not_a_library(library: Path) -> None:
    library.write_text("this is no library\n")


BREAKS = [_missing, _empty, _truncated, _not_a_library]


@pytest.fixture(params=BREAKS, ids=lambda f: f.__name__.strip("_"))
def package(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a copy of the package whose library is broken, to go first on PYTHONPATH."""
    source = pjrt_metal.library_path().parent
    shutil.copytree(source, tmp_path / "site/pjrt_metal", ignore=shutil.ignore_patterns("__pycache__"))
    damage: Callable[[Path], None] = request.param
    damage(tmp_path / "site/pjrt_metal" / pjrt_metal.library_path().name)
    return tmp_path / "site"


def test_jax_works(package: Path, tmp_path: Path) -> None:
    code = "import jax.numpy as jnp; x = jnp.ones(3) + 1; print(x, x.devices())"
    assert output(code, tmp_path, PYTHONPATH=str(package)) == ["[2. 2. 2.] {CpuDevice(id=0)}"]


@pytest.mark.parametrize("platforms", ["metal", "metal,cpu", None])
def test_asking_for_metal_says_why(package: Path, tmp_path: Path, platforms: str | None) -> None:
    code = """
    import jax
    try:
        jax.devices("metal")
    except RuntimeError as error:
        print(error)
    """
    result = run(code, tmp_path, platforms, PYTHONPATH=str(package))
    assert result.returncode == 0, result.stderr
    assert "libpjrt_metal" in result.stdout
