// id: O-22d
// name: Exit-code honesty, abort()
// group: process
// priority: 1
// expect: signaled
// expect-signal: SIGABRT
// expect-not-hit: wall, cpu, memory
// control: none
// control-why: about the truth of the verdict, not about a barrier
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    abort();
    return 0;
}
