"""The table, the JSON and the plot, of a result made by hand."""

from __future__ import annotations

import io
import itertools
import json

import pytest
from rich.console import Console

from zodbcache.demo.plot import draw
from zodbcache.demo.plot import write_plot
from zodbcache.demo.report import print_report
from zodbcache.demo.results import ChangedResult
from zodbcache.demo.results import DemoResult
from zodbcache.demo.results import GraphResult
from zodbcache.demo.results import PhaseResult
from zodbcache.demo.results import percent


def phase(name, ms_per_500, hit_ratio, *, processes=1):
    return PhaseResult(
        phase=name,
        processes=processes,
        objects=40_000,
        ms_per_500=ms_per_500,
        hit_ratio=hit_ratio,
        hits=int(hit_ratio * 40_000),
        misses=int((1 - hit_ratio) * 40_000),
        file_hits=0,
        read_s=1.0,
        objects_per_s=40_000.0 * processes,
        start_ms=None if name == "warm" else 300.0,
        open_ms=None if name == "warm" else 60.0,
        checksum="same",
    )


@pytest.fixture
def result():
    return DemoResult(
        base="postgresql",
        own_cache_mb=1.0,
        python="3.12.1",
        objects=40_000,
        graph=GraphResult(1781, 58_754, 13_116, 9, 94_550, 7.0, 12.0, 81_000_000),
        phases=(
            phase("uncached", 140.0, 0.0),
            phase("empty", 145.0, 0.0001),
            phase("warm", 7.0, 1.0),
            phase("restarted", 7.5, 0.99996),
            phase("shared", 16.0, 1.0, processes=4),
        ),
        changed=ChangedResult(20_003, 0, 0.5, 80.0, 70.0),
        close_ms=41.0,
        cache_bytes=18_000_000,
        total_s=81.0,
    )


def test_the_json_has_one_object_a_phase(result, tmp_path):
    path = tmp_path / "demo.json"
    result.write_json(path)
    written = json.loads(path.read_text())
    assert written["objects"] == 40_000
    assert written["base"] == "postgresql"
    assert [phase["phase"] for phase in written["phases"]] == [
        "uncached",
        "empty",
        "warm",
        "restarted",
        "shared",
    ]
    assert written["phases"][3]["ms_per_500"] == 7.5
    assert written["phases"][3]["hit_ratio"] == 0.99996
    assert written["changed"]["wrong"] == 0


def test_the_table_fits_a_terminal_and_says_how_much_faster(result):
    output = io.StringIO()
    print_report(result, Console(file=output, width=80))
    text = output.getvalue()
    assert "…" not in text
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if line[0] == "│"}
    assert "20.0 x" in rows["warm, same process"]
    assert "99.9 %" in rows["warm, restarted"]
    assert "20,003 objects changed" in text
    assert "40,000 persistent objects from RelStorage on PostgreSQL" in text
    assert "own cache is set to 1 MB" in text


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_the_plot_is_a_picture(result, tmp_path, suffix, magic):
    path = tmp_path / f"demo{suffix}"
    write_plot(result, path)
    assert path.read_bytes().startswith(magic)


def test_no_label_of_the_plot_lies_over_another(result):
    figure = draw(result)
    figure.draw_without_rendering()
    labels = [
        (text.get_text(), text.get_window_extent())
        for axes in figure.axes
        for text in (*axes.texts, axes.title, axes.xaxis.label, *axes.get_yticklabels())
        if text.get_visible()
    ]
    for (one, box), (other, other_box) in itertools.combinations(labels, 2):
        assert not box.overlaps(other_box), (one, other)


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.0, "100.0 %"), (0.99999, "99.9 %"), (0.5, "50.0 %"), (0, "0.0 %")]
)
def test_only_all_is_a_hundred_percent(ratio, text):
    assert percent(ratio) == text
