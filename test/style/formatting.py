"""Fails when a file is not as clang-format-22 would write it. Usage: formatting.py ROOT.

Another version of clang-format breaks lines elsewhere, so that none is taken in its place.
"""
import os
import pathlib
import shutil
import subprocess
import sys

ROOMS = ["include", "lib", "dialects", "passes", "runtime", "tools", "test"]
SUFFIXES = (".h", ".cpp", ".c", ".cu")
PROGRAM = "clang-format-22"


def sources(root):
    return [file for room in ROOMS for file in sorted((root / room).rglob("*"))
            if file.suffix in SUFFIXES and file.is_file()]


def unformatted(root):
    """The files, relative to `root`, that clang-format would change."""
    files, runs = sources(root), []
    share = max(1, -(-len(files) // (os.cpu_count() or 1)))
    for start in range(0, len(files), share):
        command = [PROGRAM, "--dry-run", "-Werror", "--ferror-limit=1", *map(str, files[start:start + share])]
        runs.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    found = set()
    for run in runs:
        for line in run.communicate()[1].splitlines():
            if ": error: " in line:
                found.add(str(pathlib.Path(line.split(":", 1)[0]).relative_to(root)))
    return sorted(found)


if __name__ == "__main__":
    if not shutil.which(PROGRAM):
        sys.exit(f"{PROGRAM} is not on the search path; Debian's package has that name")
    bad = [f"{path}: run {PROGRAM} -i on it" for path in unformatted(pathlib.Path(sys.argv[1]))]
    print("\n".join(bad) or "all is formatted")
    sys.exit(bool(bad))
