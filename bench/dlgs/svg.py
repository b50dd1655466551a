"""Charts as SVG: lines over numbers, and bars in groups or stacks. Standard library only.

A chart is made by `lines` or `bars` and is a string, a whole SVG file.
"""
import math
from xml.sax.saxutils import escape, quoteattr

# Okabe and Ito's colours: told apart with any colour vision, and in grey by their order.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
FONT = "font-family='DejaVu Sans, Verdana, Arial, sans-serif'"
WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 78, 24, 92, 64  # margins; title and legend are above the plot


class Series:
    """A line through points (x, y), or one bar in each group; None leaves a gap."""

    def __init__(self, name, values, colour=COLOURS[0], dash=""):
        self.name, self.values, self.colour, self.dash = name, list(values), colour, dash


def ticks(low, high, about=6):
    """Round numbers, equally far apart, the first at most low and the last at least high."""
    if not high > low:
        high = low + (abs(low) or 1)
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def number(v):
    """A tick's label: no more digits than it needs."""
    return f"{v:,.10g}" if abs(v) < 1e6 else f"{v:.3g}"


class Plot:
    """The frame: title, legend, axes; places numbers within it."""

    def __init__(self, title, x_label, y_label, x_range, y_ticks):
        self.x_low, self.x_high = x_range
        self.y_low, self.y_high = y_ticks[0], y_ticks[-1]
        self.out = [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}' {FONT} font-size='13' fill='#222'>",
            f"<title>{escape(title)}</title>",
            f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>",
        ]
        self.text(LEFT, 26, title, size=16, weight="bold")
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, x_label, anchor="middle")
        self.text(18, (TOP + HEIGHT - BOTTOM) / 2, y_label, anchor="middle", turn=-90)
        for v in y_ticks:
            y = self.y(v)
            self.line(LEFT, y, WIDTH - RIGHT, y, "#ddd" if v != y_ticks[0] else "#222")
            self.text(LEFT - 8, y + 4, number(v), anchor="end")

    def x(self, v):
        return LEFT + (v - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT)

    def y(self, v):
        return HEIGHT - BOTTOM - (v - self.y_low) / (self.y_high - self.y_low) * (HEIGHT - TOP - BOTTOM)

    def text(self, x, y, text, anchor="start", size=13, weight="normal", turn=0, colour="#222"):
        turned = f" transform='rotate({turn} {x:.1f} {y:.1f})'" if turn else ""
        self.out.append(f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-size='{size}' font-weight='{weight}' fill='{colour}'{turned}>{escape(text)}</text>")

    def line(self, x1, y1, x2, y2, colour, dash="", width=1):
        self.out.append(f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{colour}' stroke-width='{width}' stroke-dasharray={quoteattr(dash or 'none')}/>")

    def legend(self, series, boxes=0):
        """From left to right under the title, in as many rows as it takes; the first so many have boxes, the others lines."""
        x, y = LEFT, 50
        for i, s in enumerate(series):
            width = 34 + 7.6 * len(s.name)  # of a character of 13 px, on average
            if x > LEFT and x + width > WIDTH - RIGHT:
                x, y = LEFT, y + 20
            if i < boxes:
                self.out.append(f"<rect x='{x}' y='{y - 10}' width='22' height='11' fill='{s.colour}'/>")
            else:
                self.line(x, y - 4, x + 22, y - 4, s.colour, s.dash, 2.5)
            self.text(x + 28, y, s.name)
            x += width + 14

    def done(self):
        return "\n".join([*self.out, "</svg>", ""])


def lines(title, x_label, y_label, series):
    """Series of points (x, y). Points whose y is None or not finite are left out, and the line is broken there."""
    known = [[(x, y) for x, y in s.values if finite(y)] for s in series]
    points = [p for k in known for p in k]
    if not points:
        raise ValueError(f"{title}: nothing to draw")
    xs = [x for x, _ in points]
    x_ticks = ticks(min(xs), max(xs), 8)
    x_range = (min(xs), max(xs)) if max(xs) > min(xs) else (min(xs) - 1, min(xs) + 1)
    p = Plot(title, x_label, y_label, x_range, ticks(min(y for _, y in points), max(y for _, y in points)))
    for v in x_ticks:
        if x_range[0] <= v <= x_range[1]:
            p.line(p.x(v), HEIGHT - BOTTOM, p.x(v), HEIGHT - BOTTOM + 5, "#222")
            p.text(p.x(v), HEIGHT - BOTTOM + 20, number(v), anchor="middle")
    for s in series:
        for piece in pieces(s.values):
            path = " ".join(f"{p.x(x):.1f},{p.y(y):.1f}" for x, y in piece)
            p.out.append(f"<polyline points='{path}' fill='none' stroke='{s.colour}' stroke-width='2' stroke-linejoin='round' stroke-dasharray={quoteattr(s.dash or 'none')}/>")
            p.out.extend(f"<circle cx='{p.x(x):.1f}' cy='{p.y(y):.1f}' r='2.6' fill='{s.colour}'/>" for x, y in piece)
    p.legend(series)
    return p.done()


def finite(y):
    return y is not None and math.isfinite(y)


def pieces(points):
    """The runs of points that are known."""
    out, run = [], []
    for x, y in points:
        if finite(y):
            run.append((x, y))
        elif run:
            out.append(run)
            run = []
    return out + [run] if run else out


def bars(title, y_label, groups, series, stacked=False, rules=()):
    """A group of bars for each name in groups; series[i].values[j] is the i-th bar, or the i-th part
    of the stack, of group j. rules are horizontal lines (name, value)."""
    for s in series:
        if len(s.values) != len(groups):
            raise ValueError(f"{title}: series {s.name} has {len(s.values)} values for {len(groups)} groups")
    if not any(finite(v) for s in series for v in s.values):
        raise ValueError(f"{title}: nothing to draw")
    tops = [heights(series, j, stacked) for j in range(len(groups))]
    p = Plot(title, "", y_label, (0, len(groups)), ticks(0, max([0, *(max(t) for t in tops), *(v for _, v in rules)])))
    size = label_size(groups)
    for j, name in enumerate(groups):
        draw_group(p, series, j, stacked)
        for row, part in enumerate(name.split("\n")):
            p.text(p.x(j + 0.5), HEIGHT - BOTTOM + 18 + 15 * row, part, anchor="middle", size=size)
        if stacked:
            p.text(p.x(j + 0.5), p.y(max(tops[j])) - 5, short(max(tops[j])), anchor="middle", size=12)
    for name, v in rules:
        p.line(LEFT, p.y(v), WIDTH - RIGHT, p.y(v), "#222", "6 4", 1.5)
    p.legend([*series, *(Series(name, [], "#222", "6 4") for name, _ in rules)], boxes=len(series))
    return p.done()


def label_size(groups):
    """The size at which the names of groups do not touch, 12 at most and 8 at least."""
    longest = max(len(part) for name in groups for part in name.split("\n"))
    return round(min(12, max(8, (WIDTH - LEFT - RIGHT) / len(groups) / (0.6 * longest + 0.6))), 1)


def heights(series, j, stacked):
    """How high group j is: of the stack, or of each bar."""
    values = [s.values[j] if finite(s.values[j]) else 0 for s in series]
    return [sum(values)] if stacked else values


def short(v):
    """A value above a bar: three digits."""
    return f"{v:,.0f}" if v >= 100 else f"{v:.3g}"


def draw_group(p, series, j, stacked):
    width = 0.62 if stacked else 0.8 / len(series)
    below = 0.0
    for i, s in enumerate(series):
        v = s.values[j]
        if not finite(v) or v <= 0:
            continue
        left = j + 0.5 - width / 2 if stacked else j + 0.1 + i * width
        x, y, bottom = p.x(left), p.y(below + v), p.y(below)
        p.out.append(f"<rect x='{x:.1f}' y='{y:.1f}' width='{p.x(left + width) - x - 1:.1f}' height='{bottom - y:.1f}' fill='{s.colour}'><title>{escape(f'{s.name}: {short(v)}')}</title></rect>")
        if stacked:
            below += v
        elif len(series) <= 3:  # or nobody could read them
            p.text((x + p.x(left + width)) / 2, y - 4, short(v), anchor="middle", size=11)

