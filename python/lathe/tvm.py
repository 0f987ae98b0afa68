"""Runs programs that were written for TVM, and says what of TVM they use that is not there.

    python -m lathe.tvm script.py [arguments]     runs a script; its `import tvm` means Lathe
    python -m lathe.tvm -m module [arguments]     the same for a module, such as pytest
    python -m lathe.tvm --scan FILE…              lists names and arguments of TVM that Lathe does not have

The scan reads scripts, notebooks (.ipynb) and folders, and runs nothing of them; its status is 1 if something is
missing."""

from __future__ import annotations

import os
import runpy
import sys
from typing import List, Optional


def scan(paths: List[str]) -> int:
    """Prints what the programs use that is not there; 1 if there is such a thing."""
    from .compat import scan as scanner

    if not paths:
        print("--scan wants files or folders", file=sys.stderr)
        return 2
    files, missing = 0, []
    try:
        for path in scanner.programs(paths):
            files += 1
            missing += scanner.missing_in_file(path)
    except (OSError, SyntaxError, ValueError) as e:
        print(f"the scan stopped: {e}", file=sys.stderr)
        return 2
    for m in missing:
        print(f"{m.where}: {m.what}")
    names = len({m.what for m in missing})
    print(
        f"{files} files, {len(missing)} uses of {names} things that are not there"
        if missing
        else f"{files} files, nothing is missing"
    )
    return 1 if missing else 0


def main(argv: Optional[List[str]] = None) -> int:
    """The command line."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(__doc__, file=sys.stderr if not args else sys.stdout)
        return 0 if args else 2
    if args[0] == "--scan":
        return scan(args[1:])
    module = args[0] == "-m"
    if module and len(args) == 1 or args[0].startswith("-") and not module:
        print(f"wants a script, -m MODULE or --scan FILE…, not '{args[0]}'; --help says more", file=sys.stderr)
        return 2
    from .compat import tvm  # noqa: F401  (from here on, `import tvm` means Lathe)

    # Tests of TVM's users rely on its pytest plugin, which worker processes of pytest find by the environment.
    plugins = [p for p in os.environ.get("PYTEST_PLUGINS", "").split(",") if p]
    os.environ["PYTEST_PLUGINS"] = ",".join(dict.fromkeys([*plugins, "lathe.compat.pytest_plugin"]))
    if module:
        sys.argv = args[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
        return 0
    if not os.path.isfile(args[0]):
        print(f"there is no file '{args[0]}'", file=sys.stderr)
        return 2
    sys.argv = args
    sys.path.insert(0, os.path.dirname(os.path.abspath(args[0])))
    runpy.run_path(args[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
