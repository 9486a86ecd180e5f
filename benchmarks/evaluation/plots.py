"""Plots as SVG text, without a library: bars in groups and lines. No input or output, no state.

    text = bars("Throughput", "samples/s", ["mlp"], {"dp": [120.0], "1f1b": [410.0]})

Values may be None where there is none. The background is white, so that a page in dark mode shows
the same picture.
"""

import math
from html import escape

COLOURS = ("#4878a8", "#e0843c", "#5c9e5c", "#c4504c", "#8f6fb0", "#8c6d5a", "#d67fb0", "#7f7f7f",
           "#b0a03c", "#4cb0bc", "#2f4b7c", "#a05195")
FONT = 'font-family="sans-serif" font-size="{}"'
WIDTH, HEIGHT = 900, 360
LEFT, RIGHT, TOP, BOTTOM = 62, 240, 40, 46


def ticks(highest, count=5):
    """Round values from 0 up to at least `highest`."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / count
    step = 10 ** math.floor(math.log10(rough))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if factor * step >= rough * 0.999)
    return [step * i for i in range(math.ceil(highest / step * 0.999) + 1)]


def label(value):
    return f"{value:,.10g}"


def text(x, y, words, anchor="middle", size=12, **more):
    extra = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {FONT.format(size)}{extra}>'
            f"{escape(words)}</text>")


def page(title, parts):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title)}">')
    back = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    return "\n".join([head, back, text(LEFT, 20, title, "start", font_weight="bold"), *parts,
                      "</svg>"]) + "\n"


def axes(unit, marks, height_of):
    """The vertical axis with its lines."""
    right = WIDTH - RIGHT
    parts = [text(LEFT, 35, unit, "start", fill="#555555")]
    for mark in marks:
        y = height_of(mark)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(text(LEFT - 6, y + 4, label(mark), "end", fill="#555555"))
    return parts


def legend(names):
    x = WIDTH - RIGHT + 16
    parts = []
    for index, name in enumerate(names):
        y = TOP + 6 + 20 * index
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" '
                     f'fill="{COLOURS[index % len(COLOURS)]}"/>')
        parts.append(text(x + 18, y + 10, name, "start"))
    return parts


def bars(title, unit, groups, series):
    """Groups side by side, in each a bar per series; {series: [a value or None per group]}. Names
    of groups may have two lines."""
    found = [value for values in series.values() for value in values if value is not None]
    marks = ticks(max(found, default=1))
    bottom = HEIGHT - BOTTOM

    def height_of(value):
        return bottom - value / marks[-1] * (bottom - TOP - 8)

    parts = axes(unit, marks, height_of)
    room = (WIDTH - RIGHT - LEFT) / max(1, len(groups))
    width = room * 0.84 / max(1, len(series))
    for place, group in enumerate(groups):
        left = LEFT + room * (place + 0.08)
        for line, words in enumerate(group.split("\n")):
            parts.append(text(LEFT + room * (place + 0.5), bottom + 18 + 15 * line, words,
                              size=12 if room > 50 else 9))
        for index, values in enumerate(series.values()):
            value = values[place]
            if value is None:
                continue
            y = height_of(value)
            parts.append(f'<rect x="{left + width * index:.1f}" y="{y:.1f}" '
                         f'width="{width * 0.92:.1f}" height="{bottom - y:.1f}" '
                         f'fill="{COLOURS[index % len(COLOURS)]}"/>')
    return page(title, parts + legend(list(series)))


def lines(title, unit, across, series, level=None):
    """{series: [(x, y), ...]}; `across` names the horizontal axis, `level` a value of y that is
    drawn as a broken line."""
    points = [point for line in series.values() for point in line]
    x_marks = ticks(max((x for x, _ in points), default=1))
    low, high = min((y for _, y in points), default=0), max((y for _, y in points), default=1)
    if level is not None:
        low, high = min(low, level), max(high, level)
    room = (high - low) * 0.06 or 0.1
    low, high = low - room, high + room
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT

    def at(x, y):
        return (LEFT + x / x_marks[-1] * (right - LEFT),
                bottom - (y - low) / (high - low) * (bottom - TOP - 8))

    marks = [mark for mark in steps(low, high)]
    parts = axes(unit, marks, lambda y: at(0, y)[1])
    for mark in x_marks:
        parts.append(text(at(mark, low)[0], bottom + 18, label(mark), fill="#555555"))
    parts.append(text((LEFT + right) / 2, bottom + 36, across, fill="#555555"))
    if level is not None:
        y = at(0, level)[1]
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#c4504c" '
                     f'stroke-dasharray="6 4"/>')
    for index, line in enumerate(series.values()):
        colour = COLOURS[index % len(COLOURS)]
        places = [at(x, y) for x, y in line]
        route = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{route}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return page(title, parts + legend(list(series)))


def steps(low, high, count=6):
    """Round values between two numbers."""
    step = ticks(high - low, count)[1]
    first = math.ceil(low / step)
    return [round(step * i, 10) for i in range(first, math.floor(high / step) + 1)]
