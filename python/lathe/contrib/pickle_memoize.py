"""Results of functions kept in files, for tests whose references take long to compute."""

from __future__ import annotations

import atexit
import functools
import os
import pathlib
import pickle
import warnings
from typing import Any, Callable, Dict

#: The folder, below the current one.
FOLDER = ".pkl_memoize_py3"


class Cache:
    """What is known under a key: a dictionary with a file."""

    _caches: Dict[str, "Cache"] = {}

    def __init__(self, key: str, save_at_exit: bool):
        self.path = pathlib.Path(FOLDER, key + ".pkl").absolute()
        self.save_at_exit, self.dirty = save_at_exit, False
        self.cache: Dict[bytes, Any] = {}
        if self.path.exists():
            try:
                self.cache = pickle.loads(self.path.read_bytes())
            except Exception as e:  # pylint: disable=broad-except
                warnings.warn(f"{self.path} cannot be read ({e}); its results are computed again")
        if save_at_exit:
            atexit.register(self.save)

    @classmethod
    def of(cls, key: str, save_at_exit: bool) -> "Cache":
        """The cache of a key; there is one in a process."""
        if key not in cls._caches:
            cls._caches[key] = cls(key, save_at_exit)
        return cls._caches[key]

    def save(self) -> None:
        """Writes what is new: the whole file beside, then in its place."""
        if not self.dirty:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(f".{os.getpid()}.new")
        beside.write_bytes(pickle.dumps(self.cache))
        beside.replace(self.path)
        self.dirty = False


def memoize(key: str, save_at_exit: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: what the function gives is kept in a file under the key, by its arguments and by the values that it
    closes over.  The file is written after each new result, or once when the program ends."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def run(*args: Any, **kwargs: Any) -> Any:
            cache = Cache.of(key, save_at_exit)
            closed = [c.cell_contents for c in func.__closure__ or ()]
            place = pickle.dumps((func.__name__, func.__defaults__, closed, args, sorted(kwargs.items())))
            if place not in cache.cache:
                cache.cache[place], cache.dirty = func(*args, **kwargs), True
                if not save_at_exit:
                    cache.save()
            return cache.cache[place]

        return run

    return decorate
