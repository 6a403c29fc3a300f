// conr open: the clusters of a run, to be looked at and corrected.  The numbers of all images are
// held here as arrays; pictures and names come when they are shown; decisions go to the program,
// which writes them down and answers with the new state.
import {makeMap} from './map.js';
import {makeTabs} from './tabs.js';

const get = id => document.getElementById(id);
const all = query => [...document.querySelectorAll(query)];
const KINDS = ['other', 'JPEG', 'PNG', 'WebP', 'GIF', 'BMP', 'TIFF', 'HEIC', 'AVIF'];

// ---- asking the program ---------------------------------------------------------------------

async function ask(path, body) {
    const r = await fetch(path, body === undefined ? {cache: 'default'} : {
        method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
    if (r.ok) return r;
    let why = `${r.status}`;
    try { why = (await r.json()).error || why; } catch { /* not ours */ }
    const e = new Error(why);
    e.status = r.status;
    throw e;
}
const json = async (path, body) => (await ask(path, body)).json();
const bytes = async path => (await ask(path)).arrayBuffer();

let sayTimer = 0;
function say(text, long) {
    get('say').textContent = text;
    clearTimeout(sayTimer);
    sayTimer = setTimeout(() => { get('say').textContent = ''; }, long ? 12000 : 4000);
}
const attempt = f => async (...x) => {
    try { return await f(...x); } catch (e) { say(e.message === 'Failed to fetch' ? 'conr open has ended' : e.message, true); }
};

// ---- state ----------------------------------------------------------------------------------

const app = {
    n: 0, state: null, label: null, classes: [], distance: null, boundary: null, truth: null, kind: null,
    marks: null, view: {type: 'cluster', id: -1}, items: [], selected: new Set(), ask, json, bytes, say, attempt, get,
    tab: 'clusters', busy: false,
};
const clusterName = id => {
    if (id < 0) return 'marked';
    const c = app.state.list.find(c => c.id === id);
    return c && c.name ? c.name : `Cluster ${id}`;
};
const color = id => id < 0 ? '#8a929c' : `hsl(${(id * 137.5) % 360} 65% ${id % 2 ? 42 : 52}%)`;
Object.assign(app, {clusterName, color});

async function loadLabels() {
    const b = await bytes('labels');
    app.label = new Int32Array(b, 0, app.n);
    app.marks = new Uint8Array(b, 4 * app.n, app.n);
}

async function decide(body, done) {
    if (app.busy) return false;
    app.busy = true;
    document.body.classList.add('busy');
    try {
        app.state = await json('do', body);
        await loadLabels();
    } finally {
        app.busy = false;
        document.body.classList.remove('busy');
    }
    if (done) say(done);
    showState();
    return true;
}
app.decide = decide;

// ---- the list of clusters -------------------------------------------------------------------

const checked = new Set();

function showClusters() {
    const list = get('clusters'), had = document.activeElement && document.activeElement.dataset.id;
    list.replaceChildren();
    const marked = [0, 0, 0];
    for (let i = 0; i < app.n; i++) marked[app.marks[i]]++;
    const rows = app.state.list.filter(c => c.size).map(c => ({id: c.id, name: clusterName(c.id), size: c.size, view: {type: 'cluster', id: c.id}}));
    if (marked[1]) rows.push({id: -1, name: 'Outliers', size: marked[1], view: {type: 'mark', mark: 1}});
    if (marked[2]) rows.push({id: -2, name: 'Wrong', size: marked[2], view: {type: 'mark', mark: 2}});
    rows.push({id: -3, name: 'All images', size: app.n, view: {type: 'all'}});
    for (const id of checked) if (!rows.some(r => r.id === id)) checked.delete(id);
    for (const r of rows) {
        const li = document.createElement('li'), b = document.createElement('button');
        if (r.id >= 0) {
            const box = document.createElement('input');
            box.type = 'checkbox', box.className = 'edit', box.checked = checked.has(r.id);
            box.setAttribute('aria-label', `Check ${r.name} for merging`);
            box.onchange = () => { box.checked ? checked.add(r.id) : checked.delete(r.id); get('merge').disabled = checked.size < 2; };
            li.append(box);
        }
        const dot = document.createElement('span'), name = document.createElement('span'), size = document.createElement('span');
        dot.className = 'dot', name.className = 'name', size.className = 'size', b.type = 'button';
        dot.style.background = color(r.id);
        name.textContent = r.name, size.textContent = r.size.toLocaleString('en');
        b.dataset.id = r.id;
        const v = app.view, here = v.type === r.view.type && v.id === r.view.id && v.mark === r.view.mark;
        b.setAttribute('aria-current', String(here && app.tab === 'clusters'));
        b.append(dot, name, size);
        b.onclick = () => { if (app.tab !== 'map') setTab('clusters'); show(r.view); };
        li.append(b);
        list.append(li);
        if (had === String(r.id)) b.focus();
    }
    get('merge').disabled = checked.size < 2;
}

function showState() {
    const s = app.state;
    get('undo').disabled = !s.done, get('redo').disabled = !s.undone;
    get('undo').textContent = s.undo ? `Undo ${s.undo}` : 'Undo';
    get('redo').textContent = s.redo ? `Redo ${s.redo}` : 'Redo';
    get('title').textContent = `${app.title}: ${app.n.toLocaleString('en')} images in ${s.clusters} clusters`;
    get('K').value = s.clusters, get('K-now').textContent = s.clusters;
    if (app.view.type === 'cluster' && !s.list.some(c => c.id === app.view.id && c.size)) {
        const first = s.list.find(c => c.size);
        app.view = first ? {type: 'cluster', id: first.id} : {type: 'all'};
    }
    const to = get('to');
    to.replaceChildren(new Option('Move to…', ''), new Option('a new cluster…', 'new'),
        ...s.list.filter(c => c.size).map(c => new Option(clusterName(c.id), c.id)));
    show(app.view, true);
    map.draw();
}

// ---- what is shown --------------------------------------------------------------------------

function baseIds(v) {
    const out = [];
    if (v.ids) return v.ids;
    for (let i = 0; i < app.n; i++)
        if (v.type === 'all' || (v.type === 'cluster' ? app.label[i] === v.id : app.marks[i] === v.mark)) out.push(i);
    return out;
}

function filtered(ids) {
    const edges = get('edges').value, label = get('label').value, kind = get('kind').value;
    return ids.filter(i => (edges === 'all' || (app.boundary[i] >= app.edge) === (edges === 'boundary')) &&
        (!label || app.truth[i] === Number(label)) && (!kind || app.kind[i] === Number(kind)));
}

function show(v, keep) {
    const old = app.view, same = keep || (old.type === v.type && old.id === v.id);
    app.view = v;
    if (!same) get('grid').scrollTop = 0, app.cursor = 0;
    let ids = filtered(baseIds(v));
    const order = get('order').value;
    if (v.ids) ids = [...ids];
    else if (order === 'central') ids.sort((a, b) => app.distance[a] - app.distance[b]);
    else if (order === 'edge') ids.sort((a, b) => app.boundary[b] - app.boundary[a]);
    app.items = ids;
    const titles = {cluster: () => clusterName(v.id), mark: () => v.mark === 1 ? 'Outliers' : 'Wrong', all: () => 'All images'};
    get('what').textContent = v.title || titles[v.type]();
    get('count').textContent = `${ids.length.toLocaleString('en')} ${ids.length === 1 ? 'image' : 'images'}`;
    get('cluster-tools').hidden = v.type !== 'cluster';
    if (!keep) select([]);
    showClusters();
    layout();
    showChosen();
}
app.show = show;

// ---- the grid: only what is visible exists ----------------------------------------------------

const cells = new Map();
let columns = 1, side = 120;
const names = new Map();

function nameOf(i, then) {
    const chunk = Math.floor(i / 500), have = names.get(chunk);
    if (Array.isArray(have)) return have[i - 500 * chunk];
    if (!have) {
        const p = json(`names?from=${500 * chunk}&to=${Math.min(app.n, 500 * chunk + 500)}`);
        names.set(chunk, p);
        p.then(list => names.set(chunk, list), () => names.delete(chunk));
    }
    if (then) Promise.resolve(names.get(chunk)).then(then, () => {});
    return null;
}
const short = path => path.split('/').pop();
Object.assign(app, {nameOf, short});

function layout() {
    const grid = get('grid'), width = grid.clientWidth - 8;
    const wanted = innerWidth < 700 ? 96 : 132;
    columns = Math.max(2, Math.floor(width / wanted));
    side = Math.floor(width / columns);
    get('space').style.height = `${Math.ceil(app.items.length / columns) * side + 8}px`;
    for (const c of cells.values()) c.remove();
    cells.clear();
    paint();
}

function describe(cell, i) {
    const path = nameOf(i, () => { if (cell.isConnected && Number(cell.dataset.i) === i) describe(cell, i); });
    const mark = ['', ', outlier', ', wrong'][app.marks[i]];
    cell.setAttribute('aria-label', `${path ? short(path) : `image ${i}`}, ${clusterName(app.label[i])}${mark}`);
    if (path) cell.title = path;
}

function makeCell(at) {
    const i = app.items[at], cell = document.createElement('div'), img = document.createElement('img');
    cell.className = 'cell', cell.id = `cell${at}`, cell.dataset.i = i, cell.dataset.at = at;
    cell.setAttribute('role', 'option');
    cell.setAttribute('aria-posinset', at + 1);
    cell.setAttribute('aria-setsize', app.items.length);
    Object.assign(cell.style, {left: `${4 + at % columns * side}px`, top: `${4 + Math.floor(at / columns) * side}px`,
        width: `${side - 6}px`, height: `${side - 6}px`});
    img.alt = '', img.decoding = 'async', img.draggable = false, img.src = `thumb?i=${i}`;
    img.onerror = () => {
        const none = document.createElement('span');
        none.className = 'none', none.textContent = short(nameOf(i) || `image ${i}`);
        img.replaceWith(none);
    };
    cell.append(img);
    const tag = app.view.tag ? app.view.tag(i, at) : '';
    if (tag) {
        const t = document.createElement('span');
        t.className = 'tag', t.textContent = tag;
        cell.append(t);
    }
    describe(cell, i);
    return cell;
}

function paint() {
    const grid = get('grid'), over = 2;
    const first = Math.max(0, (Math.floor(grid.scrollTop / side) - over) * columns);
    const last = Math.min(app.items.length, (Math.ceil((grid.scrollTop + grid.clientHeight) / side) + over) * columns);
    for (const [at, cell] of cells) if (at < first || at >= last) cell.remove(), cells.delete(at);
    const fresh = document.createDocumentFragment();
    for (let at = first; at < last; at++) {
        let cell = cells.get(at);
        if (!cell) cells.set(at, cell = makeCell(at)), fresh.append(cell);
        cell.setAttribute('aria-selected', String(app.selected.has(app.items[at])));
        cell.classList.toggle('at', at === app.cursor && document.activeElement === grid);
    }
    get('space').append(fresh);
    if (cells.has(app.cursor)) grid.setAttribute('aria-activedescendant', `cell${app.cursor}`);
    else grid.removeAttribute('aria-activedescendant');
}
let painting = 0;
get('grid').onscroll = () => { if (!painting) painting = requestAnimationFrame(() => { painting = 0; paint(); }); };

// ---- selecting ------------------------------------------------------------------------------

let anchor = 0;
app.cursor = 0;

function select(ids) {
    app.selected = new Set(ids);
    showChosen();
    paint();
    map.draw();
}
app.select = select;

function showChosen() {
    const n = app.selected.size;
    const was = get('chosen').hidden;
    get('chosen').hidden = !n;
    get('chosen-count').textContent = `${n.toLocaleString('en')} selected`;
    get('open').disabled = get('like').disabled = n !== 1;
    if (was !== !n) requestAnimationFrame(() => { if (app.tab !== 'map') paint(); else map.resize(); });
}

const range = (a, b) => app.items.slice(Math.min(a, b), Math.max(a, b) + 1);

function pick(at, e) {
    const i = app.items[at];
    if (i === undefined) return;
    app.cursor = at;
    if (e.shiftKey) return select([...app.selected, ...range(anchor, at)]);
    anchor = at;
    if (e.ctrlKey || e.metaKey || e.pointerType === 'touch' || e.key === ' ') {
        const next = new Set(app.selected);
        next.has(i) ? next.delete(i) : next.add(i);
        return select(next);
    }
    select([i]);
}

let touch = '';
get('grid').addEventListener('pointerdown', e => { touch = e.pointerType; });
get('grid').addEventListener('click', e => {
    const cell = e.target.closest('.cell');
    if (!cell) return;
    get('grid').focus({preventScroll: true});
    pick(Number(cell.dataset.at), {shiftKey: e.shiftKey, ctrlKey: e.ctrlKey, metaKey: e.metaKey, pointerType: touch});
});
get('grid').addEventListener('dblclick', e => {
    const cell = e.target.closest('.cell');
    if (cell) view(app.items[Number(cell.dataset.at)]);
});
get('grid').addEventListener('focus', paint);
get('grid').addEventListener('blur', paint);

function moveCursor(by, e) {
    const to = Math.max(0, Math.min(app.items.length - 1, app.cursor + by)), grid = get('grid');
    app.cursor = to;
    const top = Math.floor(to / columns) * side;
    if (top < grid.scrollTop) grid.scrollTop = top;
    if (top + side > grid.scrollTop + grid.clientHeight) grid.scrollTop = top + side - grid.clientHeight;
    if (e.shiftKey) select([...app.selected, ...range(anchor, to)]);
    else anchor = to, paint();
}

get('grid').addEventListener('keydown', e => {
    const rows = Math.max(1, Math.floor(get('grid').clientHeight / side)) * columns;
    const by = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -rows, PageDown: rows,
        Home: -app.items.length, End: app.items.length}[e.key];
    if (by && !e.altKey && !e.ctrlKey && !e.metaKey) moveCursor(by, e), e.preventDefault();
    else if (e.key === ' ') pick(app.cursor, {key: ' '}), e.preventDefault();
    else if (e.key === 'Enter' && app.items.length) view(app.items[app.cursor]), e.preventDefault();
});

// ---- one image ------------------------------------------------------------------------------

let viewed = -1;
async function view(i) {
    if (i === undefined) return;
    viewed = i;
    get('view-image').src = `image?i=${i}`;
    get('view-name').textContent = `image ${i}`;
    get('view-about').textContent = '';
    if (!get('view').open) get('view').showModal();
    await Promise.resolve(nameOf(i) ? null : names.get(Math.floor(i / 500)));
    if (viewed !== i) return;
    const path = nameOf(i) || '';
    get('view-name').textContent = short(path), get('view-image').alt = short(path);
    const mark = ['', ', marked as outlier', ', marked as wrong'][app.marks[i]];
    get('view-about').textContent = `${path} — ${clusterName(app.label[i])}${mark}; boundary ratio ${app.boundary[i].toFixed(2)}` +
        (app.truth[i] >= 0 ? `; label ${app.classes[app.truth[i]] || app.truth[i]}` : '');
}
app.open = view;
function step(by) {
    const at = app.items.indexOf(viewed) + by;
    if (at >= 0 && at < app.items.length) app.cursor = at, view(app.items[at]);
}
get('view-before').onclick = () => step(-1);
get('view-next').onclick = () => step(1);
get('view-close').onclick = () => get('view').close();
get('view-image').onclick = () => document.querySelector('.view-box').classList.toggle('full');
get('view-like').onclick = () => { get('view').close(); like(viewed); };
get('view').addEventListener('close', () => { get('view-image').removeAttribute('src'); get('grid').focus(); });

const like = attempt(async i => {
    const {ids} = await json(`near?i=${i}&k=200`);
    setTab('clusters');
    nameOf(i);
    show({type: 'ids', ids, title: `More like ${short(nameOf(i) || `image ${i}`)}`, tag: j => clusterName(app.label[j])});
});
app.like = like;

// ---- dialogs --------------------------------------------------------------------------------

function prompt(title, text, label, value, check) {
    const d = get('ask');
    get('ask-title').textContent = title, get('ask-text').textContent = text, get('ask-label').textContent = label;
    get('ask-input').value = value;
    get('ask-check-box').hidden = !check, get('ask-check').checked = false;
    d.showModal();
    get('ask-input').select();
    return new Promise(done => {
        const end = v => { d.close(); d.onclose = null; done(v); };
        get('ask-ok').onclick = () => end(get('ask-input').value);
        get('ask-no').onclick = () => end(null);
        get('ask-input').onkeydown = e => { if (e.key === 'Enter') end(get('ask-input').value), e.preventDefault(); };
        d.onclose = () => done(null);
    });
}

const rename = attempt(async () => {
    if (app.view.type !== 'cluster') return;
    const id = app.view.id, now = app.state.list.find(c => c.id === id);
    const name = await prompt('Rename', `What is ${clusterName(id)}? An empty name takes it away.`, 'Name', now.name || '');
    if (name !== null) await decide({do: 'rename', cluster: id, name: name.trim()}, `Renamed to ${name.trim() || `Cluster ${id}`}`);
});
const split = attempt(async () => {
    if (app.view.type !== 'cluster') return;
    const k = await prompt('Split', `${clusterName(app.view.id)} is divided by k-means of its images.`, 'Into how many', '2');
    if (k !== null) await decide({do: 'split', cluster: app.view.id, k: Number(k)}, `Split into ${k}`);
});
const merge = attempt(async () => {
    const ids = [...checked];
    if (ids.length < 2) return say('Check at least two clusters in the list first');
    const into = clusterName(ids[0]);
    checked.clear();
    if (await decide({do: 'merge', clusters: ids}, `Merged into ${into}`)) show({type: 'cluster', id: ids[0]});
});
const chosen = () => [...app.selected];
const mark = as => attempt(async () => {
    if (app.selected.size) await decide({do: 'mark', images: chosen(), as}, as === 'none' ? 'Marks taken off' : `Marked as ${as}`), select([]);
})();
const move = attempt(async to => {
    if (!app.selected.size || to === '') return;
    let name = null, where = Number(to);
    if (to === 'new') {
        name = await prompt('A new cluster', `${app.selected.size} images become a cluster of their own.`, 'Name', '');
        if (name === null) return;
        where = app.state.next;
    }
    const body = {do: 'move', images: chosen(), to: where};
    if (name && name.trim()) body.name = name.trim();
    await decide(body, `Moved ${body.images.length}`);
    select([]);
});
const folders = attempt(async () => {
    const to = await prompt('Write folders', 'Every image is linked into a folder with the name of its cluster. The folder must not exist yet, or be empty.',
        'Folder, from / on', `${app.runPath}-sorted`, true);
    if (to === null) return;
    const r = await json('sort', {folder: to, copy: get('ask-check').checked});
    say(`${r.sorted.toLocaleString('en')} images are in ${r.folder}`, true);
});
const copy = attempt(async () => {
    const text = await (await ask('paths', {images: chosen()})).text();
    try {
        await navigator.clipboard.writeText(text);
    } catch { // no permission: the old way
        const t = document.createElement('textarea');
        t.value = text, document.body.append(t), t.select();
        document.execCommand('copy');
        t.remove();
    }
    app.copied = text;
    say(`${app.selected.size} paths copied`);
});
const save = attempt(async () => {
    const blob = await (await ask('csv', {images: chosen()})).blob(), a = document.createElement('a');
    a.href = URL.createObjectURL(blob), a.download = 'selection.csv';
    a.click();
    setTimeout(() => URL.revokeObjectURL(a.href), 10000);
    say('selection.csv saved');
});
const undo = attempt(() => decide({do: 'undo'}, `Undone: ${app.state.undo}`));
const redo = attempt(() => decide({do: 'redo'}, `Done again: ${app.state.redo}`));
const theme = () => {
    const dark = matchMedia('(prefers-color-scheme: dark)').matches, now = document.documentElement.dataset.theme || (dark ? 'dark' : 'light');
    const next = now === 'dark' ? 'light' : 'dark';
    document.documentElement.dataset.theme = next;
    get('theme').textContent = next === 'dark' ? 'Light' : 'Dark';
    map.draw();
};
get('theme').textContent = matchMedia('(prefers-color-scheme: dark)').matches ? 'Light' : 'Dark';

get('rename').onclick = rename, get('split').onclick = split, get('merge').onclick = merge;
get('undo').onclick = undo, get('redo').onclick = redo, get('folders').onclick = folders, get('theme').onclick = theme;
get('outlier').onclick = () => mark('outlier'), get('wrong').onclick = () => mark('wrong'), get('unmark').onclick = () => mark('none');
get('copy').onclick = copy, get('csv').onclick = save, get('clear').onclick = () => select([]);
get('open').onclick = () => view(chosen()[0]), get('like').onclick = () => like(chosen()[0]);
get('to').onchange = async () => { const to = get('to').value; get('to').value = ''; await move(to); };
get('quit').onclick = attempt(async () => { await json('quit', {}); say('Ended. All decisions are kept; this page can be closed.', true); });
get('K').oninput = () => { get('K-now').textContent = get('K').value; };
get('K').onchange = attempt(async () => { await decide({do: 'clusters', K: Number(get('K').value)}, `Clustered again: ${get('K').value}`); });
for (const id of ['order', 'edges', 'label', 'kind']) get(id).onchange = () => show(app.view, true);
get('search').onkeydown = attempt(async e => {
    if (e.key === 'Escape') get('search').value = '', get('grid').focus();
    if (e.key !== 'Enter') return;
    const q = get('search').value.trim();
    if (!q) return;
    const {ids, more} = await json(`search?q=${encodeURIComponent(q)}`);
    setTab('clusters');
    show({type: 'ids', ids, title: `${more ? 'First names' : 'Names'} with “${q}”`, tag: i => clusterName(app.label[i])});
    get('grid').focus();
});

// ---- tabs and keys --------------------------------------------------------------------------

function setTab(tab) {
    app.tab = tab;
    for (const b of all('[data-tab]')) b.setAttribute('aria-pressed', String(b.dataset.tab === tab));
    get('map').hidden = tab !== 'map', get('grid').hidden = tab === 'map';
    get('place-tabs').hidden = tab !== 'duplicates' && tab !== 'outliers';
    if (tab === 'map') map.open();
    else if (tab !== 'clusters') tabs.open(tab);
    else if (app.view.tab) show({type: 'all'});
    if (tab !== 'map') layout();
}
app.setTab = setTab;
for (const b of all('[data-tab]')) b.onclick = () => { select([]); setTab(b.dataset.tab); };

function nextCluster(by) {
    const list = app.state.list.filter(c => c.size), at = list.findIndex(c => app.view.type === 'cluster' && c.id === app.view.id);
    const to = list[(at + by + list.length) % list.length];
    setTab('clusters');
    if (to) show({type: 'cluster', id: to.id});
}

const KEYS = [
    ['?', 'this list', () => get('keys').showModal()],
    ['/', 'search by name', () => get('search').focus()],
    ['j', 'next cluster', () => nextCluster(1)],
    ['k', 'previous cluster', () => nextCluster(-1)],
    ['n', 'rename the cluster', rename, 1],
    ['s', 'split the cluster', split, 1],
    ['x', 'check the cluster for merging', () => { if (app.view.type === 'cluster') checked.has(app.view.id) ? checked.delete(app.view.id) : checked.add(app.view.id); showClusters(); }, 1],
    ['g', 'merge checked clusters', merge, 1],
    ['a', 'select all images shown', () => select(app.items)],
    ['Escape', 'select nothing', () => select([])],
    ['m', 'move the selection', () => get('to').focus(), 1],
    ['o', 'mark the selection as outliers', () => mark('outlier'), 1],
    ['w', 'mark the selection as wrong', () => mark('wrong'), 1],
    ['u', 'take marks off', () => mark('none'), 1],
    ['l', 'more like the selected image', () => app.selected.size === 1 && like(chosen()[0])],
    ['c', 'copy paths of the selection', () => app.selected.size && copy()],
    ['e', 'save the selection as CSV', () => app.selected.size && save()],
    ['f', 'write folders', folders, 1],
    ['z', 'undo', undo, 1],
    ['y', 'redo', redo, 1],
    ['1', 'clusters', () => setTab('clusters')], ['2', 'map', () => setTab('map')],
    ['3', 'duplicates', () => setTab('duplicates')], ['4', 'outliers', () => setTab('outliers')],
    ['t', 'light or dark', theme],
];
const OTHERS = [['Arrow keys', 'move among the images; with Shift, select on the way'], ['Space', 'select or unselect an image'],
    ['Enter', 'open an image at full size; arrow keys then go on'], ['+  −  0', 'zoom the map']];
for (const [key, what] of [...KEYS, ...OTHERS]) {
    const dt = document.createElement('dt'), dd = document.createElement('dd');
    dt.textContent = key, dd.textContent = what;
    get('keys-list').append(dt, dd);
}
get('help').onclick = () => get('keys').showModal();
get('keys-close').onclick = () => get('keys').close();
document.addEventListener('keydown', e => {
    if (get('view').open) {
        if (e.key === 'ArrowRight') step(1);
        if (e.key === 'ArrowLeft') step(-1);
        return;
    }
    const typing = e.target.closest('input:not([type=checkbox]):not([type=range]), select, textarea, dialog');
    if (typing || e.altKey) return;
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === 'z') { (e.shiftKey ? redo : undo)(); return e.preventDefault(); }
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === 'a') { select(app.items); return e.preventDefault(); }
    if (e.ctrlKey || e.metaKey) return;
    const k = KEYS.find(k => k[0] === e.key);
    if (!k || (k[3] && app.readOnly)) return;
    k[2]();
    e.preventDefault();
});
addEventListener('resize', () => { layout(); map.resize(); });

