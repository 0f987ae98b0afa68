"""Modules of the package import each other in one direction only, imports inside of functions included."""
import ast
import pathlib

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python/lathe"


def modules():
    """Name -> file."""
    out = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("lathe", *path.relative_to(PACKAGE).with_suffix("").parts)
        out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return out


def is_for_checkers(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports(name, path, known):
    """The modules of the package that a module imports anywhere in its text."""
    package = (name if path.name == "__init__.py" else name.rpartition(".")[0]).split(".")
    found = set()
    todo = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        todo += [n for n in ast.iter_child_nodes(node) if not is_for_checkers(n)]
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(
                (package[: len(package) - node.level + 1] if node.level else [])
                + ([node.module] if node.module else [])
            )
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            # the package itself takes the compiler's modules in when they are first asked for; what stands in for TVM
            # finds modules by the names that a program writes
            allowed = ("lathe", "lathe.compat.tvm", "lathe.compat.scan")
            assert name in allowed, f"{name} imports by a computed name, which hides what it stands on"
    return sorted((found & set(known)) - {name})


def circle(graph):
    """Names along a circle, or None."""
    state, path = {}, []

    def visit(name):
        state[name] = "open"
        path.append(name)
        for other in graph[name]:
            if state.get(other) == "open":
                return path[path.index(other):] + [other]
            if other not in state:
                found = visit(other)
                if found:
                    return found
        path.pop()
        state[name] = "done"
        return None

    for name in graph:
        if name not in state:
            found = visit(name)
            if found:
                return found
    return None


def test_a_circle_is_found():
    assert circle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert circle({"a": ["b", "c"], "b": ["c"], "c": []}) is None


def test_imports_go_one_way():
    known = modules()
    graph = {name: imports(name, path, known) for name, path in known.items()}
    assert graph["lathe.relay.expr"] and len(graph) > 60
    found = circle(graph)
    assert found is None, " -> ".join(found)
