#!/usr/bin/env python3
"""What is asserted of plans that `heddle plan` finds, against answers that are right or have one fault."""

import json
import pathlib
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import searched  # noqa: E402
from outcome import Failed, Missing  # noqa: E402

PLAN = {"dp": "auto", "tp": "auto", "sp": False, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "zero": 0, "microbatches": 1,
        "schedule": "none", "recompute": "none", "precision": "fp32", "devices": 4}
FINDS = {"type": "planner_finds_plan", "expr": "tp >= 2 or cp >= 2 or recompute"}


def answer(**choices):
    found = {"pp": "1", "dp": "2", "cp": "1", "tp": "2", "recompute": "none", **choices}
    return {"fits": True, "plans": [{"text": "a plan", "choices": found, "plan": found, "not_compiled_yet": [],
                                     "memory": {"model_state_bytes": 900, "by_reason": {"workspaces of libraries": 100}}}]}


class Program:
    """Stands in for heddle.Heddle: `answers` to searches, one after the other, the last again."""

    program = "heddle"

    def __init__(self, *answers, equal=True, emitted=("same", "same")):
        self.answers, self.equal, self.emitted = list(answers), equal, list(emitted)
        self.commands = []

    def run(self, command, timeout=None):
        self.commands.append([str(word) for word in command])
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if found is None:
            return 1, "", "error: no plan fits"
        if "-o" in command:
            pathlib.Path(command[command.index("-o") + 1]).write_text(json.dumps(found["plans"][0]["plan"]))
        return 0, json.dumps(found), ""

    def compile(self, config, plan, train, cluster, folder):
        (folder / "program").mkdir(parents=True)
        text = self.emitted.pop(0)
        for name in searched.EMITTED:
            (folder / "program" / name).write_text(text)

    def answer(self, arguments, timeout=None):
        return {"equal": self.equal, "loss": {}}


class Searched(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def case(self, program):
        def write(name, text):
            path = self.folder / name
            path.write_text(text)
            return path
        config = {"intermediate_size": 64}
        return types.SimpleNamespace(
            heddle=program, folder=self.folder, source=HERE, plan=PLAN, train={"optimizer": "sgd", "lr": 0.1},
            batch={"seq_len": 16, "sequences": 8}, write=write, config=lambda: config,
            config_file=lambda: write("config.json", json.dumps(config)))

    def test_what_is_free_is_not_demanded(self):
        asked = searched.demands(PLAN)
        self.assertIn("pp=1", asked)
        self.assertIn("zero=0", asked)
        self.assertFalse([each for each in asked if each.startswith(("dp=", "tp="))])
        free = searched.demands({**PLAN, "pp": "auto"})
        self.assertFalse([each for each in free if each.startswith(("pp=", "schedule=", "chunks="))])

    def test_a_plan_is_found_as_it_is_expected(self):
        self.assertEqual(searched.planner_finds_plan(self.case(Program(answer())), FINDS, PLAN), "a plan")
        for wrong in (answer(tp="1"), None):
            with self.assertRaises(Failed):
                searched.planner_finds_plan(self.case(Program(wrong)), FINDS, PLAN)
        with self.assertRaises(Missing):
            searched.planner_finds_plan(self.case(Program(answer())), {**FINDS, "expr": "tp is 2"}, PLAN)

    def test_a_limit_leaves_room_for_half_an_activation(self):
        program = Program(answer(tp="1"), answer())
        plan = {**PLAN, "host_alloc_limit_bytes": "half of the unsharded MLP activation"}
        searched.planner_finds_plan(self.case(program), FINDS, plan)
        self.assertIn("tp=1", program.commands[0])
        cluster = json.loads((self.folder / "cluster.yaml").read_text())
        self.assertEqual(cluster["device"]["memory_gib"] * 2 ** 30, 1000 + 16 * 8 // 4 * 64 * 4 // 2)

    def test_what_is_never_proposed(self):
        never = {"config": "hf_configs/llama-2-7b.json", "devices": 8, "plan": {"ep": 8}}
        searched.planner_never_proposes(self.case(Program(None, answer(ep="1"))), never, PLAN)
        for answers in ((answer(ep="8"),), (None, answer(ep="8"))):
            with self.assertRaises(Failed):
                searched.planner_never_proposes(self.case(Program(*answers)), never, PLAN)

    def test_an_exported_plan_is_the_same_again(self):
        searched.plan_export_roundtrip(self.case(Program(answer())), {}, PLAN)
        for program in (Program(answer(), answer(tp="4")), Program(answer(), equal=False), Program(None),
                        Program(answer(), emitted=("one", "other"))):
            with self.subTest(answers=program.answers), tempfile.TemporaryDirectory() as folder:
                self.folder = pathlib.Path(folder)
                with self.assertRaises(Failed):
                    searched.plan_export_roundtrip(self.case(program), {}, PLAN)


if __name__ == "__main__":
    unittest.main()
