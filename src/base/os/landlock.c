/* SPDX-License-Identifier: Apache-2.0 */

#include "base/os/landlock.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Landlock constants that older Linux headers lack. */
enum {
    FS_ABI1 = (1 << 13) - 1,
    FS_REFER = 1 << 13,
    FS_TRUNCATE = 1 << 14,
    NET_BIND = 1 << 0,
    NET_CONNECT = 1 << 1,
    SCOPE_SIGNAL = 1 << 1,
    FS_WRITE = FS_ABI1 & ~(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_READ),
};

struct ruleset_attr {
    uint64_t fs;
    uint64_t net;
    uint64_t scoped;
};

static int allow(int ruleset, const char *path, uint64_t access)
{
    cleanup_close int fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};
    if (fd < 0)
        return 0;
    return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0
               ? -errno
               : 0;
}

/* Of the rights in `attr`, leaves only `access` to the paths of `list`. */
static int leave(struct ruleset_attr attr, const char *const *list, uint64_t access)
{
    int abi = sys_landlock_create(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1)
        return 0; /* the system call filter of the program remains */
    size_t size = abi >= 6 ? sizeof(attr) : abi >= 4 ? 2 * sizeof(attr.fs) : sizeof(attr.fs);
    attr.fs &= ~(uint64_t)((abi < 2 ? FS_REFER : 0) | (abi < 3 ? FS_TRUNCATE : 0));
    cleanup_close int ruleset = sys_landlock_create(&attr, size, 0);
    int r = ruleset < 0 ? ruleset : 0;
    for (size_t i = 0; r == 0 && list[i]; i++)
        r = allow(ruleset, list[i], access & attr.fs);
    return r < 0 ? r : sys_landlock_restrict(ruleset);
}

int landlock_leave(const char *const *list, uint64_t access, bool may_connect)
{
    const struct ruleset_attr attr = {.fs = FS_ABI1 | FS_REFER | FS_TRUNCATE,
        .net = NET_BIND | (may_connect ? 0 : NET_CONNECT)};
    return leave(attr, list, access);
}

int landlock_leave_writing(const char *const *list)
{
    const struct ruleset_attr attr = {
        .fs = FS_WRITE | FS_REFER | FS_TRUNCATE, .scoped = SCOPE_SIGNAL};
    return leave(attr, list, attr.fs);
}
