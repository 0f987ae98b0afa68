"""Build backend of pyproject.toml: packs what `make build` or `make wheel` made into a wheel.

In: python/lathe and the build folder ($LATHE_BUILD, or build/).
Out: lathe-VERSION-py3-none-PLATFORM.whl.  In it, under lathe/: lib/ and include/ (the libraries, the runtime also
to link in, the plugins that are linked to no other library, the headers) and bin/lathe, the program, which the command
`lathe` starts.  Nothing is compiled here and nothing is downloaded: the standard library writes the archive.

The platform is read from the files: manylinux_2_N is the oldest glibc that has every symbol version they ask for.
A file that needs another library, or looks for one in a folder of this machine, is refused."""

import base64
import hashlib
import os
import pathlib
import re
import zipfile

import elf

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: From the build folder: where each goes in the package.
BUILT = {"liblathe.so.0": "lib", "liblathe_rt.so.2": "lib", "lib/liblathe_rt.a": "lib", "lathe": "bin",
         "lathe-plugins/lathe_plugin_npu.so": "lib/lathe-plugins",
         "lathe-plugins/lathe_plugin_onnxruntime.so": "lib/lathe-plugins"}  # fmt: skip
#: What every Linux with glibc has (PEP 600).
SYSTEM = re.compile(r"(libc|libm|libpthread|libdl|librt|libgcc_s|ld-linux-[\w-]+)\.so\.\d+")
#: The command: found and started without importing the package.
COMMAND = b"""#!python
# Starts the program of the package.
import importlib.util
import os
import sys

program = os.path.join(importlib.util.find_spec("lathe").submodule_search_locations[0], "bin", "lathe")
os.execv(program, ["lathe", *sys.argv[1:]])
"""


def _version():
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"project\(lathe VERSION ([\d.]+)", text).group(1)


def _build_folder():
    folder = pathlib.Path(os.environ.get("LATHE_BUILD", "build"))
    folder = folder if folder.is_absolute() else ROOT / folder
    missing = [name for name in BUILT if not (folder / name).exists()]
    if missing:
        raise SystemExit(f"{', '.join(missing)} not found in {folder}: run `make build` first, or set LATHE_BUILD")
    return folder


def platform_tag(files):
    """The tag for ELF files, {name: bytes}: the least glibc that serves them all."""
    glibc, machines = (2, 17), set()  # 2.17: the oldest that the tag is used for
    for name, data in files.items():
        needs = elf.needs(data)
        machines.add(needs.machine)
        foreign = [lib for lib in needs.libraries if not SYSTEM.fullmatch(lib) and not lib.startswith("liblathe")]
        if foreign:
            raise SystemExit(f"{name} needs {', '.join(foreign)}, which is not part of every Linux; pack another build")
        local = [folder for folder in needs.search_path if not folder.startswith("$ORIGIN")]
        if local:
            where = ", ".join(local)
            raise SystemExit(
                f"{name} looks for libraries in {where}, a folder of this machine; configure with -DLATHE_PORTABLE=ON"
            )
        for version in needs.versions:
            numbers = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
            if numbers:
                glibc = max(glibc, (int(numbers[1]), int(numbers[2])))
            elif not version.startswith(("LATHE_", "GCC_")):
                raise SystemExit(f"{name} needs symbols of version {version}, which nothing tells the age of")
    if len(machines) != 1:
        raise SystemExit(f"the build folder mixes machines: {', '.join(sorted(machines))}")
    return f"manylinux_{glibc[0]}_{glibc[1]}_{machines.pop()}"


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
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: lathe\nRoot-Is-Purelib: {pure}\nTag: py3-none-{tag}\n".encode(),
        False,
    )
    files[f"{info}/entry_points.txt"] = (
        b"[torch_dynamo_backends]\nlathe = lathe.relay.frontend.pytorch.compiler:backend\n",
        False,
    )
    files[f"{info}/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), False)
    record = []
    name = f"lathe-{_version()}-py3-none-{tag}.whl"
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, (data, executable) in sorted(files.items()):
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))  # same input, same bytes
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16  # a regular file
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
        if path.is_file() and path.suffix in (".py", ".pyi", ".typed"):
            files[path.relative_to(package).as_posix()] = (path.read_bytes(), False)
    binaries = {}
    for name, place in BUILT.items():
        data = (folder / name).read_bytes()
        files[f"lathe/{place}/{pathlib.Path(name).name}"] = (data, not name.endswith(".a"))
        if not name.endswith(".a"):
            binaries[name] = data
    for header in ("lathe.h", "lathe_rt.h"):
        files[f"lathe/include/{header}"] = ((ROOT / "include" / header).read_bytes(), False)
    files[f"lathe-{_version()}.data/scripts/lathe"] = (COMMAND, True)
    return _write(wheel_directory, files, platform_tag(binaries))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 660: a path file that points at the source tree."""
    return _write(wheel_directory, {"lathe.pth": (f"{ROOT / 'python'}\n".encode(), False)}, "any")
