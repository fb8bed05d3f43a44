#!/usr/bin/env python3
"""Shortest interleaved schedules of small sizes, found by integer search.

Usage: best_interleaved.py > best_interleaved.txt    (needs `pip install ortools`; about a minute)

One line per (ranks, chunks, micro-batches): makespan of the best table found with F of length 1 and
D of length 2, and a bound below which there is none. The search knows the dependences and that a
rank runs one slot at a time, and nothing of any schedule; memory is free. Equal numbers: the table
is a shortest one.
"""
import sys

from ortools.sat.python import cp_model

FORWARD, BACKWARD = 1, 2
SECONDS = 60  # per size


def least(p, v, m):
    """What no table can beat.

    The last rank cannot begin before p - 1 forwards, and p - 1 backwards follow its last slot; in
    between it works m v times. And the last stage, likewise, comes after p v - 1 others.
    """
    return (FORWARD + BACKWARD) * max(m * v + p - 1, m + p * v - 1)


def search(p, v, m):
    stages = p * v
    horizon = (FORWARD + BACKWARD) * (stages + m * v * 2)
    model = cp_model.CpModel()
    intervals = [[] for _ in range(p)]
    forwards, backwards = {}, {}
    for j in range(m):
        for s in range(stages):
            for starts, length in ((forwards, FORWARD), (backwards, BACKWARD)):
                starts[s, j] = model.new_int_var(0, horizon, "")
                intervals[s % p].append(model.new_fixed_size_interval_var(starts[s, j], length, ""))
    makespan = model.new_int_var(least(p, v, m), horizon, "")
    for j in range(m):
        for s in range(1, stages):
            model.add(forwards[s, j] >= forwards[s - 1, j] + FORWARD)
            model.add(backwards[s - 1, j] >= backwards[s, j] + BACKWARD)
        model.add(backwards[stages - 1, j] >= forwards[stages - 1, j] + FORWARD)
        model.add(makespan >= backwards[0, j] + BACKWARD)
        if j:  # micro-batches are alike: number them by when they enter
            model.add(forwards[0, j] >= forwards[0, j - 1] + FORWARD)
    for slots in intervals:
        model.add_no_overlap(slots)
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SECONDS
    solver.parameters.num_workers = 8
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), solver.status_name(status)
    return round(solver.objective_value), round(solver.best_objective_bound)


def main():
    print("# ranks chunks micro-batches best bound; made by best_interleaved.py")
    for p in range(1, 5):
        for v in range(1, 5):
            for m in range(1, 10):
                print(p, v, m, *search(p, v, m))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
