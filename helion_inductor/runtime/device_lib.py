"""The functions that generated kernels call, imported there as `dl`.

`dl.name` is GPU code, or under Triton's interpreter a torch formula of the same meaning. Which of the two is settled at
import, as it is for kernels themselves.

- `device_math`: integer and float division, shifts, powers, sign and bit operations, rounding, `narrow` and `widen`
  between f32 and the shorter floats of memory
- `device_functions`: elementary and special functions, random numbers
- `device_bessel`, `device_gamma`, `device_polynomials`: special functions that libdevice lacks
- `device_barrier`: the barrier of all programs of a grid
- `device_reduce`: reductions, what joins their partial results, scans, `device_assert`
"""

import triton

from helion_inductor.runtime.device_barrier import *  # noqa: F403
from helion_inductor.runtime.device_bessel import *  # noqa: F403
from helion_inductor.runtime.device_functions import *  # noqa: F403
from helion_inductor.runtime.device_gamma import *  # noqa: F403
from helion_inductor.runtime.device_math import *  # noqa: F403
from helion_inductor.runtime.device_polynomials import *  # noqa: F403
from helion_inductor.runtime.device_reduce import *  # noqa: F403

if triton.knobs.runtime.interpret:
    from helion_inductor.runtime.device_interpret import LIFTED
    from helion_inductor.runtime.interpreter_types import correct_comparisons, silence_arithmetic

    correct_comparisons()
    silence_arithmetic()

    globals().update(LIFTED)
