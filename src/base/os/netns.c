/* SPDX-License-Identifier: Apache-2.0 */

/* See netns.h. */

#include "base/os/netns.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int netns_raise_loopback(void)
{
    cleanup_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq req = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0 ? -errno : 0;
}

int netns_make(void)
{
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    int r = netns_raise_loopback();
    if (r < 0)
        return r;
    int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}
