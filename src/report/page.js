// The script of conr's reports: the switch between light and dark, and the map on a canvas.
'use strict';

// ---- light and dark ---------------------------------------------------------------------------

(() => {
    const root = document.documentElement, button = document.getElementById('theme');
    const system = matchMedia('(prefers-color-scheme: dark)');
    const isDark = () => (root.dataset.theme || (system.matches ? 'dark' : 'light')) === 'dark';
    const show = () => {
        button.textContent = isDark() ? 'Light' : 'Dark';
        button.setAttribute('aria-label', isDark() ? 'Use light colors' : 'Use dark colors');
        dispatchEvent(new Event('themechange'));
    };
    root.classList.add('scripted');
    button.hidden = false;
    button.onclick = () => { root.dataset.theme = isDark() ? 'light' : 'dark'; show(); };
    system.addEventListener('change', show);
    show();
})();

// ---- the map ----------------------------------------------------------------------------------

(() => {
    const script = document.getElementById('map-data');
    if (!script) return;
    const get = id => document.getElementById(id);
    const data = JSON.parse(script.textContent), n = data.n;
    const numbers = text => {
        if (!text) return null;
        const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
        return new Uint16Array(bytes.buffer);
    };
    const xy = numbers(data.xy), cluster = numbers(data.cluster), label = numbers(data.label);
    const edge = numbers(data.edge); // bit 0: not a boundary image; above: 1000 times the boundary ratio
    const lists = {Euclidean: numbers(data.euclidean), ConAff: numbers(data.conaff)};
    const isKept = i => edge[i] & 1, NONE = 65535;

    const box = get('map-box'), tip = get('map-tip'), legend = get('map-legend');
    const canvas = document.createElement('canvas'), pen = canvas.getContext('2d');
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'application');
    canvas.setAttribute('aria-label', 'Map of the images. Arrow keys move it, plus and minus zoom, 0 shows the whole map.');
    box.insertBefore(canvas, tip);
    get('map-still').hidden = true;
    get('map-tools').hidden = false;

    // pictures: sheets of thumbnails, decoded when the map first scrolls into view
    const sheets = [];
    const loadSheets = () => {
        for (let s = 0; s < data.sheets && sheets.length < data.sheets; s++) {
            const image = new Image();
            image.onload = draw;
            image.src = 'data:image/webp;base64,' + get('sheet' + s).textContent;
            sheets.push(image);
        }
    };
    const drawThumb = (to, i, x, y, size) => {
        const perSheet = data.columns * data.columns, image = sheets[Math.floor(i / perSheet)];
        if (!image || !image.complete || !image.naturalWidth) return false;
        const at = i % perSheet, side = data.side;
        to.imageSmoothingEnabled = side > 40;
        to.drawImage(image, at % data.columns * side, Math.floor(at / data.columns) * side, side, side, x, y, size, size);
        return true;
    };
    const thumbCanvas = (i, size) => {
        const c = document.createElement('canvas');
        c.width = c.height = size;
        c.setAttribute('role', 'img');
        c.setAttribute('aria-label', about(i));
        return drawThumb(c.getContext('2d'), i, 0, 0, size) ? c : null;
    };
    const className = i => label && label[i] !== NONE ? data.classes[label[i]] : '';
    const about = i => data.names[i] + (className(i) ? ', ' + className(i) : '') + ', ' + data.clusters[cluster[i]];

    // the view: a point p of the map (0 to 1) is drawn at (p - center) * scale + middle
    let width = 0, height = 0, scale = 1, least = 1, centerX = .5, centerY = .5;
    let hovered = -1, chosen = -1, colorBy = 'cluster', edges = 'small', only = -1;
    const screenX = i => (xy[2 * i] / 65535 - centerX) * scale + width / 2;
    const screenY = i => (xy[2 * i + 1] / 65535 - centerY) * scale + height / 2;
    const group = i => (colorBy === 'label' ? label : cluster)[i];
    const isShown = i => (only < 0 || group(i) === only) && (edges === 'small' || !isKept(i) === (edges === 'only'));

    let asked = false;
    function draw() {
        if (asked) return;
        asked = true;
        requestAnimationFrame(() => { asked = false; paint(); });
    }

    function paint() {
        const ratio = devicePixelRatio || 1, zoom = scale / least;
        pen.setTransform(ratio, 0, 0, ratio, 0, 0);
        pen.clearRect(0, 0, width, height);
        const grow = Math.min(2.6, Math.sqrt(zoom)) * (n > 5000 ? 1 : 1.5) * Math.max(.55, Math.min(1, least / 650)), big = 2.1 * grow, small = 1.05 * grow;
        const visible = [];
        for (let i = 0; i < n; i++) {
            const x = screenX(i), y = screenY(i);
            if (isShown(i) && x > -40 && y > -40 && x < width + 40 && y < height + 40) visible.push(i);
        }
        const asPictures = data.sheets > 0 && visible.length < 600 && zoom > 2.5;
        // one path per color: fast enough for 20,000 dots
        const byColor = new Map();
        for (const i of visible) {
            const g = group(i), color = g === NONE ? '#8a929c' : data.colors[g];
            if (!byColor.has(color)) byColor.set(color, []);
            byColor.get(color).push(i);
        }
        for (const [color, list] of byColor) {
            pen.fillStyle = color;
            pen.beginPath();
            for (const i of list) {
                const r = isKept(i) || edges === 'only' ? big : small, x = screenX(i), y = screenY(i);
                pen.moveTo(x + r, y);
                pen.arc(x, y, r, 0, 7);
            }
            pen.fill();
        }
        if (asPictures) {
            for (const i of visible) {
                const size = isKept(i) ? 34 : 24, x = screenX(i), y = screenY(i);
                if (!drawThumb(pen, i, x - size / 2, y - size / 2, size)) continue;
                pen.strokeStyle = group(i) === NONE ? '#8a929c' : data.colors[group(i)];
                pen.lineWidth = 2;
                pen.strokeRect(x - size / 2, y - size / 2, size, size);
            }
        }
        for (const i of [chosen, hovered]) {
            if (i < 0) continue;
            pen.strokeStyle = getComputedStyle(document.body).color;
            pen.lineWidth = 2;
            pen.beginPath();
            pen.arc(screenX(i), screenY(i), asPictures ? 26 : big + 4, 0, 7);
            pen.stroke();
        }
        canvas.dataset.zoom = zoom.toFixed(3); // for tests
    }

    function resize() {
        const before = least, ratio = devicePixelRatio || 1;
        width = canvas.clientWidth;
        height = canvas.clientHeight;
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        least = Math.max(50, Math.min(width, height) - 24);
        scale *= least / before;
        draw();
    }

    // zooms by a factor, keeping the point at x, y in place
    function zoomAt(factor, x, y) {
        const next = Math.min(least * 60, Math.max(least, scale * factor));
        centerX += (x - width / 2) * (1 / scale - 1 / next);
        centerY += (y - height / 2) * (1 / scale - 1 / next);
        scale = next;
        keepInside();
    }
    function pan(dx, dy) {
        centerX -= dx / scale;
        centerY -= dy / scale;
        keepInside();
    }
    function keepInside() {
        centerX = Math.min(1, Math.max(0, centerX));
        centerY = Math.min(1, Math.max(0, centerY));
        draw();
    }
    function showAll() {
        scale = least;
        centerX = centerY = .5;
        draw();
    }

    function nearest(x, y) {
        let best = -1, far = 18 * 18;
        for (let i = 0; i < n; i++) {
            if (!isShown(i)) continue;
            const dx = screenX(i) - x, dy = screenY(i) - y, d = dx * dx + dy * dy;
            if (d < far) far = d, best = i;
        }
        return best;
    }

    const line = (tag, text) => Object.assign(document.createElement(tag), {textContent: text});
    function hover(i, x, y) {
        if (i !== hovered) {
            hovered = i;
            tip.replaceChildren();
            if (i >= 0) {
                const picture = thumbCanvas(i, 96);
                if (picture) tip.append(picture);
                if (className(i)) tip.append(line('strong', className(i)), document.createElement('br'));
                tip.append(data.clusters[cluster[i]], document.createElement('br'));
                tip.append(`Boundary ratio ${((edge[i] >> 1) / 1000).toFixed(2)}`, document.createElement('br'));
                tip.append(line('small', data.names[i]));
            }
            draw();
        }
        tip.hidden = i < 0;
        if (i < 0) return;
        const w = tip.offsetWidth, h = tip.offsetHeight;
        tip.style.left = Math.max(4, Math.min(width - w - 4, x + 18 + w > width ? x - w - 18 : x + 18)) + 'px';
        tip.style.top = Math.max(4, Math.min(height - h - 4, y - h / 2)) + 'px';
    }

    // a click shows the image and its neighbors below the map
    function choose(i) {
        const place = get('map-near');
        chosen = i;
        draw();
        place.replaceChildren();
        if (i < 0 || !lists.Euclidean) return;
        const article = document.createElement('article'), asks = document.createElement('div');
        const found = document.createElement('div'), words = document.createElement('p');
        article.className = 'query', asks.className = 'asked', found.className = 'found';
        const own = thumbCanvas(i, 72);
        if (own) asks.append(own);
        words.append(data.names[i]);
        if (className(i)) words.append(document.createElement('br'), line('strong', className(i)));
        words.append(document.createElement('br'), data.clusters[cluster[i]]);
        asks.append(words);
        const near = k => Array.from(lists[k].subarray(i * data.near, (i + 1) * data.near));
        for (const kind of ['Euclidean', 'ConAff']) {
            const row = document.createElement('div'), list = document.createElement('ol');
            row.className = 'row', list.className = 'pics';
            for (const j of near(kind)) {
                const item = document.createElement('li'), known = label && label[i] !== NONE && label[j] !== NONE;
                const picture = thumbCanvas(j, 68) || line('span', about(j));
                const wrong = known && label[j] !== label[i];
                const hard = known && !wrong && kind === 'ConAff' && !near('Euclidean').includes(j);
                picture.className = 'pic' + (wrong ? ' bad' : hard ? ' hard' : '') + (picture.tagName === 'SPAN' ? ' none' : '');
                picture.title = about(j);
                item.append(picture);
                list.append(item);
            }
            row.append(line('h3', kind), list);
            found.append(row);
        }
        article.append(asks, found);
        place.append(article);
    }

    // legend: a click shows only that group
    function writeLegend() {
        const groups = new Map();
        const of = colorBy === 'label' ? label : cluster;
        for (let i = 0; i < n; i++) groups.set(of[i], (groups.get(of[i]) || 0) + 1);
        legend.replaceChildren();
        for (const g of [...groups.keys()].sort((a, b) => a - b).slice(0, 60)) {
            const item = document.createElement('li'), button = document.createElement('button');
            const key = document.createElement('span');
            key.className = 'key round';
            key.style.background = g === NONE ? '#8a929c' : data.colors[g];
            button.type = 'button';
            button.setAttribute('aria-pressed', String(only === g));
            const name = colorBy === 'cluster' ? data.clusters[g] : g === NONE ? 'no label' : data.classes[g];
            button.append(key, ' ' + name);
            button.onclick = () => { only = only === g ? -1 : g; writeLegend(); draw(); };
            item.append(button);
            legend.append(item);
        }
    }

    // pointers: one drags, two pinch; a tap chooses
    const held = new Map();
    let moved = 0;
    const place = e => {
        const r = canvas.getBoundingClientRect();
        return {x: e.clientX - r.left, y: e.clientY - r.top};
    };
    canvas.onpointerdown = e => {
        canvas.setPointerCapture(e.pointerId);
        held.set(e.pointerId, place(e));
        canvas.classList.add('held');
        if (held.size === 1) moved = 0;
    };
    canvas.onpointermove = e => {
        const now = place(e), before = held.get(e.pointerId);
        if (!before) return hover(nearest(now.x, now.y), now.x, now.y);
        const other = [...held].find(([id]) => id !== e.pointerId);
        moved += Math.hypot(now.x - before.x, now.y - before.y);
        if (other) {
            const o = other[1], was = Math.hypot(before.x - o.x, before.y - o.y);
            const is = Math.hypot(now.x - o.x, now.y - o.y);
            pan((now.x - before.x) / 2, (now.y - before.y) / 2);
            if (was > 5) zoomAt(is / was, (now.x + o.x) / 2, (now.y + o.y) / 2);
        } else if (moved > 3) {
            pan(now.x - before.x, now.y - before.y);
            hover(-1);
        }
        held.set(e.pointerId, now);
    };
    const letGo = e => {
        held.delete(e.pointerId);
        if (!held.size) canvas.classList.remove('held');
    };
    canvas.onpointerup = e => {
        if (held.size === 1 && moved <= 6) {
            const at = place(e), i = nearest(at.x, at.y);
            hover(i, at.x, at.y);
            choose(i);
        }
        letGo(e);
    };
    canvas.onpointercancel = letGo;
    canvas.onpointerleave = e => { if (e.pointerType === 'mouse') hover(-1); };

    // the wheel zooms only if the gesture began over the map: scrolling past must not get stuck in it
    let lastWheel = 0, began = null;
    addEventListener('wheel', e => {
        if (e.timeStamp - lastWheel > 250) began = e.target;
        lastWheel = e.timeStamp;
    }, {capture: true, passive: true});
    canvas.addEventListener('wheel', e => {
        if (began !== canvas || (e.deltaY > 0 && scale <= least * 1.001)) return;
        e.preventDefault();
        const at = place(e);
        zoomAt(Math.exp(-Math.max(-120, Math.min(120, e.deltaY)) / 350), at.x, at.y);
        hover(nearest(at.x, at.y), at.x, at.y);
    }, {passive: false});
    canvas.ondblclick = e => { const at = place(e); zoomAt(2, at.x, at.y); };
    canvas.onkeydown = e => {
        const step = 60, keys = {
            ArrowLeft: () => pan(step, 0), ArrowRight: () => pan(-step, 0), ArrowUp: () => pan(0, step),
            ArrowDown: () => pan(0, -step), '+': () => zoomAt(1.4, width / 2, height / 2),
            '=': () => zoomAt(1.4, width / 2, height / 2), '-': () => zoomAt(1 / 1.4, width / 2, height / 2), '0': showAll,
        };
        if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
        keys[e.key]();
        e.preventDefault();
    };
    get('map-in').onclick = () => zoomAt(1.5, width / 2, height / 2);
    get('map-out').onclick = () => zoomAt(1 / 1.5, width / 2, height / 2);
    get('map-all').onclick = showAll;
    get('map-edge').onchange = e => { edges = e.target.value; draw(); };
    if (get('map-color')) get('map-color').onchange = e => { colorBy = e.target.value; only = -1; writeLegend(); draw(); };

    new ResizeObserver(resize).observe(canvas);
    new IntersectionObserver((seen, watcher) => {
        if (!seen.some(s => s.isIntersecting)) return;
        watcher.disconnect();
        loadSheets();
    }, {rootMargin: '600px'}).observe(box);
    addEventListener('themechange', draw);
    writeLegend();
    resize();
})();
