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
    tools/live_bytes.py --objects PROGRAM DIR
                                           the same of live_peak_bytes, of a program compiled with --apart

Exit code 1 where figures differ.
"""
import argparse
import bisect
import itertools
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


def read(path):
    """The header of a file, and its lines."""
    with open(path) as file:
        header, *lines = [json.loads(line) for line in file]
    # A kernel in several parts is one piece of work.
    return header, lines[:1] + [line for before, line in zip(lines, lines[1:]) if line != before]


def lifetimes(lines):
    """How many pieces of work there are, and per range (allocation, begin, end) when it is in use: [first, last] of
    pieces of work."""
    work = [line for line in lines if "work" in line]
    moments = last_moments(lines)
    ends, found = touches(work)
    return len(work), {(allocation, *ends[allocation][i:i + 2]):
                       [life for life in lives(history, moments, len(work)) if life[0] <= life[1]]
                       for (allocation, i), history in found.items()}


def sums(steps, spans):
    """What is in use at each piece of work. spans: (bytes, first, last)."""
    change = [0] * (steps + 1)
    for size, first, last in spans:
        change[first] += size
        change[last + 1] -= size
    return list(itertools.accumulate(change[:-1]))


def measure(path):
    """Of the step in a file: the highest bytes on the device and on the host; of the device the most bytes live at once,
    and their sum over all work."""
    header, lines = read(path)
    steps, all_ranges = lifetimes(lines)
    host = header["allocations"].index("host") if "host" in header["allocations"] else None
    ranges = {key: found for key, found in all_ranges.items() if key[0] != host}
    live = sums(steps, [(end - begin, *life) for (_, begin, end), found in ranges.items() for life in found])
    highest = {}
    for allocation, _, end in all_ranges:
        highest[allocation] = max(highest.get(allocation, 0), end)
    on_host = -(-highest.pop(host, 0) // 64) * 64  # the last object's padding is touched by nobody
    return {"rank": header["rank"], "arena_bytes": sum(highest.values()), "host_bytes": on_host,
            "touched_peak_bytes": max(live), "touched_sum_bytes": sum(live)}


LASTING = ("parameters", "gradients", "optimizer", "inputs", "outputs")
PASSING = ("received.", "sent.")  # between stages: with it a slot begins or ends


class Objects:
    """Objects of memory, by the ranges of a step in which nothing shares bytes (compile --apart).

    An object counts whole while any byte of it is in use. What a function is given is held while it runs: as long as
    work touches the function's own objects, and no other's, within a slot. What is held in the loop over slots is held
    from the first to the last that functions, what is saved or what passes between stages show of it. What lasts from step to step counts always."""

    def __init__(self, path, one):
        header, self.lines = read(path)
        self.buffers = sorted((each for each in one["buffers"] if each["bytes"] and each["arena"] == "compute"),
                              key=lambda each: each["offset"])
        self.begins = [each["offset"] for each in self.buffers]
        self.arena = header["allocations"].index("compute")
        self.steps, ranges = lifetimes(self.lines)
        self.lives = {}
        for (allocation, begin, _), found in ranges.items():
            if allocation == self.arena:
                self.lives.setdefault(self.holding(begin), []).extend(found)

    def holding(self, byte):
        """The number of the object that a byte is a part of."""
        number = bisect.bisect_right(self.begins, byte) - 1
        each = self.buffers[number]
        if number < 0 or byte >= each["offset"] + each["bytes"]:
            sys.exit(f"byte {byte} is touched and is a part of no object; was the program compiled with --apart?")
        return number

    def runs(self):
        """Runs of functions: [first work, last work, numbers of the objects that their work touches]."""
        found, function = [], None
        for time, line in enumerate(line for line in self.lines if "work" in line):
            numbers = {self.holding(begin) for ranges in (line["reads"], line["writes"])
                       for allocation, begin, size in ranges if size and allocation == self.arena}
            own = {self.buffers[number]["function"] for number in numbers} - {"step"}
            if not own:
                if any(self.buffers[number]["name"].startswith(PASSING) for number in numbers):
                    function = None
                continue
            if own != function:
                found.append([time, time, set()])
                function = own
            found[-1][1] = time
            found[-1][2] |= numbers
        return found

    def spans(self):
        """Per object that does not last, when it is held: [first, last] of work."""
        runs = self.runs()
        begins = [run[0] for run in runs]
        slots = [run[:2] for run in runs]
        slots += [life for number, lives in self.lives.items() for life in lives
                  if self.buffers[number]["held_in"] and (self.buffers[number]["class"] == "saved" or
                                                          self.buffers[number]["name"].startswith(PASSING))]

        def around(number, time):
            run = runs[bisect.bisect_right(begins, time) - 1] if runs and time >= begins[0] else None
            isGiven = run and time <= run[1] and number in run[2] and self.buffers[number]["function"] == "step"
            return run[:2] if isGiven else (time, time)

        for number, lives in self.lives.items():
            held = lives
            if self.buffers[number]["held_in"]:
                held = [(min(first for first, _ in [*slots, *lives]), max(last for _, last in [*slots, *lives]))]
            yield number, merged([around(number, first)[0], around(number, last)[1]] for first, last in held)

    def peak(self):
        """The most bytes of objects that are held at once."""
        lasting = sum(each["bytes"] for each in self.buffers if each["class"] in LASTING)
        return lasting + max(sums(self.steps, [(self.buffers[number]["bytes"], *span) for number, spans in self.spans()
                                               if self.buffers[number]["class"] not in LASTING for span in spans]))


def merged(spans):
    """Spans that do not overlap, of some that may."""
    found = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1][1] = max(found[-1][1], last)
        else:
            found.append([first, last])
    return found


def class_of_rank(classes):
    """Per rank its class: the axis pp is the slowest."""
    return [one for one in classes for _ in range(one["count"])]


def object_differences(apart, folder):
    """What of live_peak_bytes, which counts objects whole, the ranges of a program compiled with --apart do not
    confirm."""
    classes = json.loads((pathlib.Path(apart) / "memory.json").read_text())["classes"]
    for rank, one in enumerate(class_of_rank(classes)):
        found = Objects(pathlib.Path(folder) / f"ranges.{rank}.jsonl", one).peak()
        if found != one["live_peak_bytes"]:
            yield f"rank {rank} has {found} live_peak_bytes, memory.json has {one['live_peak_bytes']}"


def differences(program, folder):
    """What of a program's memory.json the ranges of its ranks do not confirm, as sentences."""
    program = pathlib.Path(program)
    classes = json.loads((program / "memory.json").read_text())["classes"]
    files = sorted(pathlib.Path(folder).glob("ranges.*.jsonl"), key=lambda path: int(path.suffixes[0][1:]))
    expected = {}
    for one in classes:
        for touched in one["touched"]:
            figures = {"touched_peak_bytes": touched["peak_bytes"], "touched_sum_bytes": touched["sum_bytes"],
                       "arena_bytes": one["arena_bytes"], "host_bytes": one["host_bytes"]}
            expected.update((rank, figures) for first, last in touched["ranks"] for rank in range(first, last + 1))
    if len(files) != len(expected):
        yield f"{folder} has ranges of {len(files)} ranks, expected {len(expected)}"
        return
    for path in files:
        found = measure(path)
        for name, bytes_ in expected[found["rank"]].items():
            # The last set of saved values can be one that only chunks without layers take.
            spare = name == "host_bytes" and len(classes) > 1 and found[name] < bytes_
            if found[name] != bytes_ and not spare:
                yield f"rank {found['rank']} has {found[name]} {name}, memory.json has {bytes_}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="PROGRAM")
    parser.add_argument("--objects", metavar="PROGRAM")
    parser.add_argument("paths", nargs="+")
    arguments = parser.parse_args()
    if not arguments.against and not arguments.objects:
        for path in arguments.paths:
            print(json.dumps(measure(path)))
        return
    found = []
    for folder in arguments.paths:
        found += differences(arguments.against, folder) if arguments.against else []
        found += object_differences(arguments.objects, folder) if arguments.objects else []
    print("\n".join(found) or "arena and live bytes are those of memory.json")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
