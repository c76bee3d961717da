"""Progress and answers survive an update of the course, a second run, a killed process, and odd files."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import lesson_workspace as lw
import pytest

from minicc.errors import CompileError
from minicc.lessons import workspace
from minicc.lessons.course import Course
from minicc.lessons.progress import Progress
from minicc.lessons.report import calibration, next_row, report, rows
from minicc.lessons.verdicts import Verdict, failed, passed


def test_the_same_text_twice_is_one_attempt(tmp_path: Path):
    progress = Progress(tmp_path / "p.json")
    for tried in ("a", "a", "b"):
        with progress.recording("1.1", "form") as record:
            record.note(failed("no"), tried)
    assert progress.record("1.1", "form").attempts == 2


def test_only_the_first_prediction_counts(tmp_path: Path):
    progress = Progress(tmp_path / "p.json")
    for said in (10.0, 90.0):
        with progress.recording("1.1", "form") as record:
            record.note(Verdict(True, ratios={"cycles": (said, 100.0)}), str(said))
    assert progress.record("1.1", "form").first == {"cycles": [10.0, 100.0]}


def test_a_prediction_is_scored_by_its_first_attempt(tmp_path: Path):
    progress = Progress(tmp_path / "p.json")
    for said, ok in ((400.0, False), (100.0, True)):
        with progress.recording("1.1", "form") as record:
            record.note(Verdict(ok, ratios={"cycles": (said, 100.0)}), str(said))
    record = progress.record("1.1", "form")
    assert record.passed == 2 and record.score == pytest.approx(1 - math.log10(4))  # four times too high


def test_a_changed_exercise_starts_anew_and_the_old_entry_stays(tmp_path: Path):
    progress = Progress(tmp_path / "p.json")
    with progress.recording("1.1", "old") as record:
        record.note(passed(), "a")
    assert not progress.record("1.1", "new").passed
    with progress.recording("1.1", "new") as record:
        record.hints = 2
    assert progress.record("1.1", "old").passed == 1


@pytest.mark.parametrize("text", [
    "", "{", "[]", '{"exercises": 3}', '{"exercises": {}, "version": 9}', "[" * 100000])
def test_a_file_that_is_not_ours_is_an_error_and_is_left_alone(text: str, tmp_path: Path):
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(CompileError), Progress(path).recording("1.1", "form"):
        pass
    assert path.read_text() == text


def test_odd_fields_are_ignored(tmp_path: Path):
    path = tmp_path / "p.json"
    entry = {"attempts": "x", "hints": 2, "new": 1}
    path.write_text(json.dumps({"version": 1, "exercises": {"1.1": {"f": entry}}}))
    record = Progress(path).record("1.1", "f")
    assert (record.attempts, record.hints) == (0, 2)


def test_a_process_killed_while_it_writes_leaves_whole_files(tmp_path: Path):
    script = ("import sys; from pathlib import Path; from minicc.lessons.progress import Progress\n"
              "p = Progress(Path(sys.argv[1]))\nprint('up', flush=True)\n"
              "while True:\n    with p.recording('1.1', 'f') as r: r.hints += 1\n")
    path = tmp_path / "p.json"
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    while Progress(path).record("1.1", "f").hints < 50:  # each read sees a whole file
        pass
    process.kill()
    process.wait()
    process.stdout.close()
    assert Progress(path).record("1.1", "f").hints >= 50


# ---- the workspace ----


def updated(tmp_path: Path) -> Course:
    """The course as its next version: 1.1 asks something else, the rest stays."""
    root = tmp_path / "next"
    shutil.copytree(lw.ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    key = root / "key" / "01_doubling.py"
    key.write_text(key.read_text().replace("How many kernels does", "In this version, how many kernels does"))
    return Course(root)


def test_starting_twice_changes_nothing(tmp_path: Path):
    at = lw.laid_out(tmp_path)
    lw.answer(at, "1.2", "return graph")
    before = at.text(lw.lesson())
    assert workspace.start(tmp_path, lw.COURSE)[1] == [] and at.text(lw.lesson()) == before


def test_an_update_takes_what_is_new_and_keeps_what_was_written(tmp_path: Path):
    at = lw.laid_out(tmp_path / "work")
    lw.answer(at, "1.2", "return graph")
    after, notes = workspace.start(tmp_path / "work", updated(tmp_path))
    text = after.text(after.course.lessons[0])
    assert not notes and "In this version" in text and "    return graph\n" in text


def test_an_answer_to_what_has_changed_is_kept_and_told(tmp_path: Path):
    at = lw.laid_out(tmp_path / "work")
    lw.answer(at, "1.1", "prediction = 7")
    after, notes = workspace.start(tmp_path / "work", updated(tmp_path))
    assert "prediction = 7" in after.text(after.course.lessons[0])
    assert notes == ["01_doubling/exercises.py: kept your answer to 1.1; the course's has changed"]


def test_a_lost_progress_file_is_told_and_starting_again_claims_nothing_else(tmp_path: Path):
    at = lw.laid_out(tmp_path)
    lw.answer(at, "1.2", "return graph")
    at.progress.path.unlink()
    with pytest.raises(CompileError, match="minicc-learn.json is gone from"):
        workspace.find(tmp_path, lw.COURSE)
    assert workspace.start(tmp_path, lw.COURSE)[1] == []
    assert "return graph" in at.text(lw.lesson())
    assert len(workspace.start(tmp_path, updated(tmp_path))[1]) == 0  # 1.1 alone changed, and it is untouched


def test_a_file_that_is_not_utf_8_is_to_be_saved_as_that(tmp_path: Path):
    at = lw.laid_out(tmp_path)
    at.file(lw.lesson()).write_bytes(b"# caf\xe9\n")
    with pytest.raises(CompileError, match="save it as UTF-8"):
        at.text(lw.lesson())


def test_a_lost_exercise_comes_back_at_the_end(tmp_path: Path):
    at = lw.laid_out(tmp_path)
    text = at.text(lw.lesson())
    at.file(lw.lesson()).write_text(text[: text.index("# ---- 1.3")])
    lw.laid_out(tmp_path)
    assert at.text(lw.lesson()) == text


def test_a_lost_heading_loses_no_answer_and_shadows_none(tmp_path: Path):
    at = lw.laid_out(tmp_path)
    lw.answer(at, "1.2", "return graph")
    text = "\n".join(line for line in at.text(lw.lesson()).splitlines() if not line.startswith("# ---- 1.2"))
    at.file(lw.lesson()).write_text(text + "\n")
    lw.laid_out(tmp_path)
    assert at.text(lw.lesson()) == text + "\n"


def test_reset_puts_the_starter_back_and_keeps_the_answer(tmp_path: Path):
    at, lesson = lw.laid_out(tmp_path), lw.lesson()
    fresh = at.text(lesson)
    lw.answer(at, "1.2", "return graph")
    kept = at.replace(lesson, lesson.exercise("1.2"))
    assert at.text(lesson) == fresh and "return graph" in kept.read_text()


# ---- the report ----


def test_the_report_counts_attempts_and_calibrates_by_ratio(tmp_path: Path):
    at, lesson = lw.laid_out(tmp_path), lw.lesson()
    with at.progress.recording("1.1", at.content(lesson, lesson.exercise("1.1"))) as record:
        record.note(Verdict(True, ratios={"kernels": (1, 1), "bytes": (16, 64)}), "a")
    found = rows(at)
    assert calibration(found) == "2 first predictions, typically off by a factor of 2.00"  # sqrt(1 * 4)
    assert next_row(found).exercise.id == "1.2"
    line = next(line for line in report(found).splitlines() if line.startswith("1.1"))
    assert line.split()[-4:] == ["passed", "1", "0", "70%"] and "self-reported" in report(found)


def test_one_prediction_against_zero_does_not_hide_the_others(tmp_path: Path):
    at, lesson = lw.laid_out(tmp_path), lw.lesson()
    with at.progress.recording("1.1", at.content(lesson, lesson.exercise("1.1"))) as record:
        record.note(Verdict(False, ratios={"kernels": (5, 0), "bytes": (64, 64)}), "a")
    said = calibration(rows(at))
    assert said.startswith("2 first predictions, typically off by a factor of 3.16")  # sqrt(10 * 1)
    assert "1 of them by 10 or more" in said
