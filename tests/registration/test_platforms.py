"""What a program sees of the platform when it asks for nothing, metal, or metal and CPU."""

from __future__ import annotations

import platform
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from .processes import output

SOFTWARE = not (platform.system() == "Darwin" and platform.machine() == "arm64")

ADD = "import jax, jax.numpy as jnp; print(float(jnp.arange(4.0).sum() + 1))"


def test_entry_point() -> None:
    (found,) = [e for e in entry_points(group="jax_plugins") if e.name == "metal"]
    assert callable(found.load().initialize)


def test_devices(tmp_path: Path) -> None:
    lines = output(
        """
        import jax
        print(jax.devices())
        print(jax.devices("metal")[0].device_kind)
        print(jax.default_backend(), jax.device_count(), jax.devices()[0].platform)
        """,
        tmp_path,
        "metal",
    )
    assert lines[0] == "[MetalDevice(id=0)]"
    assert ("software" if SOFTWARE else "Apple") in lines[1]
    assert lines[2] == "metal 1 metal"


def test_computes_without_a_warning(tmp_path: Path) -> None:
    assert output(ADD, tmp_path, "metal") == ["7.0"]


@pytest.mark.skipif(not SOFTWARE, reason="metal is the default where there is a GPU")
def test_a_program_that_does_not_ask_is_undisturbed(tmp_path: Path) -> None:
    lines = output(f"{ADD}\nprint(jax.default_backend(), jax.devices()[0].platform)", tmp_path)
    assert lines == ["7.0", "cpu cpu"]


@pytest.mark.skipif(SOFTWARE, reason="the software device must be asked for")
def test_metal_is_the_default_on_a_mac(tmp_path: Path) -> None:
    assert output("import jax; print(jax.default_backend())", tmp_path) == ["metal"]


def test_metal_can_be_asked_for_in_code(tmp_path: Path) -> None:
    code = """
    import jax, numpy as np
    x = jax.device_put(np.float32(2), jax.devices("metal")[0])
    print(float(x * 3), x.devices())
    """
    assert output(code, tmp_path) == ["6.0 {MetalDevice(id=0)}"]


def test_metal_and_cpu_together(tmp_path: Path) -> None:
    code = """
    import jax, numpy as np
    print(jax.default_backend(), jax.devices("metal"), jax.devices("cpu"))
    there = jax.device_put(np.arange(3, dtype=np.float32), jax.devices("metal")[0]) + 1
    here = jax.device_put(there, jax.devices("cpu")[0]) * 2
    print(here, here.devices())
    """
    lines = output(code, tmp_path, "metal,cpu")
    assert lines[0] == "metal [MetalDevice(id=0)] [CpuDevice(id=0)]"
    assert lines[1] == "[2. 4. 6.] {CpuDevice(id=0)}"


def test_the_compiler_loads_only_when_used(tmp_path: Path) -> None:
    """A CPU program must not pay for the compiler's import."""
    code = f"{ADD}\nimport sys\nprint('mlir_lowering.pipeline' in sys.modules)"
    assert output(code, tmp_path, "cpu") == ["7.0", "False"]
