"""The table that leads from a framework's operators to relay."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ... import error

Row = Callable[..., Any]


class Table:
    """Rows by the names of operators."""

    def __init__(self) -> None:
        self.rows: Dict[str, Row] = {}
        #: The same by numpy, for operators whose operands may all be known: sizes, and what is made of them.
        self.folded: Dict[str, Row] = {}

    def row(self, *names: str, fold: Optional[Row] = None) -> Callable[[Row], Row]:
        """The function is the row of these operators: f(operator, *operands).  fold: the same by numpy."""

        def put(f: Row) -> Row:
            for name in names:
                if name in self.rows:
                    raise error.InternalError(f"operator '{name}' has two rows")
                self.rows[name] = f
                if fold is not None:
                    self.folded[name] = fold
            return f

        return put


__all__ = ["Row", "Table"]
