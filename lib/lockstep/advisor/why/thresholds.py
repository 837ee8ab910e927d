"""From where on a number is named as a cause, and why from there."""

from __future__ import annotations

INPUT_SHARE = 0.1
"""Images are decoded while the step before computes, so a worker waits only if decoding is slower than computing. Less
than a tenth is within what a step's length varies by from day to day."""
BUSY_INPUT_SHARE = 1 / 3
"""The same on a busy machine, where the thread that decodes waits for a core that others have.

Let decoding take the share d of a step on a core of its own. If one other program shares that core, decoding takes 2 d,
the step becomes as long, and its worker waits 1 - 1 / (2 d) of it: a third where d is 3/4. So decoding that leaves
itself a quarter of a step to spare is not named for one other program's sake. That a quarter is enough to be called
healthy is chosen (up to a half of a step could be such a program's); it is where the bounds of exchange and crowding
lie, too: a step 1.5 times as long as without the cause. Seen on a healthy run beside another program: 0.2.
"""
MORE_THREADS_GAIN = 0.1
"""More threads must save a tenth of the step: a smaller gain may be the one of a quieter moment."""
EXCHANGE_SHARE = 1 / 3
"""With a larger share two workers give less than 4/3 of one, and one machine is the better choice for many."""
CROWDING_RATIO = 1.5
"""The same bound as for the exchange: two workers that each take 1.5 times as long together give 4/3 of one."""
UNEQUAL_RATIO = 1.25
"""Of the quickest quarters of steps. Cores of one kind differ by a few percent there, other kinds of nodes by more."""
BUSY_UNEQUAL_RATIO = 1.5
"""The same of CPU times on a busy machine, where others' work in a core's caches costs its worker CPU time, too."""
FIXED_SHARE = 0.5
"""From half of a step on, twice the batch takes less than one and a half times as long."""
START_PART = 0.1
"""Of what the reader timed. Below, it is no more than what two runs differ by."""
DENORMAL_RATIO = 2.0
"""Less may be the moment's; where denormal numbers are many they cost a convolution's backward pass tens of times its
time."""
FAULT_SECONDS = 1e-6
"""What the kernel needs for the first touch of a 4 KiB page, clearing it included: between half a microsecond and two,
more inside a virtual machine."""
FAULT_SHARE = 0.1
"""Of the step. Some pages are touched for the first time in any step."""
BUSY_SHARE = 0.1
"""From here on times on the clock are others' as much as ours. Ratios are then those of CPU times; and a cause that CPU
time does not show, such as an exchange within a host, is not named."""
LEAST_GAIN = 0.02
"""Of the step: with less to gain a cause is not named, unless it is a fact of what was asked (too many threads)."""
