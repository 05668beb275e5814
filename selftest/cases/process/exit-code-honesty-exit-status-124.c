// id: X-25
// name: Exit-code honesty, exit status 124
// group: process
// priority: 2
// expect: runtime_error
// expect-exit: 124
// expect-not-hit: wall, cpu, memory
// control: none
// control-why: about the truth of the verdict, not about a barrier
#include <signal.h>
#include <unistd.h>

int main(void)
{
    _exit(124);
    return 0;
}
