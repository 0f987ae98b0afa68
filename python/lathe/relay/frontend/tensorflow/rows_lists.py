"""Rows for lists of tensors, which recurrent layers carry through their loops: a list is one tensor, its items along
the first axis.  How large the items are is often known only when one is set; until then a list is a promise."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional

import numpy as np

from ...expr import RelayExpr
from .graph import Node, dt, expr, ints, op, rank, refuse, row, sizes


class TensorList(NamedTuple):
    """Items along the first axis of a tensor; None: none was set yet."""

    count: int
    dtype: str
    items: Optional[Any]

    def of(self, shape: List[int]) -> "TensorList":
        """The list with items of this shape, zeros if there are none yet."""
        made = self.items if self.items is not None else np.zeros([self.count, *shape], self.dtype)
        return self._replace(items=made)


def _list(v: Any) -> TensorList:
    return v if isinstance(v, TensorList) else refuse("a list that is made elsewhere")


@row("TensorListReserve", "EmptyTensorList")
def _reserve(n: Node, element_shape: Any, count: Any) -> TensorList:
    if n.op == "EmptyTensorList":
        return refuse("a list that grows")
    made = TensorList(ints(count, "a length")[0], n.dtype("element_dtype"), None)
    shape = element_shape.reshape(-1).tolist() if isinstance(element_shape, np.ndarray) else [-1]
    known = element_shape.ndim == 1 and all(d >= 0 for d in shape) if isinstance(element_shape, np.ndarray) else False
    return made.of(shape) if known else made


@row("TensorListFromTensor")
def _from_tensor(n: Node, x: Any, _element_shape: Any) -> TensorList:
    return TensorList(sizes(x)[0], dt(x), x)


@row("TensorListGetItem")
def _get(n: Node, given: Any, index: Any, _element_shape: Any) -> RelayExpr:
    items = _list(given).items
    return op("take", items, index, axis=0) if items is not None else refuse("an item before one was set")


@row("TensorListSetItem")
def _set(n: Node, given: Any, index: Any, item: Any) -> TensorList:
    made = _list(given).of(sizes(item))
    here = op("equal", np.arange(made.count, dtype="int32"), op("cast", index, dtype="int32"))
    here = op("reshape", here, newshape=[made.count, *[1] * rank(item)])
    return made._replace(items=op("where", here, op("expand_dims", item, axis=0, num_newaxis=1), made.items))


@row("TensorListStack")
def _stack(n: Node, given: Any, _element_shape: Any) -> Any:
    items = _list(given).items
    return expr(items) if items is not None else refuse("items that were never set")


@row("TensorListLength")
def _length(n: Node, given: Any) -> Any:
    return np.array(_list(given).count, "int32")


__all__ = ["TensorList"]
