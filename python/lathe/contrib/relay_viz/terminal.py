"""Pictures as text: each function a tree, operands below what uses them."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .interface import DefaultVizParser, Plotter, VizEdge, VizGraph, VizNode, VizParser


class TermVizParser(VizParser):
    """What the text says of an expression: what DefaultVizParser does."""

    def __init__(self) -> None:
        self._parser = DefaultVizParser()

    def get_node_edges(self, node: Any, relay_param: Dict[str, Any], node_to_id: Dict[Any, str]) -> Any:
        return self._parser.get_node_edges(node, relay_param, node_to_id)


class TermGraph(VizGraph):
    """A function as a tree.  What is used more than once is written out the first time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: Dict[str, VizNode] = {}
        self._operands: Dict[str, List[str]] = {}

    def node(self, viz_node: VizNode) -> None:
        self._nodes[viz_node.identity] = viz_node

    def edge(self, viz_edge: VizEdge) -> None:
        self._operands.setdefault(viz_edge.end, []).append(viz_edge.start)

    def render(self) -> str:
        """The text."""
        used = {start for starts in self._operands.values() for start in starts}
        lines = [f"@{self._name}(GlobalVar)"]
        seen: Dict[str, int] = {}
        todo = [(1, i) for i in self._nodes if i not in used]
        while todo:
            depth, identity = todo.pop(0)
            node = self._nodes.get(identity)
            if node is None:
                continue
            detail = " ".join(node.detail.split("\n"))
            again = identity in seen and bool(self._operands.get(identity))
            number = seen.setdefault(identity, len(seen))
            lines.append("  " * depth + f"--{number}: {node.type_name}" + (f" ({detail})" if detail else ""))
            if again:
                lines[-1] += " as above"
            else:
                todo[:0] = [(depth + 1, start) for start in self._operands.get(identity, [])]
        return "\n".join(lines)


class TermPlotter(Plotter):
    """Writes the trees of all functions."""

    def __init__(self) -> None:
        self._name_to_graph: Dict[str, Any] = {}

    def create_graph(self, name: str) -> VizGraph:
        self._name_to_graph[name] = TermGraph(name)
        return self._name_to_graph[name]

    def render(self, filename: Optional[str] = None) -> None:
        text = "\n".join(graph.render() for graph in self._name_to_graph.values())
        if filename is None:
            print(text)
        else:
            with open(filename, "w", encoding="utf-8") as out:
                out.write(text + "\n")
