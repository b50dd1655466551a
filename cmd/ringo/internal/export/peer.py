"""Loads weights that ringo wrote into PyTorch's networks, strictly, and writes their logits; or writes PyTorch's own.

usage: peer.py MODEL IN.safetensors INPUT.f32 LOGITS.f32 [OUT.safetensors]
With OUT the network has weights of its own, from a seed, which are written there; IN is not read.
"""
import json, os, struct, sys

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "..", "bench", "peers"))
import torch_models

KINDS = {"F32": np.float32, "I64": np.int64}
NAMES = {"mnist-cnn": "mnist", "cifar-resnet20": "resnet20", "cifar-vgg16": "vgg16", "ctr-dnn": "ctr400"}


def read(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header, values = json.loads(f.read(n)), f.read()
    header.pop("__metadata__", None)
    return {k: torch.from_numpy(np.frombuffer(values[e["data_offsets"][0] : e["data_offsets"][1]], KINDS[e["dtype"]]).reshape(e["shape"]).copy()) for k, e in header.items()}


def write(path, state):
    header, parts, at = {}, [], 0
    for k, v in state.items():
        b = v.numpy().tobytes()
        header[k] = {"dtype": "I64" if v.dtype == torch.int64 else "F32", "shape": list(v.shape), "data_offsets": [at, at + len(b)]}
        parts.append(b)
        at += len(b)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def main():
    name, weights, given, logits = sys.argv[1:5]
    torch.manual_seed(1)
    net, inputs, _ = torch_models.build(NAMES.get(name, name), 2)
    if len(sys.argv) > 5:
        with torch.no_grad():
            for k, v in net.state_dict().items():
                if k.endswith("running_mean"):
                    v.normal_(0, 0.1)
                if k.endswith("running_var"):
                    v.uniform_(0.5, 2)
        write(sys.argv[5], net.state_dict())
    else:
        net.load_state_dict(read(weights), strict=True)
    x = np.fromfile(given, np.float32)
    if name == "lstm":
        x = torch.from_numpy(x.reshape(2, -1).astype(np.int64).T.copy())
    else:
        _, c, h, w = inputs[0].shape
        x = torch.from_numpy(x.reshape(2, h, w, c).transpose(0, 3, 1, 2).copy())
    net.eval()
    with torch.no_grad():
        y = net(x)
    (y[0] if isinstance(y, tuple) else y).numpy().astype(np.float32).tofile(logits)


main()
