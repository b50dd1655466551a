#!/usr/bin/env python3
"""Compares pulls and pushes of ringo's servers with Redis: interleaved rounds, medians, ratios.

usage: bench/redis/compare.py [--rounds N] [--time SECONDS] [--keys N] [--batch N] [--json FILE]

Redis answers pipelined MGETs and MSETs of 64-byte values, of redis-benchmark; ringo pulls rows of
16 float32, and pushes gradients that it updates rows with by Adagrad. Both are asked for uniform
keys, over loopback TCP. First the settings of redis-benchmark with which Redis is fastest are
searched, for each command. Then a round measures every side once, the order rotating; a ratio is
ringo's rows/s over Redis', its median that over rounds. See bench/redis/README.md.
"""
import argparse, csv, dataclasses, json, os, shutil, socket, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
VALUE = 64  # bytes, those of a row of 16 float32
DIM = VALUE // 4
GOALS = {"pull": 8, "push": 5}  # of the ratios
PEERS = {"pull": "MGET", "push": "MSET"}


@dataclasses.dataclass(frozen=True)
class Setting:
    """How redis-benchmark asks, and the server answers."""
    keys: int = 64  # of a command
    depth: int = 4  # commands that a connection has under way
    connections: int = 4
    threads: int = 1  # of redis-benchmark
    io: int = 1  # the server's io-threads


# What the search tries, one field after the other, from the setting above.
CHOICES = {"keys": (16, 64, 256, 1024), "depth": (1, 4, 16), "connections": (1, 2, 4, 16), "threads": (1, 2), "io": (1, 2)}


def options():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--time", type=float, default=2, help="seconds to measure each side in each round")
    ap.add_argument("--search", type=float, default=0.5, help="seconds to measure each setting of Redis; 0: take the first one")
    ap.add_argument("--keys", type=int, default=1_000_000)
    ap.add_argument("--batch", type=int, default=4096, help="rows of a batch of ringo's")
    ap.add_argument("--ringo", default="", help="the binary (default: built from this tree)")
    ap.add_argument("--json", default="", help="write all figures to this file")
    o = ap.parse_args()
    if o.rounds < 1 or o.time <= 0 or o.search < 0 or o.batch < 1 or o.keys < 8 * o.batch:
        ap.error("--rounds, --time and --batch must be positive, --search not negative, and --keys at least 8 batches")
    return o


def note(text):
    print(text, file=sys.stderr, flush=True)


def output(command):
    """The standard output of a command that must succeed."""
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode != 0:
        raise SystemExit(f"{' '.join(command)[:300]}: exit {p.returncode}\n{p.stdout[-2000:]}{p.stderr[-2000:]}")
    return p.stdout


# --- Redis ------------------------------------------------------------------------------------


def tool(name):
    """The path of one of Redis' programs."""
    path = shutil.which(name)
    if not path:
        raise SystemExit(f"no {name}: install redis-server and redis-tools (Debian: apt-get install redis-server); see bench/redis/README.md")
    return path


def encode(*words):
    """A command as Redis reads it."""
    parts = [b"*%d\r\n" % len(words)]
    for w in words:
        w = w if isinstance(w, bytes) else str(w).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(w), w))
    return b"".join(parts)


def decode(lines):
    """The next answer in a binary file. An error of the server ends the program."""
    line = lines.readline()
    if not line.endswith(b"\r\n"):
        raise SystemExit("Redis has closed the connection")
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise SystemExit(f"Redis: {rest.decode()}")
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else lines.read(int(rest) + 2)[:-2]
    return rest.decode()  # a status


def key(i):
    """A key as redis-benchmark writes __rand_int__."""
    return b"%012d" % i


