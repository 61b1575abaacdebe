#!/usr/bin/env python3
"""Plants each kind of violation in a small tree, and expects tidy to name it; a clean tree yields nothing."""

import os
import tempfile
import unittest

import tidy

CLEAN = {
    "CMakeLists.txt": "add_subdirectory(proto)\nadd_subdirectory(client)\n",
    "proto/CMakeLists.txt": "skua_library(proto SOURCES word.cc)\nskua_test(word_test SOURCES word_test.cc)\n",
    "proto/word.h": "#pragma once\nint word();\n",
    "proto/word.cc": '#include "proto/word.h"\nint word() { return 1; }\n',
    "proto/word_test.cc": '#include "proto/word.h"\n',
    "client/CMakeLists.txt": "skua_library(client SOURCES client.cc)\n",
    "client/client.h": "#pragma once\nclass Client {\n  int word() const { return 1; }\n};\n",
    "client/client.cc": '#include "client/client.h"\n#include "proto/word.h"\n// sleep(1), std::rand() in a comment\n',
    "server/CMakeLists.txt": "skua_library(server SOURCES control_service.cc)\n",
    "server/control_service.cc": "#include <boost/asio.hpp>\n",
}


class TidyTest(unittest.TestCase):
    def findings(self, changes):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**CLEAN, **changes}.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(text)
            return tidy.check_tree(root)

    def expect(self, rule, path, text, line=None):
        found = [f for f in self.findings({path: text}) if f.rule == rule and f.path == path]
        self.assertTrue(found, f"{rule} was not found in {path}")
        if line is not None:
            self.assertIn(line, [f.line for f in found])

    def expect_none(self, path, text):
        self.assertEqual([str(f) for f in self.findings({path: text})], [])

    def test_clean_tree_has_no_findings(self):
        self.assertEqual([str(f) for f in self.findings({})], [])

    def test_upward_and_sideways_includes(self):
        self.expect("layering", "proto/word.cc", '#include "common/base/clock.h"\n', 1)
        self.expect("layering", "client/client.cc", '#include "client/client.h"\n#include "server/store.h"\n', 2)
        self.expect("layering", "server/control_service.cc", '#include "client/client.h"\n')
        self.expect("layering", "common/base/x.cc", '#include "common/transport/transport.h"\n')
        self.expect("layering", "common/control/x.cc", '#include "common/transport/transport.h"\n')
        self.expect("layering", "common/transport/tcp/x.cc", '#include "common/transport/shm/y.h"\n')
        self.expect("layering", "client/client.cc", '#include "client.h"\n')

    def test_outside_libraries(self):
        self.expect("outside", "client/client.cc", "#include <boost/asio.hpp>\n")
        self.expect("outside", "common/transport/shm/x.cc", "#include <boost/asio/ip/tcp.hpp>\n")
        self.expect("outside", "common/transport/tcp/x.cc", "#include <infiniband/verbs.h>\n")
        self.expect("outside", "server/control_service.cc", "#include <rocksdb/db.h>\n")
        self.expect("outside", "client/client.cc", "#include <CLI/CLI.hpp>\n")

    def test_banned_calls(self):
        for call in (
            "int x = std::rand();",
            "std::mt19937_64 x;",
            "auto t = std::chrono::system_clock::now();",
            "std::this_thread::sleep_for(x);",
            "usleep(5);",
            "void f() { sleep(1); }",
            "std::thread worker(f);",
            "void f() { exit(1); }",
            "void f() { std::abort(); }",
            "void f() { assert(x); }",
            "int x = atoi(y);",
            "volatile int x;",
        ):
            self.expect("banned", "proto/word.cc", '#include "proto/word.h"\n' + call + "\n", 2)

    def test_banned_calls_where_they_belong(self):
        lists = "skua_library(client SOURCES client.cc main.cc)\n"
        found = self.findings({"client/main.cc": "int main() { std::exit(1); }\n", "client/CMakeLists.txt": lists})
        self.assertEqual(found, [])
        for harmless in ("static_assert(sizeof(int) == 4);", 'auto x = "std::rand()";', "void f() { timer.sleep(1); }"):
            self.expect_none("client/client.cc", '#include "client/client.h"\n' + harmless + "\n")

    def test_lines(self):
        include = '#include "client/client.h"\n'
        self.expect("columns", "client/client.cc", include + "// " + "x" * 120 + "\n", 2)
        self.expect("tab", "client/client.cc", include + "\tint x;\n", 2)
        self.expect("unfinished", "client/client.cc", include + "// TO" + "DO: later\n", 2)
        self.expect("unfinished", "docs/x.md", "FIX" + "ME\n")
        self.expect("path", "docs/x.md", "see /wor" + "k/main/x\n")
        self.expect("path", "scripts/x", "cd /ro" + "ot\n")
        self.expect("organisation", "client/client.cc", include + "// see iss" + "ue 12\n", 2)
        self.expect("file", "client/client.cc", include + "int x;\n" * 800)
        self.expect_none("docs/x.md", "a homework/rootless path such as build/wor" + "k/x, ${dir}/wor" + "k\n")

    def test_functions(self):
        include = '#include "client/client.h"\n'
        long_body = "  step();\n" * 70
        self.expect("function", "client/client.cc", include + "void f(int a) {\n" + long_body + "}\n", 2)
        in_class = "namespace skua {\nclass C : public D<int> {\n  void f() const {\n" + long_body + "  }\n};\n}\n"
        self.expect("function", "client/client.cc", include + in_class, 4)
        self.expect("function", "scripts/x.py", "def f():\n" + "    x = 1\n" * 70)
        short = "namespace skua {\nstruct S {\n" + "  void f() {\n    x();\n  }\n" * 40 + "};\n}\n"
        self.expect_none("client/client.cc", include + short)
        self.expect_none("client/client.cc", include + "const int table[] = {\n" + "  1,\n" * 100 + "};\n")

    def test_headers(self):
        self.expect("header", "client/client.h", "// no guard\nclass Client;\n")
        self.expect("header", "client/client.h", "#pragma once\nusing namespace skua;\n", 2)

    def test_dead_files(self):
        self.expect("dead", "client/unlisted.cc", '#include "client/client.h"\n')
        self.expect("dead", "client/unused.h", "#pragma once\n")
        self.expect("dead", "tests/integration/unlisted_test.py", "x = 1\n")

    def test_allow_needs_a_reason(self):
        include = '#include "client/client.h"\n'
        allow = "  // tidy: " + "allow"
        self.expect_none("client/client.cc", include + allow + "(banned): the kernel writes it\nvolatile int x;\n")
        self.expect("banned", "client/client.cc", include + "volatile int x;" + allow + "(banned)\n")
        self.expect("allow", "client/client.cc", include + "volatile int x;" + allow + "(banned)\n")
        self.expect("banned", "client/client.cc", include + "volatile int x;" + allow + "(columns): another\n")


if __name__ == "__main__":
    unittest.main()
