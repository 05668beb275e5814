// id: X-08
// name: Inodes by directories, links and O_TMPFILE
// group: filesystem
// priority: 1
// expect: ok
// expect-hit: disk
// control: disk
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <sys/stat.h>

enum { TOO_MANY = 16384 };

static int make_dir(const char *path)
{
    return mkdir(path, 0700);
}

static int make_link(const char *path)
{
    return symlink("a target that is long enough not to be kept in the inode itself, whatever the "
                   "file system may be, because somebody may count only the blocks of it", path);
}

static int make_tmpfile(const char *path)
{
    char link[64];
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0)
        return -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int result = linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

static void flood(const char *what, const char *dir, int (*make)(const char *))
{
    char path[64];
    int made = 0;
    for (; made <= TOO_MANY; made++) {
        snprintf(path, sizeof path, "%s/%d", dir, made);
        if (make(path) != 0)
            break;
    }
    if (made > TOO_MANY)
        breach(what, "no end");
    else if (errno == ENOSPC || errno == EDQUOT)
        blocked(what);
    else
        breach(what, errno_name(errno));
}

int main(void)
{
    flood("mkdir", "/tmp", make_dir);
    if (control())
        return done();
    flood("symlink", "/box", make_link);
    flood("O_TMPFILE", "/dev/shm", make_tmpfile);
    return done();
}
