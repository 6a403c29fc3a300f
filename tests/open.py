#!/usr/bin/python3
"""open.py CONR RUN: conr open in Chromium: every action by clicking and typing, the program killed and
started again in between, labels.csv compared; at 375 and 1440 pixels, light and dark, the rules of
tests/report.py for contrast, names and headings.  AXE=axe.min.js adds axe-core's.  SHOTS=FOLDER keeps
screenshots.  (Debian: chromium, chromium-driver, python3-selenium.)"""
import csv
import os
import re
import signal
import subprocess
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

conr, run = (os.path.abspath(x) for x in sys.argv[1:3])
here = os.path.dirname(os.path.abspath(__file__))
CHECK = re.search(r'CHECK = r"""(.*?)"""', open(f"{here}/report.py").read(), re.S).group(1)
failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print(f"open: {what}"[:600])


def wait(f, what, seconds=20):
    end = time.time() + seconds
    while time.time() < end:
        try:
            got = f()
            if got:
                return got
        except Exception:  # not there yet
            pass
        time.sleep(0.05)
    check(False, f"not in {seconds} s: {what}")
    return None


def browser():
    o = Options()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        o.add_argument(flag)
    o.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    o.add_experimental_option("prefs", {"download.default_directory": os.path.dirname(run)})
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=o)


class Page:
    def __init__(self, b):
        self.b, self.p = b, None
        self.start()

    def start(self, *words):
        if self.p:
            self.p.send_signal(signal.SIGKILL)
            self.p.wait()
        self.p = subprocess.Popen([conr, "open", run, "--no-browser", "--quiet", *words], stdout=subprocess.PIPE, text=True)
        self.url = self.p.stdout.readline().strip()
        self.b.get(self.url)
        wait(lambda: self.js("return document.body.dataset.ready"), "the page")

    def js(self, code, *args):
        return self.b.execute_script(code, *args)

    def get(self, id_):
        return self.b.find_element(By.ID, id_)

    def click(self, id_):
        self.get(id_).click()

    def say(self, text):
        wait(lambda: text in self.get("say").text, f"the words '{text}'")

    def cell(self, at):
        return wait(lambda: self.get(f"cell{at}"), f"image {at}")

    def cluster(self, name):
        for b in self.b.find_elements(By.CSS_SELECTOR, "#clusters button"):
            if b.find_element(By.CLASS_NAME, "name").text == name:
                return b
        return None

    def answer(self, text):
        wait(lambda: self.get("ask").is_displayed(), "the question")
        box = self.get("ask-input")
        box.clear()
        box.send_keys(text)
        self.click("ask-ok")

    def items(self):
        return self.js("return [...conr.items]")

    def keys(self, *keys):
        self.get("grid").send_keys(*keys)


def labels(column="cluster"):
    with open(f"{run}/labels.csv", newline="") as f:
        return [r.get(column) for r in csv.DictReader(f)]


def again(page, what):
    """The program is killed and started again: labels.csv, the page and what was there before agree."""
    was = labels()
    page.start()
    check(labels() == was and [str(k) for k in page.js("return [...conr.label]")] == was, f"{what}: lost by a restart")


