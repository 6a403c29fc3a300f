// The map: a point per image (of a sample, if there are many), colored by cluster; zoom, lasso and
// clicks select.
export function makeMap(app) {
    const {get} = app, canvas = get('canvas');
    let ids = null, xy = null, scale = 1, x0 = 0, y0 = 0, lasso = null, drag = null, loading = false;
    const pointers = new Map();
    const size = () => Math.min(canvas.clientWidth, canvas.clientHeight) / 2 - 12;
    const screen = j => [canvas.clientWidth / 2 + (xy[2 * j] - x0) * size() * scale, canvas.clientHeight / 2 + (xy[2 * j + 1] - y0) * size() * scale];

    function draw() {
        if (!ids || get('map').hidden) return;
        const ratio = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
        if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio))
            canvas.width = Math.round(w * ratio), canvas.height = Math.round(h * ratio);
        const c = canvas.getContext('2d'), style = getComputedStyle(document.documentElement);
        c.setTransform(ratio, 0, 0, ratio, 0, 0);
        c.clearRect(0, 0, w, h);
        const r = Math.max(1.8, Math.min(6, 2 * Math.sqrt(scale)));
        const groups = new Map(), chosen = [];
        for (let j = 0; j < ids.length; j++) {
            const k = app.label[ids[j]];
            if (app.selected.has(ids[j])) chosen.push(j);
            if (!groups.has(k)) groups.set(k, []);
            groups.get(k).push(j);
        }
        for (const [k, list] of groups) {
            c.fillStyle = app.color(k);
            c.beginPath();
            for (const j of list) {
                const [x, y] = screen(j);
                if (x < -r || y < -r || x > w + r || y > h + r) continue;
                c.moveTo(x + r, y);
                c.arc(x, y, r, 0, 7);
            }
            c.fill();
        }
        c.strokeStyle = style.getPropertyValue('--text');
        c.lineWidth = 2;
        c.beginPath();
        for (const j of chosen) {
            const [x, y] = screen(j);
            c.moveTo(x + r + 2, y);
            c.arc(x, y, r + 2, 0, 7);
        }
        c.stroke();
        if (lasso && lasso.length > 1) {
            c.strokeStyle = style.getPropertyValue('--accent');
            c.setLineDash([5, 4]);
            c.beginPath();
            lasso.forEach(([x, y], i) => i ? c.lineTo(x, y) : c.moveTo(x, y));
            c.closePath();
            c.stroke();
            c.setLineDash([]);
        }
        canvas.dataset.zoom = scale, canvas.dataset.points = ids.length;
    }

    function zoom(by, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
        const next = Math.max(.5, Math.min(200, scale * by)), d = (1 / scale - 1 / next) / size();
        x0 += (x - canvas.clientWidth / 2) * d, y0 += (y - canvas.clientHeight / 2) * d;
        scale = next;
        draw();
    }
    const whole = () => { scale = 1, x0 = y0 = 0; draw(); };

    function inside(polygon, x, y) {
        let odd = false;
        for (let a = 0, b = polygon.length - 1; a < polygon.length; b = a++) {
            const [xa, ya] = polygon[a], [xb, yb] = polygon[b];
            if ((ya > y) !== (yb > y) && x < (xb - xa) * (y - ya) / (yb - ya) + xa) odd = !odd;
        }
        return odd;
    }
    function nearest(x, y) {
        let best = 14 * 14, at = -1;
        for (let j = 0; j < ids.length; j++) {
            const [u, v] = screen(j), d = (u - x) ** 2 + (v - y) ** 2;
            if (d < best) best = d, at = j;
        }
        return at;
    }
    const place = e => { const b = canvas.getBoundingClientRect(); return [e.clientX - b.left, e.clientY - b.top]; };
    const lassoing = () => get('lasso').getAttribute('aria-pressed') === 'true';

    canvas.onpointerdown = e => {
        if (!ids) return;
        canvas.setPointerCapture(e.pointerId);
        pointers.set(e.pointerId, place(e));
        drag = {from: place(e), x0, y0, moved: false};
        if (lassoing()) lasso = [place(e)];
    };
    canvas.onpointermove = e => {
        if (!pointers.has(e.pointerId)) return;
        const before = [...pointers.values()], [x, y] = place(e);
        if (pointers.size === 2) { // pinch
            const apart = p => Math.hypot(p[0][0] - p[1][0], p[0][1] - p[1][1]);
            const was = apart(before);
            pointers.set(e.pointerId, [x, y]);
            const now = apart([...pointers.values()]);
            if (was > 5 && now > 5) zoom(now / was, (before[0][0] + before[1][0]) / 2, (before[0][1] + before[1][1]) / 2);
            drag.moved = true, lasso = null;
            return;
        }
        pointers.set(e.pointerId, [x, y]);
        if (Math.hypot(x - drag.from[0], y - drag.from[1]) > 4) drag.moved = true;
        if (lasso) lasso.push([x, y]);
        else if (drag.moved) x0 = drag.x0 - (x - drag.from[0]) / size() / scale, y0 = drag.y0 - (y - drag.from[1]) / size() / scale;
        draw();
    };
    canvas.onpointerup = canvas.onpointercancel = e => {
        pointers.delete(e.pointerId);
        if (!drag || pointers.size) return;
        const [x, y] = place(e);
        if (lasso && drag.moved) {
            const found = [];
            for (let j = 0; j < ids.length; j++) if (inside(lasso, ...screen(j))) found.push(ids[j]);
            lasso = null;
            app.select(e.shiftKey ? [...app.selected, ...found] : found);
            note();
        } else if (!drag.moved) {
            const j = nearest(x, y);
            lasso = null;
            if (j < 0) app.select([]);
            else if (e.shiftKey || e.ctrlKey) app.select([...app.selected, ids[j]]);
            else app.select([ids[j]]);
            note();
        }
        drag = null, lasso = null;
        draw();
    };
    canvas.ondblclick = e => { const j = nearest(...place(e)); if (j >= 0) app.open(ids[j]); };
    canvas.onwheel = e => { e.preventDefault(); zoom(Math.exp(-e.deltaY / 400), ...place(e)); };
    canvas.onkeydown = e => {
        const by = 40 / size() / scale, keys = {ArrowLeft: [-by, 0], ArrowRight: [by, 0], ArrowUp: [0, -by], ArrowDown: [0, by]};
        if (keys[e.key]) x0 += keys[e.key][0], y0 += keys[e.key][1], draw();
        else if (e.key === '+' || e.key === '=') zoom(1.4);
        else if (e.key === '-') zoom(1 / 1.4);
        else if (e.key === '0') whole();
        else return;
        e.preventDefault(), e.stopPropagation();
    };
    get('zoom-in').onclick = () => zoom(1.6);
    get('zoom-out').onclick = () => zoom(1 / 1.6);
    get('zoom-all').onclick = whole;
    get('lasso').onclick = () => get('lasso').setAttribute('aria-pressed', String(!lassoing()));

    function note() {
        const n = ids ? ids.length : 0;
        get('map-note').textContent = n < app.n ? `${n.toLocaleString('en')} of ${app.n.toLocaleString('en')} images` : '';
    }
    const open = app.attempt(async () => {
        draw();
        if (ids || loading) return;
        loading = true;
        try {
            for (;;) {
                const {map} = await app.json('jobs');
                if (map.ready) break;
                get('map-note').textContent = `The map is being drawn: ${map.percent} %`;
                await new Promise(done => setTimeout(done, 400));
            }
            const b = await app.bytes('map'), n = new Int32Array(b, 0, 1)[0];
            ids = new Int32Array(b, 4, n), xy = new Float32Array(b, 4 + 4 * n, 2 * n);
            note();
            draw();
        } finally { loading = false; }
    });
    return {open, draw, resize: draw};
}
