// id: X-26
// name: Exit-code honesty, own SIGSYS
// group: process
// priority: 2
// expect: signaled
// expect-signal: SIGSYS
// expect-not-hit: wall, cpu, memory
// control: none
// control-why: about the truth of the verdict, not about a barrier
#include <signal.h>
#include <unistd.h>

int main(void)
{
    raise(SIGSYS);
    return 0;
}
