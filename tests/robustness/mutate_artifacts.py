"""Compiles mutated StableHLO artifacts through the C API, in a process of its own that must live to say so.

    python -m tests.robustness.mutate_artifacts COUNT SEED

Prints one line before each attempt (so that a crash names its mutant) and a summary at the end.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from tests.capi import bare
from tests.capi.harness import Client
from tests.robustness.attack_artifacts import mutated

LOADED = 10  # one in so many is loaded, too: its kernels are compiled


def artifacts() -> list[bytes]:
    """Programs with most kinds of attributes, regions and constants."""

    def network(x: jax.Array, w: jax.Array, i: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = jax.nn.relu(y).mean((1, 2))
        table = jnp.array(np.arange(20.0, dtype=np.float32).reshape(5, 4))
        return jax.nn.softmax(y @ table.T)[:, i].sum()

    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 5, lambda i, c: jnp.where(i > 2, c * 2, jnp.sort(c)), x)

    def update(x: jax.Array, i: jax.Array) -> jax.Array:
        return x.at[i].add(1.0)[::-1].astype(jnp.bfloat16)

    def various(x: jax.Array, i: jax.Array) -> list[jax.Array]:
        """Branches, composites, a custom call of the FFI, complex constants, a mesh; donated."""
        y = jax.lax.switch(i[0], [jnp.sin, jnp.cos, jax.scipy.special.erf], x)
        z = jax.lax.complex(y, x) * np.array([1 + 2j, 3j, 4], np.complex64)
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), "d")
        spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
        pairs = jax.lax.top_k(jax.lax.with_sharding_constraint(y, spread), 2)
        return [x + 1, z, jnp.linalg.cholesky(y @ y.T + jnp.eye(3)), *pairs]

    shapes = [
        (jax.jit(jax.grad(network)), ((2, 8, 8, 3), (3, 3, 3, 4), None)),
        (jax.jit(loop), ((7,),)),
        (jax.jit(update), ((9, 2), None)),
        (jax.jit(various, donate_argnums=0), ((3, 3), None)),
    ]
    lapack = jax.export.DisabledSafetyCheck.custom_call("lapack_spotrf_ffi")
    result = []
    for function, arguments in shapes:
        values = [np.zeros(3, np.int32) if s is None else np.zeros(s, np.float32) for s in arguments]
        exported = jax.export.export(function, platforms=["metal"], disabled_checks=[lapack])(*values)
        result.append(bytes(exported.mlir_module_serialized))
    return result


def mutants(count: int, seed: int) -> Iterator[bytes]:
    originals = artifacts()
    for number in range(count):
        yield mutated(originals[number % len(originals)], np.random.default_rng([seed, number]))


def main(count: int, seed: int) -> None:
    client = Client(bare.Api(bare.library_path()))
    topology = client.api.call("PJRT_Client_TopologyDescription", client=client.handle).topology
    refused = 0
    for number, data in enumerate(mutants(count, seed)):
        print("mutant", number, flush=True)
        program = bare.new(
            "PJRT_Program",
            code=bare.address(ctypes.create_string_buffer(data, len(data))),
            code_size=len(data),
            format=bare.address(ctypes.create_string_buffer(b"mlir")),
            format_size=4,
        )
        try:
            if number % LOADED == 0:
                made = client.api.call("PJRT_Client_Compile", client=client.handle, program=bare.address(program))
                client.api.call("PJRT_LoadedExecutable_Destroy", executable=made.executable)
            else:
                made = client.api.call("PJRT_Compile", topology=topology, program=bare.address(program))
                client.api.call("PJRT_Executable_Destroy", executable=made.executable)
        except bare.PjrtError:
            refused += 1
    print(f"refused {refused} of {count}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
