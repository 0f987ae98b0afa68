"""A script of a user's, with types: a model's file, executors, devices, targets, errors."""
import pathlib
import pickle
from typing import Dict, List

import numpy as np

import lathe
from lathe import relay
from lathe.contrib import graph_executor
from lathe.contrib.debugger import debug_executor


def load(path: pathlib.Path) -> graph_executor.GraphModule:
    lib = lathe.runtime.load_module(path)
    again = pickle.loads(pickle.dumps(lib))
    return graph_executor.GraphModule(again["default"](lathe.device("cpu", 0)))


def import_model(path: str, shapes: Dict[str, List[int]]) -> lathe.IRModule:
    mod, params = relay.frontend.from_onnx(path, shapes)
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    return mod


def debug(lib: relay.build_module.ExecutorFactoryModule) -> None:
    m = debug_executor.GraphModuleDebug(lib["debug_create"]("default", lathe.cpu(0)))
    m.set_input("x", lathe.nd.array(np.ones((2, 3), "float32")))
    m.run()
    print(m.get_output("output_0").shape, lathe.target.Target("llvm").kind.name)


def refused() -> str:
    try:
        relay.nn.relu(relay.var("x", shape=(-1,)))
    except lathe.TVMError as e:
        return str(e)
    return ""
