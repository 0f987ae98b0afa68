"""Run by test_hostile.py in a process of its own: prints what it is about to do, so that a crash has a name.

    hostile_calls.py functions     every function of the API with absent, wrong and hostile values, through ctypes
    hostile_calls.py attributes    every attribute of every operator with None and hostile values
    hostile_calls.py nodes         fields, repr, hash, ==, bool, copy, pickle, … of objects of every kind
"""
import copy
import operator
import pickle
import random
import sys

import numpy as np

import lathe
from lathe import relay, te, tir
from lathe._ffi import core
from lathe._ffi.core import WORLD, call, functions

CALLS = 40


def about_to(what):
    print(what, flush=True)


def objects():
    """Things of every kind that Python holds."""
    n, i = tir.SizeVar("n"), tir.Var("i", "int32")
    A = te.placeholder((n, 4), name="A")
    k = te.reduce_axis((0, 4), name="k")
    B = te.compute((n,), lambda j: te.sum(A[j, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    f = te.create_prim_func([A, B])
    sch = tir.Schedule(f)
    block = sch.get_block("B")
    buffer = tir.decl_buffer((4,), name="b")
    x = relay.var("x", shape=(2, 3))
    y = relay.nn.relu(x)
    func = relay.Function([x], y)
    mod = lathe.IRModule.from_expr(func)
    p = relay.prelude.Prelude(lathe.IRModule())
    lists = p.mod.get_type("List")
    lib = relay.build(mod, "c")
    built = lathe.build(f, target="c")
    loop = f.body
    return [
        n,
        i,
        i + 1,
        i < 2,
        i == 2,
        tir.const(1),
        tir.const(1.5),
        tir.StringImm("s"),
        tir.Select(i < 1, i, n),
        tir.Let(i, 1, i),
        tir.Cast("int64", i),
        tir.Not(i < 1),
        tir.Ramp(i, 1, 4),
        tir.Broadcast(i, 4),
        te.exp(A[i, 0]),
        A,
        A[i, 0],
        A[i, 0] + 0.0,
        k,
        B.op,
        A.op,
        B.op.body[0],
        B.op.body[0].combiner,
        s,
        s[B],
        f,
        f.params[0],
        loop,
        sch,
        block,
        *sch.get_loops(block),
        sch.get(block),
        sch.trace,
        buffer,
        buffer[i],
        tir.Evaluate(i),
        lathe.ir.Range(0, n),
        x,
        y,
        func,
        mod,
        y.op,
        y.attrs,
        relay.Tuple([x, y]),
        relay.TupleGetItem(relay.Tuple([x, y]), 0),
        relay.Let(x, y, x),
        relay.If(relay.const(True), x, y),
        relay.const(np.ones(3)),
        relay.GlobalVar("main"),
        relay.split(x, 3, axis=1),
        relay.TensorType((n, relay.Any())),
        relay.TupleType([]),
        relay.FuncType([], relay.TensorType(())),
        relay.Any(),
        *lists,
        lists[1].belong_to,
        lib,
        lib["default"](),
        built,
        built.entry_func,
        lathe.nd.empty((2, 0)),
        lathe.nd.array(np.ones((), "float32")),
        lathe.nd.empty((2,), "bfloat16"),
        lathe.target.Target("c"),
        lathe.transform.PassContext(),
        relay.transform.FuseOps(),
        lathe.cpu(0),
        tir.IndexMap.from_func(lambda a: [a]),
        relay.dataflow_pattern.wildcard(),
        relay.op.get("add"),
        tir.Var.__new__(tir.Var),
        relay.Call.__new__(relay.Call),
        lathe.IRModule.__new__(lathe.IRModule),
    ]


def released(objects_):
    """Objects whose handles were given back behind their backs, and ones that say to be of another kind."""
    out = []
    for o in objects_:
        if isinstance(o, core.Object) and o._h is not None:
            stale = object.__new__(type(o))
            stale._h, stale._kind, stale._detail = o._h + 8, o._kind, o._detail
            wrong = object.__new__(type(o))
            wrong._h, wrong._kind, wrong._detail = o._h, (o._kind + 1) % len(core.KINDS), 0
            out += [stale, wrong]
    gone = tir.Var("gone", "int32") + 1
    ghost = object.__new__(type(gone))
    ghost._h, ghost._kind, ghost._detail = gone._h, gone._kind, gone._detail
    del gone
    call("expr_kinds")  # handles are given back with the next call
    return out + [ghost]


def forget(gone):
    """What is no handle of theirs is not given back by them."""
    for o in gone:
        o._h = None


def hostile(rng, have, gone, numbers=True):
    endless = []
    endless.append(endless)
    deep = []
    for _ in range(700):
        deep = [deep]
    values = [
        None,
        True,
        "",
        "x",
        "a\0b",
        "\ud800",
        "é" * 70000,
        b"\xff\xfe",
        b"\xff" * 100000,
        float("nan"),
        float("inf"),
        -0.0,
        [],
        [[]],
        [None],
        [[1, "a"]],
        ["a", 1],
        endless,
        deep,
        {},
        {"a": 1},
        object(),
        type,
        np.float32(1.5),
        np.ones(2),
        lambda: 0,
        WORLD,
    ]
    if numbers:
        values += [-1, 0, 1, 3, 2**31, -(2**63), 2**63 - 1, 2**63, 2**200, np.int64(7)]
    pools = [values, values, have, gone]
    return rng.choice(rng.choice(pools))


def suited(rng, kind, have, gone):
    """A value of the type that a signature asks for, where that is simple."""
    memory = "address" in kind or "function" in kind
    by_kind = [o for o in have if isinstance(o, core.Object) and o._kind >= 0 and core.KINDS[o._kind] in kind]
    if kind.startswith("world"):
        return WORLD
    if kind.startswith("list[") and rng.random() < 0.8:
        inner = kind[5 : kind.rindex("]")]
        return [suited(rng, inner, have, gone) for _ in range(rng.randrange(3))]
    if rng.random() < 0.3:
        return hostile(rng, have, gone, not memory)
    if by_kind:
        return rng.choice(by_kind)
    if kind.startswith("str"):
        return rng.choice(
            ["main", "float32", "int32", "add", "nn.relu", "B", "spatial", "c", "serial", "split", "global"]
        )
    if kind.startswith(("int", "expr", "any")):
        return rng.choice([0, 1, 2, 7])
    return hostile(rng, have, gone, not memory)


def call_every_function():
    rng = random.Random(1)
    have = [o for o in objects()]
    gone = released(have)
    named = ("argument", "value", "pattern", "row")  # hold addresses, or sizes of what lies there
    for name, signature, _doc in functions():
        about_to(name)
        text = signature.split("->")[0].strip()
        params, depth = [""], 0
        for ch in text:
            depth += (ch == "[") - (ch == "]")
            if ch == "," and depth == 0:
                params.append("")
            else:
                params[-1] += ch
        kinds = [p.split(":", 1)[1].strip() for p in params if ":" in p]
        raw = any(w in text for w in ("address", "function", *named))
        heavy = ("build", "compile", "pass_pipeline", "built_export", "compiled_export", "tune_network", "tune_tasks",
                 "tune_program", "tune_measure", "tune_measure_plans", "tune_answer")
        count = 4 if name in heavy else CALLS
        for _ in range(count):
            args = [suited(rng, k, have, gone) for k in kinds]
            if raw:  # an int there is an address, which nothing can check
                args = [None if isinstance(a, (int, np.integer)) and not isinstance(a, bool) else a for a in args]
            if rng.random() < 0.1:
                args = args[: rng.randrange(len(args) + 1)] + [hostile(rng, have, gone, not raw)] * rng.randrange(3)
            if "path" in text or "dump_dir" in text or "db" in text:
                args = [a if not isinstance(a, (str, bytes)) or len(a) < 3 else "no such folder/x.so" for a in args]
            try:
                call(name, *args)
            except Exception as e:  # a value or an exception: both will do, unless it is a fault of ours
                assert type(e).__name__ not in ("InternalError", "SystemError"), (name, args, e)
    forget(gone)
    about_to("done")


def set_every_attribute():
    """Of arguments of several ranks, and of no type: an operator reads what it is given only where those suit it."""
    free = relay.var("x")
    ranks = [relay.var("x", shape=(4,) * r) for r in (1, 2, 3, 4, 5)]
    weights = relay.var("w", shape=(4, 4, 4, 4))
    hostile_texts = [None, "", "NCHW", "%s%n", "é" * 3000, 3, [None], ["a", 1]]
    for op, _doc, _args, least, most, _fuse, _flags, attrs in call("op_table"):
        for name, kind, default, _ in attrs:
            about_to(f"{op}: {name}")
            given = [[a, "x"] for a, k, d, _ in attrs if k == "str" and d is None and a != name]
            for value in hostile_texts if kind in ("str", "dtype", "list[str]") else [None, "x", [], 2**62, -1]:
                for x in [free, *ranks]:
                    args = [x, weights, *[x] * most][: max(least, min(most, 2))] if x is not free else [x] * least
                    try:
                        made = call("node_call", WORLD, op, args, [*given, [name, value]])
                        repr(made), made.attrs
                    except Exception as e:
                        assert type(e).__name__ not in ("InternalError", "SystemError"), (op, name, value, e)
                    else:
                        if value is None and kind == "str":
                            assert default is not None and str(made.attrs[name]) == default.strip('"'), (op, name)
    about_to("done")


OPERATIONS = [
    repr,
    str,
    hash,
    bool,
    len,
    int,
    float,
    operator.index,
    iter,
    list,
    copy.copy,
    copy.deepcopy,
    pickle.dumps,
    dir,
    lambda o: o == o,
    lambda o: o != 1,
    lambda o: o == None,  # noqa: E711
    lambda o: o == "x",
    lambda o: o in [1, o],
    lambda o: 1 in o,
    lambda o: o[0],
    lambda o: o["x"],
    lambda o: o(),
    lambda o: o(o),
    lambda o: o + 1,
    lambda o: 1 - o,
    lambda o: o < o,
    lambda o: -o,
    lambda o: ~o,
    lambda o: o & o,
    lambda o: o.nothing_of_that_name,
    lambda o: {o: 1},
    lambda o: sorted([o, o]),
    lambda o: np.asarray(o),
    lambda o: f"{o}",
    lambda o: lathe.ir.structural_equal(o, o),
    lambda o: lathe.ir.structural_hash(o),
    lambda o: lathe.ir.structural_equal(o, 1, True),
    lambda o: tir.convert(o),
    lambda o: relay.const(o),
    lambda o: relay.Tuple([o]),
    lambda o: te.placeholder((o,)),
    lambda o: o.same_as(1),
    lambda o: vars(o),
]


def poke_at_nodes():
    things = objects()
    gone = released(things)
    for o in things + gone:
        kind = type(o).__name__
        for at, f in enumerate(OPERATIONS):
            about_to(f"{kind}: operation {at} ({getattr(f, '__name__', '')})")
            try:
                f(o)
            except Exception as e:
                assert type(e).__name__ not in ("InternalError", "SystemError", "RecursionError"), (kind, at, e)
        for field in dir(type(o)):
            if field.startswith("__"):
                continue
            about_to(f"{kind}.{field}")
            try:
                getattr(o, field)
            except Exception as e:
                assert type(e).__name__ not in ("InternalError", "SystemError", "RecursionError"), (kind, field, e)
    forget(gone)
    about_to("done")


if __name__ == "__main__":
    {"functions": call_every_function, "attributes": set_every_attribute, "nodes": poke_at_nodes}[sys.argv[1]]()
