#!/usr/bin/env python3
"""Tests of what the case runner says of stages: right answers pass, and each planted fault fails."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import messages  # noqa: E402
import stages  # noqa: E402
import translate  # noqa: E402
from outcome import Failed, Missing  # noqa: E402

PLAN = {"dp": 1, "tp": 1, "pp": 2, "vpp": 1, "microbatches": 2, "schedule": "1f1b"}
EVENTS = [["F0", "s:F0>1", "F1", "s:F1>1 + r:D0<1", "D0", "r:D1<1", "D1", "O"],
          ["r:F0<0", "F0", "D0", "r:F1<0 + s:D0>0", "F1", "D1", "s:D1>0", "O"]]


class Translation(unittest.TestCase):
    def test_layers_are_cut_evenly_and_the_longer_stages_come_first(self):
        self.assertEqual(stages.stages_of(PLAN, 7)["layers"], [["0..3"], ["4..6"]])
        self.assertEqual(stages.cut(5, 4), ["0..1", "2", "3", "4"])
        self.assertEqual(stages.cut(1, 2), ["0", ""])

    def test_chunks(self):
        found = stages.stages_of({**PLAN, "vpp": 2, "schedule": "interleaved_1f1b"}, 4)
        self.assertEqual(found, {"layers": [["0", "2"], ["1", "3"]], "embedding": [0, 0], "head": [1, 1],
                                 "schedule": {"kind": "interleaved_1f1b"}})

    def test_forth_and_back_is_a_table_that_names_its_stages(self):
        found = stages.stages_of({**PLAN, "vpp": 2, "placement": "v_shape"}, 4)
        self.assertEqual((found["layers"], found["head"]), ([["0", "3"], ["1", "2"]], [0, 1]))
        self.assertEqual([row.split()[0] for row in found["schedule"]["table"]], ["@0,3", "@1,2"])

    def test_rounds_follow_each_other(self):
        found = stages.stages_of({**PLAN, "accumulation_rounds": 2}, 2)["schedule"]["table"]
        self.assertEqual(found, ["@0 F0/0 F1/0 D0/0 D1/0 F2/0 F3/0 D2/0 D3/0 O",
                                 "@1 F0/0 D0/0 F1/0 D1/0 F2/0 D2/0 F3/0 D3/0 O"])

    def test_what_cannot_be_said(self):
        self.assertEqual(stages.needs_of({"schedule": "chimera", "placement": "star"}),
                         ["schedule chimera", "placement star"])
        with self.assertRaisesRegex(Missing, "gpipe of 2 rounds"):
            stages.stages_of({**PLAN, "schedule": "gpipe", "accumulation_rounds": 2}, 2)
        with self.assertRaisesRegex(Missing, "microbatch_sizes"):
            translate.plan_of({**PLAN, "microbatches": 3, "microbatch_sizes": [2, 3, 3]}, 2, 8)

    def test_cut_within_a_block_is_handed_on(self):
        found = stages.stages_of({**PLAN, "force_cut": "layers.1: after attention residual"}, 3)
        self.assertEqual(found["layers"], [["0..1: after attention residual"], ["2"]])


class Simulation(unittest.TestCase):
    def run_rows(self, rows):
        messages.Simulation(rows, stages.chain_of(PLAN)).run()

    def fails(self, words, *changes):
        """EVENTS with entries of a rank replaced."""
        rows = [list(row) for row in EVENTS]
        for rank, at, entry in changes:
            rows[rank][at] = entry
        with self.assertRaisesRegex(Failed, words):
            self.run_rows(rows)

    def test_right_events_end(self):
        self.run_rows(EVENTS)

    def test_sends_that_cross_wait_for_ever(self):
        crossing = [["F0", "s:F0>1", "F1", "s:F1>1", "r:D0<1", "D0", "r:D1<1", "D1", "O"],
                    ["r:F0<0", "F0", "D0", "s:D0>0", "r:F1<0", "F1", "D1", "s:D1>0", "O"]]
        with self.assertRaisesRegex(Failed, "0: 's:F1>1', 1: 's:D0>0'"):
            self.run_rows(crossing)

    def test_message_without_a_partner(self):
        self.fails("wait for ever", (1, 6, "s:D0>0"))
        self.fails("wait for ever", (1, 6, "D1"))

    def test_value_that_is_not_there(self):
        self.fails("sends F0 before it has run it", (0, 0, "O"))
        rows = [[entry for entry in row if "F1>" not in entry and "F1<" not in entry] for row in EVENTS]
        with self.assertRaisesRegex(Failed, "without F1 of stage 0|without B"):
            self.run_rows(rows)


def layout(places):
    """layout.json of layers that are on these ranks."""
    return {"tensors": [
        {"name": f"model.layers.{layer}.mlp.up_proj.weight", "kind": kind,
         "ranks": [{"rank": rank, "extents": [[0, 4]]} for rank in ranks]}
        for layer, ranks in enumerate(places) for kind in ("parameter", "adam_m")]}


class Holders(unittest.TestCase):
    def fails(self, words, places, plan=PLAN, layers=3):
        with self.assertRaisesRegex(Failed, words):
            messages.require_partition(layout(places), layers, plan)

    def test_partition(self):
        messages.require_partition(layout([[0], [0], [1]]), 3, PLAN)
        messages.require_partition(layout([[0, 1], [0, 1], [2, 3]]), 3, {**PLAN, "tp": 2})
        messages.require_partition(layout([[0], [1], [0], [1]]), 4, {**PLAN, "vpp": 2})
        self.fails("layer 1 of 3 is on stages", [[0], [0, 1], [1]])
        self.fails(r"\[2\] are not where", [[0], [1]])
        self.fails("not their order", [[0], [1], [0]])
        self.fails(r"stages \[0\] of 2", [[0], [0], [0]])

    def test_copies(self):
        class Answers:
            def layout(self, plan):
                return layout([[0, 1]])

        entry = {"params": "up_proj", "count": 2}
        messages.parameter_copies(Answers(), entry, PLAN)
        with self.assertRaisesRegex(Failed, "held 2 times, expected 1"):
            messages.parameter_copies(Answers(), {**entry, "count": 1}, PLAN)


if __name__ == "__main__":
    unittest.main()
