"""What a picture of a module is made of, and what draws it: classes to derive from."""

from __future__ import annotations

import abc
from typing import Any, Dict, List, Optional, Tuple

from ... import relay

Node = Tuple[Optional["VizNode"], List["VizEdge"]]


class VizNode:
    """A node of the picture."""

    def __init__(self, node_id: str, node_type: str, node_detail: str) -> None:
        #: What edges call it.
        self.identity = node_id
        #: The kind of expression.
        self.type_name = node_type
        #: What else is said of it, lines of text.
        self.detail = node_detail

    def __repr__(self) -> str:
        return f"VizNode({self.identity}, {self.type_name}, {self.detail!r})"


class VizEdge:
    """An arrow from an operand to what uses it, by their identities."""

    def __init__(self, start_node: str, end_node: str) -> None:
        self.start, self.end = start_node, end_node

    def __repr__(self) -> str:
        return f"VizEdge({self.start}, {self.end})"


class VizParser(abc.ABC):
    """Says what is drawn of an expression."""

    @abc.abstractmethod
    def get_node_edges(self, node: Any, relay_param: Dict[str, Any], node_to_id: Dict[Any, str]) -> Node:
        """The node that stands for an expression (None: nothing does), and the edges that end in it."""


class VizGraph(abc.ABC):
    """The picture of one function."""

    @abc.abstractmethod
    def node(self, viz_node: VizNode) -> None:
        """Adds a node; those that its edges start from may come later."""

    @abc.abstractmethod
    def edge(self, viz_edge: VizEdge) -> None:
        """Adds an edge."""


class Plotter(abc.ABC):
    """The pictures of a module."""

    @abc.abstractmethod
    def create_graph(self, name: str) -> VizGraph:
        """An empty picture for the function of that name."""

    @abc.abstractmethod
    def render(self, filename: Optional[str] = None) -> None:
        """Draws them, into a file where one is named."""


def _line(**facts: Any) -> str:
    return "\n".join(f"{k}: {v}" for k, v in facts.items() if v not in (None, ""))


class DefaultVizParser(VizParser):
    """A node for each expression, with its name, value or attributes, and an edge from each operand."""

    def get_node_edges(self, node: Any, relay_param: Dict[str, Any], node_to_id: Dict[Any, str]) -> Node:
        name = type(node).__name__
        if name == "Op":  # a call says its operator
            return None, []
        describe = getattr(self, f"_{name.lower()}", None)
        kind, detail, operands = describe(node, relay_param) if describe else (name, "", [])
        me = node_to_id[node]
        edges = [VizEdge(node_to_id[o], me) for o in operands if o in node_to_id]
        return VizNode(me, kind, detail), edges

    def _var(self, node: Any, relay_param: Dict[str, Any]) -> Tuple[str, str, List[Any]]:
        kind = "Var(Param)" if node.name_hint in relay_param else "Var(Input)"
        return kind, _line(name_hint=node.name_hint, type=node.type_annotation), []

    def _constant(self, node: Any, _param: Dict[str, Any]) -> Tuple[str, str, List[Any]]:
        value = node.data.numpy()
        return "Const", _line(value=value if value.ndim == 0 else f"{value.dtype} of shape {value.shape}"), []

    def _globalvar(self, node: Any, _param: Dict[str, Any]) -> Tuple[str, str, List[Any]]:
        return "GlobalVar", _line(name_hint=node.name_hint), []

    def _function(self, node: Any, _param: Dict[str, Any]) -> Tuple[str, str, List[Any]]:
        return "Function", _line(params=", ".join(p.name_hint for p in node.params)), [node.body]

    def _call(self, node: Any, _param: Dict[str, Any]) -> Tuple[str, str, List[Any]]:
        op = node.op
        if isinstance(op, relay.expr.GlobalVar):
            return "Call", "", [op, *node.args]
        if not hasattr(op, "name"):
            return "Call Function", "", [op, *node.args]
        attrs = {k: node.attrs[k] for k in node.attrs.keys()} if node.attrs is not None else {}
        return f"Call {op.name}", _line(**attrs), list(node.args)

    def _tuple(self, node: Any, _param: Dict[str, Any]) -> Tuple[str, str, List[Any]]:
        return "Tuple", "", list(node.fields)

    def _tuplegetitem(self, node: Any, _param: Dict[str, Any]) -> Tuple[str, str, List[Any]]:
        return "TupleGetItem", _line(index=node.index), [node.tuple_value]

    def _let(self, node: Any, _param: Dict[str, Any]) -> Tuple[str, str, List[Any]]:
        return "Let", "", [node.var, node.value, node.body]

    def _if(self, node: Any, _param: Dict[str, Any]) -> Tuple[str, str, List[Any]]:
        return "If", "", [node.cond, node.true_branch, node.false_branch]
