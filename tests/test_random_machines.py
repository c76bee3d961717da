"""Random machines: the same for a seed, unlike a v5e, and the name of one replays what went wrong on it."""

from __future__ import annotations

from pathlib import Path

import pytest

import minicc as mc
from minicc.devices import find
from minicc.tools.commands import main
from minicc.tools.random_machines import CHOICES, random_machine
from minicc.tpu.registers import allocate


def test_a_random_machine_is_the_same_for_the_same_seed_and_differs_from_the_chips():
    machines = [random_machine(seed) for seed in range(40)]
    assert machines == [random_machine(seed) for seed in range(40)] and len({*machines}) == 40
    changed = {name for machine in machines for name in find(machine).spec.differences(find("tpu").spec)}
    assert changed == CHOICES.keys()


def test_a_failure_on_a_random_machine_names_it_and_is_replayed_on_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def no_program_for_five_units(program, spec):
        return "nothing" if spec.mxus == 5 else allocate(program, spec)

    monkeypatch.chdir(tmp_path)
    seed = next(seed for seed in range(500) if "mxus=5" in random_machine(seed))
    with mc.using(allocate=no_program_for_five_units):
        code = main(["fuzz", "--machines", "random", "--n", "1", "--seed", str(seed)])
        said = capsys.readouterr().out
        replay = next(line for line in said.splitlines() if line.startswith("replay: minicc "))
        assert code == 1 and "mxus=5" in replay
        assert main(replay.removeprefix("replay: minicc ").split()) == 1
    file = Path(f"fuzz-{seed}.graph")
    assert random_machine(seed) in file.read_text().splitlines()[0]


def test_a_machine_is_random_or_named(capsys: pytest.CaptureFixture[str]):
    assert main(["fuzz", "--machines", "random", "--device", "tpu"]) == 2
    assert "a machine is random or named" in capsys.readouterr().err
