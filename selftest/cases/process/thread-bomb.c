// id: X-17
// name: Thread bomb
// group: process
// priority: 1
// expect: ok
// expect-hit: processes
// control: pids
// needs-cgroup: yes
// files: probe.h
#include "probe.h"
#include <pthread.h>

static void *wait_forever(void *arg)
{
    for (;;)
        pause();
    return arg;
}

int main(void)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 16384);
    pthread_t t;
    int count = 0;
    while (count < 90 && (errno = pthread_create(&t, &attr, wait_forever, NULL)) == 0)
        count++;
    printf("threads: %d\n", count);
    if (count > 64)
        breach("threads", "beyond the limit of 64");
    else
        blocked("pthread_create");
    puts("done");
    fflush(stdout);
    _exit(0);
}
