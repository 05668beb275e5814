// id: X-07
// name: Holes, fallocate and mmap past the disk limit
// group: filesystem
// priority: 1
// expect: ok
// expect-hit: disk
// limits: memory_mb=256
// control: disk
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

/* 48 MiB in a file system of 32, in files of 4 MiB. */
int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    int i;
    for (i = 0; i < 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "/tmp/part%d", i);
        int fd = open(name, O_CREAT | O_RDWR, 0600);
        if (fd < 0 || fallocate(fd, 0, 0, 4 << 20) != 0)
            break;
        close(fd);
    }
    if (i == 12)
        breach("fallocate", "48 MiB");
    else
        blocked("fallocate");
    for (long taken = 0; taken < (1 << 20); taken += 4096) { /* the last free pages */
        static char page[4096];
        int fd = open("/tmp/rest", O_CREAT | O_WRONLY | O_APPEND, 0600);
        ssize_t n = write(fd, page, sizeof page);
        close(fd);
        if (n <= 0)
            break;
    }

    /* Files with holes are free, as long as they do not count when they are filled. */
    long long total = 0;
    for (i = 0; i < 64; i++) {
        char name[32];
        struct stat st;
        snprintf(name, sizeof name, "/box/hole%d", i);
        int fd = open(name, O_CREAT | O_RDWR, 0600);
        if (fd < 0 || ftruncate(fd, 8 << 20) != 0)
            break;
        for (off_t at = 0; at < (8 << 20); at += 4096)
            if (pwrite(fd, "x", 1, at) != 1)
                break;
        fstat(fd, &st);
        total += st.st_blocks * 512LL;
        close(fd);
        if (total > 36 << 20)
            break;
    }
    if (total > 36 << 20)
        breach("holes filled", "36 MiB");
    else
        blocked("holes filled");
    return done();
}
