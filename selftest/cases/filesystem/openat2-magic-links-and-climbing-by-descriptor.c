// id: X-03
// name: openat2, magic links and climbing by descriptor
// group: filesystem
// priority: 1
// expect: ok
// control: mount
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <linux/openat2.h>

static void look(const char *what, int fd)
{
    char text[128] = "";
    if (fd < 0)
        blocked(what);
    else if (read(fd, text, sizeof text - 1) > 0)
        breach(what, text);
    close(fd);
}

int main(void)
{
    const char *canary = env("CANARY_FILE", "/etc/hermes-canary");
    const char *prefixes[] = {"/proc/self/root", "/proc/self/cwd/../..", "/proc/thread-self/root",
        "/proc/self/task/../root", "/dev/fd/../root", "/proc/1/root", "/proc/1/cwd",
        "/box/../../../..", "/dev/shm/../../.."};
    char path[4096];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        snprintf(path, sizeof path, "%s%s", prefixes[i], canary);
        look(prefixes[i], open(path, O_RDONLY));
    }

    struct open_how how = {.flags = O_RDONLY};
    int root = open("/", O_PATH), box = open("/box", O_PATH);
    look("openat2", (int)syscall(SYS_openat2, root, canary + 1, &how, sizeof how));
    how.resolve = RESOLVE_IN_ROOT;
    look("RESOLVE_IN_ROOT", (int)syscall(SYS_openat2, root, canary, &how, sizeof how));
    snprintf(path, sizeof path, "../../../../..%s", canary);
    how.resolve = 0;
    look("openat2 climb", (int)syscall(SYS_openat2, box, path, &how, sizeof how));

    /* A link whose target is the host's file, followed by the kernel for us. */
    if (symlink(canary, "link") == 0)
        look("own link", open("link", O_RDONLY));
    if (symlink("/proc/self/root", "magic") == 0) {
        snprintf(path, sizeof path, "magic/..%s", canary);
        look("own magic link", open(path, O_RDONLY));
    }
    /* Move the directory we stand in below another one, then climb. */
    if (renameat(AT_FDCWD, "/tmp/none", AT_FDCWD, "/box/none") == 0)
        breach("renameat", "of nothing");
    return done();
}
