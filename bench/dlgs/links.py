"""How fast links must be for an exchange to take a multiple of the computation."""

# What a frame of 1,514 bytes on the link carries, with timestamps among TCP's options.
PAYLOAD_SHARE = 1448 / 1514


def exchange_bytes(values, workers):
    """What each worker must send, and receive, for the sum of so many values in single precision."""
    return 4 * values * 2 * (workers - 1) / workers


def goodput_for(values, workers, compute_s, r):
    """Bytes a second of payload with which the least of an exchange takes r times the computation."""
    if not (values > 0 and workers > 1 and compute_s > 0 and r > 0):
        raise ValueError(f"{values} values on {workers} workers, {compute_s} s of computation, r {r}: want more than one worker and positive numbers")
    return exchange_bytes(values, workers) / (r * compute_s)


def rate_for(goodput):
    """Bits a second of a link that carries so many bytes of payload a second."""
    return 8 * goodput / PAYLOAD_SHARE


def corrected(rate, measured, wanted):
    """The rate after a stream at the given one has shown how much of it is payload."""
    if not measured > 0:
        raise ValueError(f"a goodput of {measured} B/s was measured")
    return rate * wanted / measured


def burst(rate):
    """Bytes that may follow each other at the speed of memory: of 2 ms, and at least ten frames.

    While all compute, a link fills up with as much credit as that, and what is sent from credit costs
    nothing: it must stay small beside an exchange.
    """
    return max(15_140, int(rate / 8 * 0.002))


def stream_bytes(goodput, seconds=1.5):
    """How long a stream must be to measure a goodput."""
    return max(1 << 20, int(goodput * seconds))


def text(rate):
    """Bits a second, as people write them."""
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if rate >= size:
            return f"{rate / size:.4g} {unit}"
    return f"{rate:.0f} bit/s"
