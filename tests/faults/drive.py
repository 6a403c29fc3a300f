#!/usr/bin/env python3
"""drive.py: makes calls of conr fail one at a time, and checks one rule.

    drive.py BUILD [--short | --seconds N | --all] [--seed N] [--kinds A,B] [--verbs A,B] [--share I/N] [--case ID]

--share: the Ith of N equal parts of the walk of a seed, for as many processes or machines.

The rule, whatever fails: exit 0 and everything right, or one line on standard error that begins
with `conr:`, exit 1, no signal; and what was there before is whole: an old file byte for byte, a
run still to be continued to the same bits.

Cases, by their ID:
    VERB/KIND/N/ACT[/on]    the Nth call of KIND fails with ACT, an errno (/on: and all later ones)
    VERB/file/N/kill[/M]    SIGKILL at the Nth file operation (then one at the Mth of the next start);
                            then it is continued
    VERB/alloc/N/stop       SIGTERM at the Nth allocation, or file operation; then it is continued
    cutting/VERB/KIND/N     another program truncates an input at the Nth read (or mmap) of inputs
    flip/STATE/FILE/BIT     one bit of a file of a run is turned over; cut/STATE/FILE/BYTES: its end is lost
    clean/VERB              nothing fails: every file is synced before it gets its name
    two/HOW/PERCENT         two writers into one folder, the second this much of a run's time later"""
import argparse
import concurrent.futures
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import verbs
from verbs import TRAINS, VERBS

ERRORS = {"alloc": ["ENOMEM"], "open": ["EMFILE", "EIO"], "read": ["EIO"], "write": ["ENOSPC", "EIO"],
          "sync": ["EIO"], "rename": ["ENOSPC", "EIO"], "mmap": ["ENOMEM"], "close": ["EIO"], "folder": ["EIO", "ENOSPC"]}
CODES = {name: str(getattr(errno, name)) for name in {e for list_ in ERRORS.values() for e in list_}}
CODES.update(kill="kill", stop="stop", cut="cut")
BESIDE = ["embed", "assign", "kmeans", "neighbors", "export", "report", "duplicates"]  # write one file beside a training
SHORT = 419  # cases of the short form: one of each list
TIMEOUT = 60  # seconds; a case takes a tenth of one, also under sanitizers it is far below


class Violation(Exception):
    """rule: a word; the rest says what was seen."""

    def __init__(self, rule, what):
        super().__init__(what)
        self.rule = rule


def check(ok, rule, what):
    if not ok:
        raise Violation(rule, what)


