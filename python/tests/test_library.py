"""The C side as Python sees it: layouts, errors, threads, Ctrl-C."""
import ctypes
import multiprocessing
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import ROOT, TINY, subprocess_environment

import conr
from conr import _library as L


def test_structures_have_the_layout_of_conr_h(tmp_path):
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    names = {"conr_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name[1:]).lower(): value
             for name, value in vars(L).items()
             if isinstance(value, type) and issubclass(value, ctypes.Structure) and name[0] == "C"
             and value is not ctypes.Structure}
    assert len(names) == 22
    lines = []
    for name, value in names.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, _ in value._fields_:
            c_field = {"from_": "from"}.get(field, field)
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {c_field}));')
    source = tmp_path / "layout.c"
    source.write_text("#include <conr.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {"
                      + "\n".join(lines) + "}\n")
    subprocess.run([compiler, "-I", ROOT / "include", source, "-o", tmp_path / "layout"],
                   check=True)
    said = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    ours = []
    for name, value in names.items():
        ours.append(f"{name} {ctypes.sizeof(value)}")
        ours += [f"{name}.{field} {getattr(value, field).offset}" for field, _ in value._fields_]
    assert said.splitlines() == ours


def test_calls_have_as_many_arguments_as_in_conr_h():
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "include/conr.h").read_text(), flags=re.S)
    for name, (_, arguments) in L._calls.items():
        found = re.search(rf"\b{name}\(([^()]*)\);", header)
        assert found, f"conr.h lacks {name}"
        inside = found[1].strip()
        assert len(arguments) == (0 if inside == "void" else inside.count(",") + 1), name


def test_errors_are_exceptions_with_the_librarys_words():
    x = np.ones((5, 3), np.float32)
    x[2, 1] = np.nan
    with pytest.raises(conr.NumberError, match="row 2 has NaN at column 1; ") as e:
        conr.neighbors(x)
    assert isinstance(e.value, ValueError) and isinstance(e.value, conr.Error)
    with pytest.raises(conr.InvalidError, match=";"):
        conr.neighbors(np.ones((5, 3)), k=0)
    with pytest.raises(conr.InvalidError, match="shape"):
        conr.neighbors(np.ones(5))
    with pytest.raises(conr.FileError, match="nowhere") as e:
        conr.load("nowhere")
    assert isinstance(e.value, OSError)
    with pytest.raises(conr.Error):
        conr.KMeans(2, device="abacus").fit(np.random.rand(9, 3))


def test_two_threads_work_at_once(features):
    x, _ = features
    alone = [conr.KMeans(5, random_state=s, threads=1).fit_predict(x) for s in (1, 2)]
    together = [None, None]

    def work(i):
        for _ in range(5):
            together[i] = conr.KMeans(5, random_state=i + 1, threads=1).fit_predict(x)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert all((a == b).all() for a, b in zip(alone, together))


def test_a_forked_child_does_not_hang(features):
    x, _ = features
    expected = conr.neighbors(x)  # the parent has used its threads
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert (pool.apply_async(conr.neighbors, (x,)).get(timeout=20) == expected).all()


def test_the_interpreter_runs_on_during_a_call():
    x = np.random.default_rng(2).standard_normal((6000, 64)).astype(np.float32)
    worker = threading.Thread(target=conr.neighbors, args=(x,), kwargs={"threads": 1})
    worker.start()
    turns = 0
    while worker.is_alive():
        turns += 1
        time.sleep(0.001)
    assert turns > 20  # with the interpreter's lock held it would be one or two


def test_what_a_progress_callback_raises_stops_the_work(images, tmp_path):
    class Enough(Exception):
        pass

    def tell(p):
        if p.epoch and p.done > 3:
            raise Enough

    out = tmp_path / "run"
    with pytest.raises(Enough):
        conr.DeepCluster(5, out=out, progress=tell, **TINY).fit(images)
    assert not (out / "DONE").exists()
    with pytest.raises(conr.InvalidError, match="resume=True"):
        conr.DeepCluster(5, out=out, progress=False, **TINY).fit(images)
    again = conr.DeepCluster(5, out=out, progress=False, **TINY).fit(images, resume=True)
    assert (out / "DONE").exists() and len(again.labels_) == len(images)
    temporary = conr.DeepCluster(5, progress=tell, **TINY)
    with pytest.raises(conr.InvalidError, match="no run"):
        temporary.fit(images, resume=True)
    with pytest.raises(Enough):
        temporary.fit(images)
    temporary.set_params(progress=False).fit(images, resume=True)
    assert (temporary.embedding_ == again.embedding_).all()


def test_ctrl_c_saves_and_raises_keyboard_interrupt(images, tmp_path):
    np.save(tmp_path / "x.npy", images)
    script = f"""
import conr, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what is started behind a shell's back ignores it
told = []
def tell(p):
    if p.epoch and p.done > 2 and not told:
        told.append(1); print("running", flush=True)
try:
    conr.DeepCluster(5, out=sys.argv[2], progress=tell,
                     **{dict(TINY, epochs=4000, stage1_epochs=3)}).fit(sys.argv[1])
except KeyboardInterrupt as e:
    print(type(e.__cause__).__name__)
"""
    p = subprocess.Popen([sys.executable, "-c", script, tmp_path / "x.npy", tmp_path / "run"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env=subprocess_environment())
    assert p.stdout.readline() == "running\n"
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    assert out == "Stopped\n" and err == "" and p.returncode == 0
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "run" / "DONE").exists()
