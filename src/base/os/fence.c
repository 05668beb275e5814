/* SPDX-License-Identifier: Apache-2.0 */

/* See fence.h. */

#include "base/os/fence.h"

#include "base/cleanup.h"
#include "base/os/sys.h"

#include <stddef.h>

/* Landlock constants that older Linux headers lack. */
enum {
    FS_ABI1 = (1 << 13) - 1,
    FS_REFER = 1 << 13,
    FS_TRUNCATE = 1 << 14,
    SCOPE_ABSTRACT_AND_SIGNAL = 3,
};

struct ruleset_attr {
    uint64_t fs;
    uint64_t net;
    uint64_t scoped;
};

/* A ruleset without a rule: what it handles is refused. */
int fence_files(uint64_t network)
{
    int abi = sys_landlock_create(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1)
        return 0;
    struct ruleset_attr attr = {
        .fs = FS_ABI1 | (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0),
        .net = abi >= 4 ? network : 0,
        .scoped = abi >= 6 ? SCOPE_ABSTRACT_AND_SIGNAL : 0};
    size_t size = abi >= 6   ? sizeof(attr)
                  : abi >= 4 ? offsetof(struct ruleset_attr, scoped)
                             : offsetof(struct ruleset_attr, net);
    cleanup_close int ruleset = sys_landlock_create(&attr, size, 0);
    return ruleset < 0 ? ruleset : sys_landlock_restrict(ruleset);
}
