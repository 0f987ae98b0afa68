"""Tags: targets by the name of a product.

>>> Target("nvidia/nvidia-a100")
>>> register_tag("us/board", {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"})"""

from __future__ import annotations

from typing import Any, Dict, Optional


def _gpu(arch: str, host: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    out: Dict[str, Any] = {
        "kind": "cuda",
        "arch": arch,
        "max_shared_memory_per_block": 49152,
        "max_threads_per_block": 1024,
        "thread_warp_size": 32,
        "registers_per_block": 65536,
    }
    return {**out, "host": host} if host else out


def _cpu(cpu: str, cores: int) -> Dict[str, Any]:
    return {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu, "num-cores": cores}


def _arm(cpu: str, cores: int) -> Dict[str, Any]:
    return {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": cpu, "num-cores": cores}


#: Compute capabilities of NVIDIA's products, as NVIDIA lists them.
_NVIDIA = {
    "sm_90": "nvidia-h100",
    "sm_80": "nvidia-a100 nvidia-a30",
    "sm_86": "nvidia-a40 nvidia-a10 nvidia-a16 nvidia-a2 rtx-a6000 rtx-a5000 rtx-a4000 geforce-rtx-3090-ti "
    "geforce-rtx-3090 geforce-rtx-3080-ti geforce-rtx-3080 geforce-rtx-3070-ti geforce-rtx-3070 geforce-rtx-3060-ti "
    "geforce-rtx-3060",
    "sm_89": "rtx-6000-ada geforce-rtx-4090 geforce-rtx-4080 geforce-rtx-4070-ti nvidia-l4 nvidia-l40",
    "sm_75": "nvidia-t4 quadro-rtx-8000 quadro-rtx-6000 quadro-rtx-5000 quadro-rtx-4000 titan-rtx geforce-rtx-2080-ti "
    "geforce-rtx-2080 geforce-rtx-2070 geforce-rtx-2060 geforce-gtx-1660-ti geforce-gtx-1650",
    "sm_70": "nvidia-v100 quadro-gv100 nvidia-titan-v",
    "sm_61": "tesla-p40 tesla-p4 nvidia-titan-x nvidia-titan-xp geforce-gtx-1080-ti geforce-gtx-1080 "
    "geforce-gtx-1070 geforce-gtx-1060 geforce-gtx-1050-ti",
    "sm_60": "tesla-p100",
    "sm_52": "geforce-gtx-980-ti geforce-gtx-980 geforce-gtx-970 tesla-m40 tesla-m60",
    "sm_37": "tesla-k80",
}

#: Cores of a machine of a size.
_C5_SKYLAKE = {"large": 1, "xlarge": 2, "2xlarge": 4, "4xlarge": 8}
_C5_CASCADE_LAKE = {"9xlarge": 18, "12xlarge": 24, "18xlarge": 36, "24xlarge": 48}

_tags: Dict[str, Dict[str, Any]] = {
    **{f"nvidia/{name}": _gpu(arch) for arch, names in _NVIDIA.items() for name in names.split()},
    "nvidia/jetson-nano": _gpu("sm_53", _arm("cortex-a57", 4)),
    "nvidia/jetson-tx2": _gpu("sm_62", _arm("cortex-a57", 4)),
    "nvidia/jetson-agx-xavier": _gpu("sm_72", _arm("generic", 8)),
    "nvidia/jetson-agx-orin-32gb": _gpu("sm_87", _arm("cortex-a78", 12)),
    "nvidia/jetson-agx-orin-64gb": _gpu("sm_87", _arm("cortex-a78", 12)),
    "raspberry-pi/3b-aarch64": _arm("cortex-a53", 4),
    "raspberry-pi/4b-aarch64": _arm("cortex-a72", 4),
    **{f"aws/cpu/c5.{size}": _cpu("skylake-avx512", n) for size, n in _C5_SKYLAKE.items()},
    **{f"aws/cpu/c5.{size}": _cpu("cascadelake", n) for size, n in _C5_CASCADE_LAKE.items()},
}


def find(name: str) -> Optional[Dict[str, Any]]:
    """What a tag stands for; None for a name that is no tag."""
    found = _tags.get(name)
    return dict(found) if found is not None else None
