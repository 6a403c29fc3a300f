#!/usr/bin/env python3
"""open_http.py CONR RUN IMAGES [--long]: conr open without a browser: every decision, a restart after
each, labels.csv compared; who is refused; malformed requests; slow clients; the second one.

RUN is a finished run of the folder IMAGES.  Only what Python brings along."""
import csv
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

conr, run, images = (os.path.abspath(x) for x in sys.argv[1:4])
LONG = "--long" in sys.argv
failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print(f"open: {what}"[:600])


class Open:
    """The program, and requests to it."""

    def __init__(self, *words):
        self.p = subprocess.Popen([conr, "open", run, "--no-browser", "--quiet", "--threads", "1", *words],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = self.p.stdout.readline().strip()
        if not self.url:
            raise SystemExit("open: " + self.p.stderr.read())
        self.host, self.token = self.url.split("/")[2:4]
        self.port = int(self.host.split(":")[1])

    def ask(self, path, body=None, method=None, headers=None, token=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        h = {"Host": self.host}
        if body is not None:
            h.update({"Origin": "http://" + self.host, "Content-Type": "application/json"})
        h.update(headers or {})
        h = {k: v for k, v in h.items() if v is not None}
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        c.request(method or ("GET" if body is None else "POST"), f"/{token or self.token}/{path}", data, h)
        r = c.getresponse()
        out = r.status, r.read(), dict(r.getheaders())
        c.close()
        return out

    def json(self, path, body=None):
        status, data, _ = self.ask(path, body)
        return status, json.loads(data)

    def do(self, **body):
        status, answer = self.json("do", body)
        check(status == 200, f"{body}: {status} {answer}")
        return answer

    def end(self, how=signal.SIGINT):
        self.p.send_signal(how)
        return self.p.wait(30)


def labels():
    with open(f"{run}/labels.csv", newline="") as f:
        return list(csv.DictReader(f))


def column(name):
    return [r.get(name) for r in labels()]


def test_decisions():
    before = column("cluster")
    n = len(before)
    o = Open()
    status, about = o.json("run")
    check(status == 200 and about["n"] == n and about["state"]["clusters"] == len(set(before)), f"run: {about}")

    def again():
        nonlocal o
        was = column("cluster")
        check(o.end(signal.SIGKILL) == -9, "not killed")
        o = Open()
        check(column("cluster") == was, "a restart changes labels.csv")
        raw = o.ask("labels")[1]
        check([int.from_bytes(raw[4 * i:4 * i + 4], "little", signed=True) for i in range(n)] ==
              [int(k) for k in was], "the server and labels.csv differ after a restart")

    o.do(do="rename", cluster=0, name='cats, "big" ☂')
    again()
    check(all(r["name"] == ('cats, "big" ☂' if r["cluster"] == "0" else "") for r in labels()), "rename")
    o.do(do="merge", clusters=[1, 2])
    again()
    check(column("cluster") == ["1" if k == "2" else k for k in before], "merge")
    o.do(do="split", cluster=1, k=2)
    again()
    check(len(set(column("cluster"))) == len(set(before)), "split")
    state = o.do(do="move", images=[0, 5, 7], to=0)
    again()
    check([column("cluster")[i] for i in (0, 5, 7)] == ["0"] * 3, "move")
    o.do(do="move", images=[3], to=state["next"], name="new one")
    again()
    check(column("name")[3] == "new one", "move into a new one")
    o.do(do="mark", images=[1, 2], **{"as": "outlier"})
    o.do(do="mark", images=[2], **{"as": "wrong"})
    again()
    check(column("cluster")[1:3] == ["-1", "-1"] and column("mark")[1:3] == ["outlier", "wrong"], "mark")
    o.do(do="undo")
    again()
    check(column("mark")[1:3] == ["outlier", "outlier"], "undo")
    o.do(do="redo")
    again()
    check(column("mark")[1:3] == ["outlier", "wrong"], "redo")
    o.do(do="clusters", K=5)
    again()
    check(len({k for k in column("cluster") if k != "-1"}) == 5, f"other K: {set(column('cluster'))}")
    check(column("untouched") == before, "what the run found is not beside it")
    status, answer = o.json("do", {"do": "rename", "cluster": 999, "name": "x"})
    check(status == 409 and "no such cluster" in answer["error"], f"a cluster that is not: {answer}")
    for bad in ({"do": "dance"}, {}, {"do": "move", "images": [n], "to": 0}, {"do": "mark", "images": ["1"], "as": "wrong"},
                {"do": "merge", "clusters": [0]}, {"do": "merge", "clusters": [0, 2 ** 32 + 1]},
                {"do": "split", "cluster": 0, "k": 10 ** 9}, {"do": "clusters", "K": 1}):
        check(o.json("do", bad)[0] in (400, 409), f"{bad} is accepted")

    status, data, head = o.ask("csv", {"images": [0, 1]})
    check(status == 200 and data.decode().startswith("path,cluster,") and "attachment" in head["Content-Disposition"], "CSV")
    check(o.ask("paths", {"images": [4]})[1].decode().strip() == labels()[4]["path"], "paths")
    status, found = o.json("search?q=" + os.path.basename(labels()[6]["path"]).replace(" ", "%20"))
    check(6 in found["ids"], f"search: {found}")
    check(o.json("near?i=3&k=5")[1]["ids"][0] == 3 and len(o.json("near?i=3&k=5")[1]["ids"]) == 5, "near")
    check(o.ask("thumb?i=3")[1][:3] == b"\xff\xd8\xff", "thumb")
    first = open(labels()[3]["path"], "rb").read() if os.path.exists(labels()[3]["path"]) else None
    check(o.ask("image?i=3")[1] == first, "the original")
    folder = f"{run}-sorted"
    status, answer = o.json("sort", {"folder": folder, "copy": False})
    check(status == 200 and answer["sorted"] == n, f"sort: {answer}")
    check(sum(len(f) for _, _, f in os.walk(folder)) == n and os.path.isdir(f"{folder}/outliers"), "sorted folders")
    check(o.json("sort", {"folder": folder})[0] == 409, "a folder that is not empty is written into")
    check(o.json("sort", {"folder": "relative"})[0] == 400, "a relative folder")
    o.ask("look", {})
    for _ in range(300):
        if o.json("jobs")[1]["looks"]["ready"]:
            break
        time.sleep(0.05)
    status, answer = o.json("duplicates?t=0.97")
    check(status == 200 and any({0, n - 1} <= {x[0] for x in g} for g in answer["groups"]), f"duplicates: {answer}")
    check(len(o.ask("reasons")[1]) == n, "reasons")
    check(o.end() == 130, "Ctrl-C")
    shutil.rmtree(folder)


def test_refused():
    o = Open()
    good = f"/{o.token}/run"
    ask = o.ask
    check(ask("run", token="0" * 32)[0] == 403, "another token")
    check(ask("run", token=o.token[:-1])[0] == 403, "a shorter token")
    for host in ("evil.example", "127.0.0.1", f"127.0.0.1:{o.port + 1}", f"evil.example:{o.port}", ""):
        status, data, _ = ask("run", headers={"Host": host})
        check(status in (400, 421) and b"clusters" not in data, f"Host {host}: {status}")
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{o.port}", f"http://127.0.0.1:{o.port}.evil", ""):
        check(ask("do", {"do": "undo"}, headers={"Origin": origin})[0] == 403, f"Origin {origin}")
        check(ask("run", headers={"Origin": origin})[0] == 403, f"GET with Origin {origin}")
    check(ask("do", {"do": "undo"}, headers={"Origin": None})[0] == 403, "no Origin")
    check(ask("run", headers={"Sec-Fetch-Site": "cross-site"})[0] == 403, "cross-site")
    check(ask("do", {"do": "undo"}, headers={"Content-Type": "text/plain"})[0] == 415, "a simple request")
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        check(ask("run", method=method)[0] in (405, 501), method)
    tricks = ["../run/labels.csv", "%2e%2e/%2e%2e/etc/passwd", "image?i=../../etc/passwd", "image?i=-1", "image?i=1e3", "image?i=",
              "thumb?i=99999999999999999999", "thumb?i=0x1", "labels.csv", "page.js/../../x", "//etc/passwd", "near?i=0&k=0", "near",
              "names?from=0&to=100000000", "names?from=5&to=2", "search?q=", "duplicates?t=nan"]
    for path in tricks:
        status, data, _ = ask(path)
        check(status in (400, 404, 500, 503) and b"root:" not in data, f"{path}: {status}")
    check(ask("do", b"x" * 100)[0] == 400 and ask("do", b"[1]")[0] == 400 and ask("do", b'{"do":"undo"}\0')[0] == 400, "no JSON")
    check(ask("do", b"{" * 100000)[0] == 400, "deep JSON")
    c = socket.create_connection(("127.0.0.1", o.port))
    c.sendall((f"POST /{o.token}/do HTTP/1.1\r\nHost: {o.host}\r\nOrigin: http://{o.host}\r\n"
               "Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{").encode())
    check(b" 413 " in c.recv(4096), "a huge body")
    c.close()
    head = ask("")[2]
    check("default-src 'none'" in head["Content-Security-Policy"] and head["X-Content-Type-Options"] == "nosniff" and
          head["Referrer-Policy"] == "no-referrer", f"headers: {head}")

    # malformed requests: refused, and the program goes on
    rng = random.Random(5)
    start = f"GET {good} HTTP/1.1\r\nHost: {o.host}\r\n\r\n".encode()
    for turn in range(10000 if LONG else 300):
        data = bytearray(start)
        for _ in range(rng.randrange(1, 8)):
            kind = rng.randrange(4)
            at = rng.randrange(len(data))
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                del data[at:at + rng.randrange(1, 20)]
            elif kind == 2:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 30)))
            else:
                data[at:at] = b"\r\n" * rng.randrange(1, 4)
            if not data:
                data = bytearray(b"\0")
        c = socket.create_connection(("127.0.0.1", o.port), timeout=30)
        try:
            c.sendall(bytes(data))
            c.shutdown(socket.SHUT_WR)
            if turn % 10 == 0:
                c.recv(100)
        except OSError:
            pass
        c.close()
    check(ask("run")[0] == 200, "does not answer after malformed requests")

    # clients that say nothing, or little: others are served meanwhile
    slow = [socket.create_connection(("127.0.0.1", o.port)) for _ in range(40)]
    for s in slow[::2]:
        s.sendall(b"GET /")
    began = time.time()
    check(ask("run")[0] == 200 and time.time() - began < 5, "slow clients keep others waiting")

    # a second one is told where the first is; one that only reads is let in, and changes nothing
    p = subprocess.run([conr, "open", run, "--no-browser"], capture_output=True, text=True)
    check(p.returncode == 1 and o.url in p.stderr and p.stderr.count("\n") == 1, f"the second: {p.returncode} {p.stderr}")
    before = open(f"{run}/labels.csv", "rb").read()
    r = Open("--read-only")
    check(r.json("do", {"do": "undo"})[0] == 403 and r.json("sort", {"folder": "/tmp/x"})[0] == 403, "--read-only changes something")
    check(r.ask("run")[0] == 200 and r.token != o.token, "--read-only")
    r.end()
    check(open(f"{run}/labels.csv", "rb").read() == before, "--read-only changed labels.csv")
    check(os.stat(f"{run}/.open/address").st_mode & 0o077 == 0, "others may read the address")
    began = time.time()
    check(o.end(signal.SIGTERM) == 130 and time.time() - began < 8, "does not end with slow clients")
    for s in slow:
        s.close()
    check(not os.path.exists(f"{run}/.open/address"), "the address stays behind")
    o = Open()
    check(o.json("quit", {})[0] == 200 and o.p.wait(20) == 0, "quit")


