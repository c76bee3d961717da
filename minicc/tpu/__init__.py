"""The tpu room: kernels become a program of bundles, and an emulated machine runs it.

    machine.py   the numbers of a chip, and where they come from
    ops.py       the table of instructions            isa.py       instructions, bundles and programs; text.py
    lower.py     pipelined kernels -> instructions    schedule.py  instructions -> bundles; registers.py

Whoever wants to know what a program means reads stepping.py: it is short, it runs one bundle at a time, and
nothing else defines values or cycles. Below it are core.py (what each instruction does), units.py (queues and
matrix units), memory.py (copies, races, garbage) and vector.py (lanes). These are the emulator.

The rest makes it fast, and may be skipped: it gives the same bits and the same cycles, which tests compare.

    forms.py     where blocks of bundles begin and end, and which are alike
    blocks.py    what the instructions of a block amount to: values in levels, in packs of like ones
    source.py    the Python functions that compute them   tiles.py    what these call
    timing.py    the cycles of a block, once for each state in which it can begin
    emulator.py  leaps over blocks, if it is certain that no rule is broken; else it steps. `run` is here
"""
