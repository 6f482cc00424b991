#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draw the pictures of the guides as SVG, readable on light and dark backgrounds.

usage: draw.py [--check]

Without options: write each picture beside this program. --check: write nothing, and fail if a
picture is not what this program draws.
"""
import os
import sys
from xml.sax.saxutils import escape

HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img">
<title>{title}</title>
<style>
text {{ font: 13px system-ui, sans-serif; fill: #1f2328 }}
.small {{ font-size: 11px; fill: #59636e }}
.bold {{ font-weight: 600 }}
.code {{ font-family: ui-monospace, monospace; font-size: 12px }}
rect, path {{ fill: none; stroke: #59636e; stroke-width: 1.2 }}
.group {{ stroke-dasharray: 5 4 }}
.core {{ fill: #ddf4ff; stroke: #0969da }}
.mem {{ fill: #dafbe1; stroke: #1a7f37 }}
.nic {{ fill: #fff1e5; stroke: #bc4c00 }}
.wire {{ stroke: #bc4c00; stroke-width: 2 }}
#tip path {{ fill: #59636e; stroke: none }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #f0f6fc }}
.small {{ fill: #9198a1 }}
rect, path {{ stroke: #9198a1 }}
.core {{ fill: #0c2d6b; stroke: #58a6ff }}
.mem {{ fill: #033a16; stroke: #3fb950 }}
.nic {{ fill: #5a1e02; stroke: #f0883e }}
.wire {{ stroke: #f0883e }}
#tip path {{ fill: #9198a1 }}
}}
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9"
markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z"/></marker></defs>
"""


