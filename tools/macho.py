"""Reads what a Mach-O library says about itself: for which machine, from which macOS on, what it imports and exports,
and whether its code signature is that of its bytes (macOS ends a process that loads arm64 code with a wrong one)."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

_MAGIC_64 = 0xFEEDFACF
_ARM64 = 0x0100000C
_DYLIB = 6  # MH_DYLIB
_PLATFORM_MACOS = 1
# Load commands, without the bit that says whether dyld must understand them.
_LOAD_DYLIB, _ID_DYLIB, _CODE_SIGNATURE, _DYLD_INFO, _BUILD_VERSION, _EXPORTS_TRIE = 0xC, 0xD, 0x1D, 0x22, 0x32, 0x33
_LOAD_WEAK_DYLIB, _REEXPORT_DYLIB = 0x18, 0x1F
_REQUIRED_BY_DYLD = 0x80000000
# The signature's blobs, big-endian: a table of blobs, and the one that holds the pages' hashes.
_EMBEDDED_SIGNATURE, _CODE_DIRECTORY = 0xFADE0CC0, 0xFADE0C02
_SHA256 = 2
_AD_HOC = 2


@dataclass(frozen=True)
class Library:
    install_name: str
    minimum_macos: tuple[int, int]
    imports: list[str]  # install names of libraries
    exports: list[str]


def read_library(path: Path) -> Library:
    """A dynamic library for arm64 macOS with a valid ad-hoc signature; raises ValueError for anything else."""
    data = path.read_bytes()
    magic, cpu, _, file_type, count, _, _, _ = struct.unpack_from("<8I", data)
    if (magic, cpu, file_type) != (_MAGIC_64, _ARM64, _DYLIB):
        raise ValueError(f"{path}: not a 64-bit arm64 dynamic library ({magic:#x}, cpu {cpu:#x}, type {file_type})")
    names: dict[int, list[str]] = {}
    minimum: tuple[int, int] | None = None
    exports: list[str] = []
    signed = False
    offset = 32
    for _ in range(count):
        command, size = struct.unpack_from("<2I", data, offset)
        command &= ~_REQUIRED_BY_DYLD
        if command in (_ID_DYLIB, _LOAD_DYLIB, _LOAD_WEAK_DYLIB, _REEXPORT_DYLIB):
            (at,) = struct.unpack_from("<I", data, offset + 8)
            names.setdefault(command, []).append(data[offset + at : offset + size].split(b"\0")[0].decode())
        elif command == _BUILD_VERSION:
            platform, version = struct.unpack_from("<2I", data, offset + 8)
            if platform != _PLATFORM_MACOS:
                raise ValueError(f"{path}: made for platform {platform}, not macOS")
            minimum = (version >> 16, version >> 8 & 0xFF)
        elif command == _DYLD_INFO:
            exports += _exports(data, *struct.unpack_from("<2I", data, offset + 40))
        elif command == _EXPORTS_TRIE:
            exports += _exports(data, *struct.unpack_from("<2I", data, offset + 8))
        elif command == _CODE_SIGNATURE:
            _check_signature(path, data, *struct.unpack_from("<2I", data, offset + 8))
            signed = True
        offset += size
    if minimum is None or not signed:
        raise ValueError(f"{path}: {'no minimum macOS' if minimum is None else 'not signed'}")
    imports = names.get(_LOAD_DYLIB, []) + names.get(_LOAD_WEAK_DYLIB, []) + names.get(_REEXPORT_DYLIB, [])
    return Library(names[_ID_DYLIB][0], minimum, imports, exports)


def _exports(data: bytes, start: int, size: int) -> list[str]:
    """Names in the export trie: a node is what it exports (its size first), then its edges' texts and offsets."""
    if size == 0:
        return []
    trie = data[start : start + size]
    found: list[str] = []
    pending = [(0, "")]
    while pending:
        at, name = pending.pop()
        terminal, at = _uleb(trie, at)
        if terminal:
            found.append(name)
        at += terminal
        edges = trie[at]
        at += 1
        for _ in range(edges):
            end = trie.index(0, at)
            child, following = _uleb(trie, end + 1)
            pending.append((child, name + trie[at:end].decode()))
            at = following
    return sorted(found)


def _uleb(data: bytes, at: int) -> tuple[int, int]:
    """A number in base 128, least significant digits first, and what follows it."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def _check_signature(path: Path, data: bytes, start: int, size: int) -> None:
    magic, _, count = struct.unpack_from(">3I", data, start)
    if magic != _EMBEDDED_SIGNATURE or start + size > len(data):
        raise ValueError(f"{path}: its code signature is not one")
    for number in range(count):
        _, offset = struct.unpack_from(">2I", data, start + 12 + 8 * number)
        blob = start + offset
        fields = struct.unpack_from(">9I4B", data, blob)
        if fields[0] != _CODE_DIRECTORY:
            continue
        flags, hashes, pages, limit = fields[3], fields[4], fields[7], fields[8]
        hash_size, hash_type, _, page_bits = fields[9:]
        if hash_type != _SHA256 or not flags & _AD_HOC or limit != start:
            raise ValueError(f"{path}: not an ad-hoc SHA-256 signature of everything before it")
        for page in range(pages):
            begin = page << page_bits
            digest = hashlib.sha256(data[begin : min(begin + (1 << page_bits), limit)]).digest()
            at = blob + hashes + page * hash_size
            if data[at : at + hash_size] != digest:
                raise ValueError(f"{path}: page {page} was changed after it was signed")
        return
    raise ValueError(f"{path}: its code signature has no code directory")
