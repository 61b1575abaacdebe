"""Runs again what once failed: every line of seeds/*.txt that is no comment holds arguments of skua-sim."""
import pathlib
import shlex
import subprocess
import sys


def main():
    failed = []
    count = 0
    for file in sorted(pathlib.Path(__file__).with_name("seeds").glob("*.txt")):
        for line in file.read_text().splitlines():
            arguments = shlex.split(line, comments=True)
            if not arguments:
                continue
            count += 1
            command = [sys.argv[1], "--trace", "60", *arguments]
            run = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if run.returncode != 0:
                failed.append(f"{file.name}: skua-sim {line}\n{run.stdout[-3000:]}{run.stderr[-2000:]}")
    print(f"{count} known seeds, {len(failed)} fail")
    if count == 0:
        sys.exit("no seed is known: seeds/*.txt is missing")
    if failed:
        sys.exit("\n".join(failed))


main()
