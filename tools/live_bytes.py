#!/usr/bin/env python3
"""How much memory a step used, from nothing but the ranges that it touched.

Reads what `heddle run --check --ranges DIR` wrote: per rank one line of JSON for each piece of
work, record and wait of a step, in program order. A byte is live from a write to the last read
before it is written anew. What a step reads before it writes it was left by the step before: it is
live up to that read, and from the step's last write of it on. Work that is not on the first
stream goes on until that stream waits for it, by events.

    tools/live_bytes.py FILE...            prints the figures of each rank, as JSON
    tools/live_bytes.py --against PROGRAM DIR
                                           compares the ranks of DIR with PROGRAM/memory.json

Exit code 1 where figures differ.
"""
import argparse
import bisect
import json
import pathlib
import sys


def last_moments(lines):
    """Per piece of work the number of the last one beside which it may still go on."""
    moments, clocks, events, waiting = [], {}, {}, []
    for line in lines:
        clock = clocks.setdefault(line["stream"], {})
        if "work" in line:
            clock[line["stream"]] = len(moments)
            if line["stream"] != 0:
                waiting.append((line["stream"], len(moments)))
            moments.append(len(moments))
        elif "record" in line:
            events[line["record"]] = dict(clock)
        else:
            for stream, time in events.get(line["wait"], {}).items():
                clock[stream] = max(clock.get(stream, -1), time)
            if line["stream"] == 0:
                for stream, time in waiting:
                    if time <= clock.get(stream, -1):
                        moments[time] = len(moments) - 1
                waiting = [(stream, time) for stream, time in waiting if time > clock.get(stream, -1)]
    for _, time in waiting:
        moments[time] = len(moments) - 1
    return moments


def segments_of(work):
    """The bytes between any two ends of ranges are touched alike: per allocation, the ends in order."""
    ends = {}
    for line in work:
        for allocation, begin, size in line["reads"] + line["writes"]:
            ends.setdefault(allocation, set()).update((begin, begin + size))
    return {allocation: sorted(all_ends) for allocation, all_ends in ends.items()}


def touches(work):
    """Per segment, in program order: (number of the work, whether it reads, whether it writes)."""
    ends, found = segments_of(work), {}
    for number, line in enumerate(work):
        here = {}
        for position, ranges in enumerate((line["reads"], line["writes"])):
            for allocation, begin, size in ranges:
                order = ends[allocation]
                for i in range(bisect.bisect_left(order, begin), bisect.bisect_left(order, begin + size)):
                    here.setdefault((allocation, i), [False, False])[position] = True
        for segment, (reads, writes) in here.items():
            found.setdefault(segment, []).append((number, reads, writes))
    return ends, found


def lives(history, moments, steps):
    """First and last number of the work during which a segment holds what is still read."""
    read_first = history[0][1]
    begin, last = (0, 0) if read_first else (None, None)
    for number, reads, writes in history:
        if reads:
            last = max(last, moments[number])
        if writes:
            if begin is not None:
                yield begin, min(last, number - 1)
            begin, last = number, moments[number]
    yield begin, (steps - 1 if read_first else last)


def measure(path):
    """Of the step in a file: the highest byte, the most bytes live at once, their sum over all work."""
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    # A kernel in several parts is one piece of work.
    lines = lines[:2] + [line for before, line in zip(lines[1:], lines[2:]) if line != before]
    work = [line for line in lines[1:] if "work" in line]
    moments = last_moments(lines[1:])
    ends, found = touches(work)
    change = [0] * (len(work) + 1)
    for (allocation, i), history in found.items():
        size = ends[allocation][i + 1] - ends[allocation][i]
        for begin, last in lives(history, moments, len(work)):
            if last >= begin:
                change[begin] += size
                change[last + 1] -= size
    live = most = total = 0
    for one in change:
        live += one
        most = max(most, live)
        total += live
    return {"rank": lines[0]["rank"], "arena_bytes": sum(order[-1] for order in ends.values()),
            "touched_peak_bytes": most, "touched_sum_bytes": total}


def differences(program, folder):
    """What of a program's memory.json the ranges of its ranks do not confirm, as sentences."""
    program = pathlib.Path(program)
    classes = json.loads((program / "memory.json").read_text())["classes"]
    files = sorted(pathlib.Path(folder).glob("ranges.*.jsonl"), key=lambda path: int(path.suffixes[0][1:]))
    expected = sum(one["count"] for one in classes)
    if len(files) != expected:
        yield f"{folder} has ranges of {len(files)} ranks, expected {expected}"
        return
    found = [measure(path) for path in files]
    for number, one in enumerate(classes):
        # The axis pp is the slowest. memory.json has what the fullest rank of a stage has.
        ranks = found[number * expected // len(classes):(number + 1) * expected // len(classes)]
        for name in ("arena_bytes", "touched_peak_bytes", "touched_sum_bytes"):
            most = max(rank[name] for rank in ranks)
            if most != one[name]:
                yield f"ranks {one['ranks']} have {most} {name}, memory.json has {one[name]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="PROGRAM")
    parser.add_argument("paths", nargs="+")
    arguments = parser.parse_args()
    if not arguments.against:
        for path in arguments.paths:
            print(json.dumps(measure(path)))
        return
    found = [one for folder in arguments.paths for one in differences(arguments.against, folder)]
    print("\n".join(found) or "arena and live bytes are those of memory.json")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
