"""Modules as pictures: ``RelayVisualizer(mod).render()`` writes each function as a tree of text."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ... import relay
from .interface import Plotter, VizParser
from .terminal import TermPlotter, TermVizParser

__all__ = ["RelayVisualizer"]


class RelayVisualizer:
    """Draws the functions of a module: the parser says what of, the plotter how."""

    def __init__(self, relay_mod: Any, relay_param: Optional[Dict[str, Any]] = None,
                 plotter: Optional[Plotter] = None, parser: Optional[VizParser] = None) -> None:
        self._plotter = plotter if plotter is not None else TermPlotter()
        self._parser = parser if parser is not None else TermVizParser()
        for name in sorted((v.name_hint for v in relay_mod.get_global_vars()), key=lambda n: (n != "main", n)):
            self._draw(self._plotter.create_graph(name), relay_mod[name], relay_param or {})

    def _draw(self, graph: Any, function: Any, relay_param: Dict[str, Any]) -> None:
        numbers: Dict[Any, str] = {}
        relay.analysis.post_order_visit(function, lambda e: numbers.setdefault(e, str(len(numbers))))
        for expr in numbers:
            node, edges = self._parser.get_node_edges(expr, relay_param, numbers)
            if node is not None:
                graph.node(node)
            for edge in edges:
                graph.edge(edge)

    def render(self, filename: Optional[str] = None) -> None:
        """Prints the pictures, or writes them to a file."""
        self._plotter.render(filename=filename)
