"""Archives."""

from __future__ import annotations

import os
import tarfile
from typing import Any, List, Sequence, Union

from .. import error


def tar(output: str, files: Union[str, Sequence[str]]) -> None:
    """Writes an archive of files and folders, each under its own name."""
    paths = [files] if isinstance(files, str) else list(files)
    names = [os.path.basename(os.path.normpath(p)) for p in paths]
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise error.ArgumentError(f"tar: two files are called '{twice[0]}'; an archive holds each name once")
    with tarfile.open(output, "w") as archive:
        for path, name in zip(paths, names):
            archive.add(path, name)


tar.output_format = "tar"  # type: ignore[attr-defined]


def untar(tar_file: str, directory: str) -> None:
    """Unpacks an archive into a folder; names that would lie elsewhere are refused."""
    with tarfile.open(tar_file) as archive:
        root = os.path.realpath(directory)
        for member in archive.getmembers():
            inside = os.path.realpath(os.path.join(root, member.name))
            if os.path.commonpath([root, inside]) != root or not (member.isfile() or member.isdir()):
                raise error.ArgumentError(f"untar: '{member.name}' of {tar_file} is no plain file inside of the folder")
        archive.extractall(directory)  # noqa: S202  (checked above)


def normalize_file_list_by_unpacking_tars(temp: Any, file_list: Sequence[str]) -> List[str]:
    """The files, with what the archives among them hold, unpacked below a temporary folder."""
    out: List[str] = []
    for i, path in enumerate(file_list):
        if not path.endswith(".tar"):
            out.append(path)
            continue
        folder = temp.relpath(f"tar{i}")
        os.makedirs(folder)
        untar(path, folder)
        out += [os.path.join(folder, n) for n in sorted(os.listdir(folder))]
    return out
