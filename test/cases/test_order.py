#!/usr/bin/env python3
"""What is asserted of a program's order, against runs that are right or have one fault."""

import pathlib
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import order  # noqa: E402
from outcome import Failed, Missing  # noqa: E402

PLAN = {"dp": 2, "zero": 2}


class Runs(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.seeds = []

    def case(self, result):
        """A case whose run with a seed leaves `result(seed)`, or raises it."""
        def check(folder, batch, saved, seed):
            self.seeds.append(seed)
            saved.write_bytes(result(seed))
        known = {}

        def once(key, make):
            return known.setdefault(str(key), make()) if str(key) not in known else known[str(key)]

        def write(name, text):
            (self.folder / name).write_text(text)
            return self.folder / name
        return types.SimpleNamespace(
            compiled=lambda plan: self.folder / "program", folder=self.folder, write=write, once=once,
            make_batch=lambda steps: {"tokens": [[1, 2]], "labels": [[2, 3]]}, heddle=types.SimpleNamespace(check=check))

    def test_equal_runs_hold(self):
        case = self.case(lambda seed: b"same")
        self.assertEqual(order.runs_bitwise_equal(case, {"runs": 20}, PLAN), "20 orders")
        order.happens_before(case, {"property": order.EVENTS}, PLAN)
        self.assertEqual(self.seeds, list(range(1, 21)))  # each once

    def test_one_other_run_fails(self):
        case = self.case(lambda seed: b"other" if seed == 17 else b"same")
        with self.assertRaisesRegex(Failed, "seeds 1 and 17"):
            order.runs_bitwise_equal(case, {"runs": 20}, PLAN)

    def test_a_missing_event_fails(self):
        def result(seed):
            raise Failed("no event between")
        with self.assertRaisesRegex(Failed, "no event"):
            order.happens_before(self.case(result), {"property": order.EVENTS}, PLAN)

    def test_other_orders_are_not_checked(self):
        with self.assertRaises(Missing):
            order.happens_before(self.case(lambda seed: b""), {"property": "something else"}, PLAN)


if __name__ == "__main__":
    unittest.main()
