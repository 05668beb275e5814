// id: X-68
// name: Asking which pages of shared files are in the host's cache
// group: tenant
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif
#define RWF_DONTCACHE 0x80

static const char *const shared[] = {"/proc/self/exe", "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/aarch64-linux-gnu/libc.so.6", "/usr/bin/env", "/usr/bin/python3", "/bin/sh"};

/* A page that is there answers its bytes, one that is not EAGAIN: both are the channel. */
static void by_nowait(const char *path)
{
    static char page[4096];
    struct iovec io = {page, sizeof page};
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return;
    if (pread(fd, page, sizeof page, 0) < 0)
        return;
    REFUSED("RWF_NOWAIT", preadv2(fd, &io, 1, 0, RWF_NOWAIT), EOPNOTSUPP);
    REFUSED("RWF_NOWAIT and more bits",
        syscall(SYS_preadv2, fd, &io, 1L, 0L, 0L, 0x100000000L | RWF_NOWAIT | 1), EOPNOTSUPP);
    REFUSED("RWF_DONTCACHE", preadv2(fd, &io, 1, 0, RWF_DONTCACHE), EOPNOTSUPP);
    close(fd);
}

/* For a file of another owner the kernel reports every page as present. */
static void by_mincore(const char *path)
{
    static unsigned char pages[1 << 16];
    struct stat st;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid == getuid())
        return;
    size_t count = ((size_t)st.st_size + 4095) / 4096, missing = 0;
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED && count < sizeof pages && mincore(at, (size_t)st.st_size, pages) == 0) {
        for (size_t i = 0; i < count; i++)
            missing += !(pages[i] & 1);
        if (missing)
            breach("mincore", path);
        else
            blocked("mincore");
    }
    close(fd);
}

int main(void)
{
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        by_nowait(shared[i]);
        by_mincore(shared[i]);
    }
    REFUSED("RWF_NOWAIT before the file is looked at", preadv2(-1, NULL, 0, 0, RWF_NOWAIT), EOPNOTSUPP);
    REFUSED("pwritev2 RWF_NOWAIT", pwritev2(-1, NULL, 0, 0, RWF_NOWAIT), EOPNOTSUPP);
    FILTERED("cachestat", syscall(451, -1, NULL, NULL, 0));
    FILTERED("io_uring", syscall(425, 1, NULL));
    return done();
}
