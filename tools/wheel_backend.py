"""Build backend of pyproject.toml: packs what `make build` made into a wheel.

In: python/lathe and the libraries of the build folder ($LATHE_BUILD, or build/).
Out: lathe-VERSION-py3-none-PLATFORM.whl.  Nothing is compiled here and nothing is
downloaded: the standard library writes the archive."""

import base64
import hashlib
import os
import pathlib
import re
import sysconfig
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARIES = ("liblathe.so", "liblathe_rt.so")


def _version():
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"project\(lathe VERSION ([\d.]+)", text).group(1)


def _build_folder():
    folder = pathlib.Path(os.environ.get("LATHE_BUILD", "build"))
    folder = folder if folder.is_absolute() else ROOT / folder
    missing = [name for name in LIBRARIES if not (folder / name).exists()]
    if missing:
        raise SystemExit(f"{', '.join(missing)} not found in {folder}: run `make build` first, or set LATHE_BUILD")
    return folder


def _metadata():
    return (
        "Metadata-Version: 2.1\n"
        "Name: lathe\n"
        f"Version: {_version()}\n"
        "Summary: A machine-learning compiler: tensor expressions, loop schedules, fast native code\n"
        "License: Apache-2.0\n"
        "Requires-Python: >=3.9\n"
        "Requires-Dist: numpy>=1.23\n"
        "Description-Content-Type: text/markdown\n"
        "\n" + (ROOT / "README.md").read_text()
    )


def _write(directory, files, tag):
    """A wheel of {name: (bytes, is executable)} in the folder; gives its file name."""
    info = f"lathe-{_version()}.dist-info"
    files = dict(files)
    pure = "false" if tag != "any" else "true"
    files[f"{info}/METADATA"] = (_metadata().encode(), False)
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: lathe\nRoot-Is-Purelib: {pure}\nTag: py3-none-{tag}\n".encode(), False)
    files[f"{info}/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), False)
    record = []
    name = f"lathe-{_version()}-py3-none-{tag}.whl"
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, (data, executable) in sorted(files.items()):
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))  # same input, same bytes
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if executable else 0o644) << 16
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}")
        record.append(f"{info}/RECORD,,")
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD", (1980, 1, 1, 0, 0, 0)), "\n".join(record) + "\n")
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517."""
    folder = _build_folder()
    package = ROOT / "python"
    files = {}
    for path in sorted((package / "lathe").rglob("*")):
        if path.is_file() and path.suffix in (".py", ".typed"):
            files[path.relative_to(package).as_posix()] = (path.read_bytes(), False)
    for name in LIBRARIES:
        files[f"lathe/{name}"] = ((folder / name).read_bytes(), True)
    return _write(wheel_directory, files, re.sub(r"[-.]", "_", sysconfig.get_platform()))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 660: a path file that points at the source tree."""
    return _write(wheel_directory, {"lathe.pth": (f"{ROOT / 'python'}\n".encode(), False)}, "any")
