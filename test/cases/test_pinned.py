#!/usr/bin/env python3
"""What is asserted of pinned parameters, against answers that are right or have one fault."""

import json
import pathlib
import sys
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import assertions  # noqa: E402
import pinned  # noqa: E402
import searched  # noqa: E402
from outcome import Failed, Missing  # noqa: E402

PLAN = {"dp": "auto", "tp": "auto", "zero": "auto", "microbatches": 1, "devices": 4, "pin": {"lm_head": "replicated"},
        "device_memory_bytes": "0.9 x minimum"}
WORDS = {"mention": ["lm_head", "budget", "bytes"]}
MESSAGE = "no plan with lm_head=replicated fits the budget: 100 bytes too many"
LEAST = 10 ** 6


class Pinned(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, searched, "files", searched.files)
        searched.files = lambda case, config, train, devices, memory, batch=None: [memory * searched.GIB]

    def case(self, message=MESSAGE, fits_from=LEAST, tp=1, zero=1):
        def run(command):
            self.assertIn("--pin", command)
            if command[2] < fits_from:
                return 1, json.dumps({"fits": False, "conflict": {"least_bytes": LEAST}}), message
            plan = {"mesh": [["dp", 4 // tp], ["tp", tp]], "zero": {"stage": zero, "shard_group": 4},
                    "tensor": {"parameters": [{"match": "lm_head.weight", "split": {"v": ["tp"]}}]}}
            return 0, json.dumps({"fits": True, "plans": [{"text": "a plan", "plan": plan,
                                                           "memory": {"by_reason": {}}}]}), ""
        return types.SimpleNamespace(config_file=lambda: "config.json", train=None, once=lambda key, make: make(),
                                     heddle=types.SimpleNamespace(program="heddle", run=run))

    def test_a_conflict_that_is_named_holds(self):
        assertions.diagnostic(self.case(), WORDS, PLAN)
        pinned.no_silent_violation(self.case(), {}, PLAN)

    def test_a_message_without_the_parameter_fails(self):
        with self.assertRaisesRegex(Failed, "does not name lm_head"):
            assertions.diagnostic(self.case(message="no plan fits the budget: 100 bytes too many"), WORDS, PLAN)

    def test_a_plan_beyond_the_budget_fails(self):
        for check in (lambda case: assertions.diagnostic(case, WORDS, PLAN),
                      lambda case: pinned.no_silent_violation(case, {}, PLAN)):
            with self.assertRaisesRegex(Failed, "does not fit"):
                check(self.case(fits_from=LEAST // 2))

    def test_a_parameter_in_parts_fails(self):
        for fault in ({"tp": 2}, {"zero": 3}):
            with self.assertRaisesRegex(Failed, "not whole"):
                pinned.no_silent_violation(self.case(**fault), {}, PLAN)

    def test_other_pins_are_not_checked(self):
        with self.assertRaises(Missing):
            pinned.pins_of({"pin": {"lm_head": "split"}})


if __name__ == "__main__":
    unittest.main()
