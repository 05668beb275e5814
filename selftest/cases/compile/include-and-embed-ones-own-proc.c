// id: X-50
// name: Include and embed one's own /proc
// group: compile
// priority: 1
// expect: ok, compile_error
// control: none
// control-why: /proc/self is the compiler's own; what counts is that nothing of the engine is in it
#include "/proc/self/environ"
#include "/proc/self/cmdline"
#include "/proc/self/mountinfo"
#include "/proc/self/cgroup"
#if __has_include("/proc/1/environ")
#include "/proc/1/environ"
#endif
#include <stdio.h>

__asm__(".section .rodata\n"
        "start: .incbin \"/proc/self/environ\"\n"
        ".incbin \"/proc/self/maps\"\n"
        ".byte 0\n"
        "end: .text\n");
extern const char start[], end[];

int main(void)
{
    fwrite(start, 1, (size_t)(end - start), stdout); /* the harness looks for the canary */
    puts("\ndone");
}
