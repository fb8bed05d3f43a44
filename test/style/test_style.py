"""The style checks find what is planted, and nothing in a tree that is right."""
import pathlib
import tempfile
import unittest

import budgets
import examples
import formatting
import layering

README = "# A room\n" + "\n".join(budgets.HEADINGS) + "\n"
RIGHT = {
    "CMakeLists.txt": "project(heddle)\n",
    "lib/Model/CMakeLists.txt": "heddle_add_library(Model)\n",
    "lib/Model/README.md": README,
    "lib/Model/Model.cpp": '#include "heddle/Support/Result.h"\nint f() { return 1; }\n',
    "dialects/Dist/DistOps.td": "```mlir\n%y = dist.slice %x\n```\n",
    "test/dialects/Dist/slice.mlir": "// CHECK: nothing\n%y   = dist.slice %x\n",
}
LONG = "int f() {\n" + "  g();\n" * 61 + "}\n"


class Planted(unittest.TestCase):
    def found(self, check, changes=()):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in {**RIGHT, **dict(changes)}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            return list(check(root))

    def test_right_tree_passes(self):
        for check in (layering.violations, examples.stale, budgets.problems, formatting.unformatted):
            self.assertEqual(self.found(check), [])

    def test_layering(self):
        for path, include in (("lib/Support/A.cpp", "heddle/Model/ModelConfig.h"),
                              ("lib/Model/A.cpp", "mlir/IR/Value.h"),
                              ("include/heddle/Model/A.h", "yaml-cpp/yaml.h"),
                              ("dialects/Dist/A.h", "dialects/Transformer/Transformer.h"),
                              ("passes/Memory/A.cpp", "passes/Sharding/Passes.h"),
                              ("runtime/train/A.cpp", "heddle/Model/ModelConfig.h")):
            bad = self.found(layering.violations, [(path, f'#include "{include}"\n')])
            self.assertEqual(len(bad), 1, path)
            self.assertIn(include, bad[0])

    def test_examples(self):
        bad = self.found(examples.stale, [("dialects/Dist/A.td", "```mlir\n%z = dist.gone %x\n```\n")])
        self.assertEqual(bad, ["dialects/Dist/A.td: %z = dist.gone %x"])
        comment = [("test/dialects/Dist/slice.mlir", "// %y = dist.slice %x\n")]
        self.assertEqual(len(self.found(examples.stale, comment)), 1)

    def test_formatting(self):
        bad = self.found(formatting.unformatted, [("lib/Model/A.cpp", "int   x;\n"), ("lib/Model/B.cpp", "int y;\n")])
        self.assertEqual(bad, ["lib/Model/A.cpp"])

    def test_budgets(self):
        note = "TO" + "DO"
        for path, text, words in (
                ("lib/Model/A.cpp", "int x;\n" * 601, "601 lines"),
                ("lib/Model/A.cpp", LONG, "A.cpp:1: a function of 63 lines"),
                ("lib/Model/A.cpp", "namespace {\n" + LONG + "} // namespace\n", "A.cpp:2: a function"),
                ("lib/Model/A.cpp", f"// {note}: later\n", "without an issue"),
                ("CMakeLists.txt", "\n" * 60, "budget below 60"),
                ("lib/Model/README.md", "# A room\n## Invariants\n", "headings"),
                ("lib/Model/README.md", README + "\n" * 100, "README.md: 106 lines"),
                ("lib/Cost/CMakeLists.txt", "", "lib/Cost/README.md: missing")):
            changes = [(path, text)] + ([("lib/Cost/A.cpp", "")] if "Cost" in path else [])
            bad = self.found(budgets.problems, changes)
            self.assertEqual(len(bad), 1, (path, bad))
            self.assertIn(words, bad[0])
        self.assertEqual(self.found(budgets.problems, [("lib/Model/A.cpp", f"// {note}(#42): later\n")]), [])


if __name__ == "__main__":
    unittest.main()
