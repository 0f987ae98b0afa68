"""The CUDA compiler, and what devices of a compute capability can do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any, List, Optional, Sequence, Tuple, Union

from .. import error
from ..runtime.device import cuda
from . import utils


def find_cuda_path() -> str:
    """The folder of the CUDA toolkit: $CUDA_PATH, the one that nvcc lies in, or /usr/local/cuda."""
    given = os.environ.get("CUDA_PATH")
    if given:
        return given
    program = shutil.which("nvcc")
    if program:
        return os.path.realpath(os.path.join(os.path.dirname(program), ".."))
    if os.path.exists("/usr/local/cuda/bin/nvcc"):
        return "/usr/local/cuda"
    raise error.UnsupportedError(
        "the CUDA toolkit was not found: there is no nvcc in PATH, no /usr/local/cuda, and CUDA_PATH is not set"
    )


def _nvcc() -> str:
    path = os.path.join(find_cuda_path(), "bin", "nvcc")
    if not os.path.exists(path):
        raise error.UnsupportedError(f"nvcc is missing: there is no {path}; install the compiler of the CUDA toolkit")
    return path


def get_cuda_version(cuda_path: Optional[str] = None) -> Tuple[int, ...]:
    """The toolkit's version, such as (12, 4)."""
    program = os.path.join(cuda_path, "bin", "nvcc") if cuda_path else _nvcc()
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"release (\d+)\.(\d+)", done.stdout)
    if not found:
        raise error.UnsupportedError(f"{program} does not say its version")
    return tuple(map(int, found.groups()))


def compile_cuda(
    code: str,
    target_format: str = "ptx",
    arch: Union[None, str, Sequence[str]] = None,
    options: Any = None,
    path_target: Optional[str] = None,
) -> bytearray:
    """CUDA C compiled by nvcc to ptx, cubin or fatbin."""
    if target_format not in ("ptx", "cubin", "fatbin"):
        raise error.ArgumentError(f"compile_cuda: the format is ptx, cubin or fatbin, not '{target_format}'")
    temp = utils.tempdir()
    source, result = temp.relpath("my_kernel.cu"), path_target or temp.relpath(f"my_kernel.{target_format}")
    with open(source, "w", encoding="utf-8") as f:
        f.write(code)
    flags: List[str] = (
        [f"-arch={arch or 'sm_' + ''.join(get_target_compute_version().split('.'))}"]
        if not isinstance(arch, (list, tuple))
        else list(arch)
    )
    flags += [options] if isinstance(options, str) else list(options or [])
    done = subprocess.run(
        [_nvcc(), f"--{target_format}", "-O3", *flags, "-o", result, source],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise error.LatheError(f"nvcc could not compile the code:\n{done.stdout}{done.stderr}")
    with open(result, "rb") as f:
        return bytearray(f.read())


def find_libdevice_path(arch: Any = None) -> str:
    """The file of mathematical functions of the toolkit."""
    path = os.path.join(find_cuda_path(), "nvvm", "libdevice", "libdevice.10.bc")
    if not os.path.exists(path):
        raise error.UnsupportedError(f"libdevice is missing: there is no {path}")
    return path


def get_target_compute_version(target: Any = None) -> str:
    """The compute capability of a target ("8.6"), or of the device that is here."""
    from ..target import Target

    current = Target(target) if target is not None else Target.current()
    arch = re.search(r"sm_(\d+)", str(current or ""))
    if arch:
        return f"{int(arch[1]) // 10}.{int(arch[1]) % 10}"
    if cuda(0).exist and cuda(0).compute_version:
        return cuda(0).compute_version
    raise error.UnsupportedError(
        "the compute capability is not known: give -arch=sm_XX in the target; there is no CUDA device here to ask"
    )


def parse_compute_version(compute_version: str) -> Tuple[int, int]:
    """ "8.6" as (8, 6)."""
    major, _, minor = str(compute_version).partition(".")
    try:
        return int(major), int(minor or 0)
    except ValueError:
        raise error.ArgumentError(f"a compute capability is like 8.6, not '{compute_version}'") from None


def have_fp16(compute_version: str) -> bool:
    """Arithmetic of float16."""
    return parse_compute_version(compute_version) >= (5, 3)


def have_int8(compute_version: str) -> bool:
    """The dot product of bytes."""
    return parse_compute_version(compute_version) >= (6, 1)


def have_tensorcore(compute_version: Optional[str] = None, target: Any = None) -> bool:
    """Tensor cores."""
    return parse_compute_version(compute_version or get_target_compute_version(target)) >= (7, 0)


def have_bf16(compute_version: str) -> bool:
    """Arithmetic of bfloat16."""
    return parse_compute_version(compute_version) >= (8, 0)


def have_cudagraph() -> bool:
    """Graphs of launches: code of Lathe's makes none."""
    return False
