// id: X-33
// name: Descriptor, inotify, epoll and timer exhaustion
// group: kernel
// priority: 1
// expect: ok
// control: rlimits
// victim: yes
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <time.h>

enum { TOO_MANY = 5000 };

static void flood(const char *what, int (*make)(void))
{
    int made = 0;
    while (made < TOO_MANY && make() >= 0)
        made++;
    printf("%s: %d, then ", what, made);
    if (made == TOO_MANY) {
        puts("");
        breach(what, "without end");
    } else {
        puts(errno_name(errno));
    }
    closefrom(3);
}

static int make_dup(void) { return dup(1); }
static int make_inotify(void) { return inotify_init1(0); }
static int make_epoll(void) { return epoll_create1(0); }
static int make_eventfd(void) { return eventfd(0, 0); }

static int make_timer(void)
{
    timer_t t;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    return timer_create(CLOCK_MONOTONIC, &event, &t);
}

static int make_pipe(void)
{
    int fds[2];
    if (pipe(fds) != 0)
        return -1;
    fcntl(fds[0], F_SETPIPE_SZ, 1 << 20);
    return 0;
}

int main(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    flood("descriptors", make_dup);
    if (control())
        return done();
    flood("inotify", make_inotify);
    flood("epoll", make_epoll);
    flood("eventfd", make_eventfd);
    flood("pipes", make_pipe);
    flood("timers", make_timer);
    return done();
}
