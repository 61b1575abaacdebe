"""The same seed gives the same trace: twice in a row, and whatever compiler built the program.

traces.txt holds the hash over the traces of the first seeds; every build must come to it. A change of the protocol, of
a scenario or of the simulator changes it: `traces_test.py PROGRAM --update` writes it anew.
"""
import pathlib
import subprocess
import sys

KEPT = pathlib.Path(__file__).with_name("traces.txt")
SEEDS = "40"


def traces(program, jobs):
    run = subprocess.run([program, "--seeds", SEEDS, "--hashes", "--jobs", jobs], check=True, capture_output=True,
                         text=True, timeout=300)
    return run.stdout.splitlines()[-1]


def main():
    first = traces(sys.argv[1], "2")
    second = traces(sys.argv[1], "1")
    if first != second:
        sys.exit(f"one seed, two traces: {first}, then {second}")
    if "--update" in sys.argv:
        KEPT.write_text(first + "\n")
    if KEPT.read_text().strip() != first:
        sys.exit(f"{first}, but traces.txt has {KEPT.read_text().strip()}: another compiler gave another trace, or "
                 "what is simulated has changed (then: traces_test.py PROGRAM --update)")
    print(first)


main()
