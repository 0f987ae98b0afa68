#!/usr/bin/env python3
"""Checks that no folder of src/ includes a folder that stands below it in src/LAYERS, that the
compiler knows nothing of the runtime but the form of its files, and that the runtime includes
nothing of the compiler."""
import os.path
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FORMAT = "model_format.h"      # of compiled models: the compiler writes what the runtime reads
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def layers(root: pathlib.Path = ROOT) -> dict:
    """Each layer of src/LAYERS, lowest first, with the words behind its name."""
    text = re.sub(r"\n\s+", " ", re.sub(r"^#.*\n", "", (root / "src/LAYERS").read_text(), flags=re.M))
    rows = [line.split(":", 1) for line in text.strip().split("\n")]
    return {name.strip(): words.split() for name, words in rows}


def included(here: pathlib.Path, name: str) -> pathlib.Path:
    """What an include means, as a path from the root: beside the file where it says so, else in src/."""
    start = here.parent if name.startswith(".") else pathlib.Path("src")
    return pathlib.Path(os.path.normpath(start / name))


def violations(root: pathlib.Path = ROOT) -> list:
    rank = {name: i for i, name in enumerate(layers(root))}
    found = []
    for path in sorted([*root.glob("src/**/*.[ch]"), *root.glob("src/**/*.def")]):
        here, text = path.relative_to(root), path.read_text(errors="replace")
        folder = here.parts[1]
        if folder not in rank:
            found.append(f"{here}: folder '{folder}' is not in src/LAYERS")
            continue
        for name in INCLUDE.findall(text):
            other = included(here, name)
            if other.parts[0] == "src" and len(other.parts) > 2 and rank.get(other.parts[1], 0) > rank[folder]:
                found.append(f"{here}: includes \"{name}\", which stands above '{folder}'")
            if other.parts[0] == "runtime" and other.name != FORMAT and not path.name.startswith(("test_", "fuzz_")):
                found.append(f"{here}: includes \"{name}\"; of the runtime it may see {FORMAT} alone")
            if name.startswith("llvm-c"):
                found.append(f"{here}: include LLVM with <>, in src/codegen/llvm*.c alone")
        if "<llvm-c/" in text and not path.name.startswith("llvm"):
            found.append(f"{here}: only src/codegen/llvm*.c includes LLVM")
    for path in sorted(root.glob("runtime/*.[ch]")):
        for name in INCLUDE.findall(path.read_text(errors="replace")):
            if "/" in name or (name != "lathe_rt.h" and not (root / "runtime" / name).exists()):
                found.append(f"{path.relative_to(root)}: includes \"{name}\"; the runtime sees lathe_rt.h alone")
    return found


if __name__ == "__main__":
    problems = violations()
    print("\n".join(problems) or "layers: no upward includes")
    sys.exit(bool(problems))
