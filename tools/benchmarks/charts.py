"""Charts as SVG, written by hand: they need nothing installed, and are readable on light and dark pages."""

import math
from html import escape

COLOURS = {"store": "#2563eb", "peer": "#94a3b8", "limit": "#d97706"}
FONT = 'font-family="sans-serif" font-size="12"'


class Drawing:
    def __init__(self, width, height):
        self.width, self.height = width, height
        self.parts = []

    def rectangle(self, x, y, width, height, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>')

    def line(self, points, colour="#64748b", width=1.0, dashes=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def circle(self, x, y, colour):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')

    def text(self, x, y, text, anchor="start", weight="normal", colour="#334155"):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}" {FONT}>'
            f"{escape(text)}</text>")

    def svg(self):
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}">\n'
            f'<rect width="{self.width}" height="{self.height}" fill="#f8fafc"/>\n{body}\n</svg>\n')


def figure_chart(figures):
    """How much of each figure was reached: a bar for each check, and a line where all of it is."""
    checks = [(figure, check) for figure in figures for check in figure.checks if check.share]
    left, right, top, step = 470, 120, 50, 20
    width = 1000
    drawing = Drawing(width, top + step * len(checks) + 30)
    low, high = 1 / 16, 16

    def place(share):
        share = min(high, max(low, share))
        return left + (math.log2(share) - math.log2(low)) / math.log2(high / low) * (width - left - right)

    drawing.text(left, 20, "How much of each figure was reached (logarithmic; the line is all of it)", "middle", "bold")
    for tick in (1 / 16, 1 / 4, 1, 4, 16):
        drawing.line([(place(tick), top - 10), (place(tick), drawing.height - 25)], "#cbd5e1")
        drawing.text(place(tick), drawing.height - 8, f"{tick:g} ×", "middle")
    for number, (figure, check) in enumerate(checks):
        y = top + number * step
        if check is figure.checks[0]:
            drawing.text(10, y + 12, figure.work)
        drawing.text(left - 10, y + 12, check.label.rstrip(":"), "end", colour="#64748b")
        colour = "#16a34a" if check.is_reached else "#dc2626"
        drawing.rectangle(
            min(place(1), place(check.share)), y + 3, abs(place(check.share) - place(1)) + 1, step - 6, colour)
        drawing.text(width - right + 10, y + 12, check.text.rsplit(check.label, 1)[-1].strip())
    drawing.line([(place(1), top - 10), (place(1), drawing.height - 25)], "#0f172a", 1.5)
    return drawing.svg()


def bar_chart(title, groups, unit):
    """Groups of bars: each group a title and its (name, kind, median, least, most), longer is slower."""
    left, step, width = 190, 18, 900
    bars = sum(len(group[1]) for group in groups)
    drawing = Drawing(width, 40 + bars * step + len(groups) * 34)
    drawing.text(width / 2, 20, title, "middle", "bold")
    y = 40
    for name, members in groups:
        drawing.text(10, y + 14, name, weight="bold")
        y += 22
        most = max(member[4] for member in members)
        scale = (width - left - 130) / most
        for label, kind, middle, least, largest in members:
            drawing.text(left - 8, y + 12, label, "end")
            drawing.rectangle(left, y + 2, max(1, middle * scale), step - 5, COLOURS[kind])
            drawing.line([(left + least * scale, y + step / 2), (left + largest * scale, y + step / 2)], "#0f172a")
            drawing.text(left + largest * scale + 8, y + 12, f"{number(middle)} {unit}")
            y += step
        y += 12
    return drawing.svg()


def growth_chart(series):
    """Small plots against the number of chunks, both axes logarithmic: (title, unit, [(count, value)])."""
    columns, cell_width, cell_height = 3, 320, 210
    lines = math.ceil(len(series) / columns)
    drawing = Drawing(columns * cell_width, lines * cell_height + 10)
    for index, (title, unit, points) in enumerate(series):
        x = index % columns * cell_width
        y = index // columns * cell_height
        plot(drawing, x + 60, y + 40, cell_width - 85, cell_height - 85, f"{title} ({unit})", points)
    return drawing.svg()


def plot(drawing, x, y, width, height, title, points):
    counts = [count for count, _ in points]
    values = [max(value, 1e-9) for _, value in points]
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values) * 1.0001))
    first, last = min(counts), max(counts)

    def at(count, value):
        across = math.log(count / first) / math.log(last / first) if last > first else 0.5
        up = math.log(value / low) / math.log(high / low)
        return x + across * width, y + height - up * height

    drawing.text(x + width / 2, y - 14, title, "middle", "bold")
    power = low
    while power <= high * 1.001:
        _, place = at(first, power)
        drawing.line([(x, place), (x + width, place)], "#cbd5e1")
        drawing.text(x - 6, place + 4, number(power), "end")
        power *= 10
    for count in counts:
        place, _ = at(count, low)
        exponent = len(str(count)) - 1
        drawing.text(place, y + height + 16, "10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(d)] for d in str(exponent)), "middle")
    drawing.line([at(*point) for point in zip(counts, values)], COLOURS["store"], 2)
    for point in zip(counts, values):
        drawing.circle(*at(*point), COLOURS["store"])
        place = at(*point)
        drawing.text(place[0], place[1] - 7, number(point[1]), "middle", colour="#0f172a")


def number(value):
    """Three digits that count."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:.3g}"
