// id: O-08
// name: Inode exhaustion
// group: filesystem
// priority: 1
// expect: ok
// expect-hit: disk
// control: disk
// files: probe.h
#include "probe.h"
#include <fcntl.h>

/* The case says 4,096 inodes; more than four times as many mean that there is no quota. */
enum { TOO_MANY = 16384 };

static void report(const char *what, long made)
{
    char text[96];
    snprintf(text, sizeof text, "%s after %ld", what, made);
    if (made > TOO_MANY)
        breach(text, errno_name(errno));
    else if (errno == ENOSPC || errno == EDQUOT)
        blocked(text);
    else
        breach(text, errno_name(errno)); /* stopped, but not by the quota */
}

int main(void)
{
    const long most = control() ? TOO_MANY + 1 : 2000000;
    const char *dirs[] = {"/box", "/tmp", "/dev/shm"};
    for (int d = 0; d < 3; d++) {
        char path[64];
        long made = 0;
        for (errno = 0; made < most; made++) {
            snprintf(path, sizeof path, "%s/f%ld", dirs[d], made);
            int fd = open(path, O_CREAT | O_WRONLY, 0600);
            if (fd < 0)
                break;
            close(fd);
        }
        report(dirs[d], made);
        if (control())
            break;
    }
    /* A link costs an entry, too: free one inode, then link. */
    unlink("/tmp/f0");
    long links = 0;
    for (errno = 0; links < (control() ? 10 : 100000); links++) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/l%ld", links);
        if (link("/tmp/f1", path) != 0)
            break;
    }
    if (!control())
        report("links", links);
    return done();
}
