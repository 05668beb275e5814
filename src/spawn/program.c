/* SPDX-License-Identifier: Apache-2.0 */

/* See program.h. */

#include "spawn/program.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/os/sys.h"
#include "spawn/orphans.h"

#include <string.h>
#include <sys/socket.h>

enum { FIRST = 3, MAX_FDS = 32, OUT_OF_THE_WAY = 64 };

int program_open(const char *name)
{
    cleanup_free char *path = fs_beside_self(name);
    return path ? sys_result(open(path, O_PATH | O_CLOEXEC)) : -ENOENT;
}

int program_arrange_fds(const int *fds, unsigned count, unsigned cloexec_from)
{
    int high[MAX_FDS];
    if (count > MAX_FDS)
        return -E2BIG;
    for (unsigned i = 0; i < count; i++) {
        high[i] = fds[i] < 0 ? 0 : fcntl(fds[i], F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
        if (high[i] < 0)
            return -errno;
    }
    for (unsigned i = 0; i < count; i++) {
        if (dup3(high[i], FIRST + (int)i, i >= cloexec_from ? O_CLOEXEC : 0) < 0)
            return -errno;
    }
    return sys_close_range(FIRST + count, ~0u, 0);
}

int program_exec(int program_fd, const char *name, const int *fds, unsigned count)
{
    int list[MAX_FDS];
    char *argv[] = {(char *)name, NULL};
    char *env[] = {NULL};
    if (count >= MAX_FDS)
        return -E2BIG;
    if (program_fd < 0) /* without it program_arrange_fds() would take /dev/null */
        return -ENOENT;
    memcpy(list, fds, sizeof(list[0]) * count);
    list[count] = program_fd;
    int r = program_arrange_fds(list, count + 1, count);
    if (r < 0)
        return r;
    return sys_result(syscall(SYS_execveat, FIRST + (int)count, "", argv, env, AT_EMPTY_PATH));
}

int program_start(int program_fd, const char *name, int *ret_socket)
{
    int pair[2];
    if (program_fd < 0)
        return program_fd;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    cleanup_close int ours = pair[0];
    cleanup_close int theirs = pair[1];
    pid_t self = getpid();
    int pid = sys_fork();
    if (pid == 0) {
        int r = sys_die_with(self);
        _exit(-(r < 0 ? r : program_exec(program_fd, name, &theirs, 1)) & 0x7f);
    }
    if (pid > 0)
        *ret_socket = take_fd(&ours);
    return pid;
}

void program_stop(pid_t *pid, int *socket)
{
    close_fd(socket);
    if (*pid > 0) {
        (void)kill(*pid, SIGKILL);
        orphans_expect();
    }
    *pid = 0; /* the kernel may reuse the pid soon */
}

int program_order(const void *order, size_t size)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    cleanup_close int theirs = pair[0];
    cleanup_close int ours = pair[1];
    ssize_t n = write(ours, order, size);
    return n == (ssize_t)size ? take_fd(&theirs) : n < 0 ? -errno : -EIO;
}
