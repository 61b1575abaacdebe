#!/usr/bin/env python3
"""Checks what a compiler does not: layering, banned calls, dead files, sizes, unfinished work.

    tidy.py ROOT        prints one line for each finding, and fails when there is one

A rule is switched off for one line by a comment on it or on the line above, with the reason:
    // tidy: allow(rule): why it must be so here
"""

import ast
import os
import re
import sys
from dataclasses import dataclass

CODE_FOLDERS = ("proto", "common", "client", "server", "tests", "bench")
TEXT_FOLDERS = CODE_FOLDERS + ("cmake", "scripts", "docs", "docker", ".ci", "model")
MAX_COLUMNS = 120
MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 750


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


# --- Which folder may include which ------------------------------------------------------------------------------

# The first prefix that fits a file decides; it may include its own folder and those named here.
LAYERS = (
    ("proto/", ()),
    ("common/base/", ("proto/",)),
    ("common/placement/", ("proto/", "common/base/")),
    ("common/control/", ("proto/", "common/base/")),
    ("common/transport/sim/", ("proto/", "common/")),  # its world carries the control plane as well
    ("common/transport/", ("proto/", "common/base/")),
    ("client/", ("proto/", "common/")),
    ("server/", ("proto/", "common/")),
)
# Where an outside library's headers may be included.
OUTSIDE = (
    (r"(infiniband|rdma)/", "verbs headers", (r"common/transport/verbs/",)),
    (
        r"boost/(asio|beast)",
        "Asio",
        (
            r"common/control/",
            r"common/transport/tcp/",
            r"(client|server)/(\w+/)*control_\w+\.\w+$",
            r"server/coordinator/",
            r"server/http_\w+\.\w+$",
            r"tests/",
            r"bench/",
        ),
    ),
    (
        r"rocksdb/",
        "RocksDB",
        (
            r"server/coordinator/(embedded|coordinator_test|embedded_test)\.cc$",
            r"server/snapshot(_test)?\.cc$",
            r"server/cold_\w+\.cc$",
            r"bench/peers/",
        ),
    ),
    (r"CLI/", "CLI11", (r"client/cli/arguments\.cc$", r"server/(arguments|main)\.cc$", r"bench/",
                        r"tests/sim/skua_sim\.cc$")),
)
TRANSPORT_SIBLINGS = ("verbs", "shm", "tcp", "sim")

# --- Calls that have a replacement here --------------------------------------------------------------------------

MAINS = (r"(.*/)?main\.cc$", r"bench/.*_bench\.cc$", r"bench/skua_bench\.cc$")
BANNED = (
    (
        r"std::(rand|srand|random_device|mt19937\w*|default_random_engine|minstd_rand\w*)\b|\bgetrandom\s*\(",
        "skua::Random or skua::Entropy (common/base/random.h)",
        (r"common/base/random\.\w+$",),
    ),
    (
        r"\b(system|steady|high_resolution)_clock::now\b|\b(clock_gettime|gettimeofday|std::time)\s*\("
        r"|\btime\s*\(\s*(nullptr|NULL|0)\s*\)",
        "skua::Clock (common/base/clock.h)",
        (r"common/base/clock\.cc$",),
    ),
    (
        r"\bthis_thread::sleep_(for|until)\b|\b(u|nano)sleep\s*\(|(?<![\w.>:])sleep\s*\(\s*\d|(?<!\w)::sleep\s*\(",
        "waiting for the event itself (a descriptor, a condition variable, Executor::after)",
        (),
    ),
    (
        r"\bstd::(jthread|thread)\b(?!::(id|hardware_concurrency)\b)|\bpthread_create\s*\(|\bstd::async\b",
        "an Executor that is passed in; threads are made where a process is put together",
        MAINS
        + (
            r"client/client\.cc$",
            r"client/client_core\.\w+$",
            r"common/control/asio_\w+\.\w+$",
            r"common/transport/(tcp|shm|verbs)/",
            r"server/(server|node)\.\w+$",
            r"tests/",
            r"bench/",
            r".*_test\.cc$",
        ),
    ),
    (
        r"(?<![\w.>])(std::)?(exit|_exit|quick_exit)\s*\(",
        "returning a Status to main",
        MAINS + (r"tests/", r".*_test\.cc$"),
    ),
    (
        r"(?<![\w.>])(std::)?abort\s*\(",
        "SKUA_CHECK (common/base/check.h)",
        (r"common/base/check\.cc$", r"tests/", r".*_test\.cc$"),
    ),
    (r"(?<![\w.])assert\s*\(", "SKUA_CHECK, which is on in release (common/base/check.h)", ()),
    (
        r"(?<![\w.>])(std::)?(atoi|atol|atoll|strtok|strcpy|strcat|sprintf|vsprintf|gets)\s*\(",
        "std::from_chars, fmt::format or std::string",
        (),
    ),
    (r"\bvolatile\b", "std::atomic or std::atomic_ref", ()),
    (r"\busing\s+namespace\s+std\s*;", "the names themselves", ()),
)

UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|HA" r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.}])/(wor" r"k|ro" r"ot|far" r"m|ho" r"me)(/|\b)(?!\w)")
ORGANISATION = re.compile(r"\bissues? #?\d+\b|\bGH-\d+\b", re.IGNORECASE)
ALLOW = re.compile(r"tidy: allow\((\w+)\)(?:: *(\S.*))?")


# --- Reading ------------------------------------------------------------------------------------------------------


def walk(root, folders):
    for folder in folders:
        for where, names, files in os.walk(os.path.join(root, folder)):
            names[:] = sorted(n for n in names if n not in ("build", "__pycache__", "data") and not n.startswith("."))
            for name in sorted(files):
                yield os.path.relpath(os.path.join(where, name), root)
    for name in sorted(os.listdir(root)):
        if os.path.isfile(os.path.join(root, name)) and not name.startswith(".git"):
            yield name


def is_text(path):
    name = os.path.basename(path)
    suffix = os.path.splitext(name)[1]
    known = (".h", ".cc", ".py", ".sh", ".md", ".cmake", ".txt", ".proto", ".json", ".toml", ".yml", "")
    return suffix in known and "golden" not in path


def is_cpp(path):
    return path.endswith((".h", ".cc"))


def blank_comments_and_strings(text):
    """The same text, same offsets, with what is not code replaced by blanks."""
    pattern = re.compile(
        r'R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|//[^\n]*|/\*.*?\*/'
        r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
        re.DOTALL,
    )
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


class Source:
    def __init__(self, root, path):
        self.path = path
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            self.text = file.read()
        self.lines = self.text.split("\n")
        self.code = blank_comments_and_strings(self.text) if is_cpp(path) else self.text

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def allowed(self, line, rule):
        for number in (line, line - 1):
            if 1 <= number <= len(self.lines):
                match = ALLOW.search(self.lines[number - 1])
                if match and match.group(1) == rule and match.group(2):
                    return True
        return False


def matches_any(path, patterns):
    return any(re.match(p, path) for p in patterns)


# --- Rules --------------------------------------------------------------------------------------------------------


