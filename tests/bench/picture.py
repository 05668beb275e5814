# SPDX-License-Identifier: Apache-2.0
"""Draws the rows of a report of run.py: how long Hermes takes where the other side takes 1, on a scale
of doublings, with a mark where the target is."""
import html
import math

WIDTH, LEFT, RIGHT, LINE, TOP, BOTTOM = 900, 300, 150, 22, 56, 34
LOWEST, HIGHEST = 1 / 1024, 2
MET, MISSED, OTHER = "#2f6f4f", "#b5552d", "#8a8f98"


def place(ratio):
    """Where a ratio lies; what is off the scale lies at its end."""
    ratio = min(max(ratio, LOWEST), HIGHEST)
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(ratio / LOWEST) / math.log(HIGHEST / LOWEST)


def text(x, y, words, extra=""):
    return '<text x="%.1f" y="%.1f" %s>%s</text>' % (x, y, extra, html.escape(words))


def scale(height):
    for power in range(-10, 2, 2):
        ratio = 2.0 ** power
        label = "1" if power == 0 else "1/%d" % (1 / ratio)
        yield '<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="%s"/>' % (
            place(ratio), place(ratio), TOP - 6, height - BOTTOM, OTHER if power == 0 else "#dddddd")
        yield text(place(ratio), TOP - 12, label, 'text-anchor="middle" fill="%s"' % OTHER)


def bar(row, y):
    end, target = place(row["ratio"]), place(row["target"])
    yield text(LEFT - 8, y + 15, row["name"], 'text-anchor="end"')
    yield '<rect x="%d" y="%d" width="%.1f" height="14" fill="%s"/>' % (
        LEFT, y + 4, max(end - LEFT, 1), MET if row["met"] else MISSED)
    yield '<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="black" stroke-width="2"/>' % (
        target, target, y + 2, y + 20)
    yield text(WIDTH - RIGHT + 8, y + 15, "%.3g of %.4g ms" % (row["ratio"], row["than_ms"]))


def draw(report):
    """An SVG with a bar for each row whose target is a plain ratio."""
    rows = [r for r in report["rows"] if not r["extra_ms"] and r["target"] <= HIGHEST]
    height = TOP + LINE * len(rows) + BOTTOM
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" '
             'font-size="12">' % (WIDTH, height), '<rect width="100%" height="100%" fill="white"/>',
             text(12, 20, "Hermes to the other side, which is 1. The mark is the target.", 'font-size="14"')]
    parts += scale(height)
    for n, row in enumerate(rows):
        parts += bar(row, TOP + LINE * n)
    parts.append(text(12, height - 12, "%s, load %.1f at the end" % (report["time"], report["load"][0]),
                      'fill="%s"' % OTHER))
    return "\n".join(parts + ["</svg>"]) + "\n"
