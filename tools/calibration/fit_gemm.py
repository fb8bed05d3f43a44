"""Fits the time of matrix products (lib/Cost/KernelTables.h) to measured ones. Usage: fit_gemm.py gemm_h100.csv

Needs numpy and scipy. The formula and its reasons: include/heddle/Cost/Kernels.h. Both frameworks of the table are
fitted together, in logarithms and with a loss that forgives outliers: they differ by up to 43 % in one cell. Prints the
rows of the C++ table and the errors by size.
"""

import csv
import sys

import numpy as np
from scipy.optimize import least_squares

PEAK = {"bfloat16": 989.4e12, "fp8": 1978.9e12}
ELEMENT_BYTES = {"bfloat16": 2, "fp8": 1}
MEMORY = 0.92 * 3.35e12  # bytes per second: torchao's figure for what kernels reach of HBM3
PROCESSORS, TILE = 132, 128 * 256
# Longer products run into the power limit, in one framework and not the other: not fitted, but reported.
LONG, SUSTAINED, LIMITED = 3e12, 1e14, "trtllm_1.3.0rc20_ms"
RANGES = (0, 1e10, 1e11, 1e12, LONG, 1e13, 1e15)


def seconds(parameters, dtype, m, n, k):
    efficiency, depth, floor, launch, quantized = parameters
    waves = np.hypot(m * n / (TILE * PROCESSORS), floor)
    compute = waves * 2 * TILE * PROCESSORS * (k + depth) / (PEAK[dtype] * efficiency)
    moved = (ELEMENT_BYTES[dtype] * (m * k + k * n) + 2 * m * n) / MEMORY
    return launch + np.hypot(compute, moved) + quantized * m * k / MEMORY


def read(path, dtype, columns=(LIMITED, "vllm_0.24.0_ms")):
    rows = []
    for row in csv.DictReader(open(path)):
        for column in columns:
            if row["dtype"] == dtype and row[column]:
                rows.append([float(row[c]) for c in "mnk"] + [float(row[column]) * 1e-3])
    return np.array(rows).T


def fit(path, dtype):
    m, n, k, measured = read(path, dtype)
    operations = 2 * m * n * k
    used = operations < LONG
    most_quantized = 20 if dtype == "fp8" else 1e-6  # only fp8 rows quantize what they read
    start = [0.8, 200, 0.2, 3e-6, most_quantized / 2]
    bounds = ([0.4, 0, 0, 0, 0], [1.2, 4000, 2, 2e-5, most_quantized])

    def residuals(parameters):
        return np.log(seconds(parameters, dtype, m, n, k)[used] / measured[used])

    found = least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=0.05, x_scale=start).x
    print("{} efficiency {:.4f}, depth {:.1f}, floor {:.4f}, launch {:.3g} s, quantized {:.3f} bytes".format(dtype, *found))
    error = seconds(found, dtype, m, n, k) / measured - 1
    for low, high in zip(RANGES, RANGES[1:]):
        part = error[(operations >= low) & (operations < high)]
        print(f"  {low:6.0e} to {high:6.0e} operations: {len(part):4} times, mean error {np.mean(part):+6.1%}, median of its size "
              f"{np.median(np.abs(part)):5.1%}, 90 % within {np.quantile(np.abs(part), 0.9):5.1%}")
    m, n, k, measured = read(path, dtype, [LIMITED])
    longest = 2 * m * n * k > SUSTAINED
    rate = np.median(seconds(found, dtype, m, n, k)[longest] / measured[longest])
    print(f"  sustained rate over that of bursts: {rate:.3f} ({np.sum(longest)} products of more than {SUSTAINED:.0e} operations)")


for kind in PEAK:
    fit(sys.argv[1], kind)
