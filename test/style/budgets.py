"""Fails when something has grown past its budget. Usage: budgets.py ROOT.

Files of source at most 600 lines, functions in C++ about 60, the root CMakeLists.txt under 60;
no TODO without an issue's number; every room with a CMakeLists.txt and source has a README of one
page with the five headings.
"""
import pathlib
import re
import sys

FILE_LINES, FUNCTION_LINES, ROOT_LINES, README_LINES = 600, 60, 60, 100
SOURCE = (".h", ".cpp", ".c", ".cu", ".td", ".py", ".def")
ROOMS = ["include/heddle", "lib", "dialects", "passes", "runtime", "tools", "test"]
# Rooms that have a README of their own: those that hold knowledge, words, decisions or execution.
DOCUMENTED = ["lib/*", "dialects/*", "passes/*", "runtime/*"]
HEADINGS = ["## Why it exists", "## What it is not", "## Comes from, goes to", "## Invariants",
            "## Reading order"]


def sources(root):
    for room in ROOMS:
        for file in sorted((root / room).rglob("*")):
            if file.suffix in SOURCE and file.is_file():
                yield file


def long_functions(lines):
    """Start and length of each body that a top-level `{` opens, in LLVM's layout.

    There a function's body ends with `}` in its first column; what else does (namespaces, types,
    tables) is told by the line that opens it.
    """
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and line.endswith("{") and line[:1] not in ("#", "/"):
            start = (number, line)
        elif start and line.startswith("}"):
            length = number - start[0] + 1
            if line == "}" and length > FUNCTION_LINES and \
                    not re.match(r"(namespace|extern|class|struct|enum|union)\b", start[1]):
                yield start[0], length
            start = None
        elif start and re.match(r"(namespace|extern)\b", start[1]) and line and line[0] not in " \t":
            start = (number, line) if line.endswith("{") else None


def problems(root):
    for file in sources(root):
        path, lines = file.relative_to(root), file.read_text().splitlines()
        if len(lines) > FILE_LINES:
            yield f"{path}: {len(lines)} lines, budget {FILE_LINES}; split it by what it does"
        if file.name != "budgets.py":
            for number, line in enumerate(lines, 1):
                if re.search(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))", line):
                    yield f"{path}:{number}: a TODO without an issue's number"
        if file.suffix in (".cpp", ".h") and path.parts[0] != "test":
            for start, length in long_functions(lines):
                yield f"{path}:{start}: a function of {length} lines, budget {FUNCTION_LINES}"
    count = len((root / "CMakeLists.txt").read_text().splitlines())
    if count >= ROOT_LINES:
        yield f"CMakeLists.txt: {count} lines, budget below {ROOT_LINES}"
    for pattern in DOCUMENTED:
        for room in sorted(root.glob(pattern)):
            if (room / "CMakeLists.txt").is_file() and any(f.suffix in SOURCE for f in room.iterdir()):
                yield from readme_problems(root, room / "README.md")


def readme_problems(root, readme):
    path = readme.relative_to(root)
    if not readme.is_file():
        yield f"{path}: missing; one page with {', '.join(HEADINGS)}"
        return
    lines = readme.read_text().splitlines()
    found = [line.rstrip() for line in lines if line.startswith("## ")]
    if [heading for heading in found if heading in HEADINGS] != HEADINGS:
        yield f"{path}: headings {found}, expected {HEADINGS}"
    if len(lines) > README_LINES:
        yield f"{path}: {len(lines)} lines, budget {README_LINES}"


if __name__ == "__main__":
    found = list(problems(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "budgets hold")
    sys.exit(bool(found))