def test_actions(page):
    before = labels()
    # rename, by the button
    page.cluster("Cluster 0").click()
    page.click("rename")
    page.answer("red things")
    page.say("Renamed to red things")
    check(set(n for n, k in zip(labels("name"), labels()) if k == "0") == {"red things"}, "rename is not in labels.csv")
    again(page, "rename")
    # merge two, by their boxes
    boxes = page.b.find_elements(By.CSS_SELECTOR, "#clusters input")
    boxes[1].click(), boxes[2].click()
    page.click("merge")
    page.say("Merged into")
    check(labels() == ["1" if k == "2" else k for k in before], "merge")
    again(page, "merge")
    # split, by the keyboard
    page.cluster("Cluster 1").click()
    page.keys("s")
    page.answer("3")
    page.say("Split into 3")
    check(len(set(labels())) == 7, f"split: {sorted(set(labels()))}")
    again(page, "split")
    # move a selection: a click, then Shift-click; all of these images change
    page.cluster("Cluster 4").click()
    page.cell(0).click()
    ActionChains(page.b).key_down(Keys.SHIFT).click(page.cell(2)).key_up(Keys.SHIFT).perform()
    moved = page.items()[:3]
    check(sorted(page.js("return [...conr.selected]")) == sorted(moved), "Shift-click selects others")
    Select(page.get("to")).select_by_visible_text("red things")
    page.say("Moved 3")
    check([labels()[i] for i in moved] == ["0"] * 3, "move")
    again(page, "move")
    # move into a new one, with a name
    page.cluster("red things").click()
    page.cell(1).click()
    one = page.items()[1]
    Select(page.get("to")).select_by_value("new")
    page.answer("the one")
    page.say("Moved 1")
    check(labels("name")[one] == "the one", "move into a new cluster")
    again(page, "move into a new cluster")
    # marks, by keys: arrows, Space, o, w
    page.cluster("Cluster 5").click()
    page.js("document.getElementById('grid').focus()")
    page.keys(" ", Keys.ARROW_RIGHT, " ")
    two = page.items()[:2]
    check(sorted(page.js("return [...conr.selected]")) == sorted(two), "Space selects")
    page.keys("o")
    page.say("Marked as outlier")
    check([labels("mark")[i] for i in two] == ["outlier"] * 2 and [labels()[i] for i in two] == ["-1"] * 2, "outlier")
    page.cell(0).click()
    wrong = page.items()[0]
    page.click("wrong")
    page.say("Marked as wrong")
    check(labels("mark")[wrong] == "wrong", "wrong")
    again(page, "marks")
    # undo and redo
    page.click("undo")
    page.say("Undone")
    check(labels("mark")[wrong] == "", "undo")
    page.click("redo")
    page.say("Done again")
    check(labels("mark")[wrong] == "wrong", "redo")
    page.cluster("Wrong").click()
    page.cell(0).click()
    page.click("unmark")
    page.say("Marks taken off")
    check(labels("mark")[wrong] == "", "unmark")
    # another K by the slider; names stay
    page.js("const k = document.getElementById('K'); k.focus()")
    page.get("K").send_keys(Keys.ARROW_RIGHT)
    page.say("Clustered again")
    check("red things" in labels("name"), "names are lost by another K")
    again(page, "another K")
    page.click("undo")
    page.say("Undone")
    check(labels("untouched") == before, "what the run found")


