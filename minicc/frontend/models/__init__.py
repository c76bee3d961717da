"""Models that ship with minicc, each on about a screen, as its paper has it; tiny ones to run, real as data.

    mlp.py      a perceptron that reads digits          resnet.py   convolutions that add to their input
    gpt2.py     a decoder of blocks                     llama.py    rotary positions, grouped heads, a cache
    moe.py      LLaMA with experts                      bert.py     an encoder
    dit.py      a diffusion transformer                 video.py    attention in space and then in time

    params = gpt2.init(gpt2.TINY)             gpt2.init(gpt2.SMALL, seed=None) has shapes alone
    gpt2.forward(params, gpt2.TINY, ids)

They count as user code: errors and pictures point at their lines. Read next: mlp.py; train.py trains two.
"""
