#!/usr/bin/env python3
"""Tests of what the case runner makes of files itself: headers with something missing, conditions around collectives,
documents from a stream."""

import pathlib
import random
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import data  # noqa: E402
import resuming  # noqa: E402
import tensors  # noqa: E402
from outcome import Failed, Missing  # noqa: E402

NAMES = ["model.layers.1.w", "model.layers.3.a", "model.layers.3.b", "model.layers.30.a"]


class FakeRun:
    def __init__(self, losses, first=1):
        self.losses, self.first, self.saved = losses, first, None

    def log(self):
        return [{"step": self.first + i, "loss": loss} for i, loss in enumerate(self.losses)]


class Resuming(unittest.TestCase):
    def test_a_layer_is_gone(self):
        changes = resuming.removed({"change": "layers.3 removed"}, NAMES)
        self.assertEqual(list(changes["layers.3 removed"][0]), ["model.layers.1.w", "model.layers.30.a"])
        with self.assertRaises(Missing):
            resuming.removed({"change": "layers.7 removed"}, NAMES)
        with self.assertRaises(Missing):
            resuming.removed({"change": "everything upside down"}, NAMES)

    def test_one_tensor_is_gone_or_twice(self):
        changes = resuming.removed({"change": "one tensor removed or renamed to an existing name"}, NAMES)
        (gone, mention), (twice, _) = changes.values()
        self.assertEqual((set(NAMES) - set(gone), mention), ({NAMES[0]}, [NAMES[0]]))
        self.assertEqual(sorted(twice.values()).count(NAMES[1]), 2)

    def test_files_are_written_anew(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder) / "source", pathlib.Path(folder) / "target"
            tensors.write(source, {"a": ("F32", (2,), [1, 2]), "b": ("F32", (1,), [3]), "c": ("I32", (1,), [4])})
            resuming.rewritten(source, target, {"c": "c", "a": "z"})
            self.assertEqual({name: list(values) for name, (_, values) in tensors.read(target).items()},
                             {"c": [4], "z": [1, 2]})
            resuming.rewritten(source, target, {"a": "a", "b": "a"})
            content = target.read_bytes()
            self.assertEqual(content.count(b'"a":'), 2)
            self.assertEqual(resuming.data_of(source)[1], source.read_bytes()[-16:])

    def test_conditions_are_seen(self):
        text = """void f() {
  for (int i = 0; i < n; ++i) { if (rank == 0) { g(); } heddle_rt_all_reduce(a); }
  if (rank == 0)
    heddle_rt_all_gather(b);
  if (stage.rank > 1) { while (x) { heddle_rt_reduce_scatter(c); } }
  heddle_rt_all_reduce(d);
}"""
        found = [bool(any("rank" in condition for condition in resuming.branches_around(text, call.start())))
                 for call in resuming.COLLECTIVE.finditer(text)]
        self.assertEqual(found, [False, True, True, False])

    def test_losses_are_compared(self):
        with self.assertRaises(Failed):
            resuming.compare(FakeRun([1, 2, 3, 4]), FakeRun([3, 4.1], 3), 2, 4, 1e-3)
        with self.assertRaises(Failed):
            resuming.compare(FakeRun([1, 2, 3, 4]), FakeRun([4], 4), 2, 4, 1e-3)
        with self.assertRaises(Failed):
            resuming.compare(FakeRun([1, 2, 3, 4]), FakeRun([3, float("nan")], 3), 2, 4, 1e-3)

    def test_documents_fill_their_rows(self):
        rng, batch = random.Random(1), {"seq_len": 32, "sequences": 2, "token_mask": data.PACKED}
        for _ in range(100):
            lengths = data.drawn_lengths(32, rng)
            self.assertTrue(sum(lengths) == 32 and min(lengths) > 0)
        rows = data.make_batch(batch, 50, 6, 3)
        self.assertEqual(len(rows["documents"]), 12)
        self.assertGreater(len({str(row) for row in rows["documents"]}), 6)
        for documents, labels in zip(rows["documents"], rows["labels"]):
            for i, label in enumerate(labels):
                inside = i + 1 < 32 and documents[i] == documents[i + 1]
                self.assertEqual(label != data.IGNORED, inside)

    def test_weights_say_their_layer(self):
        made = data.layer_indices({"model.layers.2.x": [2], "transformer.h.11.y": [1, 1], "lm_head.weight": [3]})
        self.assertEqual([values for _, _, values in made.values()], [[2.0, 2.0], [11.0], [0.0, 0.0, 0.0]])


if __name__ == "__main__":
    unittest.main()
