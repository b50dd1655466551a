"""What a rank sends in a step, by the formulas of docs/costs.md and of package exchange."""
import math

FRAME = 24  # bytes of what each rank tells the others before a sparse exchange
HEADER = 12  # of a payload
GAPS = 128  # that are stored in as many bits as the largest of them takes
BLOCK = 256  # values of int8 that share a scale


def allreduce(size, workers):
    """Of the busiest rank of a ring, and of two ranks that exchange."""
    return size * 2 * (workers - 1) / workers


def int8(n):
    """Bytes of n values in one byte each, with a scale of four for each block."""
    return n + 4 * math.ceil(n / BLOCK)


def gap_width(n, k, m):
    """How many bits the largest of m gaps between k of n independent places takes on average. A gap is at least g
    with the probability (1-k/n)^g, and the largest takes more than w bits where one is at least 2^w."""
    return sum(1 - (1 - (1 - k / n) ** 2**w) ** m for w in range(n.bit_length()))


def gaps(n, k):
    """Bytes of the gaps before k of n places: of each block a byte and its bits, in whole bytes."""
    full, rest = divmod(k, GAPS)
    size = full * (1 + GAPS / 8 * gap_width(n, k, GAPS))
    if rest:
        size += 1 + 3.5 / 8 + rest * gap_width(n, k, rest) / 8
    return int(size + 0.5)


def payload(n, k):
    """What k of n values take on average if their places are independent of each other: their gaps, or a bitmap
    or all values where that is shorter. Where entries crowd, as gradients' do, it is a few per cent more."""
    if k == 0:
        return 0
    return HEADER + min(4 * n, 4 * k + min((n + 7) // 8, gaps(n, k)))


def entries(n, share):
    """How many of n values a selection of so large a share takes."""
    return min(n, max(1, math.ceil(share * n)))


def allgather(groups, workers, share):
    """Of payloads of so large a share of each group, which all others are sent."""
    return sum((workers - 1) * (FRAME + payload(n, entries(n, share))) for n in groups)


def predicted(strategy, groups, workers, share=None, partitions=4):
    """Bytes of gradients that a rank sends in a step. groups are the numbers of values that travel together;
    share is that of entries which are sent. None: no formula is known, as beyond a density of 1/N,
    where sparse exchanges are no allgather."""
    n = sum(groups)
    dense = {"fp32": 4, "fp16": 2, "bf16": 2, "partialUpdate": 4 / partitions}
    if strategy in dense:
        return allreduce(dense[strategy] * n, workers)
    if strategy == "int8":
        return allreduce(sum(map(int8, groups)), workers)
    if workers == 2 and share and share <= 1 / workers:
        return allgather(groups, workers, share)
    return None