def test_looking(page):
    # search, the original, more like this
    page.get("search").send_keys("/04", Keys.ENTER)
    wait(lambda: "Names with" in page.get("what").text, "a search")
    check(len(page.items()) == 10, f"search: {len(page.items())}")
    ActionChains(page.b).double_click(page.cell(0)).perform()
    wait(lambda: page.js("const i = document.getElementById('view-image'); return i.complete && i.naturalWidth === 28"), "the original")
    check("images/040.png" in page.get("view-about").text, f"its path: {page.get('view-about').text}")
    page.b.find_element(By.TAG_NAME, "body").send_keys(Keys.ARROW_RIGHT)
    wait(lambda: "041.png" in page.get("view-name").text, "the next image")
    page.click("view-like")
    wait(lambda: "More like" in page.get("what").text, "more like this")
    check(len(page.items()) == 90 and page.items()[0] == 41, "more like this")
    # copy paths, save as CSV
    page.cell(0).click()
    page.click("copy")
    page.say("1 paths copied")
    check(page.js("return conr.copied").strip().endswith("041.png"), "copy paths")
    page.click("csv")
    wait(lambda: open(os.path.dirname(run) + "/selection.csv").read().count("\n") == 2, "selection.csv")
    # filters
    page.cluster("All images").click()
    Select(page.get("edges")).select_by_value("boundary")
    check(0 < len(page.items()) < 40, f"on a boundary: {len(page.items())}")
    Select(page.get("edges")).select_by_value("all")
    # duplicates: the two that are the same
    page.b.find_element(By.CSS_SELECTOR, "[data-tab=duplicates]").click()
    wait(lambda: page.b.find_elements(By.ID, "spare"), "duplicates", 60)
    check({0, 89} <= set(page.items()), "duplicates")
    page.click("spare")
    check(89 in page.js("return [...conr.selected]") and 0 not in page.js("return [...conr.selected]"), "all but the best")
    page.js("const t = document.getElementById('threshold'); t.value = 1; t.dispatchEvent(new Event('change'))")
    wait(lambda: page.items() == [0, 89], "identical only")
    # outliers, with reasons
    page.b.find_element(By.CSS_SELECTOR, "[data-tab=outliers]").click()
    wait(lambda: page.b.find_elements(By.ID, "reason"), "outliers")
    for v in ("dark", "far", "blurred", "uniform", "all"):
        Select(page.get("reason")).select_by_value(v)
    # the map: zoom, a click, a lasso around all
    page.b.find_element(By.CSS_SELECTOR, "[data-tab=map]").click()
    canvas = page.get("canvas")
    wait(lambda: canvas.get_attribute("data-points") == "90", "the map", 60)
    page.click("zoom-in")
    check(float(canvas.get_attribute("data-zoom")) > 1.5, "zoom")
    page.click("zoom-all")
    page.click("lasso")
    w, h = canvas.size["width"] // 2 - 4, canvas.size["height"] // 2 - 4
    a = ActionChains(page.b, duration=30).move_to_element_with_offset(canvas, -w, -h).click_and_hold()
    for x, y in ((w, -h), (w, h), (-w, h), (-w, -h + 5)):
        a = a.move_to_element_with_offset(canvas, x, y)
    a.release().perform()
    got = len(page.js("return [...conr.selected]"))
    check(got == 90, f"a lasso around all selects {got}")
    page.click("clear")
    page.b.find_element(By.CSS_SELECTOR, "[data-tab=clusters]").click()
    # folders
    page.click("folders")
    page.answer(run + "-folders")
    page.say("images are in")
    there = os.listdir(run + "-folders")
    check("red things" in there and "outliers" in there, f"folders: {there}")
    # the list of shortcuts
    page.click("help")
    wait(lambda: "rename the cluster" in page.get("keys").text, "the list of shortcuts")
    page.click("keys-close")


def test_manners(page):
    for width, height in ((1440, 900), (375, 740)):
        for theme in ("light", "dark"):
            page.b.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
            page.b.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
            page.b.get(page.url)
            wait(lambda: page.js("return document.body.dataset.ready"), "the page")
            for tab in ("clusters", "map", "outliers", "duplicates"):
                page.js(f"document.querySelector('[data-tab={tab}]').click()")
                time.sleep(1)
                if tab == "clusters":
                    page.js("conr.show({type: 'cluster', id: 0}); conr.select(conr.items.slice(0, 2))")
                    time.sleep(0.3)
                rules = CHECK.replace("if (!e.alt) bad", "if (!e.hasAttribute('alt')) bad")
                for text in page.js(rules):
                    check(False, f"{width} {theme} {tab}: {text}")
                if os.environ.get("AXE"):
                    page.b.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
                    page.js(open(os.environ["AXE"]).read())
                    for v in page.b.execute_async_script("axe.run().then(r => arguments[0](r.violations))"):
                        check(False, f"{width} {theme} {tab}: axe {v['id']}: {v['help']}, as {v['nodes'][0]['html'][:150]}")
                if os.environ.get("SHOTS"):
                    page.b.save_screenshot(f"{os.environ['SHOTS']}/open-{width}-{theme}-{tab}.png")
    page.b.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    page.start("--read-only")
    check(not page.get("rename").is_displayed() and not page.get("undo").is_displayed(), "--read-only shows what it refuses")
    for e in page.b.get_log("browser"):  # pictures that were asked for when the program was killed
        check("ERR_CONNECTION_REFUSED" in e["message"], f"console: {e['message']}")


b = browser()
b.set_window_size(1440, 900)
page = Page(b)
test_actions(page)
test_looking(page)
test_manners(page)
page.p.terminate()
page.p.wait()
b.quit()
print("conr open in the browser: " + ("FAILED" if failures else "every action, kept through every restart"))
sys.exit(failures > 0)
