"""`minicc learn` from an empty folder to the report, and the course's own promises."""

from __future__ import annotations

import json
import re
import shutil
import threading
from pathlib import Path

import lesson_workspace as lw
import pytest

from minicc.lessons import pages
from minicc.lessons.audit import Trial, audit, gaps, prove
from minicc.lessons.course import HERE, Course, Lesson
from minicc.lessons.generate import generated, merged, regions, solution, starter
from minicc.lessons.learn import saves
from minicc.lessons.pictures import collected

OURS = Course(HERE)


def words(svg: str) -> list[str]:
    return [text.strip() for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


# ---- the key ----


def test_a_file_without_its_solutions_is_generated():
    lesson = lw.lesson()
    text = generated(lesson, lw.COURSE.key(lesson))
    assert text == lw.COURSE.exercises(lesson).read_text(encoding="utf-8")
    compile(text, "exercises.py", "exec")
    key, exercise = lw.COURSE.key(lesson), lesson.exercise("1.3")
    assert starter(key, exercise) == "return [n * n for n in range(count)], count"
    assert solution(key, exercise).startswith("found = [0]") and "found = [0]" not in text


def test_merging_swaps_a_region_and_leaves_the_rest():
    text = "import a\n# ---- 1.1 x\nb = 1\n\n# ---- 1.2 y\nc = 2"
    swapped = merged(text, {"1.1": "# ---- 1.1 x\nb = 3\n"})
    assert swapped == "import a\n# ---- 1.1 x\nb = 3\n# ---- 1.2 y\nc = 2\n"
    assert list(regions(text)) == ["head", "1.1", "1.2"]


def test_a_file_without_headings_is_all_head_and_a_heading_twice_loses_nothing():
    assert regions("not python (\n") == {"head": "not python (\n"}
    twice = "# ---- 1.1\na = 1\n# ---- 1.2\nb = 2\n# ---- 1.1\na = 3\n"
    assert sorted("".join(regions(twice).values()).splitlines()) == sorted(twice.splitlines())


def test_an_audit_notices_a_check_that_passes_a_wrong_answer_or_names_another_symptom():
    lesson, exercise = lw.lesson(), lw.lesson().exercise("1.3")
    right = solution(lw.COURSE.key(lesson), exercise)
    assert not prove(lw.COURSE, lesson, Trial(exercise, "wrong", right, "too many")).ok
    assert not prove(lw.COURSE, lesson, Trial(exercise, "wrong", "return 1 / 0", "too many")).ok
    assert not prove(lw.COURSE, lesson, Trial(exercise, "solution", "return [], 0", None)).ok


def unproved(course: Course, lesson: Lesson, *names: str) -> str:
    """The answers of a lesson (of these names) that are not as its key says."""
    return "\n".join(str(proof) for proof in audit(course, (lesson,), names) if not proof.ok)


def test_starters_and_wrong_answers_fail_by_their_symptoms_and_both_right_ones_pass():
    assert not unproved(lw.COURSE, lw.lesson())


@pytest.mark.parametrize("lesson", OURS.lessons, ids=lambda lesson: lesson.folder)
def test_a_lessons_starters_fail_and_its_solutions_pass(lesson: Lesson):
    assert not unproved(OURS, lesson, "starter", "solution")


@pytest.mark.slow
@pytest.mark.parametrize("lesson", OURS.lessons, ids=lambda lesson: lesson.folder)
def test_every_answer_that_a_key_knows_is_judged_as_it_says(lesson: Lesson):
    assert not unproved(OURS, lesson)


@pytest.mark.parametrize("course", [lw.COURSE, OURS], ids=["tests", "ours"])
def test_no_key_has_a_gap_and_no_file_is_stale(course: Course):
    assert gaps(course, course.lessons) == []


# ---- the pages ----

PAGES = [(course, lesson) for course in (lw.COURSE, OURS) for lesson in course.lessons]


@pytest.mark.parametrize("course, lesson", PAGES, ids=[lesson.folder for _, lesson in PAGES])
def test_a_page_prints_what_it_says_and_draws_what_is_kept(
    course: Course, lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    page = course.page(lesson)
    with collected() as drawn:
        mismatches = pages.check(page)
    assert not mismatches, "\n\n".join(map(str, mismatches))
    links = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    assert set(drawn) == {Path(link).stem for link in links}
    for name, drawing in drawn.items():
        kept = (page.parent / f"{name}.svg").read_text(encoding="utf-8")
        assert words(kept) == words(drawing.svg()), "stale: minicc learn build"


def test_a_notebook_holds_the_page_with_outputs_below_their_cells():
    text = "# One\n\n```python\nprint(2)\n```\n\n```text\n2\n```\n\nThen\n\n```sh\nmake\n```\n"
    first, code, last = json.loads(pages.notebook(text))["cells"]
    assert first["source"] == "# One" and code["source"] == "print(2)"
    assert code["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "2\n"}]
    assert last["source"] == "Then\n\n```sh\nmake\n```"


# ---- the command ----


def test_an_evening_from_start_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "course"
    assert lw.learn(tmp_path, "start", str(folder)) == 0
    at = lw.Workspace(folder, lw.COURSE)
    assert lw.learn(folder, "check", "1.1") == 1 and "not begun" in capsys.readouterr().out
    lw.answer(at, "1.1", 'prediction = {"kernels": 3, "bytes": 64}')
    assert lw.learn(folder, "check", "1.1") == 1 and "kernels: 3 is too high" in capsys.readouterr().out
    lw.answer(at, "1.1", 'prediction = {"kernels": 1, "bytes": 64}')
    assert lw.learn(folder, "check", "1.1") == 0 and "passed" in capsys.readouterr().out
    assert lw.learn(folder) == 0
    shown = capsys.readouterr().out
    assert "1 of 3 passed" in shown and "next: 1.2 build: Double it" in shown
    assert lw.learn(folder, "report") == 0
    assert "2 first predictions, typically off by a factor of 1.73" in capsys.readouterr().out  # sqrt(3 * 1)


def test_a_failed_check_shows_the_program_its_picture_and_the_first_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    lw.answer(lw.laid_out(tmp_path), "1.2", "print('\\x1b[2J here')\nreturn graph")
    assert lw.learn(tmp_path, "check", "1.2") == 1
    shown = capsys.readouterr().out
    for part in ("y differs at [0]: got 0.12573, expected 0.25146", "?[2J here", "`-- 0.0",
                 "next: minicc learn hint 1.2"):
        assert part in shown
    picture = re.search(r"picture: (.*)", shown)
    assert picture and "maximum" in words((tmp_path / picture[1]).read_text(encoding="utf-8"))


@pytest.mark.parametrize("old, new, said", [
    ("def double(", "def twice(", "next: give it the name double again, or minicc learn reset 1.2"),
    ("def double(", "def double((", "next: mend that line"),
])
def test_what_no_hint_would_help_with_gets_its_own_advice(
    old: str, new: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    at = lw.laid_out(tmp_path)
    at.file(lw.lesson()).write_text(at.text(lw.lesson()).replace(old, new))
    assert lw.learn(tmp_path, "check", "1.2") == 1 and said in capsys.readouterr().out


def test_hints_come_one_at_a_time_and_a_solution_after_a_pass_or_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    at = lw.laid_out(tmp_path)
    for seen in (1, 2, 3, 3):
        assert lw.learn(tmp_path, "hint", "1.2") == 0
        assert capsys.readouterr().out.count("  w") + (seen == 3) == min(seen, 3)  # where, what; how
    assert lw.learn(tmp_path, "solution", "1.2") == 2 and "not passed yet" in capsys.readouterr().err
    assert lw.learn(tmp_path, "solution", "1.2", "--give-up") == 0
    assert "builder, value = Builder()" in capsys.readouterr().out
    exercise = lw.lesson().exercise("1.2")
    record = at.progress.record("1.2", at.content(lw.lesson(), exercise))
    assert record.gave_up and record.hints == 3


@pytest.mark.parametrize("line, said", [
    (("check", "7"), "there is no such lesson"), (("check", "1.9"), "there is no such exercise"),
    (("hint", "1"), "which exercise"), (("frobnicate",), "there is no such lesson"), (("start",), "a folder"),
    (("export", "1"), "--ipynb"),
])
def test_a_wrong_word_is_one_error(line: tuple[str, ...], said: str, tmp_path: Path, capsys):
    lw.laid_out(tmp_path)
    assert lw.learn(tmp_path, *line) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_lessons_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert lw.main(["learn", "check", "--course", str(tmp_path)]) == 2
    assert "there are no lessons" in capsys.readouterr().err


def test_outside_a_workspace_one_is_told_how_to_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert lw.learn(tmp_path) == 0 and "minicc learn start" in capsys.readouterr().out
    assert lw.learn(tmp_path, "check") == 2 and "minicc learn start" in capsys.readouterr().err


def test_watching_sees_the_exercise_that_a_save_changed(tmp_path: Path):
    at = lw.laid_out(tmp_path)
    changed, saved = saves(at), threading.Timer(0.5, lw.answer, (at, "1.2", "return graph"))
    saved.start()
    assert [exercise.id for _, exercise in next(changed)] == ["1.2"]


def test_watching_outlives_a_file_that_is_missing_for_a_moment(tmp_path: Path):
    at = lw.laid_out(tmp_path)
    file, text = at.file(lw.lesson()), at.text(lw.lesson())
    changed = saves(at)
    threading.Timer(0.3, file.unlink).start()
    threading.Timer(0.8, file.write_text, (text.replace("return [n * n", "return [n + n"),)).start()
    assert [exercise.id for _, exercise in next(changed)] == ["1.3"]


def test_export_writes_beside_the_pictures(tmp_path: Path):
    lw.laid_out(tmp_path)
    assert lw.learn(tmp_path, "export", "1", "--ipynb") == 0
    assert (tmp_path / "01_doubling" / "01_doubling.ipynb").exists()


def test_build_makes_stale_files_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(lw.ROOT, tmp_path / "course", ignore=shutil.ignore_patterns("__pycache__"))
    course = Course(tmp_path / "course")
    lesson = course.lessons[0]
    page = course.text(lesson)
    course.page(lesson).write_text(page.replace("1 kernel\n", "3 kernels\n"))
    course.exercises(lesson).write_text("stale")
    assert any("stale" in gap for gap in gaps(course, course.lessons))
    assert lw.main(["learn", "build", "--course", str(course.root)]) == 0
    assert gaps(course, course.lessons) == [] and course.text(lesson) == page
