#!/usr/bin/python3
"""Reports in a real browser: report.py FILE.html... (Debian: chromium, chromium-driver,
python3-selenium).  Every page is opened at 375 and 1440 pixels, light and dark, and must have all
its sections, no console errors, no network requests, no sideways scrolling, a text contrast of at
least 4.5, and names for all controls; its map must respond to hovering, zooming and clicking.
AXE=axe.min.js adds axe-core's rules.  SHOTS=FOLDER keeps screenshots."""
import json
import os
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

SLOWEST = float(os.environ.get('SLOWEST', '2'))  # seconds to load a page
failures = 0


def complain(page, text):
    global failures
    failures += 1
    print(f'{page}: {text}')


def browser():
    o = Options()
    for flag in ('--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--hide-scrollbars'):
        o.add_argument(flag)
    o.set_capability('goog:loggingPrefs', {'browser': 'ALL', 'performance': 'ALL'})
    return webdriver.Chrome(service=Service('/usr/bin/chromedriver'), options=o)


# Our own rules, so that the test needs nothing from outside Debian: contrast of text and background,
# names of images and controls, unique ids, no skipped heading levels, one h1, labels.
CHECK = r"""
const bad = [];
const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return {r: m[0], g: m[1], b: m[2], a: m.length > 3 ? m[3] : 1}; };
const over = (f, b) => ({r: f.r * f.a + b.r * (1 - f.a), g: f.g * f.a + b.g * (1 - f.a), b: f.b * f.a + b.b * (1 - f.a), a: 1});
const light = c => { const v = [c.r, c.g, c.b].map(x => { x /= 255; return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; });
                     return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
const behind = e => { const stack = []; for (; e; e = e.parentElement) stack.push(parse(getComputedStyle(e).backgroundColor));
                      return stack.reverse().reduce((b, f) => over(f, b), {r: 255, g: 255, b: 255, a: 1}); };
const contrast = (a, b) => { const x = light(a), y = light(b); return (Math.max(x, y) + .05) / (Math.min(x, y) + .05); };
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const seen = new Set();
for (let t; (t = walk.nextNode());) {
    const e = t.parentElement;
    if (!t.textContent.trim() || seen.has(e) || /SCRIPT|STYLE|NOSCRIPT|TITLE/i.test(e.tagName) || !e.getClientRects().length) continue;
    seen.add(e);
    const s = getComputedStyle(e), svg = e instanceof SVGElement;
    const b = svg ? parse(getComputedStyle(e.closest('svg')).backgroundColor) : behind(e);
    const c = contrast(over(parse(svg ? s.fill : s.color), b), b);
    if (c < 4.5) bad.push(`contrast ${c.toFixed(2)} of "${t.textContent.trim().slice(0, 30)}"`);
}
for (const e of document.querySelectorAll('img')) if (!e.alt) bad.push('an image without alt');
for (const e of document.querySelectorAll('svg, canvas')) if (!e.getAttribute('aria-label')) bad.push('a drawing without a label');
for (const e of document.querySelectorAll('button, a, select')) {
    const name = e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length);
    if (!name) bad.push('a control without a name');
}
const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
if (new Set(ids).size !== ids.length) bad.push('an id used twice');
let level = 0;
for (const h of document.querySelectorAll('h1, h2, h3, h4')) {
    const now = Number(h.tagName[1]);
    if (now > level + 1) bad.push(`a heading skips a level: ${h.textContent}`);
    level = now;
}
if (document.querySelectorAll('h1').length !== 1) bad.push('not one h1');
if (document.documentElement.scrollWidth > innerWidth) bad.push(`scrolls sideways: ${document.documentElement.scrollWidth} of ${innerWidth}`);
return [...new Set(bad)].slice(0, 12);
"""


def comes(condition, seconds=5):
    """Whether it becomes true; a busy machine may draw late."""
    end = time.time() + seconds
    while not condition() and time.time() < end:
        time.sleep(0.05)
    return condition()


