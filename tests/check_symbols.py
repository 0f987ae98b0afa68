#!/usr/bin/env python3
"""Checks that every symbol that an object of a build folder defines for others carries a word of its
layer, as src/LAYERS lists them, so that a name says where to look, and that somebody uses it.

    tests/check_symbols.py BUILD"""
import collections
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_layers  # noqa: E402

RUNTIME = ["rt_", "lathe_rt_"]     # runtime/ is no layer: it ships alone


def owners() -> dict:
    """Each word with its layer."""
    found = {}
    for layer, words in {**check_layers.layers(), "runtime": RUNTIME}.items():
        for word in words:
            if word in found:
                raise ValueError(f"src/LAYERS: both '{found[word]}' and '{layer}' have '{word}'")
            found[word] = layer
    return found


def owner(symbol: str, words: dict) -> str:
    """The layer that a name belongs to; "" if it belongs to none."""
    if symbol in words and not symbol.endswith("_"):
        return words[symbol]
    begins = [word for word in words if word.endswith("_") and symbol.startswith(word)]
    ends = [word for word in words if word.startswith("*") and symbol.endswith(word[1:])]
    fits = begins or ends
    return words[max(fits, key=len)] if fits else ""


def objects(folder: pathlib.Path) -> list:
    """The objects of a folder whose source is still there; others are left from before it went."""
    root = pathlib.Path(__file__).resolve().parent.parent
    return [str(path) for path in sorted(folder.rglob("*.o"))
            if (root / str(path).split(".dir/", 1)[-1]).with_suffix("").exists()]


def defined(folder: pathlib.Path):
    """(object, symbol) for what the objects of a folder define for others."""
    there = objects(folder)
    if not there:
        return
    listing = subprocess.run(["nm", "-A", "-g", "--defined-only", *there], check=True, text=True, capture_output=True)
    for line in listing.stdout.splitlines():
        path, entry = line.rsplit(":", 1)
        symbol = entry.split()[-1]
        if not symbol.startswith("__"):     # the compiler's own
            yield pathlib.Path(path).relative_to(folder), symbol


def mentioned() -> collections.Counter:
    """How often each word stands in the C sources and tables, headers left out."""
    root = pathlib.Path(__file__).resolve().parent.parent
    found = collections.Counter()
    for folder in ("src", "runtime", "tests", "examples", "bench"):
        for path in (root / folder).rglob("*"):
            if path.suffix in (".c", ".def", ".py"):
                found.update(re.findall(r"\w+", path.read_text()))
    return found


def wanted(build: pathlib.Path) -> set:
    """What some object of the build takes from another."""
    listing = subprocess.run(["nm", "-u", *objects(build)], check=True, text=True, capture_output=True)
    return {line.split()[-1] for line in listing.stdout.splitlines() if line.startswith(" ")}


PUBLIC = ("lathe_", "sched_")     # users call the ones, the others are the primitives' face in C


def violations(build: pathlib.Path) -> list:
    words = owners()
    times, taken = mentioned(), wanted(build)
    folders = {layer: f"layer_{layer}.dir" for layer in check_layers.layers()}
    folders.update(cli="lathe_cli.dir", runtime="runtime_static.dir")
    found = []
    for layer, name in folders.items():
        symbols = list(defined(build / "CMakeFiles" / name))
        if not symbols:
            found.append(f"{build}/CMakeFiles/{name}: no object that defines a symbol")
        for path, symbol in symbols:
            if times[symbol] == 1 and symbol not in taken and not symbol.startswith(PUBLIC) and symbol.islower():
                found.append(f"{path}: '{symbol}' is used by nobody")
            other = owner(symbol, words)
            if other != layer:
                whose = f"is a name of '{other}'" if other else "has no layer's prefix"
                found.append(f"{path}: '{symbol}' {whose}; the words of '{layer}' stand in src/LAYERS")
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n")[-1].strip())
    problems = violations(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(problems) or "symbols: each carries its layer's prefix and is used")
    sys.exit(bool(problems))
