/* SPDX-License-Identifier: Apache-2.0 */

/* See helper.h. */

#include "spawn/helper.h"

#include "base/sys.h"

#include <limits.h>
#include <string.h>

enum { FIRST = 3, MAX_FDS = 32, OUT_OF_THE_WAY = 64 };

int helper_open(const char *name)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n < 0)
        return -errno;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    size_t room = slash ? sizeof(path) - (size_t)(slash + 1 - path) : 0;
    if (strlen(name) >= room)
        return -ENAMETOOLONG;
    memcpy(slash + 1, name, strlen(name) + 1);
    return sys_result(open(path, O_PATH | O_CLOEXEC));
}

int helper_arrange_fds(const int *fds, unsigned count, unsigned cloexec_from)
{
    int high[MAX_FDS];
    if (count > MAX_FDS)
        return -E2BIG;
    for (unsigned i = 0; i < count; i++) {
        high[i] = fcntl(fds[i] < 0 ? 0 : fds[i], F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
        if (high[i] < 0)
            return -errno;
    }
    for (unsigned i = 0; i < count; i++) {
        if (dup3(high[i], FIRST + (int)i, i >= cloexec_from ? O_CLOEXEC : 0) < 0)
            return -errno;
    }
    return sys_close_range(FIRST + count, ~0u, 0);
}

int helper_exec(int program_fd, const char *name, const int *fds, unsigned count)
{
    int list[MAX_FDS];
    char *argv[] = {(char *)name, NULL};
    char *env[] = {NULL};
    if (count >= MAX_FDS)
        return -E2BIG;
    if (program_fd < 0) /* without it helper_arrange_fds() would take /dev/null */
        return -ENOENT;
    memcpy(list, fds, sizeof(list[0]) * count);
    list[count] = program_fd;
    int r = helper_arrange_fds(list, count + 1, count);
    if (r < 0)
        return r;
    return sys_result(syscall(SYS_execveat, FIRST + (int)count, "", argv, env, AT_EMPTY_PATH));
}