class Driver:
    def __init__(self, build, work):
        self.conr = os.path.join(build, "conr")
        self.shim = os.path.join(build, "libfault_shim.so")
        self.work = work
        self.inputs = os.path.join(work, "inputs")
        self.clean, self.says, self.warns, self.counts = {}, {}, {}, {}
        self.serial = 0
        self.lock = threading.Lock()
        self.own = threading.local()

    # ---- running

    def start(self, words, out, fault=None, under=None):
        """conr, with the shim: fault is (kind, n, act, sticky) or None, which only counts."""
        env = dict(os.environ, LD_PRELOAD=self.shim, FAULT_UNDER=under or self.work, FAULT_COUNTS=out + ".counts",
                   OMP_WAIT_POLICY="passive", LC_ALL="C",
                   ASAN_OPTIONS="detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1")
        if fault:
            kind, n, act, sticky = fault
            env.update(FAULT_KIND=kind, FAULT_N=str(n), FAULT_ACT=CODES[act], FAULT_STICKY="1" if sticky else "0")
        return subprocess.Popen([self.conr] + words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, cwd=self.work, text=True, errors="replace")

    def run(self, words, out, fault=None, under=None):
        p = self.start(words, out, fault, under)
        try:
            stdout, stderr = p.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            raise Violation("hang", f"no end after {TIMEOUT} s") from None
        return p.returncode, stdout, stderr

    def counts_of(self, out):
        counts = {}
        for line in (verbs.read(out + ".counts") or b"").decode().splitlines():
            counts[line[:8].strip()] = int(line[8:])
        return counts

    def folder(self):
        with self.lock:
            self.serial += 1
            self.own.folder = os.path.join(self.work, f"case{self.serial:06}")
        return self.own.folder

    def clear(self):
        """Removes what the last case of this thread has left."""
        shutil.rmtree(self.own.folder, ignore_errors=True)
        for end in ("", "-1", "-2"):
            if os.path.exists(f"{self.own.folder}{end}.counts"):
                os.remove(f"{self.own.folder}{end}.counts")

    # ---- the rule

    def check_end(self, verb, code, stderr, codes=(1,)):
        """A failed verb: its exit status and its one line."""
        check(code >= 0, "crash", f"ended by signal {-code}: {stderr[-300:]}")
        check(code in codes, "status", f"exit {code}: {stderr[-300:]}")
        lines = [l for l in stderr.splitlines() if not re.match(r"(conr: )?warning: ", l)]
        if verb == "sweep":  # a line for every run that failed, then one for the sweep
            lines = lines[:1] if all(l.startswith("conr: ") for l in lines) else lines
        check(len(lines) == 1 and re.match(r"conr: .+", lines[0]) and stderr.endswith("\n"), "message",
              f"exit {code}, not one line: {stderr[-300:]!r}")

    def check_equal(self, got, want, rule):
        for name in sorted(set(got) | set(want)):
            a, b = got.get(name), want.get(name)
            check(a == b, rule, f"{name} is {'missing' if a is None else 'new' if b is None else 'different'}"
                  + (f": {a} is not {b}" if name.endswith(".jsonl") else ""))

    def check_right(self, verb, out, stdout, stderr):
        """Exit 0: all that the verb makes is there."""
        self.check_equal(verbs.state_of(verb, out), self.clean[verb], "wrong")
        says = verbs.said(stdout, out)
        check(says == self.says[verb], "output", f"standard output differs: {says if isinstance(says, str) else stdout[:200]}")
        rest = [l for l in stderr.splitlines() if l not in self.warns[verb] and not l.startswith("warning: no report")]
        check(not rest, "noise", f"exit 0, but says: {rest}")

    def check_kept(self, verb, out, inputs=""):
        """A failed verb that trains nothing: the old file, or the new one, and no other."""
        for name, data in verbs.state_of(verb, out).items():
            if inputs:
                data = data.replace(inputs.encode(), self.inputs.encode())
            if name == "out":
                check(data in (b"the old file\n", self.clean[verb][name]), "torn", f"{name} is neither old nor new")
            else:  # a folder of sorted images appears as a whole
                check(name.startswith("sorted/"), "leftover", f"{name} was left behind")
                check(data == self.clean[verb].get(name), "torn", f"{name} is not what it should be")
        sorted_ = [n for n in verbs.state_of(verb, out) if n.startswith("sorted/")]
        check(len(sorted_) in (0, len([n for n in self.clean[verb] if n.startswith("sorted/")])), "torn", "sorted/ is not whole")

    def check_continued(self, verb, out):
        """A training that failed, was stopped or killed ends in the same bits when continued."""
        folder = os.path.join(out, TRAINS[verb])
        if verb != "sweep" and os.path.exists(f"{folder}/DONE"):
            self.check_equal(verbs.state_of(verb, out), self.clean[verb], "done-wrong")
        words = verbs.again(verb, self.inputs, out)
        if verb == "cluster" and words[0] == "cluster":
            shutil.rmtree(f"{out}/sorted", ignore_errors=True)
        code, _, stderr = self.run(words, out)
        check(code == 0, "resume", f"conr {' '.join(words)}: exit {code}: {stderr[-300:]}")
        self.check_equal(verbs.state_of(verb, out), self.clean[verb], "resumed-wrong")
        left = [n for n in verbs.tree(folder) if n.endswith(".tmp")]
        check(not left, "leftover", f"{left} stays behind")

    # ---- cases

    def prepare(self):
        """Inputs, and for every verb what it does without a fault."""
        os.makedirs(self.inputs)
        verbs.make_inputs(self.inputs)
        for name in ("run", "again"):
            words = f"train --recipe {self.inputs}/tiny.yaml --data {self.inputs}/data --out {self.inputs}/{name}"
            code, _, stderr = self.run(words.split() + verbs.COMMON, self.folder())
            assert code == 0, stderr
        words = f"cluster --features {self.inputs}/f.npy --clusters 3 --refine conaff --method kmeans --out {self.inputs}/head"
        code, _, stderr = self.run(words.split() + verbs.COMMON, self.folder())
        assert code == 0, stderr
        # an interrupted run: killed in its last epoch, when there are two checkpoints
        out = self.folder()
        words = verbs.words("train", self.inputs, out)
        renames = self.measure("train")["rename"]
        for n in range(renames, 0, -1):
            shutil.rmtree(out, ignore_errors=True)
            os.makedirs(out)
            self.run(words, out, ("rename", n, "kill", False))
            if not os.path.exists(f"{out}/run/model.safetensors") and os.path.exists(f"{out}/run/checkpoint.previous.safetensors"):
                break
        for name in os.listdir(f"{out}/run"):
            if name.endswith(".tmp"):
                os.remove(f"{out}/run/{name}")
        shutil.move(f"{out}/run", f"{self.inputs}/half")
        for verb in VERBS:
            if verb != "train":
                self.measure(verb)
        whole, resumed = (verbs.run_state(f"{self.inputs}/run"), self.clean["resume"])
        for name, data in whole.items():
            assert resumed[f"half/{name}"] == data, f"a resumed run differs in {name}"
        out, self.of_whole = self.folder(), {}
        shutil.copytree(f"{self.inputs}/run", f"{out}/run")
        for verb in ("info", "embed", "assign", "report", "export", "eval", "finished", "recipe", "kmeans"):
            code, stdout, stderr = self.read_run(verb, f"{out}/run", out)
            assert code == 0, stderr
            self.of_whole[verb] = self.seen(verb, f"{out}/run", out, stdout)
        self.signature = self.signature_of(self.inputs)

    def measure(self, verb):
        out = self.folder()
        verbs.lay_out(verb, self.inputs, out)
        started = time.time()
        code, stdout, stderr = self.run(verbs.words(verb, self.inputs, out), out)
        assert code == 0, f"{verb}: {stderr}"
        self.clean[verb] = verbs.state_of(verb, out)
        self.says[verb] = verbs.said(stdout, out)
        self.warns[verb] = stderr.splitlines()
        self.counts[verb] = dict(self.counts_of(out), seconds=time.time() - started)
        assert not isinstance(self.says[verb], str), self.says[verb]
        assert self.counts[verb]["alloc"] + self.counts[verb]["file"] > 0, "the shim is not at work"
        return self.counts[verb]

    @staticmethod
    def signature_of(folder):
        found = []
        for at, folders, files in os.walk(folder):
            for name in folders + files:
                s = os.lstat(os.path.join(at, name))
                found.append((at, name, s.st_size if name in files else 0, s.st_mtime_ns, s.st_ino))
        return sorted(found)

    def fault_case(self, verb, kind, n, act, more):
        """Returns whether the fault happened, and the exit status."""
        out = self.folder()
        verbs.lay_out(verb, self.inputs, out)
        code, stdout, stderr = self.run(verbs.words(verb, self.inputs, out), out, (kind, int(n), act, more == ["on"]))
        fired = self.counts_of(out).get("fired", 0) > 0
        check(self.signature_of(self.inputs) == self.signature, "inputs", "an input was changed")
        if act == "kill" and fired:
            check(code == -signal.SIGKILL, "status", f"exit {code} after SIGKILL")
            if verb in TRAINS and more:
                code, _, stderr = self.run(verbs.again(verb, self.inputs, out), out, (kind, int(more[0]), act, False))
                check(code in (0, 1, -signal.SIGKILL), "crash", f"exit {code}: {stderr[-300:]}")
                check(code != 1, "resume", f"after one kill: {stderr[-300:]}")
            if verb not in TRAINS:
                for name in verbs.tree(out):  # a temporary file may stay, it is not in the way
                    if name.endswith(".tmp") or name.startswith("sorted."):
                        os.remove(os.path.join(out, name))
        elif act == "stop" and code == -signal.SIGTERM:
            pass  # before it waits for signals: nothing is begun yet, as check_continued will see
        elif act == "stop" and fired and code != 0:
            self.check_end(verb, code, stderr, (130,) if verb in TRAINS else (130, 1))
        elif code == 0:
            self.check_right(verb, out, stdout, stderr)
        else:
            check(fired, "status", f"exit {code} without a fault: {stderr}")
            self.check_end(verb, code, stderr)
        if code != 0:
            (self.check_continued if verb in TRAINS else self.check_kept)(verb, out)
        return fired, code

    def cutting_case(self, verb, kind, n):
        """An input that becomes shorter while it is read: an error, or it was read before."""
        out = self.folder()
        inputs = f"{out}/inputs"
        shutil.copytree(self.inputs, inputs, symlinks=True)
        verbs.lay_out(verb, inputs, f"{out}/o")
        code, stdout, stderr = self.run(verbs.words(verb, inputs, f"{out}/o"), out, (kind, int(n), "cut", False), inputs)
        fired = self.counts_of(out).get("fired", 0) > 0
        if code == 0 and re.search("^(conr: )?warning: .*image", stderr, re.M):
            pass  # one image was cut: it is left out, with a word
        elif code == 0:
            got = {k: v.replace(inputs.encode(), self.inputs.encode()) for k, v in verbs.state_of(verb, f"{out}/o").items()}
            self.check_equal(got, self.clean[verb], "wrong")
            says = verbs.said(stdout.replace(inputs, self.inputs), f"{out}/o")
            check(says == self.says[verb], "output", f"standard output differs: {says}")
        else:
            check(fired, "status", f"exit {code} without a fault: {stderr}")
            self.check_end(verb, code, stderr)
            self.check_kept(verb, f"{out}/o", inputs)
        return fired, code

    def read_run(self, verb, run, out):
        """A verb that reads a run."""
        text = {"resume": f"train --resume --data {self.inputs}/data --out {run} --no-report",
                "finished": f"train --resume --data {self.inputs}/data --out {run}",
                "recipe": f"train --recipe {run}/options.yaml --check",
                "info": f"info {run}", "embed": f"embed {run} {self.inputs}/new --out {out}/out",
                "assign": f"assign {run} {self.inputs}/new --out {out}/out --sort-into {out}/sorted --copy",
                "report": f"report {run} --out {out}/out", "export": f"export {run} --out {out}/out --format onnx",
                "eval": f"eval --truth {run}/labels.csv --truth-column label --pred {run}/labels.csv",
                "kmeans": f"kmeans {run}/embeddings.npy --clusters 3 --out {out}/out"}[verb]
        if os.path.exists(f"{out}/out"):
            os.remove(f"{out}/out")
        return self.run(text.split() + verbs.COMMON, out)

    def seen(self, verb, run, out, stdout):
        """What it says and writes, wherever the run is."""
        data = (verbs.read(f"{out}/out") or b"").replace(run.encode(), b"RUN")
        return verbs.said(stdout.replace(run, "RUN"), out), data

    def damage_case(self, how, state, name, at):
        """A file of a finished or interrupted run is damaged; then the verbs that read it."""
        out = self.folder()
        os.makedirs(out)
        run = f"{out}/half" if state == "half" else f"{out}/run"
        shutil.copytree(f"{self.inputs}/{os.path.basename(run)}", run)
        with open(f"{run}/{name}", "rb+") as f:
            data = f.read()
            if how == "cut":
                f.truncate(int(at))
            else:
                f.seek(int(at) // 8)
                f.write(bytes([data[int(at) // 8] ^ 1 << int(at) % 8]))
        code, verbs_ = 0, ["resume"]
        if state == "run":
            verbs_ = ["info", "embed", "assign", "report", "export", "eval", "finished", "recipe", "kmeans"]
        for verb in verbs_:
            shutil.rmtree(f"{out}/sorted", ignore_errors=True)
            code, stdout, stderr = self.read_run(verb, run, out)
            check(code in (0, 1), "crash", f"{verb}: exit {code}: {stderr[-300:]}")
            if code == 1:
                self.check_end(verb, code, stderr)
            elif state == "run":
                check(self.seen(verb, run, out, stdout) == self.of_whole[verb], "silent", f"{verb}: other results, exit 0")
            else:
                got, want = verbs.state_of("resume", out), dict(self.clean["resume"])
                check(b"\0" not in verbs.read(f"{run}/log.jsonl"), "zeros", "log.jsonl has zero bytes")
                if "warning: log.jsonl" in stderr:  # what is lost is lost; the log says so, too
                    got["half/log.jsonl"] = want["half/log.jsonl"]
                if "warning: options.yaml" not in stderr:  # a user may change settings, and is told what differs
                    self.check_equal(got, want, "silent")
        if state == "half" and name == "checkpoint.safetensors":
            check(code == 0, "no-fallback", f"the previous checkpoint is whole: {stderr[-300:]}")
        return True, code

    def two_case(self, how, percent):
        """Two writers: one is refused, or, to continue the run, comes after the other's end; it is whole."""
        if how in BESIDE:
            return self.beside_case(how, percent)
        out = self.folder()
        verb = "resume" if how == "resume" else "train"
        verbs.lay_out(verb, self.inputs, out)
        words = [verbs.words(verb, self.inputs, out) for _ in range(2)]
        if how == "train":
            words[1] += ["--set", "seed=2"]
        first = self.start(words[0], out + "-1")
        time.sleep(self.counts[verb]["seconds"] * int(percent) / 100)
        second = self.start(words[1], out + "-2")
        ends = [p.communicate(timeout=TIMEOUT) for p in (first, second)]
        codes = [p.returncode for p in (first, second)]
        for code, (_, stderr) in zip(codes, ends):
            if code:
                self.check_end(verb, code, stderr)
        if how == "resume" and codes == [0, 0]:  # a finished run is left as it is, or made again
            times = sorted((c["begun"], c["ended"]) for c in (self.counts_of(out + end) for end in ("-1", "-2")) if c["begun"])
            check(times and all(a[1] <= b[0] for a, b in zip(times, times[1:])), "both", f"both wrote at once: {times}")
            for stdout, _ in ends:
                says = verbs.said(stdout, out)
                check(not isinstance(says, str) and says["sizes"] == self.says[verb]["sizes"], "output", f"{says}")
        else:
            check(sorted(codes) == [0, 1], "both", f"exits {codes}: {[e for _, e in ends]}")
        if codes[0] == 0 or how == "resume":
            self.check_equal(verbs.state_of(verb, out), self.clean[verb], "wrong")
        return True, max(codes)

    def beside_case(self, verb, percent):
        """A verb that writes a file into the folder of a running training is refused, or comes before
        or after it; the run is what it would have been."""
        out = self.folder()
        verbs.lay_out("train", self.inputs, out)
        training = self.start(verbs.words("train", self.inputs, out), out + "-1")
        time.sleep(self.counts["train"]["seconds"] * int(percent) / 100)
        words = [w.replace(f"{out}/out", f"{out}/run/extra") for w in verbs.words(verb, self.inputs, out)]
        if verb == "report":
            words = ["report", f"{out}/run"] + verbs.COMMON
        if "--sort-into" in words:
            del words[words.index("--sort-into"):words.index("--copy") + 1]
        held = os.path.exists(f"{out}/run/.lock") and os.path.exists(f"{out}/run/options.yaml")
        code, _, stderr = self.run(words, out + "-2")
        held = held and training.poll() is None and not os.path.exists(f"{out}/run/DONE")
        _, said = training.communicate(timeout=TIMEOUT)
        check(training.returncode == 0, "both", f"the training failed: {said[-300:]}")
        if code:
            self.check_end(verb, code, stderr)
        check(not held or code == 1, "both", f"{verb} wrote into the folder of a running training")
        self.check_equal(verbs.state_of("train", out), self.clean["train"], "wrong")
        return True, code

    def clean_case(self, verb):
        """Whether what is renamed has been synced: else a power cut may leave a file of zeros."""
        check(self.counts[verb]["unsynced"] == 0, "unsynced", f"{self.counts[verb]['unsynced']} files are not synced")
        return True, 0

    def case(self, ident):
        part = ident.split("/")
        if part[0] == "clean":
            return self.clean_case(part[1])
        if part[0] in ("flip", "cut"):
            return self.damage_case(part[0], part[1], "/".join(part[2:-1]), part[-1])
        if part[0] == "cutting":
            return self.cutting_case(*part[1:])
        if part[0] == "two":
            return self.two_case(*part[1:])
        return self.fault_case(*part[:4], part[4:])

    def series(self, rng, chosen, kinds):
        """Lists of cases, each shuffled: (what, IDs)."""
        lists = []
        for verb in chosen:
            counts = self.counts[verb]
            lists.append((("clean", verb), [f"clean/{verb}"]))
            for kind in ERRORS:
                ids = []
                for n in range(1, counts[kind] + 1):
                    act = ERRORS[kind][n % len(ERRORS[kind])]
                    ids += [f"{verb}/{kind}/{n}/{act}"] + ([f"{verb}/{kind}/{n}/{act}/on"] if kind != "close" else [])
                lists.append(((verb, kind), ids))
            files = counts["file"]
            ids = [f"{verb}/file/{n}/kill" for n in range(1, files + 1)]
            if verb in TRAINS:
                ids += [f"{verb}/file/{n}/kill/{rng.randrange(files) + 1}" for n in range(1, files + 1)]
                lists.append(((verb, "stop"), [f"{verb}/{kind}/{n}/stop" for kind in ("alloc", "file")
                                               for n in range(1, counts[kind] + 1)]))
            lists.append(((verb, "kill"), ids))
            if verb not in TRAINS:
                lists.append((("cutting", verb), [f"cutting/{verb}/{kind}/{n}" for kind in ("read", "mmap")
                                                  for n in range(1, counts[kind] + 1)]))
        for state in ("run", "half"):
            for name, data in verbs.tree(f"{self.inputs}/{state}").items():
                bits = 8 * len(data)
                lists.append((("flip", state), [f"flip/{state}/{name}/{b}" for b in rng.sample(range(bits), min(bits, 400))]))
                lists.append((("cut", state), [f"cut/{state}/{name}/{b}" for b in rng.sample(range(bits // 8), min(bits // 8, 50))]))
        for how in ["train", "resume"] + BESIDE:
            lists.append((("two", how), [f"two/{how}/{percent}" for percent in range(0, 100, 2)]))
        lists = [(what, ids) for what, ids in lists if not kinds or what[1] in kinds or what[0] in kinds]
        for _, ids in lists:
            rng.shuffle(ids)
        return lists


class Tally:
    """What was seen, by kind of case."""

    def __init__(self):
        self.rows, self.bad = {}, []
        self.lock = threading.Lock()

    def add(self, what, ident, fired, code, problem):
        with self.lock:
            kind = what[0] if what[0] in ("clean", "flip", "cut", "two", "cutting") else what[1]
            row = self.rows.setdefault(kind, [0, 0, 0, 0])
            row[0] += 1
            row[1] += bool(fired)
            row[2] += code == 0
            if problem:
                row[3] += 1
                self.bad.append((ident, problem))
                print(f"{ident}: {problem.rule}: {problem}", flush=True)

    def report(self):
        print(f"{'kind':8} {'cases':>7} {'faults':>7} {'exit 0':>7} {'wrong':>7}")
        for kind, row in [*self.rows.items(), ("all", [sum(c) for c in zip(*self.rows.values())])]:
            print(f"{kind:8} " + " ".join(f"{n:7}" for n in row))


def main():
    a = argparse.ArgumentParser(usage=__doc__)
    a.add_argument("build")
    a.add_argument("--short", action="store_true")
    a.add_argument("--seconds", type=float, default=300)
    a.add_argument("--all", action="store_true")
    a.add_argument("--seed", type=int)
    a.add_argument("--kinds", default="")
    a.add_argument("--verbs", default="")
    a.add_argument("--share", default="1/1")
    a.add_argument("--case")
    a.add_argument("--jobs", type=int, default=os.cpu_count())
    a = a.parse_args()
    work = os.path.realpath(tempfile.mkdtemp(prefix="conr-faults-"))
    driver = Driver(os.path.abspath(a.build), work)
    try:
        driver.prepare()
        if a.case:
            try:
                print("fault happened, exit status:", driver.case(a.case))
            except Violation as v:
                print(f"{a.case}: {v.rule}: {v}\nsee {driver.own.folder}")
                work = None
                return 1
            return 0
        return walk(driver, a)
    finally:
        if work:
            shutil.rmtree(work, ignore_errors=True)


def walk(driver, a):
    if a.seed is None:  # the short form is the same each time
        a.seed = 1 if a.short else random.SystemRandom().randrange(10**6)
    rng = random.Random(a.seed)
    chosen = a.verbs.split(",") if a.verbs else list(VERBS)
    lists = driver.series(rng, chosen, a.kinds.split(",") if a.kinds else [])
    total, tally = sum(len(ids) for _, ids in lists), Tally()
    rng.shuffle(lists)
    lists.sort(key=lambda one: one[0][0] != "clean")
    cases = [(what, ids[i]) for i in range(max(len(ids) for _, ids in lists))  # one of each list in turn
             for what, ids in lists if i < len(ids)]
    if a.short:  # always the same ones; about one of each list
        cases = cases[:SHORT]
    share, shares = (int(n) for n in a.share.split("/"))
    cases = cases[share - 1::shares]
    end = time.time() + (60 if a.short else a.seconds)

    def one(what, ident):
        if not a.all and time.time() > end:
            return
        fired, code, problem = False, 1, None
        driver.folder()
        try:
            fired, code = driver.case(ident)
        except Violation as v:
            problem, fired = v, True
        driver.clear()
        tally.add(what, ident, fired, code, problem)

    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for f in [pool.submit(one, what, ident) for what, ident in cases]:
            f.result()
    tally.report()
    if not sum(c["alloc"] for c in driver.counts.values()):
        print("no failed allocations: under sanitizers they are the sanitizers' own")
    verbs_ = len({words.split()[0] for words in VERBS.values()})
    print(f"{len(VERBS)} command lines of {verbs_} verbs, {total} cases there are, seed {a.seed}")
    for ident, problem in tally.bad[:20]:
        print(f"to repeat: tests/faults/drive.py {a.build} --case {ident}   # {problem.rule}")
    return 1 if tally.bad else 0


if __name__ == "__main__":
    sys.exit(main())
