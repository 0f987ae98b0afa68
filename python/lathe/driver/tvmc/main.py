"""The program: `python -m lathe.driver.tvmc compile|run|tune …` with TVM's options."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from ... import error
from ..._ffi import library
from .autotuner import tune_model
from .compiler import compile_model
from .frontends import FORMATS, load_model
from .model import TVMCPackage
from .refused import micro
from .runner import FILL_MODES, run_module, top_results


def parse_shape_string(text: str) -> Dict[str, List[int]]:
    """Sizes of inputs: "data:[1,3,224,224] mask:[1,-1]"; -1 stays open."""
    found = re.findall(r"([^\s\[\],]+?)\s*:\s*\[([^\]]*)\]", text)
    rest = re.sub(r"[^\s\[\],]+?\s*:\s*\[[^\]]*\]", "", text).strip(" ,")
    try:
        shapes = {name: [int(d) for d in dims.split(",") if d.strip()] for name, dims in found}
    except ValueError:
        shapes = {}
    if not shapes or rest:
        raise error.ArgumentError(f'shapes are written as "name:[1,3,224,224] other:[1,-1]", not "{text}"')
    return shapes


def _target_options(words: List[str]) -> Tuple[Dict[str, Dict[str, Any]], List[str]]:
    """Options of the form --target-KIND-NAME VALUE, and the words that are none."""
    out: Dict[str, Dict[str, Any]] = {}
    rest, words = [], list(words)
    while words:
        word = words.pop(0)
        found = re.fullmatch(r"--target-([a-z]+)-([\w-]+)(?:=(.*))?", word)
        if not found:
            rest.append(word)
            continue
        value = found[3] if found[3] is not None else words.pop(0) if words else ""
        out.setdefault(found[1], {})[found[2]] = value
    return out, rest


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="tvmc",
        description="TVM's driver, by Lathe.",
        epilog="micro is not supported; 'lathe --help' shows Lathe's own program",
    )
    p.add_argument("-v", "--verbose", action="count", default=0, help="show where an error comes from")
    p.add_argument("--version", action="store_true", help="print the version")
    commands = p.add_subparsers(dest="command")
    c = commands.add_parser("compile", help="compile a model into a package")
    c.add_argument("FILE", help=f"the model ({', '.join(FORMATS)})")
    c.add_argument("--target", help="as TVM writes it; --target-KIND-NAME VALUE adds options", required=True)
    c.add_argument("-o", "--output", default="module.tar", help="the package (default: module.tar)")
    c.add_argument(
        "-f", "--output-format", choices=["so", "tar", "mlf"], default="so", help="what is in it: a library, or objects"
    )
    c.add_argument("--model-format", help="the format, where the file's name does not tell")
    c.add_argument("--input-shapes", type=parse_shape_string, help='"name:[1,3,224,224] …"')
    c.add_argument("-O", "--opt-level", type=int, choices=range(5), default=3, help="0 to 4 (default 3)")
    c.add_argument("--executor", default="graph", help="graph or vm: both give the same library")
    c.add_argument("--runtime", default="cpp", help="cpp")
    c.add_argument("--module-name", default="default", help="the name of the function of the library")
    c.add_argument("--cross-compiler", default="", help="the compiler that links the library")
    c.add_argument("--cross-compiler-options", default="", help="options for it")
    c.add_argument("--desired-layout", nargs="+", help="layouts such as NHWC or NHWC:HWIO")
    c.add_argument("--desired-layout-ops", nargs="+", help="the operators that they are for")
    c.add_argument("--mixed-precision", action="store_true", help="compute in a narrower type of floats")
    c.add_argument("--mixed-precision-calculation-type", default="float16", help="which (default: float16)")
    c.add_argument("--dump-code", default="", help="texts to write beside: relay,ll,asm,c")
    c.add_argument(
        "--pass-config", action="append", default=[], metavar="KEY=VALUE", help="a setting of the passes (repeat)"
    )
    c.add_argument("--disabled-pass", default="", help="passes to leave out")
    c.add_argument("--tuning-records", default="", help="what 'tune' wrote: kernels that were measured to be faster")
    c.add_argument("--use-vm", action="store_true", help="changes nothing: one executor runs every model")
    r = commands.add_parser("run", help="run a package")
    r.add_argument("PATH", help="the package")
    r.add_argument("-i", "--inputs", help="a .npz file with inputs by name")
    r.add_argument("-o", "--outputs", help="a .npz file for the outputs")
    r.add_argument("--device", default="cpu", help="cpu")
    r.add_argument("--fill-mode", choices=FILL_MODES, default="random", help="inputs that are not given")
    r.add_argument("--print-time", action="store_true", help="measure, and print the times")
    r.add_argument("--print-top", metavar="N", type=int, help="print the N largest elements of the first output")
    r.add_argument("--profile", action="store_true", help="print the time of each kernel")
    r.add_argument("--end-to-end", action="store_true", help="measure with the copies of inputs and outputs")
    r.add_argument("--repeat", metavar="N", type=int, default=1, help="rounds of a measurement")
    r.add_argument("--number", metavar="N", type=int, default=1, help="runs of each round")
    r.add_argument("--rpc-tracker", help="not supported")
    r.add_argument("--rpc-key", help="not supported")
    t = commands.add_parser("tune", help="measure other ways to compute a model's kernels")
    t.add_argument("FILE", help=f"the model ({', '.join(FORMATS)})")
    t.add_argument("--target", help="as TVM writes it; --target-KIND-NAME VALUE adds options", required=True)
    t.add_argument("-o", "--output", required=True, help="the records")
    t.add_argument("--model-format", help="the format, where the file's name does not tell")
    t.add_argument("--input-shapes", type=parse_shape_string, help='"name:[1,3,224,224] …"')
    t.add_argument("--tuning-records", help="records of an earlier run, which are not measured again")
    t.add_argument("--trials", type=int, default=1000, help="measurements at most (default 1000)")
    t.add_argument("--desired-layout", nargs="+", help="layouts such as NHWC or NHWC:HWIO")
    t.add_argument("--desired-layout-ops", nargs="+", help="the operators that they are for")
    for name in ("--early-stopping", "--min-repeat-ms", "--number", "--parallel", "--repeat", "--timeout"):
        t.add_argument(name, type=int, help="changes nothing: how it is measured is Lathe's own")
    t.add_argument("--tuner", help="changes nothing")
    t.add_argument("--enable-autoscheduler", action="store_true", help="changes nothing")
    t.add_argument("--rpc-tracker", help="not supported")
    t.add_argument("--rpc-key", help="not supported")
    commands.add_parser("micro", help="not supported", add_help=False)
    return p


def drive_compile(args: argparse.Namespace, target_options: Dict[str, Dict[str, Any]]) -> None:
    """tvmc compile."""
    from ...relay.backend import Executor, Runtime

    model = load_model(args.FILE, args.model_format, args.input_shapes)
    compile_model(
        model,
        args.target,
        args.opt_level,
        Executor(args.executor),
        Runtime(args.runtime),
        args.tuning_records,
        args.output,
        args.cross_compiler,
        args.cross_compiler_options,
        args.output_format,
        args.dump_code,
        disabled_pass=args.disabled_pass,
        pass_context_configs=args.pass_config,
        additional_target_options=target_options,
        use_vm=args.use_vm,
        mod_name=args.module_name,
        desired_layout=args.desired_layout,
        desired_layout_ops=args.desired_layout_ops,
        mixed_precision=args.mixed_precision,
        mixed_precision_calculation_type=args.mixed_precision_calculation_type,
    )


def drive_tune(args: argparse.Namespace, target_options: Dict[str, Dict[str, Any]]) -> None:
    """tvmc tune."""
    tune_model(
        load_model(args.FILE, args.model_format, args.input_shapes),
        args.target,
        args.output,
        args.tuning_records,
        rpc_key=args.rpc_key,
        hostname=args.rpc_tracker,
        trials=args.trials,
        additional_target_options=target_options,
        desired_layout=args.desired_layout,
        desired_layout_ops=args.desired_layout_ops,
    )


def drive_run(args: argparse.Namespace) -> None:
    """tvmc run."""
    inputs = None
    if args.inputs:
        try:
            with np.load(args.inputs) as file:
                inputs = dict(file)
        except (OSError, ValueError, TypeError) as e:
            raise error.IOError(f"'{args.inputs}' is no .npz file of inputs: {e}") from None
    result = run_module(
        TVMCPackage(args.PATH),
        args.device,
        args.rpc_tracker,
        None,
        args.rpc_key,
        inputs,
        args.fill_mode,
        args.print_time,
        args.repeat,
        args.number,
        args.profile,
        args.end_to_end,
    )
    if args.print_time:
        print(result.format_times())
    if args.print_top:
        for row in top_results(result.outputs, args.print_top):
            print(row)
    if args.outputs:
        result.save(args.outputs)
    elif not (args.print_time or args.print_top or args.profile):
        print(result)


def main(argv: Optional[List[str]] = None) -> int:
    """The command line: 0 done, 1 refused, 2 wrong command line."""
    words = list(sys.argv[1:] if argv is None else argv)
    target_options, words = _target_options(words)
    parser = _parser()
    args, unknown = parser.parse_known_args(words)
    try:
        if args.version:
            print(library.runtime().lathe_rt_version().decode())
        elif args.command == "micro":
            micro()
        elif unknown:
            parser.error(f"there is no option '{unknown[0]}'")
        elif args.command == "compile":
            drive_compile(args, target_options)
        elif args.command == "tune":
            drive_tune(args, target_options)
        elif args.command == "run":
            drive_run(args)
        else:
            parser.print_help()
            return 2
    except error.LatheError as e:
        if args.verbose:
            raise
        print(f"Error: {e}", file=sys.stderr)
        return 1
    return 0
