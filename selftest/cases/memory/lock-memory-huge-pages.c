// id: O-28
// name: Lock memory, huge pages
// group: memory
// priority: 2
// expect: ok
// control: rlimits
// files: probe.h
#include "probe.h"
#include <sys/mman.h>

static char *map(size_t size, int flags)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* The descriptor alone takes nothing from the pool, a mapping does. */
static int map_huge_memfd(void)
{
    int fd = memfd_create("huge", MFD_HUGETLB);
    if (fd < 0)
        return -1;
    return mmap(NULL, 2 << 20, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0;
}

int main(void)
{
    char *small = map(1 << 20, 0), *large = map(1 << 30, 0);
    REFUSED("mlock 1 MiB", mlock(small, 1 << 20), EPERM, ENOMEM, EAGAIN, ENOSYS);
    if (control())
        return done();
    REFUSED("mlock 1 GiB", mlock(large, 1 << 30), EPERM, ENOMEM, EAGAIN, ENOSYS);
    REFUSED("mlockall", mlockall(MCL_CURRENT | MCL_FUTURE), EPERM, ENOMEM, EAGAIN, ENOSYS);
    munlockall();
    REFUSED("MAP_LOCKED", map(1 << 20, MAP_LOCKED) ? 0 : -1, EPERM, ENOMEM, EAGAIN);
    REFUSED("MAP_HUGETLB", map(2 << 20, MAP_HUGETLB) ? 0 : -1, EPERM, ENOMEM, EAGAIN, EINVAL);

    REFUSED("MFD_HUGETLB", map_huge_memfd(), EPERM, ENOMEM, EAGAIN, ENOSYS, EINVAL, ENODEV, ENOENT);
    return done();
}
