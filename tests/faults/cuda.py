#!/usr/bin/env python3
"""cuda.py: makes calls of the CUDA runtime fail, takes the GPU's memory or the GPU itself away, and
checks one rule.

    cuda.py BUILD [--seconds N] [--seed N] [--jobs N] [--case VERB/KIND/N/ACT]

The rule: exit 0 and everything as without a fault, or one line on standard error that begins with
`conr:` and exit 1; no signal, no hang, no temporary file; a training that failed can be continued to
the same bits.  Cases: VERB/alloc/N/fail, VERB/alloc/N/on, VERB/call/N/fail, VERB/call/N/lost (see
cuda_shim.cu), VERB/full/MIB/- (another process leaves so much memory)."""
import argparse
import concurrent.futures
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import verbs

TIMEOUT = 120
# The network of verbs.RECIPE on the GPU: stage 1 and 2, recordings, views, neighbors, k-means.
VERBS = {
    "train": "train --recipe {i}/tiny.yaml --data {i}/data --out {o}/run --no-report",
    "embed": "embed {i}/run {i}/new --out {o}/out",
    "kmeans": "kmeans {i}/f.npy --clusters 3 --out {o}/out --metric euclidean --restarts 2",
    "neighbors": "neighbors {i}/f.npy --out {o}/out --k 5 --k1 5",
}
COMMON = ["--device", "cuda", "--threads", "1", "--quiet", "--json"]
FULL = [0, 64, 128, 256, 320, 384, 448, 512, 576, 640, 768, 1024]


class Violation(Exception):
    pass


def check(ok, what):
    if not ok:
        raise Violation(what)


