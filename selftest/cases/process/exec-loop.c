// id: X-20
// name: Exec loop
// group: process
// priority: 2
// expect: time_limit
// limits: wall_ms=2000 cpu_ms=1000
// control: none
// control-why: the limit is supervision, not a barrier; without it the run would not end
#include <unistd.h>

int main(void)
{
    execl("/proc/self/exe", "x", NULL);
    return 1;
}
