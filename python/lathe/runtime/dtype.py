"""Names of dtypes, taken apart."""

from __future__ import annotations

import re

from .. import error

_CODES = {"int": 0, "uint": 1, "bool": 1, "float": 2, "handle": 3, "bfloat": 4}


class DataType(str):
    """A dtype: "float32", "int8x4", …; a string that knows its parts."""

    type_code: int
    bits: int
    lanes: int

    def __new__(cls, name: str = "float32") -> "DataType":
        self = super().__new__(cls, name)
        whole = re.fullmatch(r"(bool|handle|int|uint|float|bfloat)(\d+)?(?:_(e\d+m\d+\w*))?(?:x(\d+))?", str(name))
        if not whole or (not whole[2] and whole[1] not in ("bool", "handle", "int", "uint", "float")):
            raise error.TypeError(f"'{name}' is no dtype; int32, uint8, float16, bool or float32x4 are")
        self.type_code = _CODES[whole[1]]
        self.bits = int(whole[2]) if whole[2] else {"bool": 1, "handle": 64}.get(whole[1], 32)
        self.lanes = int(whole[4]) if whole[4] else 1
        return self


__all__ = ["DataType"]
