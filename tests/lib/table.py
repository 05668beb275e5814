# SPDX-License-Identifier: Apache-2.0
"""One entry per language: the same small programs in each.

  io        prints `args:A|B`, `env:$GREETING`, `stdin:` with newlines as commas, `text:` non-ASCII
  files     several files, the entry in a sub-directory; prints `several 42` and reads data.txt
  error     fails at run time: (code, status, exit code or signal, a word on stderr)
  broken    does not compile, and a word of the compiler's
  without   aspects of `io` that the language does not have
"""

TEXT = "žluťoučký 日本 😀"

_JS_IO = """\
const args: string[] = process.argv.slice(2);
console.log("args:" + args.join("|"));
console.log("env:" + process.env.GREETING);
console.log("stdin:" + fs.readFileSync(0, "utf8").replaceAll("\\n", ","));
console.log("text:%s");
""" % TEXT

_TS_UTIL = """\
export interface Pair { left: number; right: number }
export const add = (p: Pair): number => p.left + p.right;
"""

LANGUAGES = {
    "bash": {
        "main": "main.sh",
        "hello": "echo hello",
        "io": """\
IFS='|'
echo "args:$*"
echo "env:$GREETING"
printf 'stdin:%%s\\n' "$(tr '\\n' ',')"
echo "text:%s"
""" % TEXT,
        "files": {"app/main.sh": '. "$(dirname "$0")/util.sh"\necho "several $(add 40 2)"\ncat data.txt\n',
                  "app/util.sh": "add() { echo $(($1 + $2)); }\n"},
        "error": ("echo boom >&2; exit 7", "runtime_error", 7, "boom"),
    },
    "bun": {
        "main": "main.ts",
        "hello": 'console.log("hello");',
        "io": 'import fs from "node:fs";\n' + _JS_IO,
        "files": {"app/main.ts": 'import fs from "node:fs";\nimport { add } from "./util";\n'
                                 "console.log(`several ${add({ left: 40, right: 2 })}`);\n"
                                 'process.stdout.write(fs.readFileSync("data.txt", "utf8"));\n',
                  "app/util.ts": _TS_UTIL},
        "error": ('throw new Error("boom");', "runtime_error", 1, "boom"),
    },
    "c": {
        "main": "main.c",
        "hello": '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n',
        "io": """\
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    printf("args:");
    for (int i = 1; i < argc; i++)
        printf("%%s%%s", i > 1 ? "|" : "", argv[i]);
    printf("\\nenv:%%s\\nstdin:", getenv("GREETING"));
    for (int c; (c = getchar()) != EOF;)
        putchar(c == '\\n' ? ',' : c);
    printf("\\ntext:%s\\n");
    return 0;
}
""" % TEXT,
        "files": {"app/main.c": """\
#include "util.h"
#include <stdio.h>
int main(void)
{
    char line[64];
    FILE *f = fopen("data.txt", "r");
    printf("several %d\\n", add(40, 2));
    printf("%s", fgets(line, sizeof line, f));
    return 0;
}
""",
                  "app/util.c": '#include "util.h"\nint add(int a, int b) { return a + b; }\n',
                  "app/util.h": "int add(int a, int b);\n"},
        "error": ('#include <stdio.h>\nint main(void) { fputs("boom", stderr); return 3; }\n',
                  "runtime_error", 3, "boom"),
        "broken": ("int main(void) { return missing; }\n", "missing"),
    },
    "cpp": {
        "main": "main.cpp",
        "hello": '#include <iostream>\nint main() { std::cout << "hello" << std::endl; }\n',
        "io": """\
#include <bits/stdc++.h>
using namespace std;
int main(int argc, char **argv)
{
    vector<string> args(argv + 1, argv + argc);
    string joined, all((istreambuf_iterator<char>(cin)), istreambuf_iterator<char>());
    for (auto &a : args)
        joined += (joined.empty() ? "" : "|") + a;
    replace(all.begin(), all.end(), '\\n', ',');
    cout << "args:" << joined << "\\nenv:" << getenv("GREETING") << "\\nstdin:" << all
         << "\\ntext:%s" << endl;
}
""" % TEXT,
        "files": {"app/main.cpp": """\
#include "util.hpp"
#include <fstream>
#include <iostream>
int main()
{
    std::string line;
    std::ifstream in("data.txt");
    std::getline(in, line);
    std::cout << "several " << add(40, 2) << "\\n" << line << "\\n";
}
""",
                  "app/util.cc": '#include "util.hpp"\nint add(int a, int b) { return a + b; }\n',
                  "app/util.hpp": "#pragma once\nint add(int a, int b);\n"},
        "error": ('#include <stdexcept>\nint main() { throw std::runtime_error("boom"); }\n',
                  "signaled", "SIGABRT", "boom"),
        "broken": ("int main() { std::string s; }\n", "std"),
    },
    "deno": {
        "main": "main.ts",
        "hello": 'console.log("hello");',
        "io": 'import fs from "node:fs";\nimport process from "node:process";\n' + _JS_IO,
        "files": {"app/main.ts": 'import { add } from "./util.ts";\n'
                                 "console.log(`several ${add({ left: 40, right: 2 })}`);\n"
                                 'await Deno.stdout.write(Deno.readFileSync("data.txt"));\n',
                  "app/util.ts": _TS_UTIL},
        "error": ('throw new Error("boom");', "runtime_error", 1, "boom"),
    },
    "go": {
        "main": "main.go",
        "hello": 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }\n',
        "io": """\
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	fmt.Println("args:" + strings.Join(os.Args[1:], "|"))
	fmt.Println("env:" + os.Getenv("GREETING"))
	all, _ := io.ReadAll(os.Stdin)
	fmt.Println("stdin:" + strings.ReplaceAll(string(all), "\\n", ","))
	fmt.Println("text:%s")
}
""" % TEXT,
        "files": {"app/main.go": """\
package main

import (
	"box/util"
	"fmt"
	"os"
)

func main() {
	fmt.Println("several", util.Add(40, 2))
	text, _ := os.ReadFile("data.txt")
	os.Stdout.Write(text)
}
""",
                  "util/util.go": "package util\n\nfunc Add(a, b int) int { return a + b }\n"},
        "error": ('package main\n\nfunc main() { panic("boom") }\n', "runtime_error", 2, "boom"),
        "broken": ("package main\n\nfunc main() { missing() }\n", "missing"),
    },
    "java": {
        "main": "Main.java",
        "hello": 'public class Main { public static void main(String[] a) { System.out.println("hello"); } }\n',
        "io": """\
import java.nio.charset.StandardCharsets;

public class Main {
    public static void main(String[] args) throws Exception {
        System.out.println("args:" + String.join("|", args));
        System.out.println("env:" + System.getenv("GREETING"));
        String all = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        System.out.println("stdin:" + all.replace('\\n', ','));
        System.out.println("text:%s");
    }
}
""" % TEXT,
        "files": {"app/Main.java": """\
package app;

import java.nio.file.*;

public class Main {
    public static void main(String[] args) throws Exception {
        System.out.println("several " + Util.add(40, 2));
        System.out.print(Files.readString(Path.of("data.txt")));
    }
}
""",
                  "app/Util.java": "package app;\n\nclass Util { static int add(int a, int b) { return a + b; } }\n"},
        "error": ('class Main { public static void main(String[] a) { throw new RuntimeException("boom"); } }\n',
                  "runtime_error", 1, "boom"),
        "broken": ("class Main { int x = missing; }\n", "missing"),
    },
    "javascript": {
        "main": "main.js",
        "hello": 'console.log("hello");',
        "io": 'const fs = require("fs");\n' + _JS_IO.replace(": string[]", ""),
        "files": {"app/main.js": 'const { add } = require("./util");\n'
                                 "console.log(`several ${add(40, 2)}`);\n"
                                 'process.stdout.write(require("fs").readFileSync("data.txt"));\n',
                  "app/util.js": "exports.add = (a, b) => a + b;\n"},
        "error": ('throw new Error("boom");', "runtime_error", 1, "boom"),
    },
    "lua": {
        "main": "main.lua",
        "hello": 'print("hello")',
        "io": """\
print("args:" .. table.concat(arg, "|"))
print("env:" .. os.getenv("GREETING"))
print("stdin:" .. io.read("a"):gsub("\\n", ","))
print("text:%s")
""" % TEXT,
        "files": {"app/main.lua": 'package.path = "app/?.lua;" .. package.path\n'
                                  'local util = require("util")\nprint("several " .. util.add(40, 2))\n'
                                  'io.write(io.open("data.txt"):read("a"))\n',
                  "app/util.lua": "return { add = function(a, b) return a + b end }\n"},
        "error": ('error("boom")', "runtime_error", 1, "boom"),
    },
    "perl": {
        "main": "main.pl",
        "hello": 'print "hello\\n";',
        "io": """\
use strict; use warnings;
print "args:", join("|", @ARGV), "\\n";
print "env:$ENV{GREETING}\\n";
my $all = do { local $/; <STDIN> };
$all =~ tr/\\n/,/;
print "stdin:$all\\n";
print "text:%s\\n";
""" % TEXT,
        "files": {"app/main.pl": "use strict; use warnings; use FindBin; use lib $FindBin::Bin; use Util;\n"
                                 'print "several ", Util::add(40, 2), "\\n";\n'
                                 'open(my $f, "<", "data.txt") or die; print <$f>;\n',
                  "app/Util.pm": "package Util;\nsub add { return $_[0] + $_[1] }\n1;\n"},
        "error": ('$! = 0; die "boom\\n";', "runtime_error", 255, "boom"),
    },
    "php": {
        "main": "main.php",
        "hello": '<?php echo "hello\\n";',
        "io": """\
<?php
echo "args:", implode("|", array_slice($argv, 1)), "\\n";
echo "env:", getenv("GREETING"), "\\n";
echo "stdin:", str_replace("\\n", ",", stream_get_contents(STDIN)), "\\n";
echo "text:%s\\n";
""" % TEXT,
        "files": {"app/main.php": '<?php require __DIR__ . "/util.php";\necho "several ", add(40, 2), "\\n";\n'
                                  'readfile("data.txt");\n',
                  "app/util.php": "<?php function add(int $a, int $b): int { return $a + $b; }\n"},
        "error": ('<?php throw new Exception("boom");', "runtime_error", 255, "boom"),
    },
    "python": {
        "main": "main.py",
        "hello": 'print("hello")',
        "io": """\
import os, sys
print("args:" + "|".join(sys.argv[1:]))
print("env:" + os.environ["GREETING"])
print("stdin:" + sys.stdin.read().replace("\\n", ","))
print("text:%s")
""" % TEXT,
        "files": {"app/main.py": 'from util import add\nprint("several", add(40, 2))\n'
                                 'print(open("data.txt").read(), end="")\n',
                  "app/util.py": "def add(a, b):\n    return a + b\n"},
        "error": ('raise ValueError("boom")', "runtime_error", 1, "ValueError: boom"),
    },
    "r": {
        "main": "main.R",
        "hello": 'cat("hello\\n")',
        "io": """\
cat("args:", paste(commandArgs(trailingOnly = TRUE), collapse = "|"), "\\n", sep = "")
cat("env:", Sys.getenv("GREETING"), "\\n", sep = "")
lines <- readLines(file("stdin"))
cat("stdin:", paste0(lines, ",", collapse = ""), "\\n", sep = "")
cat("text:%s\\n")
""" % TEXT,
        "files": {"app/main.R": 'source("app/util.R")\ncat("several", add(40, 2), "\\n", sep = " ")\n'
                                'cat(readLines("data.txt"), sep = "\\n")\n',
                  "app/util.R": "add <- function(a, b) a + b\n"},
        "error": ('stop("boom")', "runtime_error", 1, "boom"),
    },
    "ruby": {
        "main": "main.rb",
        "hello": 'puts "hello"',
        "io": """\
puts "args:" + ARGV.join("|")
puts "env:" + ENV["GREETING"]
puts "stdin:" + STDIN.read.gsub("\\n", ",")
puts "text:%s"
""" % TEXT,
        "files": {"app/main.rb": 'require_relative "util"\nputs "several #{add(40, 2)}"\nprint File.read("data.txt")\n',
                  "app/util.rb": "def add(a, b) = a + b\n"},
        "error": ('raise "boom"', "runtime_error", 1, "boom"),
    },
    "rust": {
        "main": "main.rs",
        "hello": 'fn main() { println!("hello"); }\n',
        "io": """\
use std::io::Read;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    println!("args:{}", args.join("|"));
    println!("env:{}", std::env::var("GREETING").unwrap());
    let mut all = String::new();
    std::io::stdin().read_to_string(&mut all).unwrap();
    println!("stdin:{}", all.replace('\\n', ","));
    println!("text:%s");
}
""" % TEXT,
        "files": {"app/main.rs": "mod util;\n\nfn main() {\n    println!(\"several {}\", util::add(40, 2));\n"
                                 "    print!(\"{}\", std::fs::read_to_string(\"data.txt\").unwrap());\n}\n",
                  "app/util.rs": "pub fn add(a: i32, b: i32) -> i32 { a + b }\n"},
        "error": ('fn main() { panic!("boom"); }\n', "runtime_error", 101, "boom"),
        "broken": ("fn main() { missing(); }\n", "missing"),
    },
    "sql": {
        "main": "main.sql",
        "hello": "SELECT 'hello';",
        "io": """\
CREATE TABLE input(line TEXT);
.separator "\\037" "\\n"
.import /dev/stdin input
SELECT 'stdin:' || group_concat(line, ',') || ',' FROM input;
SELECT 'text:%s';
""" % TEXT,
        "without": ("args", "env"),
        "files": {"app/main.sql": ".read app/util.sql\nSELECT 'several ' || sum(n) FROM numbers;\n"
                                  "SELECT trim(readfile('data.txt'), char(10));\n",
                  "app/util.sql": "CREATE TABLE numbers(n); INSERT INTO numbers VALUES (40), (2);\n"},
        "error": ("SELECT * FROM boom;", "runtime_error", 1, "boom"),
    },
    "typescript": {
        "main": "main.ts",
        "hello": 'const word: string = "hello";\nconsole.log(word);',
        "io": 'import * as fs from "fs";\n' + _JS_IO,
        "files": {"app/main.ts": 'import * as fs from "fs";\nimport { add, type Pair } from "./util";\n'
                                 "const pair: Pair = { left: 40, right: 2 };\n"
                                 "console.log(`several ${add(pair)}`);\n"
                                 'process.stdout.write(fs.readFileSync("data.txt", "utf8"));\n',
                  "app/util.ts": _TS_UTIL},
        "error": ('throw new Error("boom");', "runtime_error", 1, "boom"),
        "broken": ("const x: = 1;\n", "Unexpected"),
    },
}
