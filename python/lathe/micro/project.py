"""Bare-metal projects around a program ahead of time, for boards that QEMU has: build, size, run.

A project is a folder that needs the Arm GNU toolchain and make alone: the program, a main that runs it on the inputs
that were given and prints its outputs, start-up code, a linker script, a Makefile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from .. import error
from ..runtime.aot import AotExecutorFactoryModule

_TOOLS = "arm-none-eabi-"
_PACKAGES = "Debian: apt install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm"


class Board(NamedTuple):
    """A board: the machine in QEMU, its processors, where code and data lie."""

    machine: str
    cpus: str
    code: int
    data: int
    bytes: int


#: The boards by name.
BOARDS = {
    "mps2-an385": Board("mps2-an385", "cortex-m3 cortex-m0 cortex-m0plus", 0x00000000, 0x20000000, 4 << 20),
    "mps2-an386": Board("mps2-an386", "cortex-m4", 0x00000000, 0x20000000, 4 << 20),
    "mps2-an500": Board("mps2-an500", "cortex-m7", 0x00000000, 0x20000000, 4 << 20),
}

_FLAGS = {
    "cortex-m0": "-mthumb -mfloat-abi=soft",
    "cortex-m0plus": "-mthumb -mfloat-abi=soft",
    "cortex-m3": "-mthumb -mfloat-abi=soft",
    "cortex-m4": "-mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16",
    "cortex-m7": "-mthumb -mfloat-abi=hard -mfpu=fpv5-d16",
}

_LINK = """/* {board}: code and weights in the first memory, everything that is written in the second. */
ENTRY(reset)
MEMORY {{
  FLASH (rx) : ORIGIN = {code:#x}, LENGTH = {bytes}
  RAM (rwx) : ORIGIN = {data:#x}, LENGTH = {bytes}
}}
SECTIONS {{
  .text : {{ KEEP(*(.vectors)) *(.text*) *(.rodata*) }} > FLASH
  .ARM.exidx : {{ *(.ARM.exidx*) }} > FLASH
  .data : {{ data_start = .; *(.data*) . = ALIGN(4); data_end = .; }} > RAM AT > FLASH
  data_load = LOADADDR(.data);
  .bss : {{ bss_start = .; *(.bss*) *(COMMON) . = ALIGN(8); bss_end = .; }} > RAM
  end = .;
  stack_top = ORIGIN(RAM) + LENGTH(RAM);
}}
"""

_START = """/* From reset to main: the floating-point unit, data, zeros. */
#include <stdint.h>
#include <stdlib.h>

extern uint32_t stack_top, data_start, data_end, data_load, bss_start, bss_end;
extern void initialise_monitor_handles(void);
int main(void);

void reset(void)
{
#if defined(__ARM_FP)
  *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;
  __asm__ volatile("dsb\\nisb");
#endif
  for (uint32_t *to = &data_start, *from = &data_load; to < &data_end;) *to++ = *from++;
  for (uint32_t *to = &bss_start; to < &bss_end;) *to++ = 0;
  initialise_monitor_handles();
  exit(main());
}

static void stop(void) { exit(99); }

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
  &stack_top, (const void *)reset, (const void *)stop, (const void *)stop, (const void *)stop, (const void *)stop,
  (const void *)stop};
"""

_MAKE = """# {name} on {board} ({cpu})
CC = {tools}gcc
FLAGS = -mcpu={cpu} {flags} -O2 -fno-math-errno -ffp-contract=fast -ffunction-sections -fdata-sections -Wall -Wextra

{name}.elf: main.c start.c model/{name}.c model/{name}.h board.ld
	$(CC) $(FLAGS) -Imodel main.c start.c model/{name}.c -nostartfiles --specs=rdimon.specs -Wl,--gc-sections -T board.ld -lm -o $@

model.o: model/{name}.c model/{name}.h
	$(CC) $(FLAGS) -Imodel -fstack-usage -c model/{name}.c -o $@

run: {name}.elf
	qemu-system-arm -M {machine} -nographic -monitor none -serial null -semihosting-config enable=on,target=native -kernel {name}.elf
"""


def _c_array(kind: str, name: str, bytes_: bytes) -> str:
    numbers = ",".join(str(b) for b in bytes_) or "0"
    lines = re.sub(r"((?:\d+,){32})", r"\1\n  ", numbers)
    return f"{kind} union {{ unsigned char bytes[{max(len(bytes_), 1)}]; uint64_t align; }} {name} = {{{{\n  {lines}\n}}}};\n"


class Project:
    """A project on disk: build, size, run."""

    def __init__(self, folder: str, name: str, board: str, outputs: List[Dict[str, Any]]):
        self.folder, self.name, self.board, self._outputs = folder, name, board, outputs

    def _tool(self, name: str) -> str:
        if not shutil.which(name):
            raise error.UnsupportedError(f"the project needs '{name}', which is not there ({_PACKAGES})")
        return name

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise error.LatheError(
                f"{' '.join(command[:3])} failed with status {done.returncode}: {(done.stderr or done.stdout)[-600:]}"
            )
        return done.stdout

    def build(self, options: Any = None) -> str:
        """Compiles the project; the path of the program."""
        self._tool(_TOOLS + "gcc")
        self._run(self._tool("make"), "-s", f"{self.name}.elf")
        return os.path.join(self.folder, f"{self.name}.elf")

    def size(self) -> Dict[str, int]:
        """Bytes of the model alone: code, weights and other constants, and what is written; and of its stack."""
        self._run(self._tool("make"), "-s", "model.o")
        rows = self._run(self._tool(_TOOLS + "size"), "-A", "model.o").split("\n")
        sizes = {"text": 0, "rodata": 0, "data": 0, "bss": 0}
        for row in rows:
            words = row.split()
            for kind in sizes:
                if words and words[0].startswith(f".{kind}"):
                    sizes[kind] += int(words[1])
        usage = open(os.path.join(self.folder, "model.su"), encoding="utf-8").read()
        frames = {m[1]: int(m[2]) for m in re.finditer(r":(\w+)\t(\d+)", usage)}
        run = max((n for f, n in frames.items() if f.endswith("_run")), default=0)
        sizes["stack"] = run + max((n for f, n in frames.items() if not f.endswith("_run")), default=0)
        return sizes

    def run(self) -> List[np.ndarray]:
        """Builds the program, runs it in QEMU on the inputs that the project carries, and gives its outputs."""
        self.build()
        self._tool("qemu-system-arm")
        said = self._run("make", "-s", "run")
        found = dict(re.findall(r"^output (\d+) ([0-9a-f]*)$", said, re.M))
        out = []
        for i, port in enumerate(self._outputs):
            if str(i) not in found:
                raise error.LatheError(f"the program gave no output {i}; it said: {said[-400:]}")
            out.append(np.frombuffer(bytes.fromhex(found[str(i)]), port["dtype"]).reshape(port["shape"]))
        return out


def generate_project(lib: AotExecutorFactoryModule, project_dir: Any, board: str = "mps2-an386",
                     inputs: Optional[Dict[str, Any]] = None) -> Project:  # fmt: skip
    """Writes a bare-metal project for a board around a model that relay.build made with Executor("aot") for one of the
    board's processors.  inputs, by name, become part of the project (default: zeros)."""
    if not isinstance(lib, AotExecutorFactoryModule):
        raise error.TypeError('generate_project takes what relay.build(executor=Executor("aot")) gives')
    if board not in BOARDS:
        raise error.ArgumentError(f"there is no board '{board}'; there are {', '.join(BOARDS)}")
    entry, row = lib.report["entries"][0], BOARDS[board]
    cpu = re.search(r"-mcpu=(\S+)", lib.report["target"])
    if not cpu or cpu[1] not in row.cpus.split():
        raise error.ArgumentError(
            f"{board} has a {row.cpus.split()[0]}; the model was compiled for '{lib.report['target']}'"
        )
    if any("pool" in p for p in entry["inputs"] + entry["outputs"]) or len(lib.report["pools"]) > 1:
        raise error.UnsupportedError("generate_project: one pool, and inputs and outputs outside of it")
    folder, name = os.fspath(project_dir), re.sub("[^a-zA-Z0-9]", "_", lib.libmod_name)
    os.makedirs(os.path.join(folder, "model"), exist_ok=True)
    lib.export_library(os.path.join(folder, "model", f"{lib.libmod_name}.c"), weights="text")
    files = {
        "board.ld": _LINK.format(board=board, code=row.code, data=row.data, bytes=row.bytes),
        "start.c": _START,
        "Makefile": _MAKE.format(
            name=lib.libmod_name, board=board, cpu=cpu[1], flags=_FLAGS[cpu[1]], tools=_TOOLS, machine=row.machine
        ),
        "main.c": _main(lib, name, entry, inputs or {}),
    }
    for file, text in files.items():
        with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
            f.write(text)
    return Project(folder, lib.libmod_name, board, entry["outputs"])


def _main(lib: AotExecutorFactoryModule, name: str, entry: Dict[str, Any], inputs: Dict[str, Any]) -> str:
    known = [p["name"] for p in entry["inputs"]]
    for key in inputs:
        if key not in known:
            raise error.NotFoundError(f"there is no input '{key}'; there are {', '.join(known)}")
    text = f'/* Runs the model once on the inputs below and prints its outputs, byte by byte. */\n#include <stdio.h>\n#include "{lib.libmod_name}.h"\n\n'
    for i, port in enumerate(entry["inputs"]):
        value = np.ascontiguousarray(inputs.get(port["name"], np.zeros(port["shape"], port["dtype"])), port["dtype"])
        if value.nbytes != port["bytes"]:
            raise error.ArgumentError(
                f"input '{port['name']}' takes {port['dtype']} {tuple(port['shape'])}, not {value.dtype} {value.shape}"
            )
        text += _c_array("static const", f"input{i}", value.tobytes())
    for i, port in enumerate(entry["outputs"]):
        text += f"static union {{ unsigned char bytes[{max(port['bytes'], 1)}]; uint64_t align; }} output{i};\n"
    text += f"static uint64_t workspace[{name.upper()}_WORKSPACE_BYTES / 8 + 1];\n\n"
    text += 'static void print(int number, const unsigned char *bytes, int n)\n{\n  printf("output %d ", number);\n'
    text += '  for (int i = 0; i < n; i++) printf("%02x", bytes[i]);\n  printf("\\n");\n}\n\nint main(void)\n{\n'
    args = [f"(const void *)input{i}.bytes" for i in range(len(entry["inputs"]))]
    args += [f"(void *)output{i}.bytes" for i in range(len(entry["outputs"]))]
    text += f"  {name}_run({', '.join([*args, 'workspace'])});\n"
    for i, port in enumerate(entry["outputs"]):
        text += f"  print({i}, output{i}.bytes, {port['bytes']});\n"
    return text + "  return 0;\n}\n"


__all__ = ["BOARDS", "Board", "Project", "generate_project"]
