"""Fits the time of attention kernels (lib/Cost/KernelTables.h) to measured ones. Usage: fit_attention.py attention_h100.csv

Needs numpy and scipy. The formula and its reasons: include/heddle/Cost/Kernels.h. Rows of forward and backward together
(FlashAttention-2) are fitted as one forward of 2 products and a backward of 5 at BACKWARD of its rate.
"""

import csv
import sys

import numpy as np
from scipy.optimize import least_squares

PEAK, PROCESSORS, ROWS = 989.4e12, 132, 128
BACKWARD = 0.87  # of forward's rate: A100, head size 128 (FlashAttention-2, arXiv 2307.08691: 196 of 224 TFLOP/s)
KERNELS = ("FlashAttention-2", "FlashAttention-3", "cuDNN", "TensorRT-LLM context attention")
HEAD_SIZE_OF = (0, 1, 1, 2)  # cuDNN's rows have one head size: it shares the figure of FlashAttention-3


def column(rows, name):
    return np.array([float(row[name]) for row in rows])


def main():
    rows = list(csv.DictReader(open(sys.argv[1])))
    kernel = np.array([KERNELS.index(row["impl"]) for row in rows])
    size, causal, s = column(rows, "head_dim"), column(rows, "causal"), column(rows, "seq_len")
    heads = column(rows, "batch") * column(rows, "heads")
    forward = 4 * heads * size * s**2 * np.where(causal > 0, 0.5, 1)
    both = kernel == 0
    measured = forward * np.where(both, 3.5, 1) / (column(rows, "tflops") * 1e12)

    def seconds(parameters):
        efficiency, whole, masked = parameters[0:4][kernel], parameters[4:8][kernel], parameters[8:12][kernel]
        narrow = parameters[12:15][np.array(HEAD_SIZE_OF)[kernel]]
        floor, launch = parameters[15:]
        waves = heads * s / (ROWS * PROCESSORS)
        work = forward / (PEAK * efficiency) * (1 + narrow / size) * (1 + (whole + causal * masked) / s) * np.hypot(1, floor / waves)
        return work * np.where(both, 1 + 2.5 / BACKWARD, 1) + launch * np.where(both, 2, 1)

    # A kernel with many rows counts no more than one with few.
    weight = np.array([1 / np.sqrt(np.sum(kernel == k)) for k in range(4)])[kernel] * 5
    start = np.array([0.6, 0.9, 0.8, 0.8] + [150] * 4 + [300] * 4 + [50] * 3 + [0.5, 5e-6])
    found = least_squares(lambda p: weight * np.log(seconds(p) / measured), start, bounds=(start * 0, start * 20), loss="soft_l1", f_scale=0.1, x_scale=start).x
    print(f"floor {found[15]:.3f}, launch {found[16]:.3g} s")
    error = seconds(found) / measured - 1
    for k, name in enumerate(KERNELS):
        part = error[kernel == k]
        print(f"{name}: efficiency {found[k]:.4f}, narrow {found[12 + HEAD_SIZE_OF[k]]:.1f}, whole {found[4 + k]:.0f}, masked {found[8 + k]:.0f}; "
              f"{len(part)} times, mean error {np.mean(part):+.1%}, median of its size {np.median(np.abs(part)):.1%}, 90 % within {np.quantile(np.abs(part), 0.9):.1%}")


main()
