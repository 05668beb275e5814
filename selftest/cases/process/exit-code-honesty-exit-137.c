// id: O-22a
// name: Exit-code honesty, _exit(137)
// group: process
// priority: 1
// expect: runtime_error
// expect-exit: 137
// expect-not-hit: wall, cpu, memory
// control: none
// control-why: about the truth of the verdict, not about a barrier
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    _exit(137);
    return 0;
}
