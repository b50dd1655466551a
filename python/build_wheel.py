"""Builds a wheel of package ringo with libringo in it, without setuptools: it needs what capi/build.sh needs. Usage: python3 build_wheel.py FOLDER

The wheel is for every Python 3.9 or later of this kind of machine, with glibc as old as the library allows: its name says so.
"""

from __future__ import annotations

import base64
import hashlib
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = "libringo.so.1"
SUMMARY = "Collective operations among the processes of a job, and a backend of torch.distributed"


def glibc_of(library: Path) -> tuple[int, int]:
    """The oldest glibc that has all symbols which the library needs."""
    symbols = subprocess.run(["objdump", "-T", str(library)], check=True, capture_output=True, text=True).stdout
    return max(((int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)), default=(2, 17))


def build(folder: Path) -> Path:
    """Writes the wheel to a folder, and returns its path."""
    with tempfile.TemporaryDirectory() as prefix:
        subprocess.run([str(HERE.parent / "capi" / "build.sh"), prefix], check=True, stdout=sys.stderr)
        library = Path(prefix, "lib", LIBRARY)
        version = re.search(r'RINGO_VERSION "(.*)"', Path(prefix, "include", "ringo.h").read_text(encoding="utf-8"))
        assert version is not None
        major, minor = max((2, 17), glibc_of(library))
        tag = f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"
        files = {str(p.relative_to(HERE)): p.read_bytes() for p in sorted((HERE / "ringo").rglob("*")) if p.suffix == ".py" or p.name == "py.typed"}
        files[f"ringo/lib/{LIBRARY}"] = library.read_bytes()
        files["ringo/lib/LICENSE"] = (HERE.parent / "LICENSE").read_bytes()
    return _write(folder, version[1], tag, files)


def _write(folder: Path, version: str, tag: str, files: dict[str, bytes]) -> Path:
    about = f"ringo-{version}.dist-info"
    files = dict(files)
    files[f"{about}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: ringo\nVersion: {version}\nSummary: {SUMMARY}\n" "Requires-Python: >=3.9\nRequires-Dist: numpy\n"
    ).encode()
    files[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: ringo\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"ringo-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)  # of no time, so that the same sources give the same wheel
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(build(Path(sys.argv[1])))
