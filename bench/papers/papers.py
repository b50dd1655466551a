#!/usr/bin/env python3
"""Measures the tables of the papers that ringo implements, and writes them into docs/papers.md.

usage: bench/papers/papers.py accuracy|distopt|dlgs|heter|ring|page [--quick] [--ringo FILE] [--data DIR] [--results DIR] …

A section's measurements are kept in bench/papers/results/SECTION.json, one entry each: an interrupted section goes on where it
ended, and one that is complete measures nothing. `page` writes all kept results into docs/papers.md. --quick measures the
same table in less time, keeps its results in a temporary folder, and prints the table: the order of the methods is to be that
of the page.
"""
import argparse, importlib, json, os, subprocess, sys, tempfile, threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAGE = os.path.join(ROOT, "docs", "papers.md")
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.dirname(HERE))
SECTIONS = ["accuracy", "distopt", "dlgs", "heter", "ring"]


class Kept:
    """Measurements by name in a file, each written as soon as it is made."""

    def __init__(self, path):
        self.path, self.values, self.lock = path, {}, threading.Lock()
        if os.path.exists(path):
            with open(path) as f:
                self.values = json.load(f)

    def measure(self, name, measurement):
        """The kept value of a name, or that of a measurement made now."""
        if name not in self.values:
            print(f"measuring {name}", file=sys.stderr, flush=True)
            value = measurement()
            with self.lock:
                self.values[name] = value
                with open(self.path + ".new", "w") as f:
                    json.dump(self.values, f, indent=1)
                    f.write("\n")
                os.replace(self.path + ".new", self.path)
        return self.values[name]


def records(command, patience, **how):
    """The records that a command writes to its standard output; without status 0 its errors end the program."""
    p = subprocess.run(command, capture_output=True, text=True, timeout=patience, stdin=subprocess.DEVNULL, **how)
    if p.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {p.returncode}: {p.stderr[-2000:]}")
    return [json.loads(line) for line in p.stdout.splitlines() if line.startswith("{")]


def table(head, rows):
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def mark(section):
    return f"<!-- table of {section} -->\n", f"<!-- end of {section} -->\n"


def place(page, section, text):
    """The page with a text between the marks of a section."""
    begin, end = mark(section)
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"docs/papers.md: want {begin.strip()} and {end.strip()} once each")
    head, rest = page.split(begin)
    return head + begin + "\n" + text + "\n" + end + rest.split(end)[1]


def written(page, folder):
    """The page with all sections that have results."""
    for section in SECTIONS:
        path = os.path.join(folder, f"{section}.json")
        if os.path.exists(path):
            page = place(page, section, importlib.import_module(section).tables(Kept(path).values))
    return page


def draw(folder):
    """The pictures of all sections with results, by name."""
    out = {}
    for section in SECTIONS:
        path, module = os.path.join(folder, f"{section}.json"), importlib.import_module(section)
        if os.path.exists(path) and hasattr(module, "pictures"):
            out |= module.pictures(Kept(path).values)
    return out


def processor():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "unknown")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("section", choices=[*SECTIONS, "page"])
    a.add_argument("--quick", action="store_true", help="less time, and no change of the page")
    a.add_argument("--ringo", default="", help="the binary; without it the one of this checkout is built")
    a.add_argument("--data", default=os.path.join(os.environ.get("RINGO_DATA", ""), "mnist"), help="folder of MNIST; for accuracy of CIFAR-10 in binary form")
    a.add_argument("--images", default="", help="for accuracy: a tree of images or a .tar.gz of one, for ResNet-50")
    a.add_argument("--only", default="", metavar="PATTERN", help="for accuracy: only the runs with names that match a regular expression, such as 'VGG16, .*0.01, seed 1'")
    a.add_argument("--jobs", type=int, default=1, help="for accuracy: runs at a time")
    a.add_argument("--results", default=os.path.join(HERE, "results"))
    o = a.parse_args()
    if o.section == "page":
        with open(PAGE) as f:
            page = written(f.read(), o.results)
        with open(PAGE, "w") as f:
            f.write(page)
        for name, text in draw(o.results).items():
            with open(os.path.join(os.path.dirname(PAGE), "pictures", name), "w") as f:
                f.write(text)
        return
    with tempfile.TemporaryDirectory() as scratch:
        if not o.ringo:
            o.ringo = os.path.join(scratch, "ringo")
            subprocess.run(["go", "build", "-o", o.ringo, "./cmd/ringo"], cwd=ROOT, check=True)
        o.ringo, folder = os.path.abspath(o.ringo), scratch if o.quick else o.results
        kept = Kept(os.path.join(folder, f"{o.section}.json"))
        section = importlib.import_module(o.section)
        kept.measure("machine", lambda: f"{os.cpu_count()} cores, {processor()}")
        section.measure(o, kept)
        print(section.tables(kept.values))


if __name__ == "__main__":
    main()
