"""Passes: functions from modules to modules, and the context they run in."""

from .._ir.transform import (
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