def test_elsewhere():
    """What honors the edits."""
    def run_conr(*words):
        p = subprocess.run([conr, *words, "--quiet", "--threads", "1"], capture_output=True, text=True)
        check(p.returncode == 0, f"{words}: {p.stderr}")
        return p.stdout
    o = Open()
    name = o.do(do="rename", cluster=int(next(k for k in column("cluster") if k != "-1")), name="a/b..")["list"]
    check(any(c["name"] == "a/b.." for c in name), "rename")
    stray = next(i for i, k in enumerate(column("cluster")) if k != "-1")
    to = next(k for k in column("cluster") if k not in ("-1", column("cluster")[stray]))
    o.do(do="move", images=[stray], to=int(to))
    o.end()
    run_conr("cluster", run, "--sort-into", f"{run}-out")
    there = sorted(os.listdir(f"{run}-out"))
    check(any(d.startswith("a_b..-") for d in there) and "outliers" in there, f"--sort-into: {there}")
    check(sum(len(f) for _, _, f in os.walk(f"{run}-out")) == len(labels()), "--sort-into leaves some out")
    shutil.rmtree(f"{run}-out")
    run_conr("assign", run, images, "--out", f"{run}-a.csv", "--sort-into", f"{run}-new")
    check(any(d.startswith("a_b..-") for d in os.listdir(f"{run}-new")), f"assign: {os.listdir(f'{run}-new')}")
    shutil.rmtree(f"{run}-new")
    with open(f"{run}-a.csv", newline="") as f:
        new = {r["path"]: r["cluster"] for r in csv.DictReader(f)}
    given = set(new.values())
    check(new[labels()[stray]["path"]] == to, "assign does not follow an image that was moved")
    check(given <= set(column("cluster")), f"assign gives clusters that are not: {given}")
    run_conr("report", run, "--out", f"{run}.html")
    page = open(f"{run}.html").read()
    check("a/b.." in page and "as a person edited them" in page, "the report does not show the edits")
    out = run_conr("eval", "--truth", f"{run}/labels.csv", "--truth-column", "untouched", "--pred", f"{run}/labels.csv", "--json")
    check(json.loads(out)["acc"] < 1, "eval does not see the edits")
    before = column("untouched")
    p = subprocess.run([conr, "cluster", run, "--reset-edits", "--clusters", "3"], capture_output=True, text=True)
    check(p.returncode == 2, "--reset-edits with --clusters")
    run_conr("cluster", run, "--reset-edits")
    check(column("cluster") == before and "name" not in labels()[0] and not os.path.exists(f"{run}/edits.json"), "--reset-edits")
    with open(f"{run}/edits.json", "w") as f:
        f.write("{")
    p = subprocess.run([conr, "report", run, "--out", f"{run}.html"], capture_output=True, text=True)
    check(p.returncode == 1 and p.stderr.count("\n") == 1, f"a damaged journal: {p.returncode} {p.stderr}")
    os.remove(f"{run}/edits.json")


test_decisions()
test_refused()
test_elsewhere()
print("conr open: " + ("FAILED" if failures else "all refused and kept as it should be"))
sys.exit(failures > 0)
