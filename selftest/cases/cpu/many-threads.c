// id: O-31
// name: Many threads
// group: cpu
// priority: 1
// expect: time_limit
// expect-hit: cpu
// limits: processes=80 cpus=1 cpu_ms=2000
// control: cpu
// needs-cgroup: yes
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile int resting;

static void *spin(void *arg)
{
    for (volatile unsigned long i = 0;; i++)
        if (resting)
            usleep(10000);
    return arg;
}

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The quota is one core. 250 ms hold at most 300 ms of quota (periods are 100 ms), so that 1.2 is
 * fair; without the quota a host with two idle cores gives 2. The control rests in between, to meet
 * a moment in which no other process wants the second core. */
int main(void)
{
    pthread_t t;
    int threads = 0;
    while (threads < 64 && pthread_create(&t, NULL, spin, NULL) == 0)
        threads++;
    printf("threads: %d\n", threads);
    for (;;) {
        double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
        usleep(250000);
        wall = now(CLOCK_MONOTONIC) - wall;
        cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        printf("%s: %.2f cores\n", cpu / wall > 1.5 ? "BREACH" : "blocked", cpu / wall);
        fflush(stdout);
        if (getenv("CONTROL")) {
            resting = 1;
            usleep(700000);
            resting = 0;
        }
    }
}
