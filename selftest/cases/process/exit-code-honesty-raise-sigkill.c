// id: O-22b
// name: Exit-code honesty, raise(SIGKILL)
// group: process
// priority: 1
// expect: signaled
// expect-signal: SIGKILL
// expect-not-hit: wall, cpu, memory
// control: none
// control-why: about the truth of the verdict, not about a barrier
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    raise(SIGKILL);
    return 0;
}
