"""Makes kinds.npz and kinds_compressed.npz: value i of each array, in C order, is i % 100, of bool i % 2."""
import io, zipfile
import numpy as np
from numpy.lib import format as f

kinds = [o + k for k in ("f2", "f4", "f8", "i2", "i4", "i8", "u2", "u4", "u8") for o in "<>"] + ["|i1", "|u1", "|b1"]
arrays = {}
for kind in kinds:
    a = np.arange(24).reshape(4, 3, 2) % (2 if kind == "|b1" else 100)
    name = kind.replace("<", "little-").replace(">", "big-").replace("|", "")
    arrays[name], arrays[name + "-fortran"] = a.astype(kind), np.asfortranarray(a.astype(kind))
for name, method in (("kinds.npz", zipfile.ZIP_STORED), ("kinds_compressed.npz", zipfile.ZIP_DEFLATED)):
    with zipfile.ZipFile(name, "w", method) as z:
        for k, (n, a) in enumerate(arrays.items()):
            b = io.BytesIO()
            f.write_array(b, a, version=[(1, 0), (2, 0), (3, 0)][k % 3])
            z.writestr(zipfile.ZipInfo(n + ".npy"), b.getvalue(), compress_type=method)
