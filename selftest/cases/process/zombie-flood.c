// id: X-19
// name: Zombie flood
// group: process
// priority: 1
// expect: ok
// expect-hit: processes
// control: pids
// needs-cgroup: yes
// files: probe.h
#include "probe.h"
#include <signal.h>
#include <sys/wait.h>

/* Zombies of a living parent count; orphans are init's to reap and must not fill the box. */
int main(void)
{
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        if (child < 0) { /* init reaps soon */
            usleep(2000);
            continue;
        }
        if (child == 0) {
            if (fork() == 0)
                _exit(0);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    usleep(100000);
    int free_again = 0;
    pid_t children[32];
    for (; free_again < 32; free_again++) {
        children[free_again] = fork();
        if (children[free_again] < 0)
            break;
        if (children[free_again] == 0)
            for (;;)
                pause();
    }
    printf("after 300 orphans: room for %d\n", free_again);
    if (free_again < 32)
        return 1; /* orphans were not reaped */
    for (int i = 0; i < 32; i++)
        kill(children[i], SIGKILL);
    for (int i = 0; i < 32; i++)
        waitpid(children[i], NULL, 0);

    int zombies = 0;
    while (zombies < 90) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0)
            _exit(0);
        zombies++;
    }
    printf("zombies: %d\n", zombies);
    if (zombies > 64)
        breach("zombies", "beyond the limit of 64");
    else
        blocked("fork");
    return done();
}
