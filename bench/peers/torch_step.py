#!/usr/bin/env python3
"""Times the whole training step of a model in PyTorch on the CPU; prints one line of JSON.

usage: torch_step.py MODEL [--batch N] [--np N] [--threads N] [--steps N] [--channels-last] [--autocast]

MODEL is mnist, resnet20, vgg16, resnet50, lstm, ctr400, ctr4096 or gpt-mini. SGD with momentum
0.9, without for the two ctr models (embeddings with sparse gradients); AdamW for gpt-mini. With --np ranks are
processes, DistributedDataParallel over gloo on loopback.

The line says what the figures were taken with: PyTorch's build, the BLAS library that is
really loaded, and whether oneDNN is on.
"""
import argparse, json, os, re, statistics, time


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("model")
    ap.add_argument("--batch", type=int, default=32, help="samples per rank")
    ap.add_argument("--np", type=int, default=1, help="ranks")
    ap.add_argument("--threads", type=int, default=1, help="threads per rank")
    ap.add_argument("--steps", type=int, default=20, help="steps to measure, after a tenth as many (at least 3) to warm up")
    ap.add_argument("--channels-last", action="store_true", help="images and weights channels-last")
    ap.add_argument("--autocast", action="store_true", help="forward and loss under torch.autocast in bfloat16")
    return ap.parse_args()


def pin_threads(n):
    """torch.set_num_threads does not govern the BLAS, whose libraries read these when loaded."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
        os.environ[name] = str(n)


def memory_mib(field):
    """VmHWM or VmRSS of this process, in MiB; 0 where /proc does not say."""
    try:
        with open("/proc/self/status") as f:
            return int(re.search(field + r":\s+(\d+) kB", f.read()).group(1)) / 1024
    except (OSError, AttributeError):
        return 0.0


def forget_peak():
    """Lowers VmHWM to what is resident now, so that what imports used for a moment does not count."""
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass


def blas():
    """The library that PyTorch's matrix products come from: (its file, whether it is a fast one).

    Distributions link libtorch against libblas.so.3, which may be the reference BLAS, some ten
    times slower, while another one is in memory too: what counts is where libtorch's sgemm_
    leads to.
    """
    import ctypes, torch

    class Info(ctypes.Structure):  # Dl_info of dladdr(3)
        _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]

    with open("/proc/self/maps") as f:
        mapped = sorted({line.split(maxsplit=5)[5].strip() for line in f if ".so" in line})
    torch_cpu = [p for p in mapped if "/libtorch_cpu" in p]
    versions = [os.path.basename(p) for p in mapped if re.search(r"openblas.*-r\d|mkl_core|blis", os.path.basename(p))]
    try:
        sgemm = ctypes.CDLL(torch_cpu[0]).sgemm_  # looked for in libtorch, then in what it is linked with
        info, dladdr = Info(), ctypes.CDLL(None).dladdr
        dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(Info)]
        dladdr(ctypes.cast(sgemm, ctypes.c_void_p), ctypes.byref(info))
        path = os.path.realpath(os.fsdecode(info.file))
    except (IndexError, AttributeError, TypeError):  # no such library, no such symbol, no such file
        path = ""
    if re.search(r"openblas|mkl|blis", path, re.I):
        return " ".join([path] + [f"({v})" for v in versions]), True
    if "BLAS_INFO=mkl" in torch.__config__.show():
        return "MKL, linked statically", True
    return path or "an unknown BLAS", False


def openblas_core():
    """The processor whose kernels OpenBLAS runs, such as "SkylakeX"; "" if another library computes."""
    import ctypes

    with open("/proc/self/maps") as f:
        loaded = sorted({line.split(maxsplit=5)[5].strip() for line in f if "openblas" in line and ".so" in line})
    for path in loaded:
        try:
            corename = ctypes.CDLL(path).openblas_get_corename
        except (OSError, AttributeError):
            continue
        corename.restype = ctypes.c_char_p
        return corename().decode()
    return ""


def measure(rank, o, port):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(o.threads)
    torch.manual_seed(rank)
    import torch_models

    if o.model == "resnet50":
        import torchvision  # noqa: F401: imports do not count as growth
    library, fast = blas()
    forget_peak()
    before = memory_mib("VmHWM")
    model, inputs, labels = torch_models.build(o.model, o.batch)
    params = sum(p.numel() for p in model.parameters())
    if o.channels_last:
        model = model.to(memory_format=torch.channels_last)
        inputs = tuple(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs)
    if o.np > 1:
        import torch.distributed as dist

        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        dist.init_process_group("gloo", rank=rank, world_size=o.np)
        model = torch.nn.parallel.DistributedDataParallel(model)
    if o.model == "gpt-mini":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.0 if o.model.startswith("ctr") else 0.9)
    warm, ms = max(3, o.steps // 10), []
    for i in range(warm + o.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=o.autocast):
            out = model(*inputs)
            loss = F.cross_entropy(out[0] if isinstance(out, tuple) else out, labels)
        loss.backward()
        optimizer.step()
        if i >= warm:
            ms.append(1e3 * (time.perf_counter() - start))
    if rank == 0:
        step = statistics.median(ms)
        print(json.dumps({
            "peer": "pytorch", "version": torch.__version__, "model": o.model, "batch": o.batch, "np": o.np,
            "threads": o.threads, "step_ms": step, "samples_per_s": 1e3 * o.batch * o.np / step, "params": params,
            "optimizer": type(optimizer).__name__.lower(), "steps": o.steps, "loss": loss.item(), "growth_mib": memory_mib("VmHWM") - before,
            "blas": library, "blas_is_fast": fast, "blas_core": openblas_core(), "mkldnn": torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
            "mkldnn_bf16": getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)(),
            "build": " ".join(re.findall(r"MKL-DNN v\S+|CPU capability usage: \S+|BLAS_INFO=\w+|GCC \S+", torch.__config__.show())),
        }), flush=True)
    if o.np > 1:
        dist.barrier()
        dist.destroy_process_group()


def main():
    o = options()
    if min(o.batch, o.np, o.threads, o.steps) < 1:
        raise SystemExit("batch, np, threads and steps must be at least 1")
    pin_threads(o.threads)
    if o.np == 1:
        measure(0, o, 0)
        return
    import torch.multiprocessing as mp

    mp.spawn(measure, args=(o, 20000 + os.getpid() % 20000), nprocs=o.np)


if __name__ == "__main__":
    main()
