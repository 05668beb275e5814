// id: X-24
// name: Exit-code honesty, exit status 125
// group: process
// priority: 2
// expect: runtime_error
// expect-exit: 125
// expect-not-hit: wall, cpu, memory
// control: none
// control-why: about the truth of the verdict, not about a barrier
#include <signal.h>
#include <unistd.h>

int main(void)
{
    _exit(125);
    return 0;
}
