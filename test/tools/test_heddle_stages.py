#!/usr/bin/env python3
"""Programs with pipeline stages: who holds what, copies that stay equal. Usage: test_heddle_stages.py HEDDLE."""
import json
import os
import shutil
import sys
import unittest
import unittest.mock

from test_heddle import ADAMW, LLAMA, PLAN, TRAIN, HeddleTest, read_tensors


class Stages(HeddleTest):
    def test_files_of_a_plan_with_stages_say_who_holds_what(self):
        self.model = self.write("tied.json", {**LLAMA, "tie_word_embeddings": True})
        self.plan = self.write("stages.json", {
            **PLAN, "mesh": [["pp", 2], ["dp", 1], ["cp", 1], ["tp", 2]], "micro_batches": 4,
            "stages": {"layers": [[""], ["0..1"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"}})
        self.compile()
        holders = {tensor["name"]: [rank["rank"] for rank in tensor["ranks"]]
                   for tensor in json.loads((self.out / "layout.json").read_text())["tensors"]}
        self.assertEqual(holders["model.embed_tokens.weight"], [0, 1, 2, 3])  # a copy at either end
        self.assertEqual(holders["model.norm.weight"], [2, 3])
        self.assertEqual(holders["model.layers.1.mlp.up_proj.weight"], [2, 3])
        memory = json.loads((self.out / "memory.json").read_text())["classes"]
        self.assertEqual([(each["ranks"], each["count"]) for each in memory], [("pp=0", 2), ("pp=1", 2)])
        self.assertLess(memory[0]["arena_bytes"], memory[1]["arena_bytes"])
        # Weights that one stage or the other has written are given back to both.
        data, weights = self.folder / "data.txt", self.folder / "w.safetensors"
        data.write_text("\x01\x07\x1f" * 99)
        run = ("run", self.out, "--threads", "--data", data, "--replica-check", 1)
        self.heddle(*run, "--steps", 2, "--save", weights)
        self.assertEqual(sorted(read_tensors(weights)), sorted(holders))
        self.heddle(*run, "--steps", 1, "--weights", weights, "--check")

    def test_two_copies_of_the_model_stay_equal(self):
        """Micro-batches go in from both ends; after the first step Adam's moments and clipping differ if copies do."""
        self.train = self.write("train.yaml", {**TRAIN, "optimizer": ADAMW, "global_batch": 8})
        data, losses = self.folder / "data.txt", {}
        data.write_text("".join(chr(i * i % 37) for i in range(999)))
        layers = {"dualpipe": [["0", "1"], ["1", "0"]], "one_f_one_b": [["0"], ["1"]]}
        for schedule, held in layers.items():
            self.plan = self.write("plan.json", {
                **PLAN, "mesh": [["pp", 2], ["dp", 2], ["cp", 1], ["tp", 1]], "micro_batches": 4, "zero": {"stage": 1},
                "stages": {"layers": held, "embedding": [0, 0], "head": [1, 0], "schedule": schedule},
                "overlap": {"memory_bytes": 10**6}})
            self.out = self.folder / schedule
            self.compile()
            log = self.folder / "log.jsonl"
            self.heddle("run", self.out, "--threads", "--data", data, "--replica-check", 1, "--steps", 3, "--log", log)
            losses[schedule] = [json.loads(line) for line in log.read_text().splitlines()]
            log.unlink()
        for one, two in zip(*losses.values(), strict=True):
            self.assertAlmostEqual(one["loss"], two["loss"], delta=2e-5)
            self.assertAlmostEqual(one["gradient_norm"], two["gradient_norm"], delta=1e-4 * two["gradient_norm"])
        holders, memory = {}, {}
        for schedule in layers:
            out = self.folder / schedule
            holders[schedule] = {(tensor["name"], tensor["kind"]): [rank["rank"] for rank in tensor["ranks"]]
                                 for tensor in json.loads((out / "layout.json").read_text())["tensors"]}
            memory[schedule] = [place["by_class"]["parameters"]
                                for place in json.loads((out / "memory.json").read_text())["classes"]]
        self.assertEqual(holders["one_f_one_b"].keys(), holders["dualpipe"].keys())
        for name, ranks in holders["dualpipe"].items():
            self.assertEqual(ranks, [0, 1, 2, 3])
            self.assertIn(holders["one_f_one_b"][name], ([0, 1], [2, 3]))
        self.assertEqual(memory["dualpipe"], [sum(memory["one_f_one_b"])] * 2)

    def test_a_schedule_that_does_not_fit_the_tables_of_a_program_is_refused(self):
        """Numbers of sets have 15 bits: one micro-batch less in flight would fit."""
        self.train = self.write("train.yaml", {**TRAIN, "global_batch": 2**15 + 1})
        self.plan = self.write("plan.json", {
            **PLAN, "mesh": [["pp", 2], ["dp", 1], ["cp", 1], ["tp", 1]], "micro_batches": 2**15 + 1,
            "stages": {"layers": [["0"], ["1"]], "embedding": [0, 0], "head": [1, 0], "schedule": "gpipe"}})
        self.refuse("compile", self.model, "--cluster", self.cluster, "--train", self.train, "--plan", self.plan,
                    "-o", self.out, words=["'set' in 'sets' is 32768, the largest that fits is 32767",
                                           "use fewer micro-batches"], code=1)

    def test_replica_check_names_copies_of_other_stages(self):
        """What sums a gradient over stages is left out of the emitted text, in front of the host compiler."""
        stages = {"mesh": [["pp", 2], ["dp", 1], ["cp", 1], ["tp", 1]], "micro_batches": 4}
        tied = {"layers": [["0"], ["1"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"}
        copies = {"layers": [["0", "1"], ["1", "0"]], "embedding": [0, 0], "head": [1, 0], "schedule": "dualpipe"}
        data, compiler, left_out = self.folder / "data.txt", self.folder / "compiler", self.folder / "left_out"
        data.write_text("".join(chr(i * i % 37) for i in range(999)))
        compiler.mkdir()
        (compiler / "c++").write_text(f"""#!{sys.executable}
import os, pathlib, re, sys
for path in [pathlib.Path(word) for word in sys.argv[1:] if word.endswith(".cpp")]:
    path.write_text(re.sub(pathlib.Path({str(left_out)!r}).read_text(), "", path.read_text()))
os.execv({shutil.which('c++')!r}, [{shutil.which('c++')!r}, *sys.argv[1:]])
""")
        (compiler / "c++").chmod(0o755)
        for held, model, pattern in [
                (tied, {**LLAMA, "tie_word_embeddings": True},
                 r'TRY\(elementwise\(p\.compute, "model\.embed_tokens\.weight\.gradient"[^;]*in\(other_end\)[^;]*;'),
                (copies, LLAMA, r"TRY\(heddle_rt_all_reduce\(p\.pp_mirror[^;]*;")]:
            self.model = self.write("model.json", model)
            self.plan = self.write("plan.json", {**PLAN, **stages, "stages": held})
            left_out.write_text(pattern)
            shutil.rmtree(self.out, ignore_errors=True)
            with unittest.mock.patch.dict(os.environ, {"PATH": f"{compiler}:{os.environ['PATH']}",
                                                       "HEDDLE_CACHE": str(self.folder / "cache")}):
                self.compile()
            self.assertRegex((self.out / "program" / "step.cpp").read_text(), pattern)
            done = self.heddle("run", self.out, "--threads", "--data", data, "--replica-check", 1, "--steps", 2, code=1)
            self.assertIn("after step 1 the copies of parameter model.embed_tokens.weight on ranks 0 and 1 differ",
                          done.stderr)


if __name__ == "__main__":
    unittest.main()
