"""Features that JAX keeps to a list of platforms: donation and the persistent compilation cache."""

from __future__ import annotations

from pathlib import Path

from .processes import output


def test_donation(tmp_path: Path) -> None:
    code = """
    import jax, numpy as np
    step = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    # Computed on the device: what device_put gives may be numpy's memory, which is not ours.
    x = jax.jit(lambda x: x + 1)(jax.device_put(np.arange(1024, dtype=np.float32)))
    before = x.unsafe_buffer_pointer()
    y = step(x)
    print(x.is_deleted(), y.unsafe_buffer_pointer() == before, float(y[3]))
    """
    assert output(code, tmp_path, "metal") == ["True True 9.0"]


def test_persistent_compilation_cache(tmp_path: Path) -> None:
    code = """
    import collections, jax, numpy as np
    events = collections.Counter()
    jax.monitoring.register_event_listener(lambda event, **_: events.update([event]))
    x = jax.device_put(np.arange(6, dtype=np.float32).reshape(2, 3))
    print(jax.jit(lambda x: jax.numpy.tanh(x).sum(0))(x))
    print(*[events[f"/jax/compilation_cache/cache_{what}"] for what in ("hits", "misses")])
    """
    environment = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    first = output(code, tmp_path, "metal", **environment)
    second = output(code, tmp_path, "metal", **environment)
    assert first[0] == second[0]
    assert first[1] == "0 1"
    assert second[1] == "1 0"
