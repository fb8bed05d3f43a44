#!/usr/bin/env python3
"""What tools/live_bytes.py makes of traces small enough to be worked by hand."""
import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest

PATH = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "live_bytes.py"
LOADER = importlib.machinery.SourceFileLoader("live_bytes", str(PATH))
live_bytes = importlib.util.module_from_spec(importlib.util.spec_from_loader("live_bytes", LOADER))
sys.dont_write_bytecode = True
LOADER.exec_module(live_bytes)


def work(reads, writes, stream=0, label="w"):
    ranges = [[[0, begin, end - begin] for begin, end in each] for each in (reads, writes)]
    return {"work": label, "stream": stream, "reads": ranges[0], "writes": ranges[1]}


def measure(*lines, allocations=("x",)):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for line in ({"version": 1, "rank": 0, "size": 1, "streams": ["a", "b"], "allocations": allocations},
                     *lines):
            file.write(json.dumps(line) + "\n")
        file.flush()
        found = live_bytes.measure(file.name)
    if "host" in allocations:
        return found["arena_bytes"], found["host_bytes"], found["touched_peak_bytes"]
    return found["arena_bytes"], found["touched_peak_bytes"], found["touched_sum_bytes"]


class LiveBytes(unittest.TestCase):
    def test_from_the_write_to_the_last_read(self):
        # 10 bytes until the second work, 10 others from there to the third, 20 there.
        self.assertEqual(measure(work([], [(0, 10)]), work([(0, 10)], [(10, 20)]), work([(10, 20)], [(20, 40)])),
                         (40, 30, 10 + 20 + 30))

    def test_bytes_written_anew_are_free_in_between(self):
        self.assertEqual(measure(work([], [(0, 10)]), work([(0, 10)], []), work([], [(10, 18)]),
                                 work([(10, 18)], []), work([], [(0, 10)]), work([(0, 10)], [])), (18, 10, 56))

    def test_what_is_on_the_host_counts_by_itself(self):
        copies = [{"work": "copy", "stream": 0, "reads": [[0, 0, 10]], "writes": [[1, 32, 10]]},
                  {"work": "copy", "stream": 0, "reads": [[1, 32, 10]], "writes": [[0, 0, 10]]}]
        self.assertEqual(measure(work([], [(0, 10)]), *copies, work([(0, 10)], []), allocations=("compute", "host")),
                         (10, 64, 10))

    def test_an_update_reads_what_was_there(self):
        self.assertEqual(measure(work([], [(0, 10)]), work([], [(10, 20)]), work([(0, 10)], [(0, 10)]),
                                 work([(0, 20)], [])), (20, 20, 70))

    def test_what_the_step_before_left_is_live_at_the_start_and_at_the_end(self):
        read, write, other = work([(0, 10)], []), work([], [(0, 10)]), work([], [(10, 50)])
        self.assertEqual(measure(other, read), (50, 50, 60))  # never written: always
        self.assertEqual(measure(read, write, other), (50, 50, 70))
        self.assertEqual(measure(read, other, write), (50, 40, 60))

    def test_a_kernel_in_two_parts_is_one_piece(self):
        part = work([(0, 10)], [(10, 20)])
        self.assertEqual(measure(part, part), (20, 20, 20))

    def test_another_streams_work_lasts_until_the_first_one_waits(self):
        first, read = work([], [(0, 10)]), [work([(0, 10)], [], stream=1), {"record": 0, "stream": 1}]
        waits, then, more = {"wait": 0, "stream": 0}, work([], [(10, 30)]), work([], [(30, 34)])
        self.assertEqual(measure(first, *read, waits, then, more), (34, 20, 10 + 10 + 20 + 4))
        self.assertEqual(measure(first, *read, then, waits, more), (34, 30, 10 + 10 + 30 + 4))
        self.assertEqual(measure(first, *read, then, more), (34, 30, 10 + 10 + 30 + 14))
        # Through a third stream.
        third = [{"wait": 0, "stream": 2}, {"record": 1, "stream": 2}, {"wait": 1, "stream": 0}]
        self.assertEqual(measure(first, *read, *third, then, more), (34, 20, 10 + 10 + 20 + 4))

    def test_a_set_that_is_used_again_one_slot_too_early(self):
        def step(sets):
            saves = [True, True, False, True, False, False]
            places = [(10 * number, 10 * number + 10) for number in sets]
            return [work(*([], [place])[::1 if save else -1], label=f"slot {i}")
                    for i, (place, save) in enumerate(zip(places, saves))]
        self.assertEqual(measure(*step([0, 1, 0, 0, 1, 0])), (20, 20, 10 + 4 * 20 + 10))
        # The third micro-batch takes the set of the second, whose values are lost: the peak is the same.
        self.assertEqual(measure(*step([0, 1, 0, 1, 1, 1])), (20, 20, 10 + 20 + 4 * 10))


