"""Hosts that are network namespaces on a bridge, with links of any speed. Linux and root.

    with netns.Net("dlgs", hosts=4) as net:
        net.shape(100e6)
        subprocess.run([*net.enter(0), "ping", "-c1", net.address(1)])
"""
import ctypes, json, os, shutil, signal, socket, subprocess, sys, time

PORT = 7001  # of the stream that measures goodput


def need_root():
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        raise SystemExit("network namespaces need Linux and root")
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            raise SystemExit(f"no {tool}: install iproute2")


def run(line):
    p = subprocess.run(line.split(), capture_output=True, text=True)
    if p.returncode != 0:
        raise SystemExit(f"{line}: {p.stderr.strip()}")
    return p.stdout


def start(command, **how):
    """A process that does not outlive this one, whatever ends it."""
    parent = os.getpid()

    def with_parent():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(command, preexec_fn=with_parent, **how)


def end(processes):
    """Kills what still runs."""
    for p in processes:
        if p.poll() is None:
            p.kill()
    for p in processes:
        p.wait()


def raise_on_signals():
    """Makes an end by a signal an exception, so that what was set up is taken down."""

    def stop(number, _):
        raise SystemExit(128 + number)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    for s in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, stop)


class Net:
    """Hosts 0, 1, …, each with an address on the bridge; the links are not shaped yet."""

    def __init__(self, prefix, hosts, congestion_control=""):
        sweep(prefix)
        name = f"{prefix}{os.getpid()}"
        self.bridge, self.hosts = f"{name}-b", [f"{name}-{i}" for i in range(hosts)]
        try:
            run(f"ip netns add {self.bridge}")
            run(f"ip -n {self.bridge} link add br0 type bridge")
            run(f"ip -n {self.bridge} link set br0 up")
            for i, host in enumerate(self.hosts):
                run(f"ip netns add {host}")
                run(f"ip -n {self.bridge} link add p{i} type veth peer name eth0 netns {host}")
                run(f"ip -n {self.bridge} link set p{i} master br0 up")
                run(f"ip -n {host} addr add {self.address(i)}/24 dev eth0")
                run(f"ip -n {host} link set lo up")
                run(f"ip -n {host} link set eth0 up")
                if congestion_control:
                    run(f"ip netns exec {host} sysctl -qw net.ipv4.tcp_congestion_control={congestion_control}")
        except BaseException:
            self.close()
            raise

    def shape(self, rate, burst=256 << 10, latency="20ms"):
        """Limits each link, both ways, to a rate as tc takes it or a number of bits a second; none lifts the limit.

        The network stack of a host passes up to 64 kB on at once, and a link cuts what is longer than its
        burst (bytes) into single frames, at the price of a core: hosts pass on no more than fits.
        """
        rate = rate if rate is None or isinstance(rate, str) else f"{rate:.0f}bit"
        for i, host in enumerate(self.hosts):
            run(f"ip -n {host} link set eth0 gso_max_size {longest_frame(burst) if rate else 65536}")
            for ns, device in ((self.bridge, f"p{i}"), (host, "eth0")):
                if rate is not None:
                    run(f"tc -n {ns} qdisc replace dev {device} root tbf rate {rate} burst {burst}b latency {latency}")
                else:  # there may be none
                    subprocess.run(["tc", "-n", ns, "qdisc", "del", "dev", device, "root"], capture_output=True)

    def address(self, i):
        return f"10.78.0.{i + 1}"

    def enter(self, i):
        return ["ip", "netns", "exec", self.hosts[i]]

    def sent(self, i, way="tx"):
        """Bytes that a host has put on its link, or has from it (rx)."""
        return json.loads(run(f"ip -n {self.hosts[i]} -s -j link show eth0"))[0]["stats64"][way]["bytes"]

    def goodput(self, n):
        """Bytes a second of a plain TCP stream of n bytes from host 0 to host 1."""
        me = [sys.executable, os.path.abspath(__file__)]
        server = start([*self.enter(1), *me, "serve", str(n)], stdout=subprocess.PIPE, text=True)
        try:
            if server.stdout.readline().strip() != "ready":
                raise SystemExit("the receiver of the stream did not start")
            subprocess.run([*self.enter(0), *me, "stream", self.address(1), str(n)], check=True)
            return n / float(server.stdout.readline())
        finally:
            end([server])

    def close(self):
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave some
        for ns in [self.bridge, *self.hosts]:
            subprocess.run(["ip", "netns", "del", ns], capture_output=True)
        signal.signal(signal.SIGINT, before)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def longest_frame(burst):
    """Bytes that a host may pass on at once to a link: with the headers of each frame no more than a burst."""
    return max(2 * 1448, min(65536, int(0.9 * burst)))


def sweep(prefix):
    """Deletes what processes that were killed have left."""
    for line in run("ip netns list").splitlines():
        name = line.split()[0]
        pid = name[len(prefix) :].split("-")[0]
        if name.startswith(prefix) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


# --- the two ends of a plain stream -------------------------------------------------------------


def serve(n):
    """Receives n bytes and prints how many seconds they took from the first on."""
    listener = socket.create_server(("", PORT))
    print("ready", flush=True)
    conn, _ = listener.accept()
    buf, got, begin = bytearray(1 << 20), 0, None
    while got < n:
        k = conn.recv_into(buf)
        if k == 0:
            raise SystemExit("the stream ended early")
        begin = begin or time.perf_counter()
        got += k
    print(time.perf_counter() - begin)


def stream(address, n):
    conn, block = socket.create_connection((address, PORT)), bytes(1 << 20)
    for at in range(0, n, len(block)):
        conn.sendall(block[: n - at])


if __name__ == "__main__":
    {"serve": lambda: serve(int(sys.argv[2])), "stream": lambda: stream(sys.argv[2], int(sys.argv[3]))}[sys.argv[1]]()
