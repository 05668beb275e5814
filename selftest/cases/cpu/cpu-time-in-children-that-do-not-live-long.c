// id: X-45
// name: CPU time in children that do not live long
// group: cpu
// priority: 1
// expect: time_limit
// expect-hit: cpu
// limits: cpu_ms=1000
// needs-cgroup: yes
// control: none
// control-why: the limit is supervision, not a barrier; without it the run would not end
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void burn(double seconds)
{
    clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
    while (clock() < end)
        ;
}

/* No process ever uses more than 50 ms; half of them are never waited for by us. */
int main(void)
{
    for (int i = 0;; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (i % 2 && fork() > 0)
                _exit(0);
            burn(0.05);
            _exit(0);
        }
        if (child > 0)
            waitpid(child, NULL, 0);
        else
            usleep(1000);
    }
}