def buffer(name, begin, bytes_, class_="workspace", function="step", held_in=""):
    return {"name": name, "arena": "compute", "offset": begin, "bytes": bytes_, "class": class_, "function": function,
            "held_in": held_in}


class ObjectBytes(unittest.TestCase):
    def peak(self, buffers, *lines):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for line in ({"version": 1, "rank": 0, "streams": ["a"], "allocations": ["compute"]}, *lines):
                file.write(json.dumps(line) + "\n")
            file.flush()
            return live_bytes.Objects(file.name, {"buffers": buffers}).peak()

    def test_an_object_counts_whole_while_any_byte_of_it_is_in_use(self):
        buffers = [buffer("stack", 0, 20), buffer("other", 64, 5), buffer("parameters", 128, 7, "parameters")]
        # The stack's second entry is read when the other object is written, then no more.
        self.assertEqual(self.peak(buffers, work([], [(0, 10)]), work([], [(10, 20)]), work([(0, 10)], []),
                                   work([(10, 20)], [(64, 69)]), work([(64, 69)], [])), 7 + 20 + 5)
        self.assertEqual(self.peak(buffers, work([], [(0, 10)]), work([], [(10, 20)]), work([(0, 20)], []),
                                   work([], [(64, 69)]), work([(64, 69)], [])), 7 + 20)

    def test_what_a_function_is_given_is_held_while_it_runs(self):
        def lines(last):
            return (work([], [(0, 10)]), work([(0, 10)], [(64, 69)]), work([(64, 69)], [(128, 136)]),
                    work([(128, 136)], [last]))
        given, own = buffer("given", 0, 10), buffer("f.t", 64, 5, function="f")
        late = buffer("f.u", 128, 8, function="f")
        self.assertEqual(self.peak([given, own, late], *lines((64, 69))), 10 + 5 + 8)
        # Of another function's run it is none.
        other = buffer("g.u", 128, 8, function="g")
        self.assertEqual(self.peak([given, own, other], *lines((128, 136))), 10 + 5)

    def test_what_is_held_in_a_loop_is_held_while_functions_run(self):
        def peak(held_in):
            own = [buffer("f.t", 128, 1, function="f"), buffer("g.t", 192, 1, function="g")]
            return self.peak([buffer("a", 0, 10, held_in=held_in), buffer("b", 64, 5, held_in=held_in), *own],
                             work([], [(0, 10)]), work([(0, 10)], [(128, 129)]), work([(128, 129)], []),
                             work([], [(192, 193)]), work([(192, 193)], [(64, 69)]), work([(64, 69)], []))
        self.assertEqual(peak(""), 10 + 1)
        self.assertEqual(peak("event"), 10 + 5 + 1)

    def test_a_byte_of_no_object_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "byte 40 .* --apart"):
            self.peak([buffer("a", 0, 10)], work([], [(0, 10), (40, 44)]))


if __name__ == "__main__":
    unittest.main()
