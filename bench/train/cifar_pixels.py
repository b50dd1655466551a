#!/usr/bin/env python3
"""Decodes a tree of 32x32 JPEGs once, so that both sides train on the same pixels.

usage: cifar_pixels.py TREE OUT     (needs python3-pil)

TREE is a folder or a .tar.gz with train/<class>/… and test/<class>/…. OUT gets CIFAR-10's binary
form (data_batch_1.bin … data_batch_5.bin, test_batch.bin, batches.meta.txt): per image a byte of
label and the red, green and blue plane. Classes are numbered by name. The images of each
part are shuffled by a fixed seed, so that the first thousand of a file hold all classes.
"""
import io, os, random, sys, tarfile

from PIL import Image


def members(tree):
    """(path, bytes) of every file."""
    if os.path.isdir(tree):
        for folder, _, names in os.walk(tree):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    yield os.path.relpath(path, tree), f.read()
        return
    with tarfile.open(tree) as tar:
        for m in tar:
            if m.isfile():
                yield m.name, tar.extractfile(m).read()


def record(path, content):
    im = Image.open(io.BytesIO(content)).convert("RGB")
    if im.size != (32, 32):
        raise SystemExit(f"{path}: {im.size[0]}x{im.size[1]} pixels, want 32x32")
    return b"".join(plane.tobytes() for plane in im.split())


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    tree, out = sys.argv[1:]
    parts = {"train": [], "test": []}
    for path, content in members(tree):
        steps = path.split("/")
        if len(steps) >= 3 and steps[-3] in parts and path.lower().endswith((".jpg", ".jpeg", ".png")):
            parts[steps[-3]].append((steps[-2], steps[-1], record(path, content)))
    names = sorted({c for part in parts.values() for c, _, _ in part})
    if len(names) != 10 or not all(parts.values()):
        raise SystemExit(f"{tree}: {len(names)} classes, {len(parts['train'])} and {len(parts['test'])} images: want 10, and some in train and in test")
    for part in parts.values():
        part.sort()
        random.Random(1).shuffle(part)
    os.makedirs(out, exist_ok=True)
    n = len(parts["train"])
    files = {f"data_batch_{i + 1}.bin": parts["train"][n * i // 5 : n * (i + 1) // 5] for i in range(5)}
    files["test_batch.bin"] = parts["test"]
    for name, part in files.items():
        with open(os.path.join(out, name), "wb") as f:
            for c, _, planes in part:
                f.write(bytes([names.index(c)]) + planes)
    with open(os.path.join(out, "batches.meta.txt"), "w") as f:
        f.write("\n".join(names) + "\n")
    print(f"{n} and {len(parts['test'])} images in {out}")


if __name__ == "__main__":
    main()
