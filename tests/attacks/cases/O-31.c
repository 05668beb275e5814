// id: O-31
// name: Many threads
// group: cpu
// priority: 1
// expect: time_limit
// expect-hit: cpu
// limits: processes=80 cpus=1 cpu_ms=2000 wall_ms=8000
// control: cpu
// needs-cgroup: yes
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void *spin(void *arg)
{
    for (volatile unsigned long i = 0;; i++)
        ;
    return arg;
}

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The quota is one core. A window of 400 ms touches at most five periods of 100 ms, so that 1.25
 * is fair; without the quota a host with two idle cores gives 2. */
int main(void)
{
    pthread_t t;
    int threads = 0;
    while (threads < 64 && pthread_create(&t, NULL, spin, NULL) == 0)
        threads++;
    printf("threads: %d\n", threads);
    for (;;) {
        double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
        usleep(400000);
        wall = now(CLOCK_MONOTONIC) - wall;
        cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        printf("%s: %.2f cores\n", cpu / wall > 1.5 ? "BREACH" : "blocked", cpu / wall);
        fflush(stdout);
    }
}
