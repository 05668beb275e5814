// id: X-15
// name: Namespaces in every way
// group: process
// priority: 1
// expect: ok
// control: seccomp,userns_max
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

static const struct {
    const char *name;
    unsigned long flag;
} kinds[] = {{"NEWUSER", 0x10000000}, {"NEWNS", 0x20000}, {"NEWPID", 0x20000000},
    {"NEWNET", 0x40000000}, {"NEWIPC", 0x8000000}, {"NEWUTS", 0x4000000},
    {"NEWCGROUP", 0x2000000}, {"NEWTIME", 0x80}};

/* Not the parent's business: the child of a call that got through ends at once. */
static long child_ends(long result)
{
    if (result == 0)
        _exit(0);
    int error = errno;
    if (result > 0)
        waitpid((pid_t)result, NULL, 0);
    errno = error;
    return result;
}

int main(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        unsigned long flag = kinds[i].flag;
        char what[64];
        if (flag != 0x80) {
            snprintf(what, sizeof what, "clone %s", kinds[i].name);
            FILTERED(what, child_ends(syscall(SYS_clone, flag | SIGCHLD, 0, 0, 0, 0)));
            snprintf(what, sizeof what, "clone %s with high bits", kinds[i].name);
            FILTERED(what, child_ends(syscall(SYS_clone, flag | SIGCHLD | 1UL << 40, 0, 0, 0, 0)));
            snprintf(what, sizeof what, "clone USER and %s", kinds[i].name);
            FILTERED(what,
                child_ends(syscall(SYS_clone, flag | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)));
        }
        snprintf(what, sizeof what, "clone3 %s", kinds[i].name);
        unsigned long args[8] = {flag, 0, 0, 0, SIGCHLD};
        FILTERED(what, child_ends(syscall(435, args, sizeof args)));
    }
    /* In children: what succeeds must not change the rest of the probe. */
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (fork() == 0) {
            char what[64];
            snprintf(what, sizeof what, "unshare %s", kinds[i].name);
            FILTERED(what, syscall(SYS_unshare, kinds[i].flag));
            _exit(0);
        }
        wait(NULL);
    }
    FILTERED("unshare nothing", syscall(SYS_unshare, 0));
    FILTERED("setns bad", syscall(SYS_setns, -1, 0));
    const char *names[] = {"mnt", "user", "pid", "net", "ipc", "uts", "cgroup", "time"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/1/ns/%s", names[i]);
        REFUSED(path, open(path, O_RDONLY), EACCES, EPERM, ENOENT);
        snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        int fd = open(path, O_RDONLY);
        if (fd >= 0)
            FILTERED(path, syscall(SYS_setns, fd, 0));
    }
    int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
    FILTERED("setns pidfd of init", syscall(SYS_setns, pidfd, CLONE_NEWNS));
    return done();
}
