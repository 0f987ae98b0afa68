"""Instruments: callbacks around passes."""

from .._ir.transform import PassInstrument, PassTimingInstrument, PrintAfterAll, PrintBeforeAll, pass_instrument

__all__ = ["PassInstrument", "PassTimingInstrument", "PrintAfterAll", "PrintBeforeAll", "pass_instrument"]
