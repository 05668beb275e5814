// id: O-22c
// name: Exit-code honesty, raise(SIGXCPU)
// group: process
// priority: 1
// expect: signaled
// expect-signal: SIGXCPU
// expect-not-hit: wall, cpu, memory
// control: none
// control-why: about the truth of the verdict, not about a barrier
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    raise(SIGXCPU);
    return 0;
}
