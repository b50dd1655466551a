#!/usr/bin/env python3
"""Writes the golden files: what PyTorch (CPU, float32) computes for each layer and optimizer.

usage: make_golden.py [--only PREFIX] [--out DIR]    (needs python3-torch)

Each case goes to nn/testdata/golden/NAME.gz or optim/testdata/golden/NAME.gz: a gzipped
line of JSON {"name", "op", "attrs": {...}, "arrays": [{"name", "shape", "type"}...]} and
then the arrays in that order, little-endian float32 or int32. internal/golden reads them.

Everything lies as ringo has it: images [n, h, w, c], convolution weights [kh, kw, in, out],
dense weights [out, in]. Arrays named dX are gradients of sum(dy * y) with respect to X.

Inputs are drawn by a generator of this file's own, from the case's name, in multiples of
1/256: they do not depend on the version of any library, and compress. Every case is also
computed in float64, and refused where float32 is further off than a tenth of the tolerance
that the tests have.
"""
import argparse, gzip, io, json, os, sys, zlib

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
import torch.nn.functional as F

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = []  # (folder, name, op, attrs, function)


class Draw:
    """Numbers from the case's name alone (SplitMix64)."""

    def __init__(self, name):
        self.state = zlib.crc32(name.encode())

    def words(self, n):
        with np.errstate(over="ignore"):
            z = np.uint64(self.state) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            self.state = int(z[-1])
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return z ^ (z >> np.uint64(31))

    def floats(self, *shape, scale=1.0, offset=0.0):
        """Uniform over [-1, 1) in steps of 1/256, times scale (a power of two), plus offset."""
        q = (self.words(int(np.prod(shape))) % np.uint64(512)).astype(np.float32) / 256 - 1
        return (q * np.float32(scale) + np.float32(offset)).reshape(shape)

    def distinct(self, *shape):
        """A permutation of evenly spaced values around zero: no two are equal, none is zero."""
        n = int(np.prod(shape))
        order = np.argsort(self.words(n), kind="stable")
        return ((order - n // 2 + 0.5) / 64).astype(np.float32).reshape(shape)

    def ints(self, high, *shape):
        return (self.words(int(np.prod(shape))) % np.uint64(high)).astype(np.int32).reshape(shape)


def case(folder, name, op, **attrs):
    def add(f):
        CASES.append((folder, name, op, attrs, f))
        return f

    return add


def fan(n):
    """A power of two near 1/sqrt(n), so that outputs are of order 1."""
    return 2.0 ** -round(np.log2(max(1, n)) / 2)


# --- how a layer is run: leaves are the arrays that get gradients -------------------------


def run(dtype, leaves, forward, dy):
    """forward(**leaves) is y, or (y, extra arrays by name). Returns y, gradients and extras."""
    t = {k: torch.from_numpy(v).to(dtype).requires_grad_() for k, v in leaves.items()}
    out = forward(**t)
    y, extra = out if isinstance(out, tuple) else (out, {})
    y.backward(torch.from_numpy(dy).to(dtype).reshape(y.shape))
    result = {"y": y}
    result.update({"d" + k: v.grad for k, v in t.items()})
    result.update(extra)
    return {k: v.detach().to(torch.float64).numpy() for k, v in result.items()}


def layer(draw, leaves, forward, inputs=None, dy=None):
    """All arrays of a case: the inputs, and what PyTorch makes of them in float32."""
    with torch.no_grad():
        out = forward(**{k: torch.from_numpy(v) for k, v in leaves.items()})
    y = out[0] if isinstance(out, tuple) else out
    if dy is None:
        dy = draw.floats(*y.shape)
    single = run(torch.float32, leaves, forward, dy)
    double = run(torch.float64, leaves, forward, dy)
    check(single, double)
    return {**(inputs or {}), **leaves, "dy": dy, **{k: v.astype(np.float32) for k, v in single.items()}}


def check(single, double):
    for k, want in double.items():
        worst, largest = np.abs(single[k] - want).max(), np.abs(want).max()
        if not (largest > 0 and worst <= 1e-5 * largest):
            raise SystemExit(f"{k}: float32 is {worst:g} from float64, with {largest:g} the largest")


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


# --- convolution --------------------------------------------------------------------------

RELU = {"": 0, "-relu": 1}


def convolution(n, h, w, cin, cout, k, stride=1, pad=0, bias=False, act="", maxpool=False):
    """With maxpool the maximum of each 2x2 window follows."""
    name = f"conv-{k}x{k}-s{stride}-p{pad}-{cin}to{cout}-{h}x{w}{'-bias' if bias else ''}{'-maxpool' if maxpool else ''}{act}"

    @case("nn", name, "conv", stride=stride, pad=pad, relu=RELU[act], maxpool2=int(maxpool))
    def make(draw):
        leaves = {"x": draw.floats(n, h, w, cin), "w": draw.floats(k, k, cin, cout, scale=fan(k * k * cin))}
        if bias:
            leaves["b"] = draw.floats(cout)

        def forward(x, w, b=None):
            y = F.conv2d(nchw(x), w.permute(3, 2, 0, 1), b, stride, pad)
            y = nhwc(F.max_pool2d(y, 2) if maxpool else y)
            return F.relu(y) if act else y

        return layer(draw, leaves, forward)


for h, w in ((8, 8), (7, 9)):
    convolution(3, h, w, 3, 16, 3, pad=1)
    convolution(3, h, w, 16, 16, 3, pad=1)
    convolution(2, h, w, 16, 32, 3, pad=1)
convolution(5, 4, 4, 32, 32, 3, pad=1)
convolution(9, 2, 2, 32, 32, 3, pad=1)
convolution(3, 1, 1, 16, 16, 3, pad=1)
convolution(1, 8, 8, 64, 64, 3, pad=1)
convolution(2, 8, 8, 16, 16, 3, pad=1, bias=True, act="-relu")
convolution(2, 6, 11, 5, 7, 3, pad=1, bias=True)
convolution(2, 8, 8, 16, 32, 3, stride=2, pad=1)
convolution(2, 7, 9, 16, 32, 3, stride=2, pad=1)
convolution(3, 5, 7, 16, 48, 1)
convolution(2, 4, 4, 64, 16, 1, bias=True)
convolution(2, 7, 9, 16, 32, 1, stride=2)
convolution(2, 8, 8, 32, 16, 1, stride=2)
convolution(2, 17, 15, 3, 16, 7, stride=2, pad=3)
convolution(3, 12, 12, 1, 20, 5, bias=True)
convolution(2, 9, 8, 6, 10, 5, bias=True)
convolution(3, 12, 12, 1, 20, 5, bias=True, act="-relu", maxpool=True)
convolution(2, 9, 8, 6, 10, 5, bias=True, maxpool=True)
convolution(2, 7, 10, 16, 19, 3, pad=1, bias=True, act="-relu", maxpool=True)


# --- normalisation ------------------------------------------------------------------------

EPS, MOMENTUM = 1e-5, 0.1


def batch_norm_leaves(draw, n, h, w, c, residual):
    leaves = {
        "x": draw.floats(n, h, w, c, scale=2) + np.linspace(-2, 2, c, dtype=np.float32).round(2),
        "gamma": draw.floats(c, scale=0.5, offset=1),
        "beta": draw.floats(c),
    }
    if residual:
        leaves["residual"] = draw.floats(n, h, w, c)
    return leaves


def batch_norm(n, h, w, c, residual=False, act=""):
    """Training: y, gradients, and the running statistics after (PyTorch's: the variance unbiased)."""
    name = f"batchnorm-{n}x{h}x{w}x{c}{'-residual' if residual else ''}{act}"

    @case("nn", name, "batchnorm", eps=EPS, momentum=MOMENTUM, relu=RELU[act])
    def make(draw):
        leaves = batch_norm_leaves(draw, n, h, w, c, residual)
        inputs = {"mean": draw.floats(c), "var": draw.floats(c, scale=0.5, offset=1)}

        def forward(x, gamma, beta, residual=None):
            mean, var = (torch.from_numpy(inputs[k].copy()).to(x.dtype) for k in ("mean", "var"))
            y = nhwc(F.batch_norm(nchw(x), mean, var, gamma, beta, True, MOMENTUM, EPS))
            y = y if residual is None else y + residual
            return (F.relu(y) if act else y), {"mean_after": mean, "var_after": var}

        return layer(draw, leaves, forward, inputs)


def batch_norm_eval(n, h, w, c, residual=False, act=""):
    name = f"batchnorm-eval-{n}x{h}x{w}x{c}{'-residual' if residual else ''}{act}"

    @case("nn", name, "batchnorm-eval", eps=EPS, relu=RELU[act])
    def make(draw):
        a = batch_norm_leaves(draw, n, h, w, c, residual)
        a.update(mean=draw.floats(c), var=draw.floats(c, scale=0.5, offset=1))

        def y(dtype):
            t = {k: torch.from_numpy(v).to(dtype) for k, v in a.items()}
            y = nhwc(F.batch_norm(nchw(t["x"]), t["mean"], t["var"], t["gamma"], t["beta"], False, MOMENTUM, EPS))
            y = y + t["residual"] if residual else y
            return {"y": (F.relu(y) if act else y).double().numpy()}

        single = y(torch.float32)
        check(single, y(torch.float64))
        return {**a, "y": single["y"].astype(np.float32)}


batch_norm(4, 5, 3, 16)
batch_norm(2, 4, 4, 64)
batch_norm(3, 3, 5, 7)
batch_norm(9, 1, 1, 33)
batch_norm(3, 4, 5, 16, act="-relu")
batch_norm(3, 4, 5, 16, residual=True)
batch_norm(3, 4, 5, 16, residual=True, act="-relu")
batch_norm(2, 3, 3, 7, residual=True, act="-relu")
for residual in (False, True):
    for act in RELU:
        batch_norm_eval(2, 3, 5, 19, residual, act)


def layer_norm(rows, width):
    @case("nn", f"layernorm-{rows}x{width}", "layernorm", eps=EPS)
    def make(draw):
        leaves = {
            "x": draw.floats(rows, width, scale=2, offset=0.5),
            "gamma": draw.floats(width, scale=0.5, offset=1),
            "beta": draw.floats(width),
        }
        return layer(draw, leaves, lambda x, gamma, beta: F.layer_norm(x, (width,), gamma, beta, EPS))


layer_norm(6, 64)
layer_norm(5, 37)


# --- pooling ------------------------------------------------------------------------------


def pool(op, n, h, w, c, k, stride, pad=0):
    """Of an average, the zeros of the padding count, PyTorch's default."""

    @case("nn", f"{op}-{k}x{k}-s{stride}-p{pad}-{h}x{w}x{c}", op, size=k, stride=stride, pad=pad)
    def make(draw):
        f = F.max_pool2d if op == "maxpool" else F.avg_pool2d
        return layer(draw, {"x": draw.distinct(n, h, w, c)}, lambda x: nhwc(f(nchw(x), k, stride, pad)))


pool("maxpool", 2, 8, 6, 16, 2, 2)
pool("maxpool", 2, 7, 5, 3, 2, 2)
pool("maxpool", 2, 9, 8, 16, 3, 2, 1)
pool("maxpool", 2, 8, 8, 5, 3, 2, 1)
pool("avgpool", 2, 8, 6, 16, 2, 2)
pool("avgpool", 2, 9, 7, 5, 3, 2)
pool("avgpool", 2, 8, 7, 19, 3, 2, 1)


def global_average(n, h, w, c):
    @case("nn", f"globalavgpool-{h}x{w}x{c}", "globalavgpool")
    def make(draw):
        return layer(draw, {"x": draw.floats(n, h, w, c)}, lambda x: x.mean((1, 2)))


def shortcut(n, h, w, cin, cout, stride):
    """ResNet's identity shortcut: pixels left out, channels of zeros on both sides."""

    @case("nn", f"shortcut-s{stride}-{h}x{w}-{cin}to{cout}", "shortcut", stride=stride, channels=cout)
    def make(draw):
        pad = ((cout - cin) // 2,) * 2
        return layer(draw, {"x": draw.floats(n, h, w, cin)}, lambda x: F.pad(x[:, ::stride, ::stride], pad))


shortcut(2, 8, 8, 16, 32, 2)
shortcut(2, 7, 5, 6, 12, 2)
global_average(3, 8, 8, 16)
global_average(2, 7, 5, 37)


# --- dense, activations, loss -------------------------------------------------------------

ACTIVATIONS = {
    "relu": F.relu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


def dense(n, cin, cout, bias=True, act=""):
    @case("nn", f"dense-{n}x{cin}to{cout}{'-bias' if bias else ''}{'-' if act else ''}{act}", "dense", **{act: 1} if act else {})
    def make(draw):
        leaves = {"x": draw.floats(n, cin), "w": draw.floats(cout, cin, scale=fan(cin))}
        if bias:
            leaves["b"] = draw.floats(cout)

        def forward(x, w, b=None):
            y = F.linear(x, w, b)
            return ACTIVATIONS[act](y) if act else y

        return layer(draw, leaves, forward)


dense(20, 64, 48)
dense(1, 37, 19)
dense(7, 33, 65, bias=False)
for name in ACTIVATIONS:
    dense(13, 30, 50, act=name)


def activation(name):
    @case("nn", f"{name}-3x67", name)
    def make(draw):
        x = draw.distinct(3, 67) * 4  # from -6 to 6
        x[0, :8] = [-100, -20, -9, -1e-3, 1e-3, 9, 20, 100]
        return layer(draw, {"x": x}, lambda x: ACTIVATIONS[name](x))


for name in ACTIVATIONS:
    activation(name)


def cross_entropy(n, classes, scale):
    @case("nn", f"softmaxce-{n}x{classes}-times{scale}", "softmaxce")
    def make(draw):
        labels = draw.ints(classes, n)
        x = draw.floats(n, classes, scale=scale)

        def forward(x):
            return F.cross_entropy(x, torch.from_numpy(labels).long()).reshape(1)

        return layer(draw, {"x": x}, forward, {"labels": labels}, dy=np.ones(1, np.float32))


cross_entropy(6, 10, 4)
cross_entropy(5, 203, 1)
cross_entropy(3, 17, 64)


# --- sequences ----------------------------------------------------------------------------


@case("nn", "embedding-11x10", "embedding")
def embedding(draw):
    ids = draw.ints(11, 9)
    ids[3] = ids[0]  # gradients of an id that comes twice are added
    ids[8] = ids[0]
    return layer(draw, {"table": draw.floats(11, 10)}, lambda table: table[torch.from_numpy(ids).long()], {"ids": ids})


def embedding_bag(mode):
    """ids of bags one after the other, which begin at offsets; pooled by mode, or sum with weights of 1/sqrt(count)."""

    @case("nn", f"embeddingbag-23x17-{mode}", "embeddingbag", pooling=["sum", "mean", "sqrt"].index(mode))
    def make(draw):
        lengths = [0, 1, 3, 0, 20, 1000, 2, 0, 7, 1]
        ids = draw.ints(23, sum(lengths))
        offsets = np.cumsum([0] + lengths).astype(np.int32)
        weights = torch.from_numpy(np.concatenate([np.full(n, max(1, n) ** -0.5, np.float32) for n in lengths]))

        def forward(table):
            more = {"mode": mode} if mode != "sqrt" else {"mode": "sum", "per_sample_weights": weights.to(table.dtype)}
            return F.embedding_bag(torch.from_numpy(ids).long(), table, torch.from_numpy(offsets[:-1]).long(), **more)

        return layer(draw, {"table": draw.floats(23, 17)}, forward, {"ids": ids, "offsets": offsets})


embedding_bag("sum")
embedding_bag("mean")
embedding_bag("sqrt")


def lstm(steps, n, width, hidden, layers):
    """x is [steps, n, width], h0 and c0 [layers, n, hidden]; gates in the order i, f, g, o."""

    @case("nn", f"lstm-{layers}layers-{steps}x{n}-{width}to{hidden}", "lstm", layers=layers)
    def make(draw):
        leaves = {"x": draw.floats(steps, n, width)}
        for l in range(layers):
            cin = width if l == 0 else hidden
            leaves[f"w_ih{l}"] = draw.floats(4 * hidden, cin, scale=fan(cin))
            leaves[f"w_hh{l}"] = draw.floats(4 * hidden, hidden, scale=fan(hidden))
            leaves[f"b_ih{l}"], leaves[f"b_hh{l}"] = draw.floats(4 * hidden), draw.floats(4 * hidden)
        inputs = {"h0": draw.floats(layers, n, hidden), "c0": draw.floats(layers, n, hidden)}

        def forward(x, **params):
            net = torch.nn.LSTM(width, hidden, layers).to(x.dtype)
            state = tuple(torch.from_numpy(inputs[k]).to(x.dtype) for k in ("h0", "c0"))
            for l in range(layers):
                for long, short in (("weight", "w"), ("bias", "b")):
                    for part in ("ih", "hh"):
                        delattr(net, f"{long}_{part}_l{l}")
                        setattr(net, f"{long}_{part}_l{l}", params[f"{short}_{part}{l}"])
            net._flat_weights = [getattr(net, k) for k in net._flat_weights_names]
            y, (h, c) = net(x, state)
            return y, {"h": h, "c": c}

        return layer(draw, leaves, forward, inputs)


lstm(5, 3, 12, 16, 2)
lstm(4, 2, 9, 19, 1)


def attention(n, steps, width, heads):
    """x is [n, steps, width]; w_qkv [3*width, width] makes q, k and v in this order, each head's values together."""

    @case("nn", f"attention-{n}x{steps}x{width}-{heads}heads", "attention", heads=heads)
    def make(draw):
        leaves = {
            "x": draw.floats(n, steps, width),
            "w_qkv": draw.floats(3 * width, width, scale=2 * fan(width)),
            "b_qkv": draw.floats(3 * width),
            "w_out": draw.floats(width, width, scale=fan(width)),
            "b_out": draw.floats(width),
        }

        def forward(x, w_qkv, b_qkv, w_out, b_out):
            split = F.linear(x, w_qkv, b_qkv).reshape(n, steps, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            q, k, v = split[0], split[1], split[2]  # [n, heads, steps, width/heads]
            scores = q @ k.transpose(2, 3) / (width // heads) ** 0.5
            future = torch.ones(steps, steps, dtype=torch.bool).triu(1)
            p = scores.masked_fill(future, float("-inf")).softmax(3)
            return F.linear((p @ v).permute(0, 2, 1, 3).reshape(n, steps, width), w_out, b_out)

        return layer(draw, leaves, forward)


attention(2, 9, 32, 4)
attention(3, 5, 24, 2)


# --- what own models are made of ----------------------------------------------------------


def of_two(op, shape, other, function, name="", **attrs):
    """y of x and z."""

    @case("nn", f"{name or op}-{'x'.join(map(str, shape))}-{'x'.join(map(str, other))}", op, **attrs)
    def make(draw):
        return layer(draw, {"x": draw.floats(*shape), "z": draw.floats(*other)}, function)


of_two("add", (3, 4, 5), (4, 1), lambda x, z: x + z)
of_two("subtract", (4, 1), (3, 4, 5), lambda x, z: x - z)
of_two("multiply", (3, 1, 37), (3, 4, 1), lambda x, z: x * z)
of_two("rowdot", (7, 37), (7, 37), lambda x, z: (x * z).sum(1))
of_two("concat", (3, 4, 5), (3, 2, 5), lambda x, z: torch.cat([x, z, x], 1), axis=1)
for ta in (0, 1):
    for tb in (0, 1):
        a, b = ((3, 19, 6) if ta else (3, 6, 19)), ((3, 9, 19) if tb else (3, 19, 9))
        of_two("matmul", a, b, lambda x, z, ta=ta, tb=tb: (x.transpose(1, 2) if ta else x) @ (z.transpose(1, 2) if tb else z),
               name=f"matmul{ta}{tb}", transpose_a=ta, transpose_b=tb)
of_two("matmul", (3, 6, 19), (19, 9), lambda x, z: x @ z, name="matmul-one", transpose_a=0, transpose_b=0)
of_two("mse", (5, 33), (5, 33), lambda x, z: F.mse_loss(x, z).reshape(1))
of_two("huber", (5, 33), (5, 33), lambda x, z: F.huber_loss(x, z, delta=0.5).reshape(1), delta=0.5)


def of_one(op, shape, function, name="", scale=1, **attrs):
    @case("nn", f"{name or op}-{'x'.join(map(str, shape))}", op, **attrs)
    def make(draw):
        return layer(draw, {"x": draw.floats(*shape, scale=scale)}, function)


of_one("softmax", (5, 37), lambda x: x.softmax(1), scale=4)
of_one("logsoftmax", (5, 37), lambda x: x.log_softmax(1), scale=4)
of_one("normalise", (5, 37), lambda x: F.normalize(x, dim=1))
of_one("sum", (3, 4, 5), lambda x: x.sum((0, 2)), a=0, b=2)
of_one("mean", (3, 4, 5), lambda x: x.mean((1, 2)), a=1, b=2)
of_one("slice", (3, 9, 5), lambda x: x[:, 2:6], axis=1, lo=2, hi=6)
of_one("transpose", (3, 4, 5), lambda x: x.permute(2, 0, 1), a=2, b=0, c=1)


@case("nn", "gather-7x2x5", "gather")
def gather(draw):
    ids = draw.ints(7, 9)
    ids[3] = ids[0]
    return layer(draw, {"x": draw.floats(7, 2, 5)}, lambda x: x.index_select(0, torch.from_numpy(ids).long()), {"ids": ids})


@case("nn", "bce-5x33", "bce")
def binary_cross_entropy(draw):
    z = (draw.floats(5, 33) + 1) / 2
    x = draw.floats(5, 33, scale=8)
    return layer(draw, {"x": x}, lambda x: F.binary_cross_entropy_with_logits(x, torch.from_numpy(z).to(x.dtype)).reshape(1), {"z": z})


def smoothed_cross_entropy(smoothing):
    @case("nn", f"crossentropy-9x17-smoothing{smoothing}", "crossentropy", smoothing=smoothing, ignored=-100)
    def make(draw):
        labels = draw.ints(17, 9)
        labels[[1, 5]] = -100

        def forward(x):
            return F.cross_entropy(x, torch.from_numpy(labels).long(), label_smoothing=smoothing).reshape(1)

        return layer(draw, {"x": draw.floats(9, 17, scale=4)}, forward, {"labels": labels})


smoothed_cross_entropy(0)
smoothed_cross_entropy(0.1)


def group_norm(n, h, w, c, groups):
    @case("nn", f"groupnorm-{n}x{h}x{w}x{c}-{groups}groups", "groupnorm", groups=groups, eps=EPS)
    def make(draw):
        leaves = {
            "x": draw.floats(n, h, w, c, scale=2, offset=0.5),
            "gamma": draw.floats(c, scale=0.5, offset=1),
            "beta": draw.floats(c),
        }
        return layer(draw, leaves, lambda x, gamma, beta: nhwc(F.group_norm(nchw(x), groups, gamma, beta, EPS)))


group_norm(3, 4, 5, 32, 8)
group_norm(2, 3, 3, 6, 3)


@case("nn", "gru-5x3-12to19", "gru")
def gru(draw):
    """x is [steps, n, width], h0 [n, hidden]; gates in the order r, z, n."""
    steps, n, width, hidden = 5, 3, 12, 19
    leaves = {
        "x": draw.floats(steps, n, width),
        "w_ih0": draw.floats(3 * hidden, width, scale=fan(width)),
        "w_hh0": draw.floats(3 * hidden, hidden, scale=fan(hidden)),
        "b_ih0": draw.floats(3 * hidden),
        "b_hh0": draw.floats(3 * hidden),
    }
    inputs = {"h0": draw.floats(n, hidden)}

    def forward(x, **params):
        net = torch.nn.GRU(width, hidden).to(x.dtype)
        for long, short in (("weight", "w"), ("bias", "b")):
            for part in ("ih", "hh"):
                delattr(net, f"{long}_{part}_l0")
                setattr(net, f"{long}_{part}_l0", params[f"{short}_{part}0"])
        net._flat_weights = [getattr(net, k) for k in net._flat_weights_names]
        y, h = net(x, torch.from_numpy(inputs["h0"]).to(x.dtype)[None])
        return y, {"h": h[0]}

    return layer(draw, leaves, forward, inputs)


# --- optimizers ---------------------------------------------------------------------------


def optimizer(name, op, make_optimizer, **attrs):
    """params [n] before, grads [steps, n], y [steps, n]: the parameters after each step."""

    @case("optim", name, op, **attrs)
    def make(draw):
        steps, n = 5, 67
        start, grads = draw.floats(n), draw.floats(steps, n)
        grads[:, 5] = 0  # a parameter that decay alone moves
        grads[:2, 6] = 0

        def after(dtype):
            p = torch.nn.Parameter(torch.from_numpy(start.copy()).to(dtype))
            o, out = make_optimizer([p]), []
            for g in grads:
                p.grad = torch.from_numpy(g.copy()).to(dtype)
                o.step()
                out.append(p.detach().double().numpy().copy())
            return {"y": np.stack(out)}

        single = after(torch.float32)
        check(single, after(torch.float64))
        return {"params": start, "grads": grads, "y": single["y"].astype(np.float32)}


def sgd(lr, momentum, decay):
    optimizer(f"sgd-momentum{momentum}-decay{decay}", "sgd",
              lambda p: torch.optim.SGD(p, lr, momentum, weight_decay=decay), lr=lr, momentum=momentum, weight_decay=decay)


sgd(0.1, 0.9, 0.01)
sgd(0.1, 0, 0)
sgd(0.1, 0, 0.01)
sgd(0.1, 0.9, 0)
optimizer("adagrad", "adagrad", lambda p: torch.optim.Adagrad(p, 0.05, eps=1e-10), lr=0.05, eps=1e-10)
optimizer("adam", "adam", lambda p: torch.optim.Adam(p, 0.01, (0.9, 0.95), 1e-8), lr=0.01, beta1=0.9, beta2=0.95, eps=1e-8)
optimizer("adamw", "adamw", lambda p: torch.optim.AdamW(p, 0.01, (0.9, 0.95), 1e-8, 0.1),
          lr=0.01, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)


# --- files --------------------------------------------------------------------------------

TYPES = {np.dtype(np.float32): "float32", np.dtype(np.int32): "int32"}


# --- click models: 20 steps of SGD, whose inputs and first weights tests draw by themselves ----


def row_of(key, rows):
    """nn.RowOf."""
    m = (1 << 64) - 1
    z = (key + 0x9E3779B97F4A7C15) & m
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & m
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & m
    return ((z ^ (z >> 31)) * rows) >> 64


class ClickSteps:
    """Weights by name, and a batch of 16 samples for each step: 3 numbers, and bags of 0 to 3 keys in 3 slots."""

    STEPS, BATCH, SLOTS, NUMBERS, ROWS, RATE = 20, 16, 3, 3, 50, 0.05

    def __init__(self, model):
        self.model, self.weights = model, {}

    def weight(self, name, *shape):
        if name not in self.weights:
            words = Draw(self.model + "/" + name).words(int(np.prod(shape))) >> np.uint64(40)
            values = (words.astype(np.float32) / 2**23 - 1) * np.float32(fan(shape[-1]))
            self.weights[name] = torch.from_numpy(values.astype(np.float32).reshape(shape)).requires_grad_()
        return self.weights[name]

    def dense(self, name, x, out, act=None):
        y = x @ self.weight(name + ".weight", out, x.shape[1]).T + self.weight(name + ".bias", out)
        return act(y) if act else y

    def tower(self, name, x, *widths, last=None):
        for i, width in enumerate(widths):
            x = self.dense(f"{name}{i+1}", x, width, torch.relu if i + 1 < len(widths) else last)
        return x

    def batch(self, step):
        draw = Draw(f"{self.model}/step{step:02d}")
        self.numbers = torch.from_numpy(((draw.words(self.BATCH * self.NUMBERS) >> np.uint64(40)) / 2**24).astype(np.float32).reshape(self.BATCH, -1))
        self.labels = torch.from_numpy((draw.words(self.BATCH) % np.uint64(2)).astype(np.float32).reshape(-1, 1))
        lengths = draw.words(self.SLOTS * self.BATCH) % np.uint64(4)
        self.bags = [[int(w % np.uint64(40)) + 1000 * (i // self.BATCH) for w in (draw.words(int(n)) if n else [])] for i, n in enumerate(lengths)]

    def bag(self, table, dim, slot):
        """[n, dim]: sums."""
        t = self.weight(table, self.ROWS, dim)
        bags = self.bags[slot * self.BATCH : (slot + 1) * self.BATCH]
        return torch.stack([t[[row_of(k, self.ROWS) for k in b]].sum(0) for b in bags])

    def all_bags(self, table, dim):
        return torch.cat([self.bag(table, dim, s) for s in range(self.SLOTS)], 1)

    def wide(self):
        return self.all_bags("wide", 1).sum(1, keepdim=True) + self.dense("numbers", self.numbers, 1)

    def losses(self, logit):
        out = []
        for step in range(self.STEPS):
            self.batch(step)
            loss = F.binary_cross_entropy_with_logits(logit(self), self.labels)
            out.append(loss.item())
            grads = torch.autograd.grad(loss, list(self.weights.values()))
            with torch.no_grad():
                for w, g in zip(self.weights.values(), grads):
                    w -= self.RATE * g
        return {"losses": np.array(out, np.float32)}


def click_model(name):
    def add(logit):
        case("models", name + "-20steps", name)(lambda draw: ClickSteps(name).losses(logit))
        return logit

    return add


def cross(c, x0, layers, rank):
    x = x0
    for i in range(layers):
        y = x @ c.weight(f"cross{i+1}.down.weight", rank, x.shape[1]).T if rank else x
        x = x0 * c.dense(f"cross{i+1}", y, x0.shape[1]) + x
    return x


@click_model("wide-deep")
def wide_deep(c):
    x = torch.cat([c.all_bags("embedding", 10), c.numbers], 1)
    return c.wide() + c.tower("fc", x, 400, 400, 400, 1)


@click_model("deepfm")
def deepfm(c):
    v = c.all_bags("embedding", 10)
    fields = v.reshape(c.BATCH, c.SLOTS, 10)
    pairs = sum((fields[:, i] * fields[:, j]).sum(1, keepdim=True) for i in range(c.SLOTS) for j in range(i))
    return c.wide() + pairs + c.tower("fc", torch.cat([v, c.numbers], 1), 400, 400, 400, 1)


@click_model("dcn-v2")
def dcn_v2(c):
    x = torch.cat([c.all_bags("embedding", 10), c.numbers], 1)
    return c.tower("fc", cross(c, x, 3, 0), 400, 400, 400, 1)


@click_model("dlrm")
def dlrm(c):
    x = [c.tower("bottom", c.numbers, 512, 256, 128, last=torch.relu)]
    x += [c.bag(f"embedding{s+1}", 128, s) for s in range(c.SLOTS)]
    return c.tower("top", cross(c, torch.cat(x, 1), 3, 512), 1024, 1024, 512, 256, 1)


@click_model("din")
def din(c):
    candidate, t = c.bag("embedding", 16, 1), c.weight("embedding", c.ROWS, 16)
    seen = []
    for i, bag in enumerate(c.bags[2 * c.BATCH :]):
        rows = t[[row_of(k, c.ROWS) for k in bag]].reshape(-1, 16)
        now = candidate[i].expand(len(bag), 16)
        weights = c.tower("attention", torch.cat([rows, now, rows - now, rows * now], 1), 36, 1)
        seen.append((weights * rows).sum(0))
    x = torch.cat([c.bag("embedding", 16, 0), candidate, torch.stack(seen), c.numbers], 1)
    return c.tower("fc", x, 200, 80, 1)


def encode(name, op, attrs, arrays):
    arrays = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
    header = {
        "name": name, "op": op, "attrs": attrs,
        "arrays": [{"name": k, "shape": list(v.shape), "type": TYPES[v.dtype]} for k, v in arrays.items()],
    }
    out = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, out, mtime=0) as z:
        z.write(json.dumps(header).encode() + b"\n")
        for v in arrays.values():
            z.write(v.astype(v.dtype.newbyteorder("<")).tobytes())
    return out.getvalue()


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--only", default="", metavar="PREFIX", help="cases whose names start so")
    ap.add_argument("--out", default=ROOT, help="the tree to write to")
    o = ap.parse_args()
    prefix = o.only
    torch.set_num_threads(1)
    total = count = 0
    for folder, name, op, attrs, make in CASES:
        if not name.startswith(prefix):
            continue
        data = encode(name, op, attrs, make(Draw(name)))
        path = os.path.join(o.out, folder, "testdata", "golden", name + ".gz")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        total, count = total + len(data), count + 1
    print(f"{count} files, {total} bytes, by PyTorch {torch.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
