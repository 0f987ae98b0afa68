#!/usr/bin/env python3
"""The inner loops of a compiled model, judged without running them.

    lathe compile net.onnx -o net.so --target "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
    bench/inner_loops.py net.so --cpu neoverse-n1 [--least 12] [--json]

Disassembles the file (llvm-objdump), finds the loops that have no loop inside and at least so many
multiply-adds, and asks llvm-mca how many cycles a step takes on the processor, all data in the
first-level cache.  Prints for each: multiply-adds a cycle, dot products of bytes and of bfloat16 among them, and
products a cycle, of which an instruction makes several; loads and stores for each multiply-add, accesses to the stack
(spills, or a small workspace that lies there)."""
import argparse
import collections
import json
import re
import shutil
import subprocess
import sys

BRANCH = {
    "aarch64": re.compile(r"^(?:b|b\.\w+|cbn?z|tbn?z)\s+(?:.*,\s*)?0x([0-9a-f]+)"),
    "x86_64": re.compile(r"^j\w+\s+0x([0-9a-f]+)"),
}
FMA = {
    "aarch64": re.compile(r"^(?:fml[as]|(?:us|su|s|u|bf)dot|(?:us|s|u|bf)mmla)\s+v"),
    "x86_64": re.compile(r"^(?:vfn?m(?:add|sub)\w*p[sd]|vpdpbusds?|vdpbf16ps|tdp\w+)\s"),
}
# Products that an instruction makes for each 32 bits of its sums; the others one.
GROUP = {"sdot": 4, "udot": 4, "usdot": 4, "sudot": 4, "smmla": 8, "ummla": 8, "usmmla": 8, "bfdot": 2, "bfmmla": 4,
         "vpdpbusd": 4, "vpdpbusds": 4, "vdpbf16ps": 2}  # fmt: skip
TILES = {"tdpbssd": 16384, "tdpbsud": 16384, "tdpbusd": 16384, "tdpbuud": 16384, "tdpbf16ps": 8192}
MEMORY = {"aarch64": re.compile(r"^(?:ld|st)"), "x86_64": re.compile(r"^(?!lea|prefetch|nop).*\(")}
STACK = {"aarch64": re.compile(r"\[(?:sp|x29)\b"), "x86_64": re.compile(r"\(%r[sb]p")}


def tool(name):
    found = [name + end for end in ("-22", "-21", "-20", "-19", "-18", "-17", "") if shutil.which(name + end)]
    if not found:
        sys.exit(f"error: {name} is not installed; it comes with LLVM")
    return found[0]


def functions(path):
    """Name -> [(address, instruction)], and the architecture."""
    text = subprocess.run(
        [tool("llvm-objdump"), "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    arch = "aarch64" if "aarch64" in text[:400] else "x86_64"
    out, here = collections.OrderedDict(), None
    for line in text.split("\n"):
        head = re.match(r"^[0-9a-f]+ <(.+)>:$", line)
        code = re.match(r"^\s*([0-9a-f]+):\s+(.*)$", line)
        if head:
            here = out.setdefault(head.group(1), [])
        elif code and here is not None:
            here.append((int(code.group(1), 16), code.group(2).strip()))
    return out, arch


def products(text):
    """That an instruction multiplies and adds."""
    name = text.split()[0]
    if name in TILES:
        return TILES[name]
    if name.startswith("v"):
        bits = 512 if "%zmm" in text else 256 if "%ymm" in text else 128
        return bits // (64 if name.endswith("pd") else 32) * GROUP.get(name, 1)
    lanes = re.search(r"v\d+\.(\d+)[sdh]", text)
    return (int(lanes.group(1)) if lanes else 1) * GROUP.get(name, 1)


def inner_loops(code, arch):
    at = {address: i for i, (address, _) in enumerate(code)}
    back = []
    for i, (_, text) in enumerate(code):
        to = BRANCH[arch].match(text)
        target = at.get(int(to.group(1), 16)) if to else None
        if target is not None and target <= i:
            back.append((target, i))
    for begin, end in back:
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in back):
            yield [text for _, text in code[begin:end + 1]]


def plain(text, arch):
    """An instruction as the assembler takes it: no comment, jumps to one label."""
    text = re.sub(r"\s*//.*$" if arch == "aarch64" else r"\s+#.*$", "", re.sub(r"<[^>]*>", "", text)).strip()
    return text[:text.rindex("0x")] + ".Lhere" if BRANCH[arch].match(text) else text


def cycles(loops, arch, cpu):
    lines = [".text", ".Lhere:"]
    for i, (_, body) in enumerate(loops):
        lines += [f"# LLVM-MCA-BEGIN r{i}", *(plain(t, arch) for t in body), f"# LLVM-MCA-END r{i}"]
    command = [
        tool("llvm-mca"),
        "-mtriple=" + arch,
        "-mcpu=" + cpu,
        "-json",
        "-iterations=50",
        "-instruction-info=false",
        "-resource-pressure=false",
    ]
    run = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    if run.returncode:
        sys.exit("error: llvm-mca: " + run.stderr[:500])
    views = {r["Name"]: r["SummaryView"] for r in json.loads(run.stdout)["CodeRegions"] if r["Name"]}
    return [views[f"r{i}"]["TotalCycles"] / views[f"r{i}"]["Iterations"] for i in range(len(loops))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--cpu", required=True, help="LLVM's name, as in -mcpu")
    parser.add_argument("--least", type=int, default=12, help="multiply-adds that a loop has at least (default 12)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    names, arch = functions(args.file)
    loops = [
        (name, body)
        for name, code in names.items()
        for body in inner_loops(code, arch)
        if sum(bool(FMA[arch].match(t)) for t in body) >= args.least
    ]
    rows = []
    for (name, body), took in zip(loops, cycles(loops, arch, args.cpu) if loops else []):
        adds = [t for t in body if FMA[arch].match(t)]
        fma = len(adds)
        memory = sum(bool(MEMORY[arch].match(t)) for t in body)
        stack = sum(bool(MEMORY[arch].match(t) and STACK[arch].search(t)) for t in body)
        rows.append(
            {
                "kernel": re.sub(r"__body\d+$", "", name),
                "fma": fma,
                "cycles": round(took, 1),
                "fma_per_cycle": round(fma / took, 2),
                "products_per_cycle": round(sum(map(products, adds)) / took, 1),
                "instruction": collections.Counter(t.split()[0] for t in adds).most_common(1)[0][0],
                "memory_per_fma": round(memory / fma, 2),
                "stack": stack,
                "instructions": len(body),
            }
        )
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    for r in rows:
        print(
            f"{r['fma_per_cycle']:5.2f} a cycle  {r['fma']:4} {r['instruction']:8} in {r['cycles']:6.1f}, "
            f"{r['products_per_cycle']:5} products  memory {r['memory_per_fma']:.2f}  stack {r['stack']:3}  "
            f"{r['kernel']}"
        )


if __name__ == "__main__":
    main()
