#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Open the pages of the site in Chromium, as wide as a desktop and as a phone.

Fails on a page that is wider than its window, and on a picture that does not load or that is not
wider than 50 pixels. Saves what the first screens look like.
"""

import argparse
import pathlib
import sys

try:
    from selenium import webdriver
except ImportError:
    sys.exit("look.py: python3-selenium is missing; install it with chromium and chromium-driver")

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
FOUND = """
const wide = [];
for (const e of document.querySelectorAll('body *')) {
    if (e.getBoundingClientRect().right <= innerWidth + 1 || e.checkVisibility() === false) continue;
    // Inside of what scrolls by itself, or of a drawer beside the window.
    let p = e;
    while (p && !(['auto', 'scroll', 'hidden'].includes(getComputedStyle(p).overflowX) ||
                  getComputedStyle(p).position === 'fixed')) p = p.parentElement;
    if (!p || p === document.body || p === document.documentElement)
        wide.push(e.tagName.toLowerCase() + ': ' + e.textContent.trim().slice(0, 50));
}
const pictures = [...document.images].filter(i => i.checkVisibility() && !(i.complete && i.naturalWidth > 50))
    .map(i => i.getAttribute('src'));
const inner = Math.max(document.documentElement.clientWidth, innerWidth);
return {wide: document.documentElement.scrollWidth > inner + 1 ? wide.slice(0, 3) : [],
        over: document.documentElement.scrollWidth - inner, pictures: pictures,
        shown: document.images.length};
"""


def browser():
    """A Chromium without a screen."""
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(option)
    options.binary_location = "/usr/bin/chromium"
    service = webdriver.chrome.service.Service("/usr/bin/chromedriver")
    return webdriver.Chrome(service=service, options=options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("site", type=pathlib.Path, help="folder that devtools/docs.sh made: build/doc/site")
    parser.add_argument("--out", type=pathlib.Path, help="save a picture of each page's first screen here")
    args = parser.parse_args()
    pages = sorted(p for p in args.site.rglob("*.html") if "api" not in p.relative_to(args.site).parts)
    if not pages:
        parser.error(f"{args.site} has no pages; run devtools/docs.sh")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    window, bad, pictures = browser(), 0, 0
    try:
        for size, (width, height) in SIZES.items():
            # A window cannot be as narrow as a phone; the emulated screen can.
            window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
                "width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"})
            for page in pages:
                name = str(page.relative_to(args.site))
                window.get(page.resolve().as_uri())
                found = window.execute_script(FOUND)
                pictures += found["shown"]
                for wide in found["wide"] or ["the page"] * (found["over"] > 1):
                    print(f"look: {name}: {size}: {found['over']} pixels wider than the window: {wide}")
                    bad += 1
                for picture in found["pictures"]:
                    print(f"look: {name}: {size}: no picture {picture}")
                    bad += 1
                if args.out:
                    window.save_screenshot(str(args.out / f"{name.replace('/', '-')[:-5]}.{size}.png"))
    finally:
        window.quit()
    print(f"look: {len(pages)} pages at {len(SIZES)} widths, {pictures} pictures, {bad} findings")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
