# SPDX-License-Identifier: Apache-2.0
"""One program per language that does what its input says, so that one judgement has every verdict."""

KEY = "a key for the tests of judging"

PYTHON = r'''
import os, signal, sys
word = input()
if word == "right":
    print("1 2")
elif word == "wrong":
    print("1 3")
elif word == "early":
    sys.exit(0)
elif word == "spaced":
    print("1\n2")
elif word == "loop":
    while True:
        pass
elif word == "sleep":
    import time
    time.sleep(1000)
elif word == "memory":
    kept = []
    while True:
        kept.append(bytearray(b"x" * (8 << 20)))
elif word == "output":
    while True:
        print("1 2" * 1000)
elif word == "exit":
    print("1 2")
    sys.exit(3)
elif word == "signal":
    os.kill(os.getpid(), signal.SIGSEGV)
'''

CPP = r'''
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <unistd.h>
int main()
{
    std::string word;
    std::cin >> word;
    if (word == "right")
        std::cout << "1 2\n";
    else if (word == "wrong")
        std::cout << "1 3\n";
    else if (word == "early")
        return 0;
    else if (word == "spaced")
        std::cout << "1\n2\n";
    else if (word == "loop")
        for (volatile long i = 0;; i = i + 1)
            ;
    else if (word == "sleep")
        sleep(1000);
    else if (word == "memory")
        for (;;)
            memset(malloc(8 << 20), 1, 8 << 20);
    else if (word == "output")
        for (;;)
            std::cout << "1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2\n";
    else if (word == "exit") {
        std::cout << "1 2\n";
        return 3;
    } else if (word == "signal")
        raise(SIGSEGV);
}
'''

JAVA = r'''
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.*;
public class Main {
    public static void main(String[] args) throws Exception {
        String word = new Scanner(System.in).next();
        switch (word) {
        case "right": System.out.println("1 2"); break;
        case "wrong": System.out.println("1 3"); break;
        case "early": System.exit(0); break;
        case "spaced": System.out.println("1\n2"); break;
        case "loop": for (long i = 0; ; i++) if (i == -1) return;
        case "sleep": Thread.sleep(1000000); break;
        case "memory":
            // Heap and direct buffers have two thirds of the limit each.
            List<Object> kept = new ArrayList<>();
            for (int i = 0; i < 1000; i++) {
                try {
                    ByteBuffer b = ByteBuffer.allocateDirect(4 << 20);
                    for (int k = 0; k < b.capacity(); k += 1024) b.put(k, (byte) 1);
                    kept.add(b);
                } catch (OutOfMemoryError full) {
                    break;
                }
            }
            for (;;) { byte[] b = new byte[1 << 20]; Arrays.fill(b, (byte) 1); kept.add(b); }
        case "output": for (;;) System.out.println("1 2".repeat(1000));
        case "exit": System.out.println("1 2"); System.exit(3); break;
        case "signal":
            Field field = Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe");
            field.setAccessible(true);
            ((sun.misc.Unsafe) field.get(null)).putAddress(0, 1);
        }
    }
}
'''

JAVASCRIPT = r'''
const word = require("fs").readFileSync(0, "utf8").trim();
if (word === "right") console.log("1 2");
else if (word === "wrong") console.log("1 3");
else if (word === "early") process.exit(0);
else if (word === "spaced") console.log("1\n2");
else if (word === "loop") for (;;) ;
else if (word === "sleep") setTimeout(() => {}, 1000000);
else if (word === "memory") { const kept = []; for (;;) kept.push(Buffer.alloc(8 << 20, 1)); }
else if (word === "output") { const s = "1 2".repeat(1000); for (;;) require("fs").writeSync(1, s); }
else if (word === "exit") { console.log("1 2"); process.exitCode = 3; }
else if (word === "signal") process.kill(process.pid, "SIGSEGV");
'''

LANGUAGES = {"python": PYTHON, "cpp": CPP, "java": JAVA, "javascript": JAVASCRIPT}

# What the input says, and the verdict.
WORDS = [("right", "accepted"), ("wrong", "wrong_answer"), ("early", "wrong_answer"),
         ("spaced", "presentation_error"), ("loop", "time_limit"), ("sleep", "time_limit"),
         ("memory", "memory_limit"), ("output", "output_limit"), ("exit", "runtime_error"),
         ("signal", "signaled")]

# A program that does not compile; languages without a compile stage fail when they run.
BROKEN = {"python": ("def f(:\n", "runtime_error"), "cpp": ("int main( {", "compile_error"),
          "java": ("public class Main { void f( }", "compile_error"),
          "javascript": ("function (", "runtime_error")}
