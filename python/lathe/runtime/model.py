"""Compiled models: what is in them, and executors that run them."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import os
import weakref
from typing import Any, Collection, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from .. import error
from .._ffi import Object, call, library, register_object
from .._ffi.library import RtDType, RtError, RtLoad, RtModelInfo, RtTensor
from .ndarray import (
    NARROW,
    NUMPY_NAMES,
    STRING,
    NDArray,
    aligned,
    as_ndarray,
    copy_of,
    from_address,
    native,
    storage,
    tensor_of,
)
from .ndarray import _name_of as dtype_name
from .packed import rt_check


@register_object("compiled")
class _Compiled(Object):
    """The compiled model in the C library."""


class Port(NamedTuple):
    """An input or output: -1 among the dimensions stands for a size known at run time."""

    name: str
    dtype: str
    shape: Optional[Tuple[int, ...]]
    type: str


class Node(NamedTuple):
    """A kernel call of the program: operations by the formula and by the algorithm used, bytes moved."""

    name: str
    source: str
    impl: str
    flops: float
    flops_done: float
    bytes: float


# A finalizer holds what the memory stands on (the model of an executor, the code of a model), so
# that nothing goes before what uses it, whatever cycles the objects are in.


def _free_model(pointer: int, _keep: Any) -> None:
    if pointer:
        library.runtime().lathe_rt_model_free(pointer)


def _free_executor(pointer: Optional[int], _model: "Model") -> None:
    if pointer:
        library.runtime().lathe_rt_executor_free(pointer)


class Model:
    """A compiled model; executors share its weights."""

    def __init__(self, pointer: int, keep: Any = None):
        self._p, self._keep = pointer, keep
        self.texts: Dict[int, str] = {}     # those of its own that were asked for, by their numbers
        weakref.finalize(self, _free_model, pointer, keep)

    @staticmethod
    def load(path: Any, weights_cache: Any = None) -> "Model":
        """From a file that export_library or `lathe compile` wrote.  weights_cache is a folder that only you can write,
        where weights that loading brought into form are kept for later starts and other processes."""
        p, err = ctypes.c_void_p(), RtError()
        how = RtLoad(size=ctypes.sizeof(RtLoad), cache=None if weights_cache is None else os.fsencode(weights_cache))
        load = library.runtime().lathe_rt_model_load_with
        rt_check(load(os.fsencode(path), ctypes.byref(how), ctypes.byref(p), ctypes.byref(err)), err)
        return Model(p.value or 0)

    @staticmethod
    def of_compiled(compiled: _Compiled) -> "Model":
        """What was compiled in this process."""
        return Model(library.runtime().lathe_rt_model_retain(call("compiled_runtime", compiled)), compiled)

    @property
    def entries(self) -> List[str]:
        """Names of the functions that can be run; the first is the one that is meant where none is said."""
        rt = library.runtime()
        return [
            rt.lathe_rt_model_entry(self._p, i).contents.name.decode()
            for i in range(rt.lathe_rt_model_entries(self._p))
        ]

    def entry_index(self, entry: Any) -> int:
        """The number of an entry by name or number."""
        names = self.entries
        if isinstance(entry, str):
            if entry not in names:
                raise error.NotFoundError(f"the model has no entry '{entry}'; it has {', '.join(names)}")
            return names.index(entry)
        return _number(entry, len(names), "entry")

    def _ports(self, which: str, entry: Any) -> List[Port]:
        e = library.runtime().lathe_rt_model_entry(self._p, self.entry_index(entry)).contents
        rows, n = (e.inputs, e.ninputs) if which == "inputs" else (e.outputs, e.noutputs)
        out = []
        for i in range(n):
            r = rows[i]
            shape = None if r.ndim < 0 else tuple(r.shape[k] for k in range(r.ndim))
            dtype = "" if r.ndim < 0 and not r.dtype.bits else dtype_name(r.dtype.code, r.dtype.bits)
            dtype = "object" if r.kind == PORT_OBJECT else dtype
            out.append(Port(r.name.decode(), dtype, shape, r.type.decode()))
        return out

    def entry_inputs(self, entry: Any) -> List[Port]:
        """The inputs of an entry, in order."""
        return self._ports("inputs", entry)

    def entry_outputs(self, entry: Any) -> List[Port]:
        """The outputs of an entry, in order."""
        return self._ports("outputs", entry)

    @property
    def inputs(self) -> List[Port]:
        """The inputs of the first entry, in order."""
        return self._ports("inputs", 0)

    @property
    def outputs(self) -> List[Port]:
        """The outputs of the first entry, in order."""
        return self._ports("outputs", 0)

    @property
    def info(self) -> RtModelInfo:
        """Target, bytes of weights and storage, number of nodes."""
        info = RtModelInfo(size=ctypes.sizeof(RtModelInfo))
        library.runtime().lathe_rt_model_info(self._p, ctypes.byref(info))
        return info

    def learn(self, texts: Dict[int, str]) -> None:
        """Keeps the texts of its own among those of an executor."""
        own = self.info.num_strings
        self.texts.update((number, text) for number, text in texts.items() if number < own)

    def nodes(self) -> List[Node]:
        """The kernel calls."""
        out = []
        for i in range(self.info.num_nodes):
            r = library.runtime().lathe_rt_model_node(self._p, i).contents
            out.append(
                Node(
                    r.name.decode(),
                    (r.source or b"").decode(),
                    (r.impl or b"").decode(),
                    r.flops,
                    r.flops_done,
                    r.bytes,
                )
            )
        return out


def _grouped(ports: List[Port]) -> Tuple[List[Port], List[Any]]:
    """The ports as Python sees them, and the number of each in the model.  A map is two of the model's: NAME.keys and
    NAME.values, a pair of numbers here."""
    seen: List[Port] = []
    where: List[Any] = []
    for i, port in enumerate(ports):
        stem, values = port.name[: -len(".keys")], ports[i + 1] if i + 1 < len(ports) else None
        if port.name.endswith(".keys") and values is not None and values.name == f"{stem}.values":
            seen.append(Port(stem, values.dtype, None, f"Map[{port.dtype}, {values.dtype}]"))
            where.append((i, i + 1))
        elif not (where and isinstance(where[-1], tuple) and where[-1][1] == i):
            seen.append(port)
            where.append(i)
    return seen, where


class _Straight:
    """A port of known sizes and few bytes whose elements are numpy's own.  After a run nothing of Python is left in the
    processor's caches, and every step in it takes microseconds: arrays go in and out with as few as there can be."""

    MOST = 1 << 20          # bytes; with more the steps do not count
    FEW = 1 << 10           # bytes; memory for arrays with no more is taken for several at a time
    PLACES = 16

    def __init__(self, port: Port):
        self.name, self.shape, self.dtype = port.dtype, port.shape, np.dtype(port.dtype)
        self.count = math.prod(port.shape or ())
        self.bytes = self.count * self.dtype.itemsize
        self.several = 32 if self.bytes <= _Straight.FEW else 1
        self.rooms, self.left = np.empty(0), 0
        self.tensor = tensor_of(np.empty(self.shape, self.dtype), port.dtype)
        self.reference = ctypes.byref(self.tensor)
        self.held = ctypes.c_char * self.bytes
        self.elements: Dict[int, np.ndarray] = {}   # arrays over the places where the runtime had the elements lately

    @staticmethod
    def of(port: Port) -> Optional["_Straight"]:
        """None for a port that is not."""
        known = port.shape is not None and port.dtype in NUMPY_NAMES and all(d > 0 for d in port.shape)
        return (
            _Straight(port)
            if known and math.prod(port.shape) * np.dtype(port.dtype).itemsize <= _Straight.MOST
            else None
        )

    def holds(self, x: Any) -> bool:
        """Is x an array whose memory can be read as it is?"""
        return type(x) is np.ndarray and x.dtype == self.dtype and x.shape == self.shape and x.flags.carray

    def over(self, x: np.ndarray) -> Any:
        """A reference to the tensor over its memory, until the next one is asked for."""
        self.tensor.data = ctypes.addressof(ctypes.c_char.from_buffer(x))
        return self.reference

    def copy(self, t: RtTensor) -> NDArray:
        """A copy of a compact tensor, aligned as nd.empty has it."""
        address = t.data + t.byte_offset
        elements = self.elements.get(address)
        if elements is None:
            if len(self.elements) >= _Straight.PLACES:
                self.elements.clear()
            elements = np.ndarray(self.shape, self.dtype, self.held.from_address(address))
            self.elements[address] = elements
        if not self.left:
            rows = aligned((self.several, -(-self.bytes // 64) * 64 // self.dtype.itemsize), self.dtype, np.empty)
            self.rooms, self.left = rows[:, : self.count].reshape((self.several, *self.shape)), self.several
        self.left -= 1
        raw = self.rooms[self.left, ...]
        raw[...] = elements
        return NDArray(raw, self.name)


class _Labels:
    """An output of strings whose sizes are known.  Numbers of texts that are the model's own mean the same in every
    run,
    so that each is asked for once."""

    def __init__(self, port: Port, texts: Dict[int, str]):
        self.shape, self.count, self.texts = port.shape, math.prod(port.shape or ()), texts
        self.address: Optional[int] = None      # where the runtime had the numbers the last time,
        self.numbers: Any = ()                  # and an array over them

    @staticmethod
    def of(port: Port, model: Model) -> Optional["_Labels"]:
        """None for a port that is not."""
        known = port.dtype == "string" and port.shape is not None and all(d > 0 for d in port.shape)
        return _Labels(port, model.texts) if known else None

    def copy(self, t: RtTensor) -> Optional[NDArray]:
        """A copy as str objects; None where a text is not known."""
        if t.data != self.address:
            self.address, self.numbers = t.data, _numbers(self.count).from_address(t.data)
        try:
            found = np.array([self.texts[n] for n in self.numbers], object)
        except KeyError:
            return None
        return NDArray(found if len(self.shape) == 1 else found.reshape(self.shape), "string")


@functools.lru_cache(maxsize=64)
def _sizes(shape: Tuple[int, ...]) -> Any:
    """A shape as the runtime takes it."""
    return (ctypes.c_int64 * max(len(shape), 1))(*shape)


def _row(items: Collection[Any]) -> Optional[bytes]:
    """Texts one behind the other, each ending in a zero; None where one is not a str or has a zero in it."""
    try:
        row = "\0".join(items)
    except TypeError:
        return None
    return row.encode("utf-8", "surrogateescape") if row.count("\0") == len(items) - 1 else None


def _utf8(text: Any, items: List[Any]) -> bytes:
    if isinstance(text, str):
        return text.encode("utf-8", "surrogateescape")
    if not isinstance(text, bytes):
        raise error.TypeError(f"element {items.index(text)} of an array of strings is a {type(text).__name__}")
    return text


@functools.lru_cache(maxsize=64)
def _numbers(count: int) -> Any:
    """The type of an array of so many numbers of strings."""
    return ctypes.c_uint64 * count


def _number(key: Any, n: int, what: str) -> int:
    try:
        i = operator.index(key)
    except TypeError:
        raise error.TypeError(
            f"an {what} of a model is known by its name or number, not by a {type(key).__name__}"
        ) from None
    if not 0 <= i < n:
        raise error.ArgumentError(f"the model has {n} {what}s, there is no {what} {i}")
    return i


PORT_OBJECT = 4


class State:
    """An object that a model gave: what lives between calls.  It goes back as an input of an entry of the same
    executor."""

    def __init__(self, pointer: int, type_text: str, keep: Any):
        self._p, self.type = library.runtime().lathe_rt_object_retain(pointer), type_text
        weakref.finalize(self, _free_object, self._p, keep)

    def __repr__(self) -> str:
        return f"State({self.type})"


def _free_object(pointer: int, _keep: Any) -> None:
    library.runtime().lathe_rt_object_free(pointer)


class _Run:
    """The executor in the runtime, which the entries of a model share."""

    def __init__(self, model: Model):
        p, err = ctypes.c_void_p(), RtError()
        rt_check(library.runtime().lathe_rt_executor_new(model._p, ctypes.byref(p), ctypes.byref(err)), err)
        self.pointer, self.at = p.value, 0
        weakref.finalize(self, _free_executor, p.value, model)


class Executor:
    """Runs an entry of a model.  Executors of one model may run at the same time in several threads."""

    def __init__(self, model: Model, entry: Any = 0, shared: Optional["_Run"] = None):
        self._model, self._entry = model, model.entry_index(entry)
        self._run = shared or _Run(model)
        self._chosen = self._run.pointer
        self._many = len(model.entries) > 1
        self.inputs, self._in = _grouped(model.entry_inputs(self._entry))
        self.outputs, self._out = _grouped(model.entry_outputs(self._entry))
        self._straight_in = [_Straight.of(p) for p in self.inputs]
        self._straight_out = [_Straight.of(p) or _Labels.of(p, model) for p in self.outputs]
        maps = [(i, pair) for i, pair in enumerate(self._in) if isinstance(pair, tuple)]
        self._map_in = {i: [model.entry_inputs(self._entry)[k] for k in pair] for i, pair in maps}
        self._err, self._found = RtError(), ctypes.POINTER(RtTensor)()
        self._handle = ctypes.c_void_p(self._chosen)    # these three as calls without declarations take them
        self._err_reference, self._found_reference = ctypes.byref(self._err), ctypes.byref(self._found)
        self._rooms: Dict[Any, Any] = {}
        self._number, self._text, self._size = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_size_t()     # of a string
        self._text_reference, self._size_reference = ctypes.byref(self._text), ctypes.byref(self._size)
        self._index: Dict[str, int] = {port.name: i for i, port in enumerate(self.inputs)}
        self._out_index: Dict[str, int] = {port.name: i for i, port in enumerate(self.outputs)}
        self._rt = library.undeclared()
        self._rt_get_output = self._rt.lathe_rt_get_output
        self._borrowed: Dict[Any, NDArray] = {}  # memory of the caller's that inputs and outputs lie in
        self._watch: Any = None
        self._failed: Optional[BaseException] = None  # raised by a function that watches

    @property
    def _p(self) -> Optional[int]:
        """The runtime's executor, told that this entry is spoken of."""
        if self._many:
            self._select()
        return self._chosen

    def _select(self) -> None:
        if self._run.at != self._entry:
            err = RtError()
            rt_check(library.runtime().lathe_rt_executor_select(self._chosen, self._entry, ctypes.byref(err)), err)
            self._run.at = self._entry

    def _quick(self, function: Any, *arguments: Any) -> None:
        """Calls a function of library.undeclared() on the executor."""
        if self._many:
            self._select()
        code = function(self._handle, *arguments, self._err_reference)
        if code:
            rt_check(code, self._err)

    def entry(self, entry: Any) -> "Executor":
        """Another entry of the model, run by the same executor: what one gives as an object the other takes."""
        return Executor(self._model, entry, self._run)

    def input_index(self, key: Any) -> int:
        """The number of an input by name or number."""
        if isinstance(key, str):
            if key not in self._index:
                raise error.ArgumentError(f"the model has no input '{key}'; it has {', '.join(self._index) or 'none'}")
            return self._index[key]
        return _number(key, len(self.inputs), "input")

    def set_input(self, key: Any, value: Any) -> None:
        """Copies an array in.  A sequence is a list of arrays, an absent optional None, a map a dict."""
        i, err = self.input_index(key), self._err
        straight = self._straight_in[i]
        if straight is not None and straight.holds(value):
            self._quick(self._rt.lathe_rt_set_input, self._in[i], straight.over(value))
            if self._borrowed:
                self._borrowed.pop(("input", i), None)
            return
        port = self.inputs[i]
        if port.dtype == "object":
            if not isinstance(value, State):
                raise error.TypeError(
                    f"input '{port.name}' is {port.type}: "
                    f"an object that the model gave is wanted, not a {type(value).__name__}"
                )
            rt_check(library.runtime().lathe_rt_set_input_object(self._p, self._in[i], value._p, err), err)
            return
        if i in self._map_in:
            if not isinstance(value, dict):
                wrong = type(value).__name__
                raise error.TypeError(f"input '{port.name}' is {port.type}: a dict is wanted, not a {wrong}")
            self._set_map(i, value)
            return
        texts = port.dtype == "string" and port.shape is not None and isinstance(value, np.ndarray)
        if texts and value.dtype.kind in "OUS":
            self._set_strings(self._in[i], value.reshape(-1).tolist(), value.shape)
            return
        if (
            self.inputs[i].type.startswith("Optional[Tensor")
            and value is not None
            and not isinstance(value, (list, tuple))
        ):
            value = [value]
        if self.inputs[i].shape is None and (value is None or isinstance(value, (list, tuple))):
            arrays = [as_ndarray(np.asarray(v) if not isinstance(v, NDArray) else v) for v in value or ()]
            pointers = (ctypes.POINTER(RtTensor) * max(len(arrays), 1))(
                *[ctypes.pointer(self._tensor(a)) for a in arrays]
            )
            n = -1 if value is None else len(arrays)
            rt_check(library.runtime().lathe_rt_set_input_items(self._p, self._in[i], n, pointers, err), err)
            return
        if self.inputs[i].dtype == "string" and not isinstance(value, NDArray):
            value = np.asarray(value, dtype=None if isinstance(value, np.ndarray) else object)
        if isinstance(value, np.ndarray):
            value = native(value)
        a = as_ndarray(
            value
            if hasattr(value, "__dlpack__") or isinstance(value, NDArray)
            else np.asarray(value, dtype=self._numpy_dtype(i))
        )
        rt_check(library.runtime().lathe_rt_set_input(self._p, self._in[i], self._tensor(a), err), err)
        self._borrowed.pop(("input", i), None)

    def _tensor(self, a: NDArray) -> RtTensor:
        """As the runtime takes it: strings become numbers of this executor's."""
        return a.rt_tensor() if a.dtype != "string" else self._strings(np.asarray(a).reshape(-1).tolist(), a.shape)

    def _set_map(self, i: int, value: Dict[Any, Any]) -> None:
        """Copies a map in; one of texts to numbers in one call."""
        (first, second), (keys, values), n = self._in[i], self._map_in[i], len(value)
        numbers = None
        if values.dtype != "string":
            raw, numbers = self._room(n, values.name, values.dtype)
            raw[:] = list(value.values())
        row = _row(value) if keys.dtype == "string" and numbers is not None else None
        if row is not None:
            self._quick(self._rt.lathe_rt_set_input_map, first, n, row, numbers)
            return
        if keys.dtype == "string":
            self._set_strings(first, value, (n,))
        else:
            raw, tensor = self._room(n, keys.name, keys.dtype)
            raw[:] = list(value)
            self._quick(self._rt.lathe_rt_set_input, first, tensor)
        if numbers is None:
            self._set_strings(second, value.values(), (n,))
        else:
            self._quick(self._rt.lathe_rt_set_input, second, numbers)

    def _set_strings(self, number: int, items: Collection[Any], shape: Tuple[int, ...]) -> None:
        """Copies strings into the input of this number."""
        row = _row(items)
        if row is not None:
            self._quick(self._rt.lathe_rt_set_input_texts, number, len(shape), _sizes(shape), row)
        else:
            self._quick(self._rt.lathe_rt_set_input, number, ctypes.byref(self._strings(list(items), shape)))

    def _strings(self, items: List[Any], shape: Tuple[int, ...]) -> RtTensor:
        """A tensor of the numbers of texts, each of which the executor is told once."""
        put = library.runtime().lathe_rt_string_put
        numbers: Dict[Any, int] = {}
        for text in set(items):
            data = _utf8(text, items)
            rt_check(put(self._p, data, len(data), self._number, self._err), self._err)
            numbers[text] = self._number.value
        raw = np.fromiter(map(numbers.__getitem__, items), np.uint64, len(items)).reshape(shape)
        t = tensor_of(raw, "uint64")
        t.dtype = RtDType(*STRING, 1)
        return t

    def _room(self, count: int, key: str, dtype: str) -> Tuple[np.ndarray, Any]:
        """Memory for a vector, and a reference to the tensor over it; for a port's key that of the last time."""
        known = self._rooms.get(key)
        if known is None or len(known[0]) != count:
            raw = np.empty(count, storage(dtype)[0])
            known = self._rooms[key] = (raw, ctypes.byref(tensor_of(raw, dtype)))
        return known

    def _copy_of(self, t: RtTensor) -> NDArray:
        """A copy of an output or input, strings as str objects."""
        if (t.dtype.code, t.dtype.bits) != STRING:
            return copy_of(t)
        shape = tuple(t.shape[: t.ndim])
        count = math.prod(shape)
        numbers = _numbers(count).from_address(t.data)[:] if count else []
        get, text, size = self._rt.lathe_rt_string_get, self._text, self._size
        texts: Dict[int, str] = {}
        for number in set(numbers):
            self._quick(get, ctypes.c_uint64(number), self._text_reference, self._size_reference)
            texts[number] = ctypes.string_at(text.value or 0, size.value).decode("utf-8", "surrogateescape")
        self._model.learn(texts)
        out = np.empty(shape, object)
        out.reshape(-1)[:] = [texts[n] for n in numbers]
        return NDArray(out, "string")

    def _seen(self, t: RtTensor) -> NDArray:
        """What a function that watches is shown: the program's own memory, strings as a copy."""
        return self._copy_of(t) if (t.dtype.code, t.dtype.bits) == STRING else from_address(t)

    def set_input_view(self, key: Any, value: Any) -> None:
        """Binds the memory of an array: runs read it as it is then.  It is kept alive until the input is set again."""
        i, err = self.input_index(key), RtError()
        a = self._over_memory(self.inputs[i], value)
        rt_check(library.runtime().lathe_rt_set_input_view(self._p, self._in[i], a.rt_tensor(), err), err)
        self._borrowed["input", i] = a

    def set_output_view(self, key: Any, value: Any) -> None:
        """Binds the memory of an array: runs leave the output there.  None: in the executor's own."""
        i, err = self.output_index(key), RtError()
        a = None if value is None else self._over_memory(self.outputs[i], value)
        if a is not None and not a.writeable:
            raise error.ArgumentError(
                f"output '{self.outputs[i].name}' cannot be written there: the array is read-only"
            )
        tensor = a.rt_tensor() if a is not None else None
        rt_check(library.runtime().lathe_rt_set_output_view(self._p, self._out[i], tensor, err), err)
        self._borrowed["output", i] = a

    @staticmethod
    def _over_memory(port: Port, value: Any) -> NDArray:
        """An array over the memory of the caller's; what would have to be copied is refused."""
        if not isinstance(value, (NDArray, np.ndarray)) and not hasattr(value, "__dlpack__"):
            raise error.TypeError(
                f"'{port.name}' cannot be bound to a {type(value).__name__}: "
                "an array is wanted, whose memory can be used"
            )
        if port.shape is None:
            raise error.UnsupportedError(f"'{port.name}' is {port.type}; only tensors can be bound to memory")
        if isinstance(value, np.ndarray) and value.dtype.name in NARROW:
            raise error.UnsupportedError(
                f"'{port.name}' cannot be bound: {value.dtype.name} is stored differently; set_input copies it"
            )
        return as_ndarray(value)

    def output_index(self, key: Any) -> int:
        """The number of an output by name or number."""
        if isinstance(key, str):
            if key not in self._out_index:
                raise error.ArgumentError(
                    f"the model has no output '{key}'; it has {', '.join(self._out_index) or 'none'}"
                )
            return self._out_index[key]
        return _number(key, len(self.outputs), "output")

    def _numpy_dtype(self, i: int) -> Any:
        return storage(self.inputs[i].dtype)[0] if self.inputs[i].dtype else None

    def run(self) -> None:
        """Runs the model on the inputs that were set."""
        if self._many:
            self._select()
        code = self._rt.lathe_rt_run(self._handle, self._err_reference)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        rt_check(code, self._err)

    def reset(self) -> None:
        """What the model keeps from one run to the next begins anew."""
        rt_check(library.runtime().lathe_rt_executor_reset(self._p, self._err), self._err)

    def get_output(self, key: Any) -> Any:
        """A copy of an output, by name or number: an array; a list of arrays for a sequence; None for an absent
        optional; a list of dicts, one for each row, for maps."""
        i = key if type(key) is int and 0 <= key < len(self._out) else self.output_index(key)
        straight = self._straight_out[i]
        if straight is not None:
            if self._many:
                self._select()
            code = self._rt_get_output(self._handle, self._out[i], self._found_reference, self._err_reference)
            if code:
                rt_check(code, self._err)
            copy = straight.copy(self._found.contents)
            return self._copy_of(self._found.contents) if copy is None else copy
        if isinstance(self._out[i], tuple):
            keys, rows = (self._tensor_output(k).numpy().tolist() for k in self._out[i])
            return [dict(zip(keys, row)) for row in rows]
        err = self._err
        if self.outputs[i].dtype == "object":
            found = ctypes.c_void_p()
            rt_check(library.runtime().lathe_rt_get_output_object(self._p, self._out[i], ctypes.byref(found), err), err)
            return State(found.value or 0, self.outputs[i].type, self._run)
        if self.outputs[i].shape is None:
            n, items = ctypes.c_int32(), ctypes.POINTER(ctypes.POINTER(RtTensor))()
            rt_check(library.runtime().lathe_rt_get_output_items(self._p, self._out[i], n, items, err), err)
            found = None if n.value < 0 else [self._copy_of(items[k].contents) for k in range(n.value)]
            if self.outputs[i].type.startswith("Optional[Tensor"):
                return found[0] if found else None
            return found
        return self._tensor_output(self._out[i])

    def _tensor_output(self, number: int) -> NDArray:
        self._quick(self._rt.lathe_rt_get_output, number, self._found_reference)
        return self._copy_of(self._found.contents)

    def get_input(self, key: Any) -> NDArray:
        """A copy of an input that was set."""
        t, err, number = ctypes.POINTER(RtTensor)(), RtError(), self._in[self.input_index(key)]
        if isinstance(number, tuple):
            raise error.UnsupportedError(f"'{key}' is a map, which cannot be read back")
        rt_check(library.runtime().lathe_rt_get_input(self._p, number, ctypes.byref(t), ctypes.byref(err)), err)
        return self._copy_of(t.contents)

    def set_threads(self, n: int) -> None:
        """Threads for this executor; 0: as lathe.runtime.num_threads() says."""
        err = RtError()
        rt_check(library.runtime().lathe_rt_executor_set_threads(self._p, n, ctypes.byref(err)), err)

    def watch(self, fn: Any) -> None:
        """Calls fn(node, seconds, inputs, outputs) after each node; arrays are the program's own
        memory.  None ends it."""
        if fn is None:
            library.runtime().lathe_rt_executor_watch(self._p, None, None)
            self._watch = None
            return

        def run(_user: Any, node: int, seconds: float, nin: int, ins: Any, nout: int, outs: Any) -> int:
            try:
                fn(
                    node,
                    seconds,
                    [self._seen(ins[i].contents) for i in range(nin)],
                    [self._seen(outs[i].contents) for i in range(nout)],
                )
                return 0
            except BaseException as e:  # pylint: disable=broad-except
                self._failed = e
                return 1

        self._watch = library.NodeFn(run)
        library.runtime().lathe_rt_executor_watch(self._p, ctypes.cast(self._watch, ctypes.c_void_p), None)
