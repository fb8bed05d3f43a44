"""Fails when a line of a ```mlir block in a .td is in no test. Usage: examples.py ROOT."""
import pathlib
import re
import sys


def squeeze(text):
    return " ".join(text.split())


def stale(root):
    tested = squeeze(" ".join(
        line for test in sorted(root.glob("test/**/*.mlir"))
        for line in test.read_text().splitlines() if not line.lstrip().startswith("//")))
    for td in sorted(root.glob("dialects/**/*.td")) + sorted(root.glob("passes/**/*.td")):
        for block in re.findall(r"```mlir\n(.*?)```", td.read_text(), re.S):
            for line in block.splitlines():
                if line.strip() and squeeze(line) not in tested:
                    yield f"{td.relative_to(root)}: {line.strip()}"


if __name__ == "__main__":
    lines = list(stale(pathlib.Path(sys.argv[1])))
    print("\n".join(lines) or "every example is tested")
    sys.exit(bool(lines))
