"""What an ELF file asks of the machine that loads it: libraries, search path, symbol versions."""

import struct
from typing import Dict, List, NamedTuple

_LOAD, _DYNAMIC = 1, 2  # program headers
_NEEDED, _STRTAB, _RPATH, _RUNPATH, _VERNEED, _VERNEEDNUM = 1, 5, 15, 29, 0x6FFFFFFE, 0x6FFFFFFF
_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}


class Needs(NamedTuple):
    """What a file needs."""

    machine: str
    libraries: List[str]
    search_path: List[str]
    versions: List[str]  # "GLIBC_2.17", …


def needs(data: bytes) -> Needs:
    """Reads the dynamic section of a 64-bit little-endian file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    machine, = struct.unpack_from("<H", data, 18)
    start, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    # type, flags, offset, address, -, bytes
    headers = [struct.unpack_from("<IIQQQQ", data, start + i * size) for i in range(count)]

    def at(address: int) -> int:
        for kind, _, offset, base, _, length in headers:
            if kind == _LOAD and base <= address < base + length:
                return offset + address - base
        raise ValueError(f"no part of the file is loaded at {address:#x}")

    entries: Dict[int, List[int]] = {}
    for kind, _, offset, _, _, length in headers:
        if kind == _DYNAMIC:
            for tag, value in struct.iter_unpack("<qQ", data[offset : offset + length]):
                entries.setdefault(tag, []).append(value)
    strings = at(entries[_STRTAB][0]) if _STRTAB in entries else 0

    def text(offset: int) -> str:
        return data[strings + offset : data.index(b"\0", strings + offset)].decode()

    paths = [text(v) for tag in (_RPATH, _RUNPATH) for v in entries.get(tag, [])]
    versions = []
    need = at(entries[_VERNEED][0]) if _VERNEED in entries else 0
    for _ in range(entries.get(_VERNEEDNUM, [0])[0]):
        _, n, _, aux, following = struct.unpack_from("<HHIII", data, need)
        aux += need
        for _ in range(n):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, aux)
            versions.append(text(name))
            aux += step
        need += following
    libraries = [text(v) for v in entries.get(_NEEDED, [])]
    folders = [folder for path in paths for folder in path.split(":")]
    return Needs(_MACHINES.get(machine, f"machine{machine}"), libraries, folders, versions)
