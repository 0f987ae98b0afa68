#!/usr/bin/env python3
"""Checks that no folder of src/ includes a folder that stands below it in src/LAYERS,
and that the runtime includes nothing of the compiler."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def layers(root: pathlib.Path = ROOT) -> dict:
    """Each layer of src/LAYERS, lowest first, with the words behind its name."""
    text = re.sub(r"\n\s+", " ", re.sub(r"^#.*\n", "", (root / "src/LAYERS").read_text(), flags=re.M))
    rows = [line.split(":", 1) for line in text.strip().split("\n")]
    return {name.strip(): words.split() for name, words in rows}


def violations(root: pathlib.Path = ROOT) -> list:
    rank = {name: i for i, name in enumerate(layers(root))}
    found = []
    for path in sorted([*root.glob("src/**/*.[ch]"), *root.glob("src/**/*.def")]):
        folder = path.relative_to(root / "src").parts[0]
        if folder not in rank:
            found.append(f"{path.relative_to(root)}: folder '{folder}' is not in src/LAYERS")
            continue
        for name in INCLUDE.findall(path.read_text(errors="replace")):
            other = name.split("/")[0]
            if "/" in name and other in rank and rank[other] > rank[folder]:
                found.append(f"{path.relative_to(root)}: includes \"{name}\", which stands above '{folder}'")
            if name == "llvm-c" or name.startswith("llvm-c/"):
                found.append(f"{path.relative_to(root)}: include LLVM with <>, in src/codegen/llvm*.c alone")
        if "<llvm-c/" in path.read_text(errors="replace") and not path.name.startswith("llvm"):
            found.append(f"{path.relative_to(root)}: only src/codegen/llvm*.c includes LLVM")
    for path in sorted(root.glob("runtime/*.[ch]")):
        for name in INCLUDE.findall(path.read_text(errors="replace")):
            if "/" in name or (name != "lathe_rt.h" and not (root / "runtime" / name).exists()):
                found.append(f"{path.relative_to(root)}: includes \"{name}\"; the runtime sees lathe_rt.h alone")
    return found


if __name__ == "__main__":
    problems = violations()
    print("\n".join(problems) or "layers: no upward includes")
    sys.exit(bool(problems))
