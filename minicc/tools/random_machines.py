"""Random machines: TPUs that nobody sells, to find out what the compiler takes for granted.

    random_machine(7)   ->   "tpu:v5e,vregs=24,mxus=3,mxu_side=256,vmem_mib=2,load_slots=1,vector_latency=5"

Goes in: a seed. Comes out: the name of a machine, which `--device` takes anywhere, so that a failure can be
replayed. Up to half of its numbers are others than a v5e's. Invariant: same seed, same machine. Csmith varies
programs; of a chip that is still being designed, its architects vary the chip. Read next: random_graphs.py,
and fuzz.py, which brings the two together.
"""

from __future__ import annotations

import random

MOST_CHANGES = 16
CHOICES: dict[str, tuple[float, ...]] = {  # all other than a v5e's
    "vregs": (16, 24, 32, 48), "mregs": (4, 8, 12), "sregs": (32, 96),
    "mxus": (1, 2, 3, 5, 8), "mxu_side": (256,), "f32_passes": (1, 3, 9), "vmem_mib": (1, 2, 4, 16),
    "scalar_slots": (1, 3, 4), "vector_slots": (1, 2, 3, 6), "load_slots": (1, 2), "store_slots": (2, 3),
    "eup_slots": (2,), "xlu_slots": (1, 2, 4), "misc_slots": (2,),
    "scalar_latency": (2, 4), "vector_latency": (1, 3, 7), "load_latency": (1, 3, 9), "store_latency": (2, 5),
    "pop_latency": (2, 4), "eup_latency": (1, 20), "xlus": (1, 3), "xlu_latency": (1, 5, 60),
    "xlu_cycles": (1, 5), "branch_cycles": (0, 3), "dma_startup_cycles": (1, 50, 3000),
    "local_startup_cycles": (1, 700), "hbm_gb_per_s": (25, 4000), "hbm_granule_bytes": (4, 512),
}


def random_machine(seed: int) -> str:
    """A v5e with some other numbers."""
    choose = random.Random(seed)
    names = choose.sample(sorted(CHOICES), choose.randint(1, MOST_CHANGES))
    return ",".join(["tpu:v5e", *(f"{name}={choose.choice(CHOICES[name])}" for name in names)])
