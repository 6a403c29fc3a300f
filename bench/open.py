#!/usr/bin/python3
"""conr open of many made images in Chromium: until the page shows its first images, frames per second
while scrolling, and until a decision is on disk.

    bench/open.py build/conr FOLDER [--images 100000] [--turns 3]

FOLDER gets the images (24 x 24, in an array), features [n, 64] and the run, and keeps them for the next
time.  An empty page's frames per second are measured beside: on a busy machine it, too, has fewer than
60.  (Debian: chromium-driver, python3-selenium, python3-numpy.)
"""
import argparse
import os
import subprocess
import time

SCROLL = """const done = arguments[0], grid = document.getElementById('grid') || {scrollTop: 0};
const from = performance.now();
let n = 0;
function frame(now) {
    n++, grid.scrollTop += 60;
    if (now - from < 4000) requestAnimationFrame(frame);
    else done(n / (now - from) * 1000);
}
requestAnimationFrame(frame);"""
EDIT = """const [image, done] = arguments, from = performance.now();
fetch('do', {method: 'POST', headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({do: 'move', images: [1, 2, 3, image], to: 3})}).then(r => done(r.ok ? performance.now() - from : -1));"""


def make(conr, folder, n):
    import numpy as np
    rng = np.random.default_rng(1)
    os.makedirs(folder, exist_ok=True)
    centers, cluster = rng.normal(size=(20, 64)), rng.integers(0, 20, n)
    images = np.lib.format.open_memmap(f"{folder}/images.npy", "w+", np.uint8, (n, 24, 24, 3))
    features = np.lib.format.open_memmap(f"{folder}/f.npy", "w+", np.float32, (n, 64))
    for a in range(0, n, 20000):
        m = min(20000, n - a)
        images[a:a + m] = rng.integers(0, 256, (m, 6, 6, 3), dtype=np.uint8).repeat(4, 1).repeat(4, 2)
        features[a:a + m] = centers[cluster[a:a + m]] + 0.7 * rng.normal(size=(m, 64))
    images.flush(), features.flush()
    subprocess.run([conr, "cluster", f"{folder}/images.npy", "--features", f"{folder}/f.npy", "--refine", "none", "--method", "kmeans",
                    "--clusters", "20", "--out", f"{folder}/run", "--quiet", "--no-report"], check=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("conr"), p.add_argument("folder")
    p.add_argument("--images", type=int, default=100000), p.add_argument("--turns", type=int, default=3)
    a = p.parse_args()
    if not os.path.exists(f"{a.folder}/run/DONE"):
        make(a.conr, a.folder, a.images)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    o = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        o.add_argument(flag)
    b = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=o)
    b.set_window_size(1440, 900), b.set_script_timeout(60)
    for turn in range(a.turns):
        began = time.time()
        server = subprocess.Popen([a.conr, "open", f"{a.folder}/run", "--no-browser", "--quiet"], stdout=subprocess.PIPE, text=True)
        b.get(server.stdout.readline().strip())
        while not b.execute_script("const i = document.querySelector('.cell img'); return i && i.complete"):
            time.sleep(0.01)
        opened = time.time() - began
        time.sleep(6)  # the map is drawn meanwhile
        b.execute_script("conr.show({type: 'all'})")
        time.sleep(1)
        scroll = b.execute_async_script(SCROLL)
        edits = [b.execute_async_script(EDIT, 4 + turn * 8 + j) for j in range(8)]
        b.get("about:blank")
        empty = b.execute_async_script(SCROLL)
        server.terminate(), server.wait()
        load = open("/proc/loadavg").read().split()[0]
        print(f"open {opened:.2f} s; scrolling {scroll:.0f} frames/s, an empty page {empty:.0f}; "
              f"an edit {min(edits):.0f} to {max(edits):.0f} ms; load {load}", flush=True)
    b.quit()


main()
