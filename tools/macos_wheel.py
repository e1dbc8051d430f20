"""Makes the wheel for Apple silicon on Linux: python -m tools.macos_wheel --out dist [--work build/macos]

Zig's clang and libc++ compile csrc for arm64 macOS 13 and LLVM's lld links it, against a stub of ours in place of
Apple's SDK; csrc/metal loads Apple's frameworks when it runs. The wheel has one binary, the plugin library, and serves
every Python: without `_core`, pjrt_metal.core_ctypes connects the library with the compiler.

Needs the packages ziglang and scikit-build-core, and Debian's lld-19.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools import macho

ROOT = Path(__file__).resolve().parents[1]
STUB = ROOT / "tools/macos_stubs/libSystem.tbd"
LINKER = "ld64.lld-19"
MACOS = (13, 0)
MAX_BYTES = 5_000_000
FOLDERS = ("pjrt", "runtime", "metal", "software")
# As in CMakeLists.txt.
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
EXPECTED = macho.Library("@rpath/libpjrt_metal.dylib", MACOS, ["/usr/lib/libSystem.B.dylib"], ["_GetPjrtApi"])


def run(command: list[str], **environment: str) -> str:
    """The command's output; if it fails, everything it said and how to repeat it."""
    result = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{result.stdout}{result.stderr}\nfailed ({result.returncode}): {' '.join(command)}")
    return result.stdout


class Zig:
    """Zig's C++ compiler for arm64 macOS, with a cache of its own."""

    def __init__(self, cache: Path) -> None:
        import ziglang

        self.folder = Path(ziglang.__file__).parent
        self.cache = cache / run([str(self.folder / "zig"), "version"]).strip()

    def compile(self, *arguments: str) -> None:
        target = f"aarch64-macos.{MACOS[0]}.{MACOS[1]}"
        caches = {"ZIG_GLOBAL_CACHE_DIR": str(self.cache), "ZIG_LOCAL_CACHE_DIR": str(self.cache)}
        run([str(self.folder / "zig"), "c++", "-target", target, *arguments], **caches)

    def standard_library(self, work: Path) -> list[str]:
        """Zig builds its libc++ when it first links a program, and leaves the archives in its cache."""
        source = work / "main.cc"
        source.write_text("int main() { return 0; }\n")
        self.compile("-O2", str(source), "-o", str(work / "main"))
        archives = []
        for name in ("libc++.a", "libc++abi.a"):
            found = list(self.cache.glob(f"o/*/{name}"))
            if len(found) != 1:
                sys.exit(f"expected one {name} in {self.cache}, found {len(found)}: remove that folder")
            archives.append(str(found[0]))
        return archives


def check_stub(zig: Zig) -> None:
    """Every name of our stub is one of Apple's: Zig carries the full list for its own linker."""
    known = set(re.findall(r"[\w$]+", (zig.folder / "lib/libc/darwin/libSystem.tbd").read_text()))
    symbols = STUB.read_text().partition("symbols:")[2]
    unknown = sorted(set(re.findall(r"[\w$]+", symbols)) - known)
    if unknown or not symbols:
        sys.exit(f"{STUB}: libSystem has no {', '.join(unknown)}")


def build_library(zig: Zig, work: Path) -> Path:
    headers = sorted(map(str, (ROOT / "csrc/software/include").iterdir()))
    run(["sh", str(ROOT / "csrc/software/embed_headers.sh"), str(work / "stand_in_headers.inc"), *headers])

    def compile_source(source: Path) -> str:
        target = work / f"{source.parent.name}_{source.stem}.o"
        zig.compile(*FLAGS, *WARNINGS, f"-I{ROOT}", f"-I{work}", "-c", str(source), "-o", str(target))
        return str(target)

    sources = sorted(source for folder in FOLDERS for source in (ROOT / "csrc" / folder).glob("*.cc"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        archives = pool.submit(zig.standard_library, work)
        objects = list(pool.map(compile_source, sources))
    library = work / "libpjrt_metal.dylib"
    version = ".".join(map(str, MACOS))
    arguments = ["-dylib", "-arch", "arm64", "-platform_version", "macos", version, version, "-dead_strip", "-x"]
    arguments += ["-exported_symbols_list", str(ROOT / "csrc/exports.macos"), "-install_name", EXPECTED.install_name]
    run([LINKER, *arguments, "-o", str(library), *objects, *archives.result(), str(STUB)])
    return library


def check_library(library: Path) -> None:
    found = macho.read_library(library)
    if found != EXPECTED:
        sys.exit(f"{library} is {found}, expected {EXPECTED}")


def write_metadata(work: Path) -> Path:
    """The .dist-info folder that pyproject.toml asks for, with this wheel's tag."""
    from scikit_build_core import build

    target = work / "metadata"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    folder = target / build.prepare_metadata_for_build_wheel(str(target))
    text = (folder / "WHEEL").read_text()
    (folder / "WHEEL").write_text(re.sub(r"^Tag: .*$", f"Tag: {tag()}", text, flags=re.MULTILINE))
    return folder


def tag() -> str:
    return f"py3-none-macosx_{MACOS[0]}_{MACOS[1]}_arm64"


def package_files() -> Iterator[Path]:
    for package in ("mlir_lowering", "pjrt_metal"):
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in (".py", ".pyi", ".metal") and path.name != "_core.pyi":
                yield path


def assemble(library: Path, metadata: Path, out: Path) -> Path:
    """A wheel is a zip file whose RECORD lists each file with its hash and size."""
    name = metadata.name.removesuffix(".dist-info")
    wheel = out / f"{name}-{tag()}.whl"
    contents = {str(path.relative_to(ROOT)): path.read_bytes() for path in package_files()}
    contents["pjrt_metal/libpjrt_metal.dylib"] = library.read_bytes()
    for path in sorted(p for p in metadata.rglob("*") if p.is_file() and p.name != "RECORD"):
        contents[str(path.relative_to(metadata.parent))] = path.read_bytes()
    record = f"{metadata.name}/RECORD"
    rows = []
    for path_name, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path_name},sha256={digest},{len(data)}\n")
    contents[record] = "".join([*rows, f"{record},,\n"]).encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path_name, data in contents.items():
            # A fixed time: equal contents make equal wheels.
            info = zipfile.ZipInfo(path_name, (2020, 1, 1, 0, 0, 0))
            info.external_attr = (0o100755 if path_name.endswith(".dylib") else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    if wheel.stat().st_size > MAX_BYTES:
        sys.exit(f"{wheel} has {wheel.stat().st_size} bytes, more than {MAX_BYTES}")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheel")
    parser.add_argument("--work", type=Path, default=ROOT / "build/macos", help="objects, and Zig's cache")
    options = parser.parse_args()
    if shutil.which(LINKER) is None:
        sys.exit(f"{LINKER} is not on PATH: apt-get install lld-19")
    os.chdir(ROOT)  # scikit-build-core reads the pyproject.toml of the current folder
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    work = options.work.resolve()
    zig = Zig(work / "zig")
    check_stub(zig)
    library = build_library(zig, work)
    check_library(library)
    wheel = assemble(library, write_metadata(work), options.out.resolve())
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.2f} MB; the library {library.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
