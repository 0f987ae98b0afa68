"""Files by their address: those that are there already, and file: addresses.  Nothing is fetched from a network."""

from __future__ import annotations

import os
import shutil
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from .. import error

#: Where download_testdata looks: $TVM_TEST_DATA_ROOT, or a folder of the home folder.
TEST_DATA_ROOT_PATH = Path(os.environ.get("TVM_TEST_DATA_ROOT", "") or os.path.join("~", ".tvm_test_data")).expanduser()


def download(url: str, path: Any, overwrite: bool = False, size_compare: bool = False, retries: int = 3) -> None:
    """Puts what a file: address names at a path; a file that is there already is kept unless overwrite is set.  Other
    addresses are refused: put the file there yourself."""
    where = Path(path).expanduser()
    if where.is_file() and not overwrite:
        return
    parts = urllib.parse.urlsplit(str(url))
    if parts.scheme != "file":
        raise error.UnsupportedError(
            f"download: Lathe uses no network; fetch {url} by other means and put it at {where}"
        )
    source = urllib.request.url2pathname(parts.path)
    if not os.path.isfile(source):
        raise error.IOError(f"download: there is no file {source}")
    where.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, where)


def download_testdata(url: str, relpath: Any, module: Any = None, overwrite: bool = False) -> str:
    """The path of a file below TEST_DATA_ROOT_PATH (in a folder named by module), which `download` puts there."""
    folders = [module] if isinstance(module, str) else list(module or [])
    path = TEST_DATA_ROOT_PATH.joinpath(*folders, relpath)
    download(url, path, overwrite=overwrite)
    return str(path)