def check_map(b, page):
    canvas = b.find_element(By.CSS_SELECTOR, '#map-box canvas')
    b.execute_script('arguments[0].scrollIntoView({block: "center"})', canvas)
    time.sleep(0.7)
    zoom = lambda: float(canvas.get_attribute('data-zoom'))
    painted = b.execute_script('const c = arguments[0], d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;'
                               'let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n', canvas)
    if painted < 50:
        complain(page, f'the map has {painted} painted pixels')
    # the position of the first point on the screen
    x, y = b.execute_script(
        'const d = JSON.parse(document.getElementById("map-data").textContent), t = atob(d.xy), c = arguments[0];'
        'const v = i => (t.charCodeAt(2 * i) + 256 * t.charCodeAt(2 * i + 1)) / 65535;'
        'const s = Math.max(50, Math.min(c.clientWidth, c.clientHeight) - 24);'
        'return [(v(0) - .5) * s, (v(1) - .5) * s]', canvas)
    ActionChains(b, duration=50).move_to_element_with_offset(canvas, round(x), round(y)).perform()
    time.sleep(0.4)
    tip = b.find_element(By.ID, 'map-tip')
    if not tip.is_displayed() or 'Cluster' not in tip.text:
        complain(page, 'hovering shows nothing')
    has_pictures = b.execute_script('return !!document.getElementById("sheet0")')
    if has_pictures and not tip.find_elements(By.TAG_NAME, 'canvas'):
        complain(page, 'hovering shows no picture')
    before = zoom()
    b.execute_script('const r = arguments[0].getBoundingClientRect();'
                     'arguments[0].dispatchEvent(new WheelEvent("wheel", {deltaY: -300, bubbles: true, cancelable: true,'
                     'clientX: r.left + r.width / 2, clientY: r.top + r.height / 2}))', canvas)
    if not comes(lambda: zoom() > before):
        complain(page, f'the wheel does not zoom: {before} to {zoom()}')
    b.find_element(By.ID, 'map-in').click()
    if not comes(lambda: zoom() > before * 1.5):
        complain(page, 'the button does not zoom')
    b.find_element(By.ID, 'map-all').click()
    if not comes(lambda: abs(zoom() - 1) <= 0.01):
        complain(page, 'the button does not show the whole map')
    ActionChains(b, duration=50).move_to_element_with_offset(canvas, round(x), round(y)).click().perform()
    if '"conaff"' in b.execute_script('return document.getElementById("map-data").textContent') and \
            not comes(lambda: len(b.find_elements(By.CSS_SELECTOR, '#map-near li')) == 20):
        complain(page, 'a click shows no neighbors')
    for select in b.find_elements(By.CSS_SELECTOR, '#map-tools select'):
        for option in select.find_elements(By.TAG_NAME, 'option')[::-1]:
            option.click()
    canvas.send_keys('+')
    if not comes(lambda: zoom() > 1.1):
        complain(page, 'keys do not zoom')
    canvas.send_keys('0')


def check_log(b, page, url):
    for e in b.get_log('browser'):
        complain(page, f'console: {e["message"]}')
    for e in b.get_log('performance'):
        m = json.loads(e['message'])['message']
        if m['method'] == 'Network.requestWillBeSent':
            asked = m['params']['request']['url']
            if not asked.startswith(('data:', url)):
                complain(page, f'asks for {asked[:100]}')


def check(b, path, width, theme):
    page, url = f'{path} {width} {theme}', 'file://' + os.path.abspath(path)
    b.execute_cdp_cmd('Emulation.setDeviceMetricsOverride',
                      {'width': width, 'height': 900, 'deviceScaleFactor': 1, 'mobile': False})
    b.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': [{'name': 'prefers-color-scheme', 'value': theme}]})
    b.get(url)
    took = b.execute_script('const t = performance.timing; return (t.loadEventEnd - t.navigationStart) / 1000')
    if took > SLOWEST:
        complain(page, f'opens in {took:.1f} s')
    compared = not b.find_elements(By.ID, 'clusters')
    parts = ['table', 'curves', 'runs'] if compared else ['summary', 'clusters', 'map', 'neighbors', 'curves', 'settings']
    # clusters of features without labels have nothing to draw, and then no link to it either
    if b.find_elements(By.XPATH, "//p[contains(., 'Features: ')]") and not b.find_elements(By.CSS_SELECTOR, 'table td.hit'):
        parts.remove('curves')
        if b.find_elements(By.CSS_SELECTOR, '#curves, a[href="#curves"]'):
            complain(page, 'has curves of nothing')
    for part in parts:
        if not b.find_elements(By.ID, part):
            complain(page, f'lacks {part}')
    if b.find_elements(By.CSS_SELECTOR, 'script[src], link[rel=stylesheet], iframe'):
        complain(page, 'loads external files')
    b.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    for text in b.execute_script(CHECK):
        complain(page, text)
    if os.environ.get('AXE'):
        b.execute_script(open(os.environ['AXE']).read())
        found = b.execute_async_script('axe.run().then(r => arguments[0](r.violations))')
        for v in found:
            complain(page, f'axe {v["id"]}: {v["help"]}, {len(v["nodes"])} times, as {v["nodes"][0]["html"][:120]}')
    if not compared:
        check_map(b, page)
    button = b.find_element(By.ID, 'theme')
    was = b.execute_script('return getComputedStyle(document.body).backgroundColor')
    b.execute_script('scrollTo(0, 0)')
    button.click()
    if was == b.execute_script('return getComputedStyle(document.body).backgroundColor'):
        complain(page, 'the button does not change the colors')
    button.click()
    if os.environ.get('SHOTS'):
        name = os.path.basename(os.path.dirname(os.path.abspath(path)))
        b.save_screenshot(f'{os.environ["SHOTS"]}/{name}-{width}-{theme}.png')
    check_log(b, page, url)


def check_without_script(path):
    """Without JavaScript the main parts are there: the map as a picture, and the clusters."""
    b = browser()
    b.execute_cdp_cmd('Emulation.setScriptExecutionDisabled', {'value': True})
    b.get('file://' + os.path.abspath(path))
    if b.find_elements(By.ID, 'clusters'):
        if not b.find_element(By.ID, 'map-still').is_displayed():
            complain(path, 'without a script there is no map')
        if not b.find_elements(By.CSS_SELECTOR, '#clusters .pic'):
            complain(path, 'without a script there are no clusters')
    b.quit()


b = browser()
for path in sys.argv[1:]:
    for width, theme in ((375, 'light'), (1440, 'dark'), (375, 'dark'), (1440, 'light')):
        check(b, path, width, theme)
    check_without_script(path)
b.quit()
print(f'{len(sys.argv) - 1} reports in the browser: ' + ('FAILED' if failures else 'clean'))
sys.exit(failures > 0)
