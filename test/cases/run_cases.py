#!/usr/bin/env python3
"""Runs cases of reported faults (README.md beside this file) through the `heddle`
command line.

    run_cases.py FILE.jsonl [--only ID] [--heddle PATH] [--jobs N] [--interpret] [--keep FOLDER]

Prints a line per case: PASS, FAIL or SKIP with the reason, and a closing count.
PASS: everything that could be run as stated holds; what could not is named behind
`not checked`. SKIP: the case needs something that does not exist yet, which is
named. Exit code 1 on any FAIL, 2 on bad usage.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

import assertions
import opgraph
import planned
import searched
import translate
from case import Case
from heddle import Heddle
from outcome import Failed, Missing, Refused

HERE = pathlib.Path(__file__).resolve().parent


def judge(case, assertion):
    """("holds" | "failed" | "missing", word)."""
    plan = assertion.get("under", case.plan)
    kind = assertion["type"]
    try:
        if opgraph.is_op_graph(case.model):
            return "holds", opgraph.TABLE[kind](case, assertion)
        if kind in assertions.NOT_YET:
            raise Missing(assertions.NOT_YET[kind])
        return "holds", assertions.TABLE[kind](case, assertion, plan)
    except Failed as reason:
        return "failed", str(reason)
    except Missing as reason:
        return "missing", str(reason)
    except Refused as reason:
        if plan in case.accepted_refusals:
            return "holds", None
        return "failed", f"refused: {reason}"
    except (KeyError, TypeError, ValueError, IndexError) as error:
        return "failed", f"the case cannot be read: {type(error).__name__}: {error}"


def missing_for_case(case):
    """What the case's own model and plan need, or None."""
    try:
        if not opgraph.is_op_graph(case.model):
            if planned.is_planned_only(case):
                planned.require_plan(case.plan)
                return None
            if "*" not in case.model.get("config_ref", ""):
                case.config()
            (searched if searched.is_searched(case.plan) else translate).require_plan(case.plan)
    except Missing as reason:
        return str(reason)
    return None


def run_case(case):
    """(status, text)."""
    known = opgraph.TABLE if opgraph.is_op_graph(case.model) else {**assertions.TABLE, **assertions.NOT_YET}
    unknown = sorted({a["type"] for a in case.assertions} - known.keys())
    if unknown:
        return "SKIP", f"assertion type {', '.join(unknown)} is not known"
    # A refusal that is allowed decides what becomes of the others: it comes first.
    ordered = sorted(case.assertions, key=lambda a: a["type"] != "equal_or_reject")
    judged = [(a["type"], *judge(case, a)) for a in ordered]
    by_result = collections.defaultdict(list)
    for kind, result, word in judged:
        by_result[result].append(f"{kind}: {word}" if word else kind)
    if by_result["failed"]:
        return "FAIL", "; ".join(by_result["failed"])
    needs = missing_for_case(case)
    # That a run ends says nothing where what it was to do could not be done.
    if needs is None and not set(by_result["holds"]) - {"no_hang"} and by_result["missing"]:
        needs = ", ".join(dict.fromkeys(word for _, result, word in judged if result == "missing"))
    if needs is not None:
        held = f" ({', '.join(by_result['holds'])} holds)" if by_result["holds"] else ""
        return "SKIP", f"needs {needs}{held}"
    text = f"{len(by_result['holds'])} of {len(judged)} assertions hold"
    notes = [entry for entry in by_result["holds"] if ": " in entry]
    notes += [note for key, note in translate.GIVEN.items() if key in case.plan]
    text += f" ({'; '.join(notes)})" if notes else ""
    if by_result["missing"]:
        text += f"; not checked: {'; '.join(by_result['missing'])}"
    return "PASS", text


def usage(message):
    print(f"run_cases.py: {message}", file=sys.stderr)
    sys.exit(2)


def find_heddle(given):
    places = [given] if given else [os.environ.get("HEDDLE"), HERE.parents[1] / "build/bin/heddle", shutil.which("heddle")]
    for place in places:
        if place and pathlib.Path(place).is_file():
            return pathlib.Path(place).resolve()
    return usage(f"no heddle at {given or 'build/bin/heddle'}; give it with --heddle PATH")


def read_cases(path, only):
    cases = []
    try:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.strip():
                cases.append(json.loads(line))
                absent = {"id", "model", "plan", "batch", "check"} - cases[-1].keys()
                if absent:
                    raise ValueError(f"no {', '.join(sorted(absent))}")
    except OSError as error:
        usage(f"{path}: {error.strerror}")
    except ValueError as error:
        usage(f"{path}:{number}: {error}")
    chosen = [case for case in cases if not only or case["id"] in only]
    absent = set(only or []) - {case["id"] for case in chosen}
    if absent:
        usage(f"{path} has no case {', '.join(sorted(absent))}")
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--only", metavar="ID", action="append", help="run this case; may be repeated")
    parser.add_argument("--heddle", metavar="PATH", help="the program (default: $HEDDLE, build/bin/heddle, $PATH)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases at a time")
    parser.add_argument("--interpret", action="store_true", help="the interpreter instead of the emitted program")
    parser.add_argument("--timeout", type=float, default=300, metavar="S", help="seconds for one command")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="leave each case's files there")
    options = parser.parse_args()
    given = read_cases(options.file, options.only)
    heddle = Heddle(find_heddle(options.heddle), options.interpret, options.timeout)

    def run(entry, folder):
        begin = time.monotonic()
        place = folder / entry["id"]
        place.mkdir(parents=True, exist_ok=True)
        status, text = run_case(Case(entry, heddle, options.file.resolve().parent, place))
        return status, text, time.monotonic() - begin

    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        folder = options.keep or pathlib.Path(scratch)
        for entry, (status, text, seconds) in zip(given, pool.map(lambda entry: run(entry, folder), given)):
            counts[status] += 1
            counts["part"] += status == "PASS" and "; not checked: " in text
            print(f"{status} {entry['id']} {entry.get('title', '')} [{seconds:.1f} s]: {text}", flush=True)
    print(f"{len(given)} cases: {counts['PASS']} passed ({counts['part']} of them in part), {counts['FAIL']} failed, "
          f"{counts['SKIP']} skipped")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
