#!/usr/bin/env python3
"""Measures allreduce between hosts joined by links of known speed: network namespaces on a bridge, shaped with tbf.

usage: bench/collective/wire.py [--hosts N] [--per-host N] [--rate 1gbit] [--floats N] [--algorithm NAME] [--tls MODE] [--json FILE]

Prints the goodput B of a plain TCP stream between two of the hosts, the time of an allreduce of K bytes,
its ratio to the bound 2(H-1)/H K/B of H hosts, and the bytes that crossed each host's link in one
allreduce, against the least that any algorithm needs. It needs Linux and root.
"""
import argparse, json, os, secrets, statistics, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import netns


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--hosts", type=int, default=4)
    ap.add_argument("--per-host", type=int, default=1, help="ranks on each host")
    ap.add_argument("--rate", default="1gbit", help="of each link, both ways, as tc takes it")
    ap.add_argument("--floats", type=int, default=1 << 24)
    ap.add_argument("--algorithm", default="ring", help="ringo's --algorithm; empty: its table's choice")
    ap.add_argument("--tls", default="auto", choices=["auto", "on", "off"], help="network.tls; auto encrypts, since these are hosts")
    ap.add_argument("--rounds", type=int, default=3, help="stream and allreduce in turns")
    ap.add_argument("--time", type=float, default=5, help="seconds to measure allreduce in each round")
    ap.add_argument("--congestion-control", default="", help="of all connections (default: the system's)")
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    ap.add_argument("--json", default="", help="write the figures to this file")
    ap.add_argument("--bytes", type=int, default=256 << 20, help=argparse.SUPPRESS)
    o = ap.parse_args()
    if o.hosts < 2 or min(o.per_host, o.floats, o.rounds) < 1 or o.time <= 0:
        ap.error("want --hosts of at least 2, --per-host, --floats and --rounds of at least 1, --time above 0")
    return o


def allreduce(o, net):
    """Median seconds, and the bytes that one allreduce sends over each host's link."""
    np = o.hosts * o.per_host
    env = dict(os.environ, RINGO_TICKET=secrets.token_hex(32))
    before = [net.sent(i) for i in range(o.hosts)]
    ranks = []
    for rank in range(np):
        command = [*net.enter(rank // o.per_host), o.ringo, "bench", "collective", "--np", str(np), "--rank", str(rank),
                   "--rendezvous", f"{net.address(0)}:7000", "--floats", str(o.floats), "--time", f"{o.time}s", "--json", "-", "--progress", "none", "--set", f"network.tls={o.tls}"]
        command += ["--algorithm", o.algorithm] if o.algorithm else []
        ranks.append(netns.start(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    outputs = [p.communicate() for p in ranks]
    for rank, p in enumerate(ranks):
        if p.returncode != 0:
            raise SystemExit(f"rank {rank}: exit {p.returncode}\n{outputs[rank][1]}")
    r = json.loads(outputs[0][0].splitlines()[-1])
    calls = r["iterations"] + 4  # three to warm up, one to count bytes
    return r["median_us"] / 1e6, [(net.sent(i) - before[i]) / calls for i in range(o.hosts)], r


def main():
    o = options()
    netns.need_root()
    netns.raise_on_signals()
    with tempfile.TemporaryDirectory() as folder:
        if not o.ringo:
            o.ringo = os.path.join(folder, "ringo")
            subprocess.run(["go", "build", "-o", o.ringo, "./cmd/ringo"], cwd=ROOT, check=True)
        with netns.Net("wire", o.hosts, o.congestion_control) as net:
            net.shape(o.rate)
            rounds = []
            for _ in range(o.rounds):
                b = net.goodput(o.bytes)
                seconds, sent, r = allreduce(o, net)
                rounds.append((b, seconds, sent))
                print(f"stream {b / 1e6:7.2f} MB/s  allreduce {seconds * 1e3:9.2f} ms  algorithm {r['algorithm']}", file=sys.stderr, flush=True)
    k, share = 4 * o.floats, 2 * (o.hosts - 1) / o.hosts
    ratios = [seconds / (share * k / b) for b, seconds, _ in rounds]
    least, most = share * k, max(max(sent) for _, _, sent in rounds)
    print(f"{o.hosts} hosts of {o.per_host} rank(s), links of {o.rate}, {k} bytes, algorithm {o.algorithm or 'by table'}")
    print(f"  B                     {statistics.median(b for b, _, _ in rounds) / 1e6:10.2f} MB/s")
    print(f"  bound 2(H-1)/H K/B    {statistics.median(share * k / b for b, _, _ in rounds) * 1e3:10.2f} ms")
    print(f"  allreduce             {statistics.median(s for _, s, _ in rounds) * 1e3:10.2f} ms, {statistics.median(ratios):.3f} x the bound ({min(ratios):.3f} to {max(ratios):.3f})")
    print(f"  sent on a link        {most / 1e6:10.2f} MB at most, {most / least:.3f} x the least, headers of the network included")
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"hosts": o.hosts, "per_host": o.per_host, "bytes": k, "rounds": rounds, "ratio": statistics.median(ratios), "sent_ratio": most / least}, f, indent=1)


if __name__ == "__main__":
    main()