class Redis:
    """A server without persistence, and all keys in it."""

    def __init__(self, folder, io, keys):
        self.keys = keys
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = os.path.join(folder, f"redis-{io}.log")
        self.process = subprocess.Popen([
            tool("redis-server"), "--bind", "127.0.0.1", "--port", str(self.port), "--dir", folder, "--save", "", "--appendonly", "no",
            "--logfile", self.log, "--io-threads", str(io), "--io-threads-do-reads", "yes" if io > 1 else "no"])
        try:
            self.connection = self.connect()
            self.answers = self.connection.makefile("rb")
            self.load()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def connect(self, patience=30):
        end = time.monotonic() + patience
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), patience)
            except OSError as e:
                if self.process.poll() is not None or time.monotonic() > end:
                    with open(self.log) as f:
                        raise SystemExit(f"redis-server did not come up: {e}\n{f.read()[-2000:]}")
                time.sleep(0.05)

    def ask(self, *words):
        self.connection.sendall(encode(*words))
        return decode(self.answers)

    def load(self):
        step = 1000
        for lo in range(0, self.keys, step):
            pairs = [w for i in range(lo, min(self.keys, lo + step)) for w in (key(i), b"x" * VALUE)]
            if self.ask("MSET", *pairs) != "OK":
                raise SystemExit("Redis did not take the values")
        self.check()

    def check(self):
        """All keys are there, no others, and values are as long as they should be."""
        have, sizes = self.ask("DBSIZE"), {self.ask("STRLEN", key(i)) for i in (0, self.keys // 2, self.keys - 1)}
        if have != self.keys or sizes != {VALUE}:
            raise SystemExit(f"Redis has {have} keys with values of {sorted(sizes)} bytes, want {self.keys} of {VALUE}")

    def close(self):
        self.connection.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def benchmark(port, command, setting, requests, keys):
    """The command line of redis-benchmark."""
    words = {"MGET": ["__rand_int__"], "MSET": ["__rand_int__", "y" * VALUE]}[command] * setting.keys
    threads = ["--threads", str(setting.threads)] if setting.threads > 1 else []
    return [tool("redis-benchmark"), "-h", "127.0.0.1", "-p", str(port), "-c", str(setting.connections), "-P", str(setting.depth),
            "-n", str(requests), "-r", str(keys), *threads, "--csv", command, *words]


def parse(text):
    """The first line of figures in redis-benchmark's CSV: rates and milliseconds."""
    rows = list(csv.DictReader(text.strip().splitlines()))
    if len(rows) != 1 or "rps" not in rows[0]:
        raise SystemExit(f"redis-benchmark says what is not known here:\n{text[-2000:]}")
    return {k: float(v) for k, v in rows[0].items() if k != "test"}


def requests_for(rate, seconds, setting):
    """How many commands take so long at a rate of rows a second: whole turns of the pipelines."""
    turn = setting.connections * setting.depth
    return max(10, round(rate * seconds / setting.keys / turn)) * turn


def redis_rate(redis, command, setting, seconds, guess):
    """Rows a second of a command."""
    n = requests_for(guess, seconds, setting)
    return parse(output(benchmark(redis.port, command, setting, n, redis.keys)))["rps"] * setting.keys


def search(rate, start=Setting(), choices=CHOICES):
    """The best setting by rate(setting), changed one field after the other, and its rate."""
    best, rates = start, {start: rate(start)}
    for field, values in choices.items():
        for v in values:
            setting = dataclasses.replace(best, **{field: v})
            if setting not in rates and setting.connections >= setting.threads:
                rates[setting] = rate(setting)
        best = max(rates, key=rates.get)
    return best, rates[best]


# --- ringo ------------------------------------------------------------------------------------


def ringo_rates(o):
    """The results of pull and push, by operation."""
    command = [o.ringo, "bench", "ps", "--keys", str(o.keys), "--dim", str(DIM), "--batch", str(o.batch), "--optimizer", "adagrad", "--op", "pull,push",
               "--dist", "uniform", "--time", f"{o.time}s", "--repeat", "1", "--progress", "none", "--json", "-"]
    return results(output(command))


def results(text):
    """By operation, the lines of `ringo bench ps --json -`."""
    lines = [json.loads(line) for line in text.splitlines()]
    found = {r["op"]: r for r in lines if r["op"] in GOALS}
    if sorted(found) != sorted(GOALS):
        raise SystemExit(f"ringo told of {sorted(found)}, want {sorted(GOALS)}")
    return found


# --- rounds and tables ------------------------------------------------------------------------


def rotated(items, turn):
    turn %= len(items)
    return items[turn:] + items[:turn]


def measure(o, sides):
    """By name, what each round measured: sides are functions that return rates by name."""
    found = {}
    for i in range(o.rounds):
        for side in rotated(sides, i):
            for name, rate in side().items():
                found.setdefault(name, []).append(rate)
                note(f"round {i + 1}  {name:<5} {rate:>12,.0f} rows/s")
    return found


def ratio(ours, theirs):
    """The median, lowest and highest of ours/theirs within a round."""
    r = sorted(a / b for a, b in zip(ours, theirs))
    return statistics.median(r), r[0], r[-1]


def show(o, found):
    print(f"\nrows/s, {o.keys:,} uniform keys, rows of {VALUE} bytes, loopback TCP; medians of {o.rounds} round(s)")
    print(f"{'':<12} {'Redis':>12} {'ringo':>12} {'ratio':>7}   lowest to highest   goal")
    out = {}
    for op, goal in GOALS.items():
        theirs, ours = found[PEERS[op]], found[op]
        mid, lo, hi = ratio(ours, theirs)
        out[op] = {"redis_rows_s": theirs, "ringo_rows_s": ours, "ratio": mid, "lowest": lo, "highest": hi, "goal": goal}
        print(f"{op + ' / ' + PEERS[op]:<12} {statistics.median(theirs):>12,.0f} {statistics.median(ours):>12,.0f} {mid:>7.2f}   {lo:>6.2f} to {hi:<6.2f}   "
              f"{goal}: {'met' if mid >= goal else 'missed'}")
    sys.stdout.flush()
    return out


def show_limits(last):
    """How far ringo is from what memory allows."""
    for op, r in last.items():
        print(f"ringo's {op}: {r['share_of_limit']:.2f} of one thread that does nothing but memory's part, {r['share_of_latency']:.2f} of copying row after row; "
              f"{r['sent_bytes_per_row'] + r['read_bytes_per_row']:.1f} bytes per row on the wire; one batch p50 {r['p50_us']:.0f} us, p99 {r['p99_us']:.0f} us")


def fastest(o, servers):
    """By command, the best setting of Redis and its rate."""
    best = {}
    for command in PEERS.values():
        guess = redis_rate(servers[1], command, Setting(), 0.2, 500_000)

        def rate(setting):
            r = redis_rate(servers[setting.io], command, setting, o.search, guess)
            note(f"{command} {setting}: {r:,.0f} rows/s")
            return r
        best[command] = search(rate) if o.search else (Setting(), guess)
        note(f"{command}: best with {best[command][0]}")
    return best


def main():
    o = options()
    for name in ("redis-server", "redis-benchmark"):
        tool(name)
    with tempfile.TemporaryDirectory() as folder:
        if not o.ringo:
            o.ringo = os.path.join(folder, "ringo")
            subprocess.run(["go", "build", "-o", o.ringo, "./cmd/ringo"], cwd=ROOT, check=True)
        versions = {"ringo": output([o.ringo, "--version"]).strip(), "redis": output([tool("redis-server"), "--version"]).strip()}
        note("\n".join(versions.values()) + f"\ncores: {sorted(os.sched_getaffinity(0))}")
        servers, last = {}, {}
        try:
            for io in CHOICES["io"] if o.search else (1,):
                servers[io] = Redis(folder, io, o.keys)
            best = fastest(o, servers)

            def peer(command):
                setting, guess = best[command]
                return lambda: {command: redis_rate(servers[setting.io], command, setting, o.time, guess)}

            def ours():
                last.update(ringo_rates(o))
                return {op: last[op]["rows_s"] for op in GOALS}
            found = measure(o, [peer("MGET"), peer("MSET"), ours])
            for s in servers.values():
                s.check()
        finally:
            for s in servers.values():
                s.close()
    out = show(o, found)
    show_limits(last)
    if o.json:
        settings = {c: dataclasses.asdict(s) for c, (s, _) in best.items()}
        with open(o.json, "w") as f:
            json.dump({"versions": versions, "keys": o.keys, "value_bytes": VALUE, "batch": o.batch, "redis_settings": settings, "results": out, "ringo_last": last}, f, indent=1)


if __name__ == "__main__":
    main()
