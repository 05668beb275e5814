// id: X-10
// name: Writing to one's own /proc entries
// group: filesystem
// priority: 1
// expect: ok
// control: pidns_proc,landlock
// files: probe.h
#include "probe.h"
#include <fcntl.h>

int main(void)
{
    const char *files[] = {"uid_map", "gid_map", "projid_map", "setgroups", "attr/exec",
        "attr/current", "mem", "clear_refs", "loginuid", "oom_adj", "oom_score_adj", "autogroup",
        "timens_offsets", "make-it-fail", "sched", "comm", "coredump_filter", "timerslack_ns",
        "net/dev", "task/../comm"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[96];
        snprintf(path, sizeof path, "/proc/self/%s", files[i]);
        REFUSED(path, open(path, O_WRONLY), EROFS, EACCES, EPERM, ENOENT);
        snprintf(path, sizeof path, "/proc/thread-self/%s", files[i]);
        REFUSED(path, open(path, O_RDWR), EROFS, EACCES, EPERM, ENOENT);
    }
    return done();
}
