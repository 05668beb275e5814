// id: O-12
// name: Inherited descriptors
// group: filesystem
// priority: 1
// expect: ok
// control: fds
// files: probe.h
#include "probe.h"
#include <fcntl.h>

int main(void)
{
    for (int fd = 0; fd < 4096; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            continue;
        char link[64], target[512] = "", text[600];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof target - 1) < 0)
            snprintf(target, sizeof target, "(%s)", errno_name(errno));
        snprintf(text, sizeof text, "descriptor %d %s", fd, target);
        int known = strncmp(target, "pipe:", 5) == 0 || strncmp(target, "/memfd:", 7) == 0 ||
            strcmp(target, "/dev/null") == 0;
        if (fd > 2 || !known)
            breach(text, "open");
        else
            printf("open: %s\n", text);
        if (fchdir(fd) == 0)
            breach(text, "fchdir");
    }
    return done();
}
