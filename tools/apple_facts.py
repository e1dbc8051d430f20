"""Regenerates tests/metal/apple_facts.json: what Apple's headers declare, from the metadata of PyObjC's packages.

    python -m tools.apple_facts

PyObjC's source packages on PyPI hold what its maintainers' tool read from the headers of a macOS SDK: every method
with its types and the macOS that introduced it, every enumeration's values. Only such facts are kept, of the classes
and protocols below; tests/metal/test_apple_facts.py compares the table in csrc/metal/selectors.h with them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FACTS = ROOT / "tests/metal/apple_facts.json"
VERSION = "12.2.2"
PACKAGES = (
    "pyobjc-framework-Metal",
    "pyobjc-framework-MetalPerformanceShaders",
    "pyobjc-framework-MetalPerformanceShadersGraph",
    "pyobjc-framework-Cocoa",
)
FRAMEWORKS = ("Foundation", "Metal", "MetalPerformanceShaders", "MetalPerformanceShadersGraph")
# What a compute device may need; rendering is left out.
RECEIVERS = {
    *("NSArray", "NSAutoreleasePool", "NSData", "NSDictionary", "NSError", "NSNumber", "NSProcessInfo", "NSString"),
    *("NSURL", "NSMutableArray", "NSMutableDictionary"),
    *("MTLDevice", "MTLCompileOptions", "MTLLibrary", "MTLFunction", "MTLComputePipelineState", "MTLBuffer"),
    *("MTLComputePipelineDescriptor", "MTLCommandQueue", "MTLCommandBuffer", "MTLCommandBufferDescriptor"),
    *("MTLCommandBufferEncoderInfo",),
    *("MTLCommandEncoder", "MTLComputeCommandEncoder", "MTLBlitCommandEncoder", "MTLResource"),
    *("MTLEvent", "MTLSharedEvent", "MTLFence", "MTLBinaryArchive", "MTLBinaryArchiveDescriptor"),
    *("MTLCaptureManager", "MTLCaptureDescriptor", "MTLResidencySet", "MTLResidencySetDescriptor"),
    *("MTLCommandQueueDescriptor", "MTLFunctionConstantValues", "MTLCounterSampleBuffer", "MPSGraph"),
    *("MPSGraphTensor", "MPSGraphTensorData", "MPSGraphDevice", "MPSGraphExecutable", "MPSGraphCompilationDescriptor"),
    *("MPSGraphExecutableExecutionDescriptor", "MPSGraphConvolution2DOpDescriptor", "MPSGraphShapedType"),
    *("MPSCommandBuffer", "MPSNDArray", "MPSNDArrayDescriptor"),
}
ENUMERATIONS = {
    *("NSStringEncoding", "MTLResourceOptions", "MTLStorageMode", "MTLCPUCacheMode", "MTLHazardTrackingMode"),
    *("MTLCommandBufferErrorOption", "MTLCommandEncoderErrorState"),
    *("MTLDispatchType", "MTLBarrierScope", "MTLCommandBufferStatus", "MTLCommandBufferError", "MTLGPUFamily"),
    *("MTLLanguageVersion", "MTLMathMode", "MTLMathFloatingPointFunctions", "MTLLibraryError"),
    *("MTLPipelineOption", "MTLCaptureDestination", "MTLCaptureError", "MPSGraphOptions", "MPSGraphOptimization"),
    *("MPSGraphTensorNamedDataLayout", "MPSGraphPaddingStyle", "MPSGraphPaddingMode", "MPSGraphOptimizationProfile"),
    "MPSDataType",
}
# In libobjc's own headers, which PyObjC does not list: from Apple's documentation of NSObject.
RUNTIME = {
    "+NSObject": {"alloc": ["@@:", "10.0"]},
    "NSObject": {
        "init": ["@@:", "10.0"],
        "retain": ["@@:", "10.0"],
        "release": ["v@:", "10.0"],
        "respondsToSelector:": ["B@::", "10.0"],
    },
}


def source_folders(folder: Path) -> list[Path]:
    """Unpacks the source packages in `folder`.

    pip downloads and unpacks a source package and then asks it for its metadata, which these refuse off macOS; with
    --no-clean what was unpacked stays.
    """
    for package in PACKAGES:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-clean", "--no-build-isolation"]
        command += ["--no-binary", ":all:", "-d", str(folder), f"{package}=={VERSION}"]
        subprocess.run(command, env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, check=False)
    found = sorted(folder.glob("pip-download-*/*/metadata"))
    if len(found) != len(PACKAGES):
        sys.exit(f"pip left {len(found)} of {len(PACKAGES)} source packages in {folder}")
    return found


def definitions(folders: list[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The declarations of each framework in FRAMEWORKS, with the SDK's version."""
    for folder in folders:
        for path in sorted(folder.glob("raw*/arm64-*.fwinfo")):
            text = path.read_text()
            data = json.loads(text[text.index("\n{") :])  # comments come first
            if data["framework"] in FRAMEWORKS:
                yield path.stem.partition("-")[2], data["definitions"]


def encoding(type: dict[str, Any]) -> str:
    """The type in Objective-C's encoding: PyObjC writes Z for BOOL, ? for a collection's type of elements."""
    text = str(type["typestr"])
    return {"Z": "B", "?": "@"}.get(text, text)


def messages(declared: dict[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    for kind in ("classes", "formal_protocols"):
        for name in sorted(RECEIVERS & declared[kind].keys()):
            for method in declared[kind][name]["methods"]:
                receiver = "+" + name if method["class_method"] else name
                types = encoding(method["retval"]) + "@:" + "".join(map(encoding, method["args"]))
                yield receiver, method["selector"], [types, method.get("introduced", "")]


def collect(folders: list[Path]) -> dict[str, Any]:
    facts: dict[str, Any] = {"source": f"{', '.join(PACKAGES)} {VERSION}", "sdk": "", "messages": dict(RUNTIME)}
    constants: dict[str, int] = {}
    functions: dict[str, list[str]] = {}
    for sdk, declared in definitions(folders):
        facts["sdk"] = sdk
        for receiver, selector, fact in messages(declared):
            facts["messages"].setdefault(receiver, {})[selector] = fact
        for name, value in declared["enum"].items():
            if value.get("enum") in ENUMERATIONS or name.endswith("StringEncoding"):
                constants[name] = value["value"]
        for name, function in declared["functions"].items():
            if name.startswith("MTLCopy") or name.startswith("MTLCreate"):
                functions[name] = [encoding(function["retval"]), function.get("introduced", "")]
        for name, data in declared["externs"].items():
            if name.startswith("MTLCommandBuffer"):
                functions[name] = [encoding(data), data.get("introduced", "")]
    return {**facts, "constants": constants, "functions": functions}


def write(facts: dict[str, Any]) -> None:
    """One line a fact, so that a newer SDK shows as a readable difference."""
    text = json.dumps(facts, indent=1, sort_keys=True)
    FACTS.write_text(re.sub(r'\[\s+("[^"]*"),\s+("[^"]*")\s+\]', r"[\1, \2]", text) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, help="folder where the source packages were unpacked before")
    options = parser.parse_args()
    if options.sources:
        write(collect(sorted(options.sources.glob("pip-download-*/*/metadata"))))
        return
    with tempfile.TemporaryDirectory() as folder:
        write(collect(source_folders(Path(folder))))


if __name__ == "__main__":
    main()
