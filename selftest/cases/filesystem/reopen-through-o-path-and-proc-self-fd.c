// id: X-01
// name: Reopen through O_PATH and /proc/self/fd
// group: filesystem
// priority: 1
// expect: ok
// control: mount
// files: probe.h
#include "probe.h"
#include <fcntl.h>

#define READ_ONLY EROFS, EACCES, EPERM, ENOENT, ELOOP, EBADF, EXDEV, ETXTBSY

static void reopen(const char *path)
{
    char link[64], text[128] = "";
    int fd = open(path, O_PATH);
    if (fd < 0) {
        blocked(path);
        return;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int again = open(link, O_RDONLY);
    if (again >= 0 && read(again, text, sizeof text - 1) > 0)
        breach(path, text);
    close(again);
    close(fd);
}

int main(void)
{
    reopen("/etc/hermes-canary");
    reopen(env("CANARY_FILE", "/var/tmp/none"));

    /* What may be read must not become writable on the way. */
    const char *files[] = {"/etc/passwd", "/bin/sh", "/usr/bin/env", "/lib64/ld-linux-x86-64.so.2"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const int kinds[] = {O_RDONLY, O_PATH, O_PATH | O_NOFOLLOW};
        for (int k = 0; k < 3; k++) {
            char link[64];
            int fd = open(files[i], kinds[k]);
            if (fd < 0)
                continue;
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            REFUSED(files[i], open(link, O_RDWR), READ_ONLY);
            REFUSED("truncate", truncate(link, 0), READ_ONLY, EINVAL);
            REFUSED("link by descriptor", linkat(fd, "", AT_FDCWD, "stolen", AT_EMPTY_PATH),
                READ_ONLY);
            REFUSED("link by /proc", linkat(AT_FDCWD, link, AT_FDCWD, "stolen", AT_SYMLINK_FOLLOW),
                READ_ONLY);
            close(fd);
        }
    }
    int root = open("/", O_PATH | O_DIRECTORY);
    REFUSED("create in /", openat(root, "hermes-probe", O_CREAT | O_RDWR, 0600), READ_ONLY);
    REFUSED("O_TMPFILE in /", openat(root, ".", O_TMPFILE | O_RDWR, 0600), READ_ONLY, EOPNOTSUPP);
    return done();
}