class Picture:
    def __init__(self, width, height, title):
        self.parts = [HEAD.format(w=width, h=height, title=escape(title))]

    def text(self, x, y, line, style="", anchor="middle"):
        style = f' class="{style}"' if style else ""
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}"{style}>{escape(line)}</text>\n')

    def box(self, x, y, w, h, style, *lines, text=""):
        """A rectangle with lines of text in its middle."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="5" class="{style}"/>\n')
        first = y + h / 2 + 4.5 - 8 * (len(lines) - 1)
        for i, line in enumerate(lines):
            self.text(x + w / 2, first + 16 * i, line, text)

    def group(self, x, y, w, h, name):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8" class="group"/>\n')
        self.text(x + 10, y + 18, name, "bold", "start")

    def arrow(self, x1, y1, x2, y2, label="", both=False, style="", above=6):
        start = ' marker-start="url(#tip)"' if both else ""
        style = f' class="{style}"' if style else ""
        self.parts.append(f'<path d="M{x1} {y1} L{x2} {y2}"{start} marker-end="url(#tip)"{style}/>\n')
        if label:
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - above, label, "small")

    def svg(self):
        return "".join(self.parts) + "</svg>\n"


def cells(p, x, y, h, row):
    """A row of fields: (width, name, style)."""
    for width, name, style in row:
        p.box(x, y, width, h, style, *name.split("\n"), text="small")
        x += width


def architecture():
    p = Picture(760, 330, "Clients call the daemons on their host through shared memory; daemons call each other "
                "through RDMA")
    for x, host in ((10, "host A"), (390, "host B")):
        p.group(x, 10, 360, 240, host)
        for i, daemon in enumerate((60, 112, 248, 300)):
            client = x + 48 + 88 * i
            p.box(client - 38, 40, 76, 34, "core", "process", text="small")
            p.arrow(client, 76, x + daemon, 128, both=True)
        p.text(x + 180, 98, "lib/ipc: shared", "small")
        p.text(x + 180, 112, "cache lines", "small")
        p.box(x + 15, 130, 150, 48, "core", "lcore: daemon 0", "a part of the store")
        p.box(x + 195, 130, 150, 48, "core", "lcore: daemon 1", "a part of the store")
        p.arrow(x + 166, 154, x + 194, 154, both=True)
        p.text(x + 180, 194, "lib/flux: rings between lcores", "small")
        p.box(x + 70, 204, 220, 34, "nic", "lib/copyrpc on direct verbs")
        p.box(x + 90, 276, 180, 36, "nic", "ConnectX, or soft_mlx5")
        p.arrow(x + 180, 239, x + 180, 275, both=True)
    p.arrow(281, 294, 479, 294, "RDMA WRITE WITH IMM", both=True, style="wire")
    return p


def call():
    p = Picture(760, 372, "One remote call; all calls of a batch share the WQE, the doorbell and the completion")
    for x, name in ((60, "client"), (240, "daemon A"), (400, "NIC A"), (520, "NIC B"), (690, "daemon B")):
        p.box(x - 50, 10, 100, 28, "nic" if "NIC" in name else "core", name)
        p.parts.append(f'<path d="M{x} 38 V362" class="group"/>\n')
    steps = (
        (72, 60, 240, "call(): 1 line"),
        (102, 240, 240, "recv(), append to the batch"),
        (136, 240, 400, "flush: 1 WQE, 1 doorbell"),
        (160, 400, 520, "WRITE_IMM"),
        (184, 520, 690, "batch in the ring, 1 CQE"),
        (214, 690, 690, "recv(), store, reply()"),
        (248, 690, 520, "flush: 1 WQE, 1 doorbell"),
        (272, 520, 400, "WRITE_IMM"),
        (296, 400, 240, "batch in the ring, 1 CQE"),
        (332, 240, 60, "reply(): 1 line"),
    )
    for y, x1, x2, label in steps:
        if x1 == x2:
            p.text(x1 + (8 if x1 < 600 else -8), y, label, "small", "start" if x1 < 600 else "end")
        else:
            p.arrow(x1, y, x2, y, label, style="wire" if label == "WRITE_IMM" else "")
    return p


def batch():
    p = Picture(760, 214, "A batch on the wire")
    p.text(10, 24, "One RDMA WRITE WITH IMMEDIATE", "bold", "start")
    message = (60, "message", "mem")
    cells(p, 10, 36, 34, ((110, "head, 32 bytes", "nic"), message, (110, "data", ""), message,
                          (70, "data", ""), message, (140, "data", "")))
    p.text(630, 50, "immediate: lane,", "small", "start")
    p.text(630, 64, "units of 16 bytes", "small", "start")
    p.arrow(65, 72, 65, 104)
    cells(p, 10, 106, 34, ((70, "magic", "nic"), (60, "version", "nic"), (60, "lane", "nic"), (70, "epoch", "nic"),
                           (60, "len", "nic"), (60, "count", "nic"), (120, "position", "nic"),
                           (150, "released position", "nic")))
    p.parts.append('<path d="M150 72 L150 88 L690 88 L690 166" marker-end="url(#tip)"/>\n')
    cells(p, 500, 168, 34, ((60, "id", "mem"), (60, "len", "mem"), (60, "arg", "mem"), (70, "turn ns", "mem")))
    p.text(490, 190, "message head, 16 bytes: any number share one write", "small", "end")
    return p


def clock():
    p = Picture(760, 200, "Clocked flushing: the next batch leaves when a completion arrives")
    for y, name, starts in ((40, "low load", ((70, 1), (250, 1), (430, 1), (610, 1))),
                            (118, "high load", ((70, 1), (210, 4), (350, 6), (490, 7), (630, 7)))):
        p.text(10, y + 20, name, "bold", "start")
        for x, n in starts:
            width = 14 + 12 * n
            p.box(x + 14, y, width, 28, "nic", str(n))
        p.arrow(70, y + 44, 750, y + 44)
    p.text(84, 100, "a call leaves at once, alone", "small", "start")
    p.text(84, 180, "calls queue while a write is under way and leave together: batches grow with load, "
           "without a timer", "small", "start")
    p.text(750, 24, "number: calls in one WRITE", "small", "end")
    return p


def slot():
    p = Picture(760, 190, "ipc: one cache line carries a small message")
    p.box(20, 30, 120, 50, "core", "client", "one thread")
    p.box(620, 30, 120, 50, "core", "server", "one lcore")
    cells(p, 220, 26, 30, ((60, "word", "nic"), (260, "up to 56 bytes of request", "mem")))
    cells(p, 220, 86, 30, ((60, "word", "nic"), (260, "up to 56 bytes of response", "mem")))
    p.arrow(141, 42, 218, 42, "call()")
    p.arrow(542, 42, 619, 42, "recv()")
    p.arrow(619, 74, 542, 100, "reply()", above=12)
    p.arrow(218, 100, 141, 74, "poll()", above=12)
    p.text(380, 148, "The word, stored last with release, holds sequence number and length. A process that loads it",
           "small")
    p.text(380, 164, "with acquire reads the whole line. A slot is matched by its sequence number; no index is shared.",
           "small")
    return p


def soft():
    p = Picture(760, 270, "soft_mlx5 answers below an unmodified rdma-core")
    p.group(10, 10, 420, 250, "one process")
    p.box(30, 40, 380, 30, "core", "program: verbs, direct verbs, UCX, MPI, perftest")
    p.box(30, 88, 180, 30, "", "libibverbs, unmodified")
    p.box(230, 88, 180, 30, "", "libmlx5, unmodified")
    p.arrow(120, 71, 120, 87)
    p.arrow(320, 71, 320, 87)
    p.box(30, 164, 180, 40, "nic", "kernel ABI: sysfs,", "uverbs commands")
    p.box(230, 164, 180, 40, "nic", "adapter: executes WQEs,", "writes CQEs")
    p.arrow(120, 119, 120, 163, both=True)
    p.text(130, 146, "open, ioctl", "small", "start")
    p.arrow(320, 119, 320, 163, both=True)
    p.text(330, 146, "doorbell, rings", "small", "start")
    p.text(220, 236, "libsoft_mlx5.so, preloaded: no kernel module, no privileges", "small")
    p.box(520, 90, 220, 40, "mem", "another process of the host", "shared memory")
    p.box(520, 190, 220, 40, "mem", "another host", "RoCEv2 over UDP")
    p.arrow(411, 178, 519, 112, both=True, style="wire")
    p.arrow(411, 190, 519, 208, both=True, style="wire")
    return p


PICTURES = {f.__name__: f for f in (architecture, call, batch, clock, slot, soft)}


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if sys.argv[1] in ("-h", "--help") else 2
    stale = 0
    for name, draw in PICTURES.items():
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".svg")
        svg = draw().svg()
        if not sys.argv[1:]:
            with open(path, "w", encoding="utf-8") as f:
                f.write(svg)
            continue
        try:
            with open(path, encoding="utf-8") as f:
                same = f.read() == svg
        except OSError:
            same = False
        if not same:
            print(f"draw.py: doc/pictures/{name}.svg is not what draw.py draws; run it to write the picture",
                  file=sys.stderr)
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
