/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes a system call and returns its result or negative errno, without touching errno. For a
 * child that shares its parent's memory, and so also errno, while both run. */
static inline long raw_syscall3(long number, long a, long b, long c)
{
#if defined(__x86_64__)
    long r;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "0"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return r;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory", "cc");
    return x0;
#else
#error "not written for this architecture"
#endif
}