def check_includes(source):
    for number, line in enumerate(source.lines, 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        quote, target = match.groups()
        for pattern, name, places in OUTSIDE:
            if re.match(pattern, target) and not matches_any(source.path, places):
                yield Finding(source.path, number, "outside", f"{name} may not be included here: {target}")
        if quote == "<":
            continue
        yield from check_layer(source.path, number, target)


def check_layer(path, number, target):
    if "/" not in target:
        yield Finding(path, number, "layering", f'name the folder: "{target}"')
        return
    for prefix, others in LAYERS:
        if not path.startswith(prefix):
            continue
        if path.endswith("_test.cc"):
            others += ("common/base/",)
        if target.startswith(CODE_FOLDERS_PREFIXES) and not target.startswith((prefix,) + others):
            yield Finding(path, number, "layering", f"{prefix} may not include {target}")
        break
    sibling = re.match(r"common/transport/(\w+)/", path)
    other = re.match(r"common/transport/(\w+)/", target)
    if sibling and other and sibling.group(1) != other.group(1) and not path.endswith("_test.cc"):
        if other.group(1) in TRANSPORT_SIBLINGS:
            yield Finding(path, number, "layering", f"transports do not know each other: {target}")


CODE_FOLDERS_PREFIXES = tuple(f + "/" for f in CODE_FOLDERS)


def check_banned(source):
    for pattern, instead, places in BANNED:
        if matches_any(source.path, places):
            continue
        for match in re.finditer(pattern, source.code):
            number = source.line_of(match.start())
            yield Finding(source.path, number, "banned", f"'{match.group(0).strip()}': use {instead}")


def check_lines(source):
    name = os.path.basename(source.path)
    limited = is_cpp(source.path) or name.endswith((".py", ".cmake", ".proto", ".sh")) or name == "CMakeLists.txt"
    for number, line in enumerate(source.lines, 1):
        if limited and len(line) > MAX_COLUMNS:
            yield Finding(source.path, number, "columns", f"{len(line)} columns, at most {MAX_COLUMNS}")
        if is_cpp(source.path) and "\t" in line:
            yield Finding(source.path, number, "tab", "a tab; indent with spaces")
        if UNFINISHED.search(line):
            yield Finding(source.path, number, "unfinished", "finish it, or leave it out")
        if MACHINE_PATH.search(line):
            yield Finding(source.path, number, "path", "a path of one machine; take it from a flag or the environment")
        if not source.path.endswith(".md") and ORGANISATION.search(line):
            yield Finding(source.path, number, "organisation", "say the reason itself, not where it was discussed")
        match = ALLOW.search(line)
        if match and not match.group(2):
            yield Finding(source.path, number, "allow", "give the reason: tidy: allow(rule): reason")
    if is_cpp(source.path) and len(source.lines) > MAX_FILE_LINES:
        yield Finding(source.path, len(source.lines), "file", f"{len(source.lines)} lines, at most {MAX_FILE_LINES}")


def check_header(source):
    if source.path.endswith(".h"):
        first = next((line for line in source.lines if line.strip()), "")
        if first.strip() != "#pragma once":
            yield Finding(source.path, 1, "header", "begins with #pragma once")
        match = re.search(r"^\s*using\s+namespace\b", source.code, re.MULTILINE)
        if match:
            yield Finding(source.path, source.line_of(match.start()), "header", "no using namespace in a header")


def cpp_functions(code):
    """(start offset, end offset) of each function's text, found by its braces."""
    open_braces = []  # kind of each open brace, and where its head began
    head_start = 0
    for match in re.finditer(r"[;{}]|^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n[^\n]*)*", code, re.MULTILINE | re.DOTALL):
        token = match.group(0)
        if token == "{":
            head = code[head_start : match.start()]
            outer = open_braces[-1][0] if open_braces else "scope"
            open_braces.append((kind_of(head, outer), head_start + len(head) - len(head.lstrip())))
        elif token == "}" and open_braces:
            kind, start = open_braces.pop()
            if kind == "function":
                yield start, match.end()
        elif token not in (";", "}"):
            if open_braces and open_braces[-1][0] != "scope":
                continue
        head_start = match.end()


def kind_of(head, outer):
    if outer != "scope":
        return "block"
    plain = re.sub(r"\balignas\s*\([^()]*\)|<[^<>]*>", " ", head)
    if re.search(r"\bnamespace\b|\bextern\s*$", plain):
        return "scope"
    if re.search(r"\b(class|struct|union|enum)\b", plain) and "(" not in plain:
        return "scope"
    return "function" if "(" in plain and not re.search(r"=\s*$", plain) else "block"


def check_functions(source):
    if is_cpp(source.path):
        spans = [(source.line_of(a), source.line_of(b)) for a, b in cpp_functions(source.code)]
    elif source.path.endswith(".py"):
        tree = ast.parse(source.text, source.path)
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        spans = [(n.lineno, n.end_lineno) for n in ast.walk(tree) if isinstance(n, kinds)]
    else:
        return
    for first, last in spans:
        if last - first + 1 > MAX_FUNCTION_LINES:
            length = last - first + 1
            yield Finding(source.path, first, "function", f"{length} lines, at most {MAX_FUNCTION_LINES}: split it")


def check_dead_files(root, sources):
    lists = {s.path: s.text for s in sources.values() if os.path.basename(s.path) == "CMakeLists.txt"}
    included = set()
    everything_else = {}
    for source in sources.values():
        included.update(re.findall(r'#\s*include\s*"([^"]+)"', source.text))
        everything_else[source.path] = source.text
    for path in sources:
        if path.endswith(".cc") or (path.startswith("tests/") and path.endswith(".py")):
            if not listed(path, lists) and not imported(path, everything_else):
                yield Finding(path, 1, "dead", "no CMakeLists.txt names it")
        elif path.endswith(".h") and path not in included:
            yield Finding(path, 1, "dead", "nothing includes it")


def listed(path, lists):
    folder = os.path.dirname(path)
    while True:
        text = lists.get(os.path.join(folder, "CMakeLists.txt") if folder else "CMakeLists.txt")
        relative = os.path.relpath(path, folder or ".")
        prefix = r"(?<![\w/.])(\$\{CMAKE_CURRENT_SOURCE_DIR\}/)?"
        if text and re.search(prefix + re.escape(relative) + r"(?![\w.])", text):
            return True
        # A list may name files without their ending, one test program each.
        stem = os.path.splitext(relative)[0]
        if text and re.search(r"foreach\([^)]*(?<![\w/.])" + re.escape(stem) + r"(?![\w.])", text):
            return True
        if not folder:
            return False
        folder = os.path.dirname(folder)


def imported(path, texts):
    if not path.endswith(".py"):
        return False
    module = re.escape(os.path.splitext(os.path.basename(path))[0])
    return any(re.search(rf"^\s*(import|from)\s+{module}\b", t, re.MULTILINE) for p, t in texts.items() if p != path)


def check_tree(root):
    sources = {path: Source(root, path) for path in walk(root, TEXT_FOLDERS) if is_text(path)}
    findings = []
    for source in sources.values():
        found = list(check_lines(source))
        if is_cpp(source.path):
            found += check_includes(source)
            found += check_banned(source)
            found += check_header(source)
        found += check_functions(source)
        findings += [f for f in found if not source.allowed(f.line, f.rule)]
    code = {p: s for p, s in sources.items() if p.startswith(CODE_FOLDERS_PREFIXES) or "/" not in p}
    findings += [f for f in check_dead_files(root, code) if not sources[f.path].allowed(1, f.rule)]
    return sorted(findings, key=lambda f: (f.path, f.line))


def main(arguments):
    if len(arguments) != 1 or not os.path.isdir(arguments[0]):
        print(__doc__, file=sys.stderr)
        return 64
    findings = check_tree(arguments[0])
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
