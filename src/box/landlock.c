/* SPDX-License-Identifier: Apache-2.0 */

/* See landlock.h. Below ABI 2 a ruleset would forbid renames across directories, which breaks
 * ordinary programs: there none is used and the isolation level says so. ABI 2 cannot control
 * truncation yet; ABI 3 can. */

#include "box/landlock.h"

#include "base/cleanup.h"
#include "base/os/sys.h"

#include <fcntl.h>
#include <unistd.h>

/* Rights and scopes, defined here because older kernel headers know fewer names. */
enum {
    FS_EXECUTE = 1 << 0,
    FS_WRITE_FILE = 1 << 1,
    FS_READ_FILE = 1 << 2,
    FS_READ_DIR = 1 << 3,
    FS_ABI1 = (1 << 13) - 1,
    FS_REFER = 1 << 13,
    FS_TRUNCATE = 1 << 14,
    SCOPE_ABSTRACT = 1 << 0,
    SCOPE_SIGNAL = 1 << 1,
};

/* The kernel's struct landlock_ruleset_attr of ABI 6; earlier kernels take a prefix of it. */
struct ruleset_attr {
    uint64_t fs;
    uint64_t net;
    uint64_t scoped;
};

int landlock_abi(void)
{
    int abi = sys_landlock_create(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return abi < 0 ? 0 : abi;
}

static int allow(int ruleset_fd, const char *path, uint64_t rights)
{
    cleanup_close int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
    return sys_landlock_add(ruleset_fd, LANDLOCK_RULE_PATH_BENEATH, &rule);
}

int landlock_restrict(int abi, const char *const *writable, size_t count)
{
    if (abi < LANDLOCK_LEAST_ABI)
        return 0;
    const uint64_t truncate = abi >= 3 ? FS_TRUNCATE : 0;
    const uint64_t all = FS_ABI1 | FS_REFER | truncate;
    const uint64_t look = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR;
    struct ruleset_attr attr = {.fs = all, .scoped = SCOPE_ABSTRACT | SCOPE_SIGNAL};
    cleanup_close int ruleset =
        sys_landlock_create(&attr, abi >= 6 ? sizeof(attr) : sizeof(attr.fs), 0);
    if (ruleset < 0)
        return ruleset;
    int r;
    if ((r = allow(ruleset, "/", look)) < 0 || (r = allow(ruleset, "/box", all)) < 0 ||
        (r = allow(ruleset, "/tmp", all)) < 0 || (r = allow(ruleset, "/dev/shm", all)) < 0 ||
        (r = allow(ruleset, "/dev", FS_WRITE_FILE | truncate)) < 0)
        return r;
    for (size_t i = 0; i < count; i++) {
        if ((r = allow(ruleset, writable[i], all)) < 0)
            return r;
    }
    return sys_landlock_restrict(ruleset);
}
