"""Reads changed compile options as the compiler does: python -m tests.robustness.mutate_options COUNT SEED"""

from __future__ import annotations

import sys

import jaxlib.xla_client as xla_client
import numpy as np

from mlir_lowering.errors import CompileError
from mlir_lowering.options import read_options


def original() -> bytes:
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.device_assignment = xla_client.DeviceAssignment.create(np.zeros((1, 1), np.int32))
    options.executable_build_options.num_replicas = 1
    return bytes(options.SerializeAsString())


def main(count: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    sound = original()
    refused = 0
    for number in range(count):
        data = bytearray(sound)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data) + 1))
            match rng.integers(4):
                case 0 if at < len(data):
                    data[at] ^= 1 << int(rng.integers(8))
                case 1 if at < len(data):
                    data[at] = int(rng.integers(256))
                case 2:
                    del data[at : at + int(rng.integers(1, 9))]
                case _:
                    data[at:at] = rng.bytes(int(rng.integers(1, 9)))
        if number % 1000 == 0:
            print("options", number, flush=True)
        try:
            read_options(bytes(data))
        except CompileError:
            refused += 1
    print(f"refused {refused} of {count}", flush=True)
    return refused


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
