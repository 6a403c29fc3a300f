// The tabs Duplicates and Outliers.
export function makeTabs(app) {
    const {get} = app, box = get('place-tabs');
    let threshold = .97, reasons = null, which = 'all';

    async function looks(what) {
        await app.json('look', {});
        for (;;) {
            const {looks} = await app.json('jobs');
            if (looks.ready < 0) throw new Error(looks.why);
            if (looks.ready) return;
            box.replaceChildren(line(`${what}: ${looks.percent} %`));
            await new Promise(done => setTimeout(done, 300));
        }
    }
    const line = text => { const p = document.createElement('p'); p.textContent = text; p.setAttribute('role', 'status'); return p; };
    const button = (text, f) => { const b = document.createElement('button'); b.type = 'button', b.textContent = text, b.onclick = f; return b; };

    async function duplicates() {
        await looks('Looking at every image for copies');
        if (app.tab !== 'duplicates') return;
        const {groups} = await app.json(`duplicates?t=${threshold}`), ids = [], about = new Map();
        groups.forEach((g, n) => g.forEach(([i, same, alike], j) => {
            ids.push(i);
            about.set(i, `${n + 1}: ${j === 0 ? 'keep' : same ? 'identical' : alike.toFixed(3)}`);
        }));
        const spare = groups.flatMap(g => g.slice(1).map(x => x[0]));
        const label = document.createElement('label'), slider = document.createElement('input');
        slider.type = 'range', slider.min = .9, slider.max = 1, slider.step = .005, slider.value = threshold, slider.id = 'threshold';
        label.append('How alike: ', slider, ` ${threshold >= 1 ? 'identical only' : threshold.toFixed(3)}`);
        slider.onchange = app.attempt(async () => { threshold = Number(slider.value); await duplicates(); get('threshold').focus(); });
        const pick = button(`Select all but the best (${spare.length})`, () => app.select(spare));
        pick.id = 'spare', pick.disabled = !spare.length;
        box.replaceChildren(line(`${groups.length} groups of copies; the best of each, by size and sharpness, comes first`), label, pick);
        app.show({type: 'ids', tab: 'duplicates', ids, title: 'Duplicates', tag: i => about.get(i)});
    }

    // far from everything: the images that are farthest from the center of their cluster, beside the
    // others of it
    function far() {
        const sum = new Map();
        for (let i = 0; i < app.n; i++) {
            const s = sum.get(app.label[i]) || [0, 0, 0], d = app.distance[i];
            s[0]++, s[1] += d, s[2] += d * d;
            sum.set(app.label[i], s);
        }
        const out = [];
        for (let i = 0; i < app.n; i++) {
            const [n, a, b] = sum.get(app.label[i]), mean = a / n, spread = Math.sqrt(Math.max(b / n - mean * mean, 1e-12));
            const z = (app.distance[i] - mean) / spread;
            if (z > 3) out.push([z, i]);
        }
        return out.sort((a, b) => b[0] - a[0]).map(x => x[1]);
    }

    async function outliers() {
        if (!reasons) {
            await looks('Looking at every image');
            reasons = new Uint8Array(await app.bytes('reasons'));
        }
        if (app.tab !== 'outliers') return;
        const distant = new Set(far()), ids = [], words = i => [distant.has(i) ? 'far from its cluster' : '', reasons[i] & 1 ? 'blurred' : '',
            reasons[i] & 2 ? 'dark' : '', reasons[i] & 4 ? 'uniform' : ''].filter(Boolean);
        const bit = {blurred: 1, dark: 2, uniform: 4};
        for (const i of distant) ids.push(i);
        for (let i = 0; i < app.n; i++) if (reasons[i] && !distant.has(i)) ids.push(i);
        const shown = ids.filter(i => !app.marks[i] && (which === 'all' || (which === 'far' ? distant.has(i) : reasons[i] & bit[which])));
        const label = document.createElement('label'), select = document.createElement('select');
        select.id = 'reason';
        for (const [v, t] of [['all', 'any reason'], ['far', 'far from its cluster'], ['blurred', 'blurred'], ['dark', 'dark'], ['uniform', 'nearly uniform']])
            select.append(new Option(t, v, false, v === which));
        select.onchange = app.attempt(() => { which = select.value; return outliers(); });
        label.append('Why: ', select);
        box.replaceChildren(line(`${shown.length} images that may not belong here`), label);
        app.show({type: 'ids', tab: 'outliers', ids: shown, title: 'Outliers', tag: i => words(i).join(', ')});
    }

    return {open: app.attempt(tab => {
        app.show({type: 'ids', tab, ids: [], title: tab === 'outliers' ? 'Outliers' : 'Duplicates'});
        return tab === 'outliers' ? outliers() : duplicates();
    })};
}
