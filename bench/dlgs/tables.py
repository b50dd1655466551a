"""Tables, for a terminal and as Markdown."""


class Table:
    """Rows under a header; what is not text is written by `cell`."""

    def __init__(self, title, header, rows=(), note=""):
        self.title, self.header, self.rows, self.note = title, list(header), [list(r) for r in rows], note

    def add(self, *row):
        if len(row) != len(self.header):
            raise ValueError(f"{self.title}: a row of {len(row)} cells under {len(self.header)} headings")
        self.rows.append(list(row))

    def cells(self):
        return [[cell(v) for v in row] for row in self.rows]

    def text(self):
        """Columns of equal width, numbers to the right."""
        rows = [self.header, *self.cells()]
        widths = [max(len(r[i]) for r in rows) for i in range(len(self.header))]
        right = [all(numeric(row[i]) for row in self.rows) for i in range(len(self.header))]
        write = lambda row: "  ".join(c.rjust(w) if to_right else c.ljust(w) for c, w, to_right in zip(row, widths, right)).rstrip()
        lines = [self.title, "", write(self.header), "  ".join("-" * w for w in widths), *map(write, rows[1:])]
        return "\n".join([*lines, *(["", self.note] if self.note else []), ""])

    def markdown(self):
        row = lambda cells: "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"
        right = [all(numeric(r[i]) for r in self.rows) for i in range(len(self.header))]
        rule = "|" + "|".join("---:" if to_right else "---" for to_right in right) + "|"
        lines = [f"## {self.title}", "", row(self.header), rule, *map(row, self.cells())]
        return "\n".join([*lines, *(["", self.note] if self.note else []), ""])


def numeric(v):
    return v is None or isinstance(v, (int, float)) and not isinstance(v, bool) or isinstance(v, Factor)


class Factor(float):
    """A ratio, written with an x."""


class Percent(float):
    """A share of 1, written in percent."""


def cell(v):
    """A number with about four digits, a dash for what is not known."""
    if v is None:
        return "–"
    if isinstance(v, Factor):
        return f"{v:.2f} x"
    if isinstance(v, Percent):
        return f"{100 * v:.2f} %"
    if isinstance(v, bool):
        return "yes" if v else "no"
    if isinstance(v, int):
        return f"{v:,}"
    if isinstance(v, float):
        return f"{v:,.0f}" if abs(v) >= 10_000 else f"{v:,.1f}" if abs(v) >= 100 else f"{v:.2f}" if abs(v) >= 10 else f"{v:.4g}"
    return str(v)
