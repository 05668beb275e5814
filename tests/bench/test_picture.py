# SPDX-License-Identifier: Apache-2.0
"""The picture of docs/benchmarks.md: what is drawn is what was measured."""
import pathlib
import sys
import xml.etree.ElementTree as tree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from picture import LEFT, MET, MISSED, draw, place  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def row(name, ratio, target, met, extra_ms=0.0):
    return {"name": name, "ms": ratio, "than_ms": 1, "ratio": ratio, "target": target, "met": met,
            "extra_ms": extra_ms, "rounds": 1, "note": ""}


def test_bars_are_as_long_as_their_ratios():
    rows = [row("quick & <small>", 0.125, 0.25, True), row("slow", 0.5, 0.25, False),
            row("beyond the scale", 1e-9, 1.0, True), row("with milliseconds on top", 1.2, 1.15, True, 3.0),
            row("no ratio", 10.0, 12, True)]
    picture = tree.fromstring(draw({"time": "now", "load": [0.5, 0, 0], "rows": rows}))
    bars = [r for r in picture.iter(SVG + "rect") if r.get("x") == str(LEFT)]
    assert [r.get("fill") for r in bars] == [MET, MISSED, MET]
    assert [float(r.get("width")) for r in bars] == [round(place(0.125) - LEFT, 1),
                                                     round(place(0.5) - LEFT, 1), 1.0]
    marks = [line for line in picture.iter(SVG + "line") if line.get("stroke") == "black"]
    assert [float(m.get("x1")) for m in marks] == [round(place(t), 1) for t in (0.25, 0.25, 1.0)]
    words = [t.text for t in picture.iter(SVG + "text")]
    assert "quick & <small>" in words and "no ratio" not in words


def test_the_page_shows_a_picture():
    docs = pathlib.Path(__file__).resolve().parents[2] / "docs"
    assert "(benchmarks.svg)" in (docs / "benchmarks.md").read_text()
    tree.parse(docs / "benchmarks.svg")
