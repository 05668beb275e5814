// id: X-14
// name: New mount API
// group: filesystem
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <fcntl.h>

int main(void)
{
    char attr[32] = {0};
    FILTERED("open_tree", syscall(428, AT_FDCWD, "/", O_CLOEXEC));
    FILTERED("open_tree clone", syscall(428, AT_FDCWD, "/", 1 | O_CLOEXEC));
    FILTERED("move_mount", syscall(429, -1, "", AT_FDCWD, "/box", 4));
    FILTERED("fsopen tmpfs", syscall(430, "tmpfs", 0));
    FILTERED("fsopen bad", syscall(430, 1L, 0));
    FILTERED("fsconfig", syscall(431, -1, 0, 0L, 0L, 0));
    FILTERED("fsmount", syscall(432, -1, 0, 0));
    FILTERED("fspick", syscall(433, AT_FDCWD, "/", 0));
    FILTERED("mount_setattr", syscall(442, AT_FDCWD, "/", 0, attr, sizeof attr));
    FILTERED("statmount", syscall(457, 1L, 1L, 0L, 0));
    FILTERED("listmount", syscall(458, 1L, 1L, 0L, 0));
    FILTERED("open_tree_attr", syscall(467, AT_FDCWD, "/", 1, attr, sizeof attr));
    return done();
}
