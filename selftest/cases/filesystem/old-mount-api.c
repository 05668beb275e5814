// id: O-13
// name: Old mount API
// group: filesystem
// priority: 1
// expect: ok
// control: seccomp,caps,landlock
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

static char before[65536], after[65536];

static void mountinfo(char *text, size_t size)
{
    memset(text, 0, size);
    int fd = open("/proc/self/mountinfo", O_RDONLY);
    if (fd < 0)
        return;
    for (size_t len = 0; len + 1 < size;) {
        ssize_t n = read(fd, text + len, size - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
}

int main(void)
{
    mountinfo(before, sizeof before);
    mkdir("/box/m", 0700);
    FILTERED("mount tmpfs", mount("tmpfs", "/tmp", "tmpfs", 0, "size=4k"));
    FILTERED("mount proc", mount("proc", "/box/m", "proc", 0, NULL));
    FILTERED("bind /", mount("/", "/box/m", NULL, MS_BIND | MS_REC, NULL));
    FILTERED("remount /usr", mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL));
    FILTERED("remount /", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    FILTERED("propagation", mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL));
    FILTERED("mount bad pointer", mount((void *)1, (void *)1, (void *)1, 0, NULL));
    FILTERED("umount /proc", umount2("/proc", MNT_DETACH));
    FILTERED("umount /box", umount2("/box", MNT_DETACH));
    FILTERED("pivot_root", syscall(SYS_pivot_root, ".", "."));
    FILTERED("chroot", chroot("/box"));
    FILTERED("chroot nowhere", chroot("/nonexistent"));
    mountinfo(after, sizeof after);
    if (strcmp(before, after) != 0)
        breach("mountinfo", "changed");
    return done();
}
