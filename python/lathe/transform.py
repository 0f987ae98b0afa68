"""Passes and the context they run in (the same as lathe.ir.transform)."""

from ._ir.transform import (
    BuiltinPass, FunctionPass, ModulePass, Pass, PassContext, PassInfo, PassInstrument, PassTimingInstrument,
    PrintAfterAll, PrintBeforeAll, PrintIR, Sequential, function_pass, module_pass, pass_instrument)

__all__ = [
    "BuiltinPass",
    "FunctionPass",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "PrintIR",
    "Sequential",
    "function_pass",
    "module_pass",
    "pass_instrument",
]
