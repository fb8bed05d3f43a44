"""Makes the table of collectives inside a node (lib/Cost/CollectiveTable.h) from measured ones.
Usage: fit_collectives.py nccl_h100.csv

Per kind and number of devices: microseconds at 512 B, 1 KiB, ..., the geometric mean of all sources and element types
that have the size, but of an all-reduce over 8 the one log that goes to 16 GiB; then the nearest row in which no larger
message takes less time (isotonic regression). Prints the rows in C++, and how far the mean is from each source.
"""

import csv
import math
import sys
from collections import defaultdict

ROWS = {"all_reduce": "reduce", "all_gather": "gather", "reduce_scatter": "scatter", "alltoall": "exchange"}
LONGEST = "NVIDIA/dgxc-benchmarking"
FIRST = 9  # 512 B


def isotonic(values):
    """The nondecreasing row with the least squares in logarithms: pools of neighbours that stand in wrong order."""
    pools = []
    for value in values:
        pools.append([math.log(value), 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, count = pools.pop()
            before, number = pools[-1]
            pools[-1] = [(before * number + mean * count) / (number + count), number + count]
    return [math.exp(mean) for mean, count in pools for _ in range(count)]


def main():
    measured = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader(open(sys.argv[1])):
        if row["op"] not in ROWS or not row["latency_us"]:
            continue
        key = row["op"], int(row["n_gpus"])
        if key == ("all_reduce", 8) and not row["source"].startswith(LONGEST):
            continue
        size = int(row["message_bytes"])
        if size.bit_count() == 1 and size.bit_length() > FIRST:
            measured[key][size.bit_length() - 1].append(float(row["latency_us"]))
    for (kind, devices), by_size in sorted(measured.items()):
        sizes = sorted(by_size)
        assert sizes == list(range(FIRST, sizes[-1] + 1)), f"{kind} over {devices}: sizes are missing"
        means = [math.exp(sum(map(math.log, by_size[s])) / len(by_size[s])) for s in sizes]
        row = isotonic(means)
        apart = [abs(math.log(value / fitted)) for s, fitted in zip(sizes, row) for value in by_size[s]]
        print(f"inline constexpr double {ROWS[kind]}{devices}[] = {{{', '.join(f'{v:.5g}' for v in row)}}};")
        print(f"// {len(apart)} times, mean of |error| {sum(apart) / len(apart):.1%}, at most {max(apart):.1%}")


main()
