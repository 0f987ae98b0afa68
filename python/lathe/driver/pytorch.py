"""`lathe compile net.pt2`: PyTorch's files compiled through the Python package.

The command line of `lathe compile` is handed over as it is: MODEL -o OUTPUT, with --target, --opt-level, --shape,
--required-pass and --disabled-pass.  .pt2 is what torch.export.save writes; .pt and .pth hold TorchScript modules,
whose inputs --shape must name, in order."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Dict, List, Optional, Tuple

from .. import error

ENDS = (".pt2", ".pt", ".pth")


def load(path: str, shapes: Optional[Dict[str, Any]] = None) -> Tuple[Any, Dict[str, Any]]:
    """A module and its parameters from a file of PyTorch's."""
    from ..relay import frontend
    from ..relay.frontend.pytorch.exported import check_version

    check_version()
    import torch

    try:
        if path.lower().endswith(".pt2"):
            return frontend.from_pytorch(torch.export.load(path), list(shapes) if shapes else None)
        module = torch.jit.load(path, map_location="cpu").eval()
    except (RuntimeError, ValueError, OSError) as e:
        if isinstance(e, error.LatheError):
            raise
        raise error.IOError(
            f"PyTorch cannot read '{path}': {str(e).strip().splitlines()[0] if str(e) else type(e).__name__}"
        ) from None
    if not shapes:
        raise error.ArgumentError(
            f"'{path}' holds a TorchScript module: give the shape of each of its inputs, in order "
            "(--shape x=1,3,224,224)"
        )
    return frontend.from_pytorch(module, [(name, dims) for name, dims in shapes.items()])


def _shapes(given: List[str]) -> Dict[str, Any]:
    made: Dict[str, Any] = {}
    for text in given:
        name, _, dims = text.partition("=")
        made[name] = tuple(int(d) if d.strip().isdigit() else None for d in dims.split(",")) if dims else ()
    return made


def main(args: Optional[List[str]] = None) -> int:
    """Compiles one file."""
    from .. import relay, transform

    parser = argparse.ArgumentParser(
        prog="lathe compile", description="Compiles a model of PyTorch into one file that runs."
    )
    parser.add_argument(
        "model", metavar="MODEL", help="what torch.export.save wrote (.pt2), or a TorchScript module (.pt)"
    )
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--target", default="llvm -mcpu=native")
    parser.add_argument("--shape", action="append", default=[], help="NAME=SIZES: the inputs of a TorchScript module")
    parser.add_argument("--opt-level", type=int, default=3)
    parser.add_argument("--required-pass", action="append", default=[])
    parser.add_argument("--disabled-pass", action="append", default=[])
    o = parser.parse_args(args)
    listed = [[p for text in given for p in text.split(",") if p] for given in (o.required_pass, o.disabled_pass)]
    try:
        mod, params = load(o.model, _shapes(o.shape))
        with transform.PassContext(opt_level=o.opt_level, required_pass=listed[0], disabled_pass=listed[1]):
            lib = relay.build(mod, o.target, params=params)
        lib.export_library(o.output)
    except error.LatheError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
