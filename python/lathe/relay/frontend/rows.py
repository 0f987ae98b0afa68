"""The table that leads from a framework's operators to relay."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Optional

from ... import error
from .values import Refused

Row = Callable[..., Any]


@contextmanager
def named(where: str, lacks: str) -> Iterator[None]:
    """What a row raises says where; what Python itself raises, of operands that are not there or not of their kind, is
    an error of the model: lacks, and why."""
    try:
        yield
    except Refused as e:
        raise Refused(f"{where}: {e.message}") from None
    except error.LatheError as e:
        raise type(e)(f"{where}: {e.message}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
        raise error.ArgumentError(f"{lacks}: {type(e).__name__}: {e}") from e


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


__all__ = ["Row", "Table", "named"]
