/* SPDX-License-Identifier: Apache-2.0 */

/* Namespaces, and which one we are in.
 *
 * A kit needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE over the user namespace that
 * owns the network namespace. Root of the host has them. Root of a container often has not, in
 * its own user namespace; but a process that makes a user namespace has every capability in it,
 * seen from its parent. So there a namespace is made by a child in a user namespace of its own,
 * and we enter it from outside. The namespaces of boxes belong to user namespaces that the
 * spawner or a zygote of it made, so we may enter these, too. */

#include "kit/kit.h"

#include "base/cleanup.h"
#include "base/os/netns.h"
#include "base/os/sys.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int home_fd = -1;
static ino_t host;       /* the namespace that we were started in */
static bool needs_owner; /* namespaces of our own user namespace are of no use */

int place_enter(int fd)
{
    return setns(fd, CLONE_NEWNET) < 0 ? -errno : 0;
}

static int find_own(ino_t *ret)
{
    struct stat st;
    if (stat("/proc/self/ns/net", &st) < 0)
        return -errno;
    *ret = st.st_ino;
    return 0;
}

int place_enter_box(int fd)
{
    ino_t own = 0;
    int r = place_enter(fd);
    if (r == 0)
        r = find_own(&own);
    return r == 0 && own == host ? -EPERM : r;
}

int place_leave(void)
{
    return place_enter(home_fd);
}

int place_begin(void)
{
    int r = find_own(&host);
    if (r < 0)
        return r;
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    home_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home_fd < 0)
        return -errno;
    r = place_leave(); /* whether we can come back */
    needs_owner = r == 0 && netns_raise_loopback() == -EPERM;
    return r;
}

/* Enters the network namespace of a child that has user and network namespaces of its own. The
 * child ends; what it made lives on in the network namespace. */
static int enter_owned(void)
{
    cleanup_close int pidfd = -1;
    struct sys_clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWNET | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)&pidfd,
        .exit_signal = SIGCHLD};
    pid_t self = getpid();
    int pid = sys_clone3(&args);
    if (pid == 0) {
        if (sys_die_with(self) < 0 || sys_close_range(0, ~0u, 0) < 0)
            _exit(1);
        for (;;)
            (void)pause();
    }
    if (pid < 0)
        return pid;
    int r = place_enter(pidfd);
    (void)sys_pidfd_send_signal(pidfd, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r;
}

int place_make(enum kit_part *ret_part)
{
    *ret_part = PART_NAMESPACE;
    int r = fault_error(PART_NAMESPACE);
    if (r == 0)
        r = needs_owner ? enter_owned() : sys_result(unshare(CLONE_NEWNET));
    if (r < 0)
        return r;
    *ret_part = PART_LOOPBACK;
    if ((r = netns_raise_loopback()) < 0)
        return r;
    *ret_part = PART_NAMESPACE;
    int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}