class Driver:
    def __init__(self, build, work):
        self.conr, self.hog = f"{build}/conr", f"{build}/cuda_hog"
        self.library = f"{build}/libconr_faulty.so"
        self.work, self.inputs = work, f"{work}/inputs"
        self.clean, self.counts = {}, {}
        self.serial, self.lock = 0, threading.Lock()

    def folder(self):
        with self.lock:
            self.serial += 1
            out = f"{self.work}/case{self.serial:05}"
        os.makedirs(out)
        return out

    def run(self, words, out, fault=None):
        engines = f"{out}/engines.txt"  # choices by timing would change the bits
        if os.path.exists(f"{self.inputs}/engines.txt"):
            shutil.copy(f"{self.inputs}/engines.txt", engines)
        env = dict(os.environ, LD_PRELOAD=self.library, CUDA_FAULT_COUNTS=f"{out}/counts", CONR_CUDA_ENGINES=engines,
                   OMP_WAIT_POLICY="passive", LC_ALL="C")
        if fault:
            env.update(CUDA_FAULT_KIND=fault[0], CUDA_FAULT_N=str(fault[1]), CUDA_FAULT_ACT=fault[2])
        p = subprocess.Popen([self.conr] + words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, cwd=self.work, text=True, errors="replace")
        try:
            stdout, stderr = p.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            raise Violation(f"no end after {TIMEOUT} s") from None
        counts = dict(line.split() for line in (verbs.read(f"{out}/counts") or b"").decode().splitlines())
        if os.path.exists(f"{out}/counts"):
            os.remove(f"{out}/counts")
        return p.returncode, stdout, stderr, {k: int(v) for k, v in counts.items()}

    def words(self, verb, out):
        return VERBS[verb].format(i=self.inputs, o=out).split() + COMMON

    def state(self, verb, out):
        if verb == "train":
            return verbs.run_state(f"{out}/run")
        return {"out": verbs.read(f"{out}/out")}

    def keep_engines(self, out):
        """From now on everybody makes the choices of this run; there may be none."""
        with open(f"{self.inputs}/engines.txt", "wb") as f:
            f.write(verbs.read(f"{out}/engines.txt") or b"")

    def prepare(self):
        os.makedirs(self.inputs)
        verbs.make_inputs(self.inputs)
        for first in (True, False):  # the first makes the choices of engines
            out = self.folder()
            code, _, stderr, _ = self.run(self.words("train", out), out)
            if code:
                sys.exit(f"cuda.py: a training without a fault fails: {stderr}")
            self.keep_engines(out)
            if first:
                shutil.move(f"{out}/run", f"{self.inputs}/run")
        for again in (False, True):
            for verb in VERBS:
                out = self.folder()
                code, _, stderr, counts = self.run(self.words(verb, out), out)
                if code:
                    sys.exit(f"cuda.py: {verb} without a fault fails: {stderr}")
                if not again:
                    self.keep_engines(out)
                    continue
                self.clean[verb], self.counts[verb] = self.state(verb, out), counts
                assert counts["alloc"] > 0 and counts["call"] > counts["alloc"], "the shim is not at work"

    def check_end(self, code, stderr):
        check(code >= 0, f"ended by signal {-code}: {stderr[-300:]}")
        check(code == 1, f"exit {code}: {stderr[-300:]}")
        lines = [l for l in stderr.splitlines() if not re.match(r"(conr: )?warning: ", l)]
        check(len(lines) == 1 and re.match(r"conr: .+", lines[0]), f"not one line: {stderr[-300:]!r}")

    def check_whole(self, verb, out, code, resume):
        left = [n for n in verbs.tree(out) if n.endswith(".tmp")]
        check(not left, f"{left} stays behind")
        if code == 0:
            if verbs.read(f"{out}/engines.txt") != verbs.read(f"{self.inputs}/engines.txt"):
                return "other engines"  # too little memory for a faster one: other bits
            for name, data in self.clean[verb].items():
                check(self.state(verb, out)[name] == data, f"{name} is not what it should be, with exit 0")
        elif verb != "train":
            check(verbs.read(f"{out}/out") in (None, self.clean[verb]["out"]), "the output is torn")
        elif resume:
            words = self.words("train", out)
            if os.path.exists(f"{out}/run/options.yaml"):
                words = f"train --resume --data {self.inputs}/data --out {out}/run --no-report".split() + COMMON
            code, _, stderr, _ = self.run(words, out)
            check(code == 0, f"cannot be continued: {stderr[-300:]}")
            for name, data in self.clean[verb].items():
                check(self.state(verb, out)[name] == data, f"{name} differs after it was continued")
        return None

    def case(self, ident, resume=True):
        """Whether the fault happened, the exit status, and a remark."""
        verb, kind, n, act = ident.split("/")
        out = self.folder()
        if kind == "full":
            hog = subprocess.Popen([self.hog, n], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                check("left" in hog.stdout.readline(), "the memory could not be taken")
                code, _, stderr, counts = self.run(self.words(verb, out), out)
            finally:
                hog.stdin.close()
                hog.wait()
            fired = True
        else:
            code, _, stderr, counts = self.run(self.words(verb, out), out, (kind, n, act))
            fired = "fired" in counts
        if code:
            self.check_end(code, stderr)
            check(fired, f"exit {code} without a fault: {stderr}")
        remark = self.check_whole(verb, out, code, resume)
        shutil.rmtree(out, ignore_errors=True)
        return fired, code, remark

    def cases(self, rng):
        """One list for each verb and kind, shuffled."""
        lists = []
        for verb, counts in self.counts.items():
            for kind, acts in (("alloc", ["fail", "on"]), ("call", ["fail", "lost"])):
                for act in acts:
                    ids = [f"{verb}/{kind}/{n}/{act}" for n in range(1, counts[kind] + 1)]
                    rng.shuffle(ids)
                    lists.append(ids)
        return lists


def main():
    a = argparse.ArgumentParser(usage=__doc__)
    a.add_argument("build")
    a.add_argument("--seconds", type=float, default=150)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--jobs", type=int, default=min(8, os.cpu_count()))
    a.add_argument("--case")
    a = a.parse_args()
    work = os.path.realpath(tempfile.mkdtemp(prefix="conr-faults-"))
    driver, rows, bad, lock = Driver(os.path.abspath(a.build), work), {}, [], threading.Lock()
    try:
        driver.prepare()
        if a.case:
            print(driver.case(a.case))
            return 0
        lists = driver.cases(random.Random(a.seed))
        total, end, turn = sum(len(l) for l in lists), time.time() + a.seconds, [0]

        def one(ident):
            if time.time() > end and "/full/" not in ident:
                return
            fired, code, remark, problem = True, 1, None, None
            with lock:
                turn[0] += 1
                resume = turn[0] % 3 == 0  # takes as long as the case itself
            try:
                fired, code, remark = driver.case(ident, resume)
            except Violation as v:
                problem = v
            with lock:
                verb, kind, _, act = ident.split("/")
                row = rows.setdefault(f"{verb} {kind} {act}", [0, 0, 0, 0, 0])
                for i, add in enumerate((1, fired, code == 0, remark is not None, problem is not None)):
                    row[i] += bool(add)
                if problem:
                    bad.append(ident)
                    print(f"{ident}: {problem}", flush=True)

        order = [l[i] for i in range(max(map(len, lists))) for l in lists if i < len(l)]
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            for f in [pool.submit(one, ident) for ident in order]:
                f.result()
        for mib in FULL:  # one at a time: they need the GPU for themselves
            for verb in ("train", "kmeans"):
                one(f"{verb}/full/{mib}/-")
        print(f"{'':24} {'cases':>7} {'faults':>7} {'exit 0':>7} {'engines':>7} {'wrong':>7}")
        for name, row in [*sorted(rows.items()), ("all", [sum(c) for c in zip(*rows.values())])]:
            print(f"{name:24} " + " ".join(f"{n:7}" for n in row))
        print(f"{total} cases there are besides full memory, seed {a.seed}")
        for ident in bad[:20]:
            print(f"to repeat: tests/faults/cuda.py {a.build} --case {ident}")
        return 1 if bad else 0
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
