#!/usr/bin/env python3
"""What a stranger at a port costs the process behind it: processor time for a connection, of a server that waits for its trainers.

usage: bench/chaos/cost.py [--rounds N] RINGO [RINGO ...]

Strangers say nothing and stay, send garbage, or begin TLS, at a plain port and at one under TLS. Unlike the speed of a job beside them (part pace),
this can be measured on a machine that does other work, too. It needs Linux.
"""
import argparse, os, resource, socket, ssl, statistics, subprocess, tempfile, time

KINDS = [  # what they do, whether the port is under TLS, how many come, and how many a second
    ("silent", False, 3000, 1000), ("silent", True, 3000, 1000), ("silent for longer", False, 14000, 1000),
    ("garbage", False, 2000, 500), ("garbage", True, 2000, 500), ("TLS", True, 1000, 300),
]
KEPT = 400  # connections of those who speak


def used(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def client_hello():
    out = ssl.MemoryBIO()
    end = ssl._create_unverified_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="x")
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def cost(binary, ticket, kind, tls, n, rate):
    """Seconds of processor time for a connection, beyond what the server takes by itself."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = s.getsockname()
    command = [binary, "server", "--index", "0", "--np", "2", "--sync", "bsp", "--ps-addresses", f"127.0.0.1:{address[1]}", "--ticket-file", ticket]
    server = subprocess.Popen([*command, *(["--set", "network.tls=on"] if tls else [])], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        server.stderr.readline()  # it is up; it tells of few strangers
        begun, before, kept = time.time(), used(server.pid), []
        for i in range(n):
            c = socket.create_connection(address)
            if kind in ("garbage", "TLS"):
                c.sendall(b"\1" + os.urandom(100) if kind == "garbage" else HELLO)
                if len(kept) > KEPT:
                    kept.pop(0).close()
            kept.append(c)
            time.sleep(max(0, begun + (i + 1) / rate - time.time()))
        took, after = time.time() - begun, used(server.pid)
        time.sleep(1)
        idle = (used(server.pid) - after) * took
        for c in kept:
            c.close()
        if server.poll() is not None:
            raise SystemExit(f"{' '.join(command)} has ended")
        return max(0, after - before - idle) / n
    finally:
        server.kill()
        server.wait()


HELLO = client_hello()


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("ringo", nargs="+", help="binaries, in turn")
    ap.add_argument("--rounds", type=int, default=3)
    o = ap.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        ticket = os.path.join(folder, "ticket")
        subprocess.run([o.ringo[0], "ticket", ticket], check=True, stdout=subprocess.DEVNULL)
        for kind, tls, n, rate in KINDS:
            rounds = [[cost(b, ticket, kind, tls, n, rate) for b in o.ringo] for _ in range(o.rounds)]
            for b, each in zip(o.ringo, zip(*rounds)):
                print(f"{kind + (', TLS port' if tls else ''):<20} {statistics.median(each) * 1e6:6.0f} us  ({', '.join(f'{x * 1e6:.0f}' for x in each)})  {b}", flush=True)


if __name__ == "__main__":
    main()
