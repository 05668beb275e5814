// id: X-09
// name: Devices
// group: filesystem
// priority: 1
// expect: ok
// control: seccomp,landlock
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define READ_ONLY EPERM, EACCES, EROFS, ENOSYS, ENOENT, EXDEV, EBUSY

int main(void)
{
    REFUSED("mknod null", mknod("n", S_IFCHR | 0666, makedev(1, 3)), EPERM, EACCES, ENOSYS);
    REFUSED("mknod mem", mknod("m", S_IFCHR | 0666, makedev(1, 1)), EPERM, EACCES, ENOSYS);
    REFUSED("mknod disk", mknod("d", S_IFBLK | 0666, makedev(254, 0)), EPERM, EACCES, ENOSYS);
    /* The one device that the kernel lets anybody make. */
    REFUSED("mknod whiteout", mknod("w", S_IFCHR | 0666, 0), EPERM, EACCES, ENOSYS);
    REFUSED("mknod in /dev", mknod("/dev/x", S_IFREG | 0666, 0), READ_ONLY);
    REFUSED("chmod /dev/null", chmod("/dev/null", 0), READ_ONLY);
    REFUSED("unlink /dev/null", unlink("/dev/null"), READ_ONLY);
    REFUSED("symlink in /dev", symlink("/box", "/dev/mine"), READ_ONLY);
    REFUSED("unlink /dev/stdin", unlink("/dev/stdin"), READ_ONLY);

    int full = open("/dev/full", O_WRONLY);
    REFUSED("/dev/full", write(full, "x", 1), ENOSPC, EACCES, EBADF);
    int random = open("/dev/urandom", O_RDWR);
    int zero[2] = {0, 0};
    REFUSED("RNDADDTOENTCNT", syscall(SYS_ioctl, random, 0x40045201, zero), EPERM, EACCES, EBADF,
        ENOTTY);
    REFUSED("RNDCLEARPOOL", syscall(SYS_ioctl, random, 0x5206, 0), EPERM, EACCES, EBADF, ENOTTY);
    return done();
}