// ---- beginning ------------------------------------------------------------------------------

function fillFilters() {
    const labels = new Set(app.truth), kinds = new Set(app.kind);
    labels.delete(-1);
    get('label-box').hidden = !labels.size, get('kind-box').hidden = kinds.size < 2;
    get('label').replaceChildren(new Option('any', ''), ...[...labels].sort((a, b) => a - b).slice(0, 1000).map(k => new Option(app.classes[k] || k, k)));
    get('kind').replaceChildren(new Option('any', ''), ...[...kinds].sort((a, b) => a - b).map(k => new Option(KINDS[k], k)));
}

const map = makeMap(app), tabs = makeTabs(app);
attempt(async () => {
    const [run, rows] = await Promise.all([json('run'), bytes('rows')]);
    Object.assign(app, {n: run.n, state: run.state, classes: run.classes, readOnly: run.readOnly, runPath: run.run});
    app.title = run.run.replace(/\/+$/, '').split('/').pop();
    document.title = `${app.title} – conr`;
    document.body.classList.toggle('read-only', run.readOnly);
    app.distance = new Float32Array(rows, 0, app.n), app.boundary = new Float32Array(rows, 4 * app.n, app.n);
    app.truth = new Int32Array(rows, 8 * app.n, app.n), app.kind = new Uint8Array(rows, 12 * app.n, app.n);
    const sorted = Float32Array.from(app.boundary).sort();
    app.edge = sorted[Math.floor(app.n * .8)] || 0;
    await loadLabels();
    get('K').max = Math.min(100, app.n);
    fillFilters();
    showState();
    document.body.dataset.ready = performance.now().toFixed(0);
    for (;;) { // names of classes are known once the images are open
        const jobs = await json('jobs');
        if (jobs.images.ready < 0) say(jobs.images.why, true);
        if (jobs.images.ready) break;
        await new Promise(done => setTimeout(done, 300));
    }
    app.classes = (await json('run')).classes;
    fillFilters();
})();
window.conr = app; // for tests, and the curious
