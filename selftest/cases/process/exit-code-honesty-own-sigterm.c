// id: X-27
// name: Exit-code honesty, own SIGTERM
// group: process
// priority: 2
// expect: signaled
// expect-signal: SIGTERM
// expect-not-hit: wall, cpu, memory
// control: none
// control-why: about the truth of the verdict, not about a barrier
#include <signal.h>
#include <unistd.h>

int main(void)
{
    raise(SIGTERM);
    return 0;
}
