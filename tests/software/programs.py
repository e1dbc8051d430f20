"""C++ programs that drive csrc/software: built by the tests, one check a process."""

from __future__ import annotations

import concurrent.futures
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def checks(source: Path) -> list[str]:
    """The names in the program's table kChecks."""
    return re.findall(r'\{"(\w+)", \w+\}', source.read_text().split("kChecks[] = {")[1].split("};")[0])


def build(source: Path, folder: Path) -> Path:
    """The test program with the device, in `folder`."""
    headers = sorted((ROOT / "csrc/software/include").iterdir())
    embed = ROOT / "csrc/software/embed_headers.sh"
    subprocess.run(["sh", embed, folder / "stand_in_headers.inc", *headers], check=True)
    sources = [
        *sorted((ROOT / "csrc/software").glob("*.cc")),
        *(ROOT / f"csrc/runtime/{name}.cc" for name in ("cache_folder", "environment", "files", "hash", "log")),
        source,
    ]
    flags = ["-std=c++20", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", f"-I{folder}"]
    objects = [folder / f"{source.stem}.o" for source in sources]

    def compile(source: Path, output: Path) -> None:
        command = ["g++", *flags, "-c", str(source), "-o", str(output)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile, sources, objects))
    binary = folder / source.stem
    subprocess.run(["g++", *objects, "-o", binary, "-lpthread", "-ldl"], check=True)
    return binary
