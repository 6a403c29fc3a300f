"""Decisions about clusters: conr.Edits, and what honors them."""
import csv

import numpy as np
import pytest

import conr

PLAIN = dict(refine="none", method="kmeans", progress=False, threads=1)


def test_edits_are_honored(features, tmp_path):
    x, _ = features
    run = tmp_path / "run"
    made = conr.DeepCluster(10, out=run, **PLAIN).fit(x)
    was = made.labels_.copy()
    assert made.cluster_names_ == {}
    with conr.Edits(run) as e:
        e.rename(3, "birds")
        e.merge(0, 1)
        e.mark(np.flatnonzero(was == 2)[:2], "outlier")
        new = e.move(np.flatnonzero(was == 4)[:3], name="odd ones")
        with pytest.raises(conr.FileError, match="is writing into it"):
            conr.Edits(run)
        decided = e.labels
    assert new == 10 and e.run == run
    assert (made.labels_ == was).all()  # as they were read
    made.refresh()
    assert (made.labels_ == decided).all()
    assert made.cluster_names_ == {3: "birds", 10: "odd ones"}
    assert (made.labels_[was == 1] == 0).all() and (made.labels_ == -1).sum() == 2
    with open(run / "labels.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    assert [int(r["untouched"]) for r in rows] == was.tolist()
    # a merged cluster takes what is near either part
    assert (made.predict(x[was == 1]) == 0).all() and (made.predict(x[was == 0]) == 0).all()
    assert (conr.load(run).predict(x[was == 5]) == 5).all()
    columns = conr.load(run).assign(x[was == 5])
    assert np.allclose(columns["distance"], made.distances_[was == 5], atol=1e-5)
    made.report(tmp_path / "edited.html")
    page = (tmp_path / "edited.html").read_text()
    assert "birds" in page and "as a person edited them, in 4 decisions" in page
    assert "Outliers" in page and "in 10 clusters" in page
    with conr.Edits(run) as e:
        e.undo()
        assert e.about()["undone"] == 1 and (e.labels != 10).all()
        e.redo()
        e.split(0, 2)
        e.clusters(4)
        assert e.about()["clusters"] == 4
    conr.reset_edits(run)
    assert (made.refresh().labels_ == was).all() and made.cluster_names_ == {}
    assert (made.predict(x) == was).all()


def test_votes_go_to_edited_clusters(features, tmp_path):
    x, _ = features
    run = tmp_path / "run"
    made = conr.DeepCluster(10, out=run, **dict(PLAIN, method="graph")).fit(x)
    was = made.labels_.copy()
    with conr.Edits(run) as e:
        e.merge(6, 7)
        e.mark(np.flatnonzero(was == 8), "wrong")
    found = conr.load(run).predict(x)
    assert (found[was == 7] == 6).mean() > 0.9 and not np.isin(found, (7, 8)).any()


def test_a_training_is_edited_too(images, tmp_path):
    run = tmp_path / "run"
    tiny = dict(encoder="small", width=4, size=16, hidden=16, predictor_hidden=16, features=8,
                batch=16, epochs=1, stage1_epochs=1, warmup_epochs=0, restarts=1)
    made = conr.DeepCluster(3, out=run, progress=False, threads=1, **tiny).fit(images[:48])
    was = made.predict(images[:48])
    with conr.Edits(run) as e:
        e.merge(2, 1, 0)
    assert (made.predict(images[:48]) == 2).all() and len(set(was)) > 1
