// id: O-27
// name: Stack overflow
// group: memory
// priority: 1
// expect: signaled
// expect-signal: SIGSEGV
// expect-not-hit: memory, wall, cpu
// control: none
// control-why: about the truth of the verdict; the stack limit cannot be left out harmlessly
#include <string.h>

static int dive(int depth)
{
    volatile char frame[4096];
    memset((void *)frame, depth, sizeof frame);
    if (depth == 0)
        return 0;
    return dive(depth + 1) + frame[depth & 4095];
}

int main(void)
{
    return dive(1);
}
